"""Kernels of products with packed matrices of integers, on activations rounded to int8."""

from __future__ import annotations

from typing import Any

from ..dtypes import f32
from ..formats import FORMATS
from ..operation import Job, Kernel, Operand, pack
from .packed_kernels import (
    MATVEC_ROWS,
    MINIMA,
    format_values,
    prepared,
    product_params,
    ragged,
    tensors,
    units,
)
from .tiles import Tile

# Elements of a row that a workgroup holds, and 1.5 bytes of workgroup memory for each.
WIDTHS = (4096, 16_384)
THREADS = 264 * 512  # at once: two workgroups of 512 for each core of the largest GPUs
TEAM = 32  # threads that share a pair of sums, on most devices
ROWS_AT_ONCE = 64  # of the step that rounds: threads of a workgroup
TILE = Tile(bm=64, bn=64, bk=64, tm=4, tn=8)
OFFSET = ("q4", "Q4_0", "Q6_K")  # kinds whose codes are stored with something added
STEP_WORDS = 16  # of codes along k that a step takes: two units


def _whole(job: Job) -> bool:
    """Whether the two halves of a unit lie together and share a scale."""
    kind, group = job.arguments["kind"], job.arguments["group"]
    if FORMATS[kind].grouped:
        return bool(group % 32 == 0 or group >= job.facts["k"])
    return not kind.endswith("_K") and kind not in MINIMA


def _values(job: Job, fast_halves: bool) -> dict[str, Any]:
    return {
        **format_values(job, fast_halves),
        "FAST_HALVES": fast_halves,
        "WHOLE": _whole(job),
        "PACKED_DOT": "packed-dot" in job.device.features,
    }


def _operands(job: Job, x: Operand, norm: Operand) -> list[Operand]:
    """The operands of packed_params.wgsl, with x in the place of those that are not given."""
    named = tensors(job)
    around = [named.get(name, x) for name in ("bias", "residual")]
    return [named["codes"], named["scales"], x, norm, *around, job.outputs[0]]


