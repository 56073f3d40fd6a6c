"""Kernels of products with packed matrices, on activations in float32."""

from __future__ import annotations

from typing import Any

from ..dtypes import f32
from ..formats import FORMATS
from ..operation import Job, Kernel, Operand, pack
from .normalize import rms_norm_step
from .tiles import Tile

GATES = {None: 0, "silu": 1, "gelu_tanh": 2}
MINIMA = ("Q4_1", "Q4_K", "Q5_K")  # kinds that subtract something from scaled codes
MATVEC_ROWS = 8  # rows of x up to which lanes go along k
LANES = 64  # of a workgroup that does

LARGE = Tile(bm=128, bn=64, bk=32, tm=8, tn=8)
SMALL = Tile(bm=32, bn=64, bk=32, tm=4, tn=8)


def ragged(kind: str, group: int, k: int) -> bool:
    """Whether groups of a scale do not divide units' halves: a scale for each element then."""
    return FORMATS[kind].grouped and group < k and group % 16 != 0


def _ragged(job: Job) -> bool:
    return ragged(job.arguments["kind"], job.arguments["group"], job.facts["k"])


def format_values(job: Job, fast_halves: bool = False) -> dict[str, Any]:
    """The template values of packed_format.wgsl."""
    made = FORMATS[job.arguments["kind"]]
    kind, quads = made.kind, made.quads
    minima = kind in MINIMA
    places = [f"first + {i}u" if i < 4 else f"first + {i - 4}u + SECOND_HALF" for i in range(quads)]

    def lines(pattern: str, indent: int = 8) -> str:
        # One for each quad of a unit.
        return "\n".join(
            " " * indent + pattern.format(i=i, at=at, half="xy"[i // 4], element=4 * i)
            for i, at in enumerate(places)
        )

    return {
        "QUADS": quads,
        "INTEGERS": made.integers,
        "GROUPED": made.grouped,
        "HALF_SCALES": kind in ("Q8_0", "Q4_0"),
        "SCALED": made.integers and not _ragged(job),
        "MINIMA": minima,
        "CONTIGUOUS": not kind.endswith("_K"),
        "SCALES": "vec4<u32>" if kind in ("Q4_K", "Q5_K") else "u32",
        "BYTES": kind in ("q8", "Q8_0"),
        "NIBBLES": kind in ("q4", "Q4_0", "Q4_1"),
        "Q4_1": kind == "Q4_1",
        "Q45_K": kind in ("Q4_K", "Q5_K"),
        "HIGH_BITS": kind == "Q5_K",
        "Q6_K": kind == "Q6_K",
        "F32": kind == "F32",
        "BF16": kind == "BF16",
        "FAST_HALVES": fast_halves and kind == "F16",  # of scales: not worth it in float32
        "FIELDS": lines("q{i}: vec4<f32>,", 4),
        "SCALED_QUADS": lines(
            "c.q{i} * f.scale.{half}" + (" - f.minimum.{half}," if minima else ",")
        ),
        "GROUPED_QUADS": lines("c.q{i} * scales_at(row, first + {element}u),"),
        "INPUT_QUADS": lines("x[{at}],"),
        "NORM_QUADS": lines("norm[{at}],"),
        "TIMES_QUADS": lines("a.q{i} * b.q{i},"),
        "SQUARES": " + ".join(f"dot(a.q{i}, a.q{i})" for i in range(quads)),
    }


def row_layout(job: Job) -> tuple[int, int, int]:
    """vec4s of codes in a row of the matrix, scales in one, elements to a scale."""
    made, k, group = FORMATS[job.arguments["kind"]], job.facts["k"], job.arguments["group"]
    return made.row_words(k) // 4, made.row_scales(k, group), group


def units(job: Job) -> int:
    """Units in a row of the matrix."""
    made = FORMATS[job.arguments["kind"]]
    return made.padded(job.facts["k"]) // (4 * made.quads)


def tensors(job: Job) -> dict[str, Operand]:
    """The operands that a call gave, by name."""
    return dict(zip(job.facts["given"], job.inputs, strict=True))


def product_params(job: Job, normalize: bool) -> bytes:
    """The parameters of packed_params.wgsl."""
    facts, given = job.facts, job.facts["given"]
    flags = ("bias" in given) + 2 * ("residual" in given) + 4 * normalize
    vectors, groups, group = row_layout(job)
    return pack(
        facts["m"],
        facts["columns"],
        facts["k"],
        facts["n"],
        vectors,
        groups,
        group,
        units(job),
        facts["padded"] // 4,
        GATES[job.arguments["gate"]],
        flags,
        float(job.arguments["eps"]),
    )


def _bound(job: Job, x: Operand) -> list[Operand]:
    """The operands of packed_params.wgsl, with x in the place of those that are not given."""
    named = tensors(job)
    matrix = [named[name] for name in ("codes", "scales") if name in named]
    rest = [named.get(name, x) for name in ("norm", "bias", "residual")]
    return [*matrix, x, *rest, job.outputs[0]]


def prepared(job: Job, fused_norm: bool = False) -> tuple[Operand, bool]:
    """Rows of x normalized and padded as the matrix's are, and whether the norm is still to do.

    Takes a step where there is something to do; kernels that can normalize say so.
    """
    named, facts = tensors(job), job.facts
    x, norm = named["x"], named.get("norm")
    k, padded = facts["k"], facts["padded"]
    if k == padded and (norm is None or fused_norm):
        return x, norm is not None
    rows = job.temporary(facts["m"] * padded, f32)
    rms_norm_step(job, x, norm, None, rows, padded, float(job.arguments["eps"]))
    return rows, False


def _matvec(job: Job, subgroup: bool, fast_halves: bool) -> None:
    four = not _one_row(job)
    rows, m = (2, 4) if four else (4, 1)
    x, normalize = prepared(job, fused_norm=True)
    element = "vec4<f32>" if four else "f32"
    names = [f"sum_{i}" for i in range(rows)]
    declare = [f"    var {name} = {element}();" for name in names]
    declare += [f"    let row_{i} = matrix_row(number, {i}u);" for i in range(rows)]
    names.append("squares")

    def lines(pattern: str, count: int = rows + 1) -> str:
        return "\n".join(pattern.format(i=i, name=names[i]) for i in range(count))

    values = {
        **format_values(job, fast_halves),
        "M": m,
        "T": element,
        "FOUR": four,
        "ROWS": rows,
        "LANES": LANES,
        "SUBGROUP": subgroup,
        "TOTALS": len(names),
        "PARTIALS": len(names) * LANES,
        "DECLARE": "\n".join(declare),
        "UNPACK": lines("        let w_{i} = packed(row_{i}, unit);", rows),
        "MULTIPLY": lines("            {name} += only(j, product(w_{i}, part, halves));", rows),
        "ADD_SUBGROUP": lines("    {name} = subgroupAdd({name});"),
        "STORE_SUBGROUP": lines("        partial[{i}u * LANES + subgroup] = {name};"),
        "STORE_LANE": lines("    partial[{i}u * LANES + lane] = {name};"),
    }
    each = rows // 2 if job.arguments["gate"] else rows
    groups = -(-job.facts["m"] // m) * -(-job.facts["columns"] // each)
    loops = -(-units(job) // LANES) * (m + 1) + 3 * LANES
    job.step("packed_matvec", values, _bound(job, x), product_params(job, normalize), groups, loops)


def _tiled(job: Job, tile: Tile, fast_halves: bool) -> None:
    x, _ = prepared(job)
    quads = FORMATS[job.arguments["kind"]].quads
    body = tile.body(True, "f32", unroll=False)
    choose = [
        f"        if (i == {row}u) {{ low = sum_{row}_0; high = sum_{row}_1; }}"
        for row in range(1, tile.tm)
    ]
    put = [f"            put((part * {quads}u + {i}u) * 4u, row, w.q{i});" for i in range(quads)]
    values = {
        **format_values(job, fast_halves),
        **tile.values(),
        "DECLARE": body["DECLARE"],
        "MULTIPLY": body["MULTIPLY"],
        "B_STRIDE": tile.bn // 4 + 1,
        "HALF_BN": tile.bn // 2,
        "ROWS_APART": tile.bm // tile.tm,
        "UNITS": 8 // quads,
        "CHOOSE": "\n".join(choose),
        "PUT": "\n".join(put),
    }
    each = tile.bn // 2 if job.arguments["gate"] else tile.bn
    groups = -(-job.facts["m"] // tile.bm) * -(-job.facts["columns"] // each)
    loads = (tile.bm + tile.bn) * 8 // tile.lanes + 2
    loops = job.facts["padded"] // tile.bk * (tile.bk + 1 + loads) + 9 * tile.tm
    job.step("packed_matmul", values, _bound(job, x), product_params(job, False), groups, loops)


def _one_row(job: Job) -> bool:
    """Whether to multiply a row at a time. Ragged groups, which are rare, share the other form."""
    return job.facts["m"] == 1 and not _ragged(job)


def _fits(job: Job, exact: bool) -> bool:
    """For activations in float32; `exact` is for drivers that lose denormals of float16."""
    right = job.arguments["activations"] == "f32"
    return right and (job.arguments["kind"] == "F16" or not exact)


def _matvec_kernel(subgroup: bool, exact: bool) -> Kernel:
    return Kernel(
        "packed_matvec" + ("_subgroup" if subgroup else "") + ("_exact" if exact else ""),
        lambda job: _matvec(job, subgroup, not exact),
        needs=frozenset({"subgroup"} if subgroup else ()),
        fits=lambda job: _fits(job, exact) and (_one_row(job) or not subgroup),
        worth=lambda job: job.facts["m"] <= MATVEC_ROWS,
    )


def _tile_kernel(name: str, tile: Tile, enough: int, exact: bool) -> Kernel:
    """The kernel of one tile, worth using where there are `enough` of them, mostly full."""

    def fits(job: Job) -> bool:
        limits = job.device.limits
        return (
            _fits(job, exact)
            and not _ragged(job)
            and limits["maxComputeInvocationsPerWorkgroup"] >= tile.lanes
            and limits["maxComputeWorkgroupStorageSize"] >= tile.memory
        )

    def worth(job: Job) -> bool:
        m, n = job.facts["m"], job.facts["n"]
        return m > MATVEC_ROWS and (
            not enough or (m >= tile.bm * 0.75 and -(-m // tile.bm) * -(-n // tile.bn) >= enough)
        )

    return Kernel(
        name + ("_exact" if exact else ""),
        lambda job: _tiled(job, tile, not exact),
        fits=fits,
        worth=worth,
    )


KERNELS = [
    _matvec_kernel(subgroup=True, exact=False),
    _tile_kernel("packed_matmul_large", LARGE, 128, exact=False),
    _tile_kernel("packed_matmul", SMALL, 0, exact=False),
    _matvec_kernel(subgroup=False, exact=False),
    _tile_kernel("packed_matmul", SMALL, 0, exact=True),
    _matvec_kernel(subgroup=False, exact=True),
]