def _matvec(job: Job, lanes: int, subgroup: bool, fast_halves: bool) -> None:
    x, normalize = prepared(job, fused_norm=True)
    ahead = job.arguments["kind"] in ("q8", "Q8_0")  # others lose by it
    width = next(width for width in WIDTHS if job.facts["padded"] <= width)
    values = {
        **_values(job, fast_halves),
        "LANES": lanes,
        "HALVES": width // 16,
        "SUBGROUP": subgroup,
        "AHEAD": ahead,
    }
    norm = tensors(job).get("norm", x)
    m, columns = job.facts["m"], job.facts["columns"]
    pairs = columns if job.arguments["gate"] else -(-columns // 2)
    across = _workgroups(pairs, lanes // TEAM, max(1, THREADS // lanes // m), 2 if ahead else 3)
    # Subgroups have between 4 and 128 lanes.
    loops = max(
        -(-pairs // (across * lanes // size)) * (units(job) // size + 16)
        for size in (4, 8, 16, 32, 64, 128)
    )
    loops += -(-job.facts["padded"] // 32 // lanes) + 64
    params = product_params(job, normalize)
    job.step("int8_matvec", values, _operands(job, x, norm), params, (across, m, 1), loops)


def _workgroups(pairs: int, teams: int, most: int, least: int) -> int:
    """Workgroups for `pairs` that take `teams` at a time: at most so many, with equal rounds, where
    that makes at least `least` rounds. With fewer it is faster to have one round of more."""
    rounds = -(-pairs // (teams * most))
    return -(-pairs // (teams * (rounds if rounds >= least else 1)))


def _matmul(job: Job, fast_halves: bool) -> None:
    rows, _ = prepared(job)
    blocks = job.facts["m"] * job.facts["padded"] // 32
    codes, factors = job.temporary(blocks * 8, f32), job.temporary(blocks * 4, f32)
    dot = {"PACKED_DOT": "packed-dot" in job.device.features}
    groups = -(-blocks // ROWS_AT_ONCE)
    job.step("int8_rows", dot, [rows, codes, factors], pack(blocks), groups)

    whole = _whole(job)
    stride_a, stride_b = TILE.bm // 4 + 1, TILE.bn // 4 + 1
    parts = 2 if whole else 4
    choose = [
        f"        if (i == {row}u) {{ low = sum_{row}_0; high = sum_{row}_1; }}"
        for row in range(1, TILE.tm)
    ]
    put = [
        f"        tile_a[at_a + {p * stride_a + i * TILE.bm // 8}u][place_a] = a_{i}.{'xyzw'[p]};"
        for i in range(2)
        for p in range(4)
    ]
    values = {
        **_values(job, fast_halves),
        **TILE.values(),
        "DECLARE": TILE.body(True, "f32")["DECLARE"],
        "MULTIPLY": _multiply(job, parts, stride_a, stride_b),
        "PUT_A": "\n".join(put),
        "CHOOSE": "\n".join(choose),
        "A_STRIDE": stride_a,
        "B_STRIDE": stride_b,
        "A_VECTORS": STEP_WORDS * stride_a,
        "B_VECTORS": STEP_WORDS * stride_b,
        "A_FACTORS": parts * TILE.bm // 4,
        "B_FACTORS": parts * TILE.bn // 4,
        "WORDS": STEP_WORDS,
        "HALF_BN": TILE.bn // 2,
        "ROWS_APART": TILE.bm // TILE.tm,
    }
    each = TILE.bn // 2 if job.arguments["gate"] else TILE.bn
    groups = -(-job.facts["m"] // TILE.bm) * -(-job.facts["columns"] // each)
    params = product_params(job, False)
    loops = units(job) + 64
    job.step("int8_matmul", values, _operands(job, codes, factors), params, groups, loops)


def _multiply(job: Job, parts: int, stride_a: int, stride_b: int) -> str:
    """A step, unrolled: integer sums over each part that shares scales, then their scaling."""
    kind = job.arguments["kind"]
    names = [(row, vector) for row in range(TILE.tm) for vector in range(2)]
    lines = []
    for part in range(parts):
        lines.append("        {")
        lines += [f"            var i_{row}_{v} = vec4<i32>();" for row, v in names]
        for word in range(part * STEP_WORDS // parts, (part + 1) * STEP_WORDS // parts):
            lines.append("            {")
            lines.append(f"                let a = tile_a[{word * stride_a}u + thread_row];")
            for v in range(2):
                at = word * stride_b + v * TILE.bn // 8
                lines.append(f"                let b_{v} = tile_b[{at}u + thread_column];")
            for row, v in names:
                dots = ", ".join(f"dot4(a.{'xyzw'[row]}, b_{v}.{p})" for p in "xyzw")
                lines.append(f"                i_{row}_{v} += vec4<i32>({dots});")
            lines.append("            }")
        lines.append(f"            let sx = scale_a[{part * TILE.bm // 4}u + thread_row];")
        lines.append(f"            let total = sum_a[{part * TILE.bm // 4}u + thread_row];")
        for v in range(2):
            place = f"[{part * TILE.bn // 4 + v * TILE.bn // 8}u + thread_column]"
            lines.append(f"            let sw_{v} = scale_b{place};")
            if kind in MINIMA:
                lines.append(f"            let minimum_{v} = minimum_b{place};")
        for row, v in names:
            p = "xyzw"[row]
            scaled = f"vec4<f32>(i_{row}_{v}) * sx.{p}"
            if kind in OFFSET:
                scaled = f"fma(vec4<f32>(i_{row}_{v}), vec4<f32>(sx.{p}), vec4<f32>(total.{p}))"
            lines.append(f"            sum_{row}_{v} = fma({scaled}, sw_{v}, sum_{row}_{v});")
            if kind in MINIMA:
                lines.append(f"            sum_{row}_{v} -= minimum_{v} * total.{p};")
        lines.append("        }")
    return "\n".join(lines)


def _fits(job: Job, most_rows: int | None = None) -> bool:
    arguments = job.arguments
    ragged_groups = ragged(arguments["kind"], arguments["group"], job.facts["k"])
    right = arguments["activations"] == "int8" and not ragged_groups
    if most_rows is None:
        return right
    return right and job.facts["m"] <= most_rows and job.facts["padded"] <= WIDTHS[-1]


def _matvec_kernel(lanes: int, subgroup: bool, fast: bool) -> Kernel:
    def fits(job: Job) -> bool:
        limits = job.device.limits
        return (
            _fits(job, MATVEC_ROWS)
            and limits["maxComputeInvocationsPerWorkgroup"] >= lanes
            and limits["maxComputeWorkgroupStorageSize"] >= WIDTHS[-1] * 3 // 2 + 4 * lanes
        )

    return Kernel(
        "int8_matvec" + ("_subgroup" if subgroup else "") + ("" if fast else "_exact"),
        lambda job: _matvec(job, lanes, subgroup, fast),
        needs=frozenset({"subgroup"} if subgroup else ()),
        fits=fits,
    )


# Some drivers' own conversion of float16 loses denormals: the exact forms do it by hand.
KERNELS = [
    _matvec_kernel(512, subgroup=True, fast=True),
    _matvec_kernel(256, subgroup=True, fast=True),
    _matvec_kernel(256, subgroup=False, fast=True),
    _matvec_kernel(256, subgroup=False, fast=False),
    Kernel("int8_matmul", lambda job: _matmul(job, fast_halves=True), fits=_fits),
    Kernel("int8_matmul_exact", lambda job: _matmul(job, fast_halves=False), fits=_fits),
]
