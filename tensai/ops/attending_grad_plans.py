"""How the gradient of attention is dispatched: statistics of each query, then dq, dk and dv.

dk and dv are steps of their own, though both compute the scores: together they would bind eight
buffers, and hold twice as many sums in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import kernels as wgsl
from ..dtypes import u32
from ..operation import Job, Operand
from .attending_plans import WIDEST, indented, parameters

LANES = 128
MINE = 32  # rows of a workgroup
THEIRS = 64  # rows that it looks at a time
EACH = range(4)  # rows of a lane, eight apart
ROOM = 448  # vectors of workgroup memory that slices and rows take turns in
MEMORY = 16 * (ROOM + MINE * THEIRS // 4) + 3 * 4 * THEIRS + 4  # bytes of workgroup memory
WIDTHS = (64, 128, WIDEST)  # elements of a head that a lane's sums are made for


@dataclass(frozen=True)
class Step:
    """One use of attention_grad.wgsl: whose rows are a workgroup's own, and what it sums up.

    Rows are summed up by the gradients of the scores, or, without those, by the weights.
    """

    what: str
    by_query: bool
    factor: str = ""  # whose rows are summed up; none for the statistics
    grads: bool = True  # whether it takes the gradients of the weights

    @property
    def products(self) -> tuple[str, str, str, str]:
        """The rows of a score, then those of a weight's gradient; mine first of each."""
        return ("q", "k", "grad", "v") if self.by_query else ("k", "q", "v", "grad")


STATISTICS = Step("This step computes the statistics of each query.", by_query=True)
DQ = Step("This step computes dq = scale dS k.", by_query=True, factor="k")
DK = Step("This step computes dk = scale dS^T q.", by_query=False, factor="q")
DV = Step("This step computes dv = P^T grad.", by_query=False, factor="grad", grads=False)


def fits(job: Job) -> bool:
    limits = job.device.limits
    rows = job.facts["batch"] * job.facts["heads"] * job.facts["queries"]
    return (
        limits["maxComputeInvocationsPerWorkgroup"] >= LANES
        and limits["maxComputeWorkgroupStorageSize"] >= MEMORY
        and 16 * rows <= limits["maxStorageBufferBindingSize"]
    )


def plan(job: Job) -> None:
    facts = job.facts
    q, k, v, grad, length = job.inputs[:5]
    mask = job.inputs[5] if len(job.inputs) > 5 else length
    statistics = job.temporary(4 * facts["batch"] * facts["heads"] * facts["queries"], u32)
    inputs = [q, k, v, grad, mask]
    _add(job, STATISTICS, [*inputs, length, statistics])
    for step, out in zip((DQ, DK, DV), job.outputs, strict=True):
        _add(job, step, [*inputs, statistics, out])


def _add(job: Job, step: Step, operands: list[Operand]) -> None:
    facts = job.facts
    width = next(width for width in WIDTHS if facts["dim"] <= width)
    vectors = -(-facts["dim"] // 4)
    mine, theirs, heads = facts["queries"], facts["kv_rows"], facts["heads"]
    looks = 1  # at all of their rows
    if not step.by_query:
        mine, theirs, heads = theirs, mine, facts["kv_heads"]
        looks = facts["heads"] // heads
    # Of each tile: slices of one or two products, the weights, and slices of the sums.
    slices = 5 * -(-vectors // 4) * (1 + step.grads)
    tile = 1 + slices + 16 + THEIRS // _rows(width) + THEIRS
    loops = looks * (1 + tile * (-(-theirs // THEIRS) + 1)) + 32
    groups = -(-mine // MINE) * heads * facts["batch"]
    params = parameters(job, length=4)
    job.step("attention_grad", _values(step, width, facts["dim"]), operands, params, groups, loops)


def _rows(width: int) -> int:
    """How many of their rows of a width lie in workgroup memory at a time."""
    return 2 * LANES // (width // 4)


def _values(step: Step, width: int, dim: int) -> dict[str, Any]:
    mine, theirs, my_grad, their_grad = step.products
    vectors = dim % 4 == 0

    def product(total: str, left: str, right: str) -> str:
        values = {"MINE": left, "THEIRS": right, "MULTIPLY": _multiply_slices(total)}
        return wgsl.source("attention_grad_product", **values).rstrip("\n")

    functions = [
        wgsl.source("attention_grad_vector", NAME=name, VECTORS=vectors)
        for name in ("q", "k", "v", "grad")
    ]
    return {
        **(_sums(step, width) if step.factor else _collected()),
        "WHAT": step.what,
        "T": "vec4<f32>" if vectors else "f32",
        "VECTORS": vectors,
        "STATISTICS": not step.factor,
        "GRADIENT": bool(step.factor),
        "BY_QUERY": step.by_query,
        "BY_POSITION": not step.by_query,
        "MINE": mine,
        "THEIRS": theirs,
        "MY_GRAD": my_grad,
        "THEIR_GRAD": their_grad,
        "FUNCTIONS": "\n".join(functions).rstrip("\n"),
        "DECLARE_SCORES": indented(12, [f"var s_{i} = vec4<f32>();" for i in EACH]),
        "SCORES": product("s", mine, theirs),
        "PUT_SCORES": indented(12, _put_places("s_{i}.{c} * params.scale")),
        "DECLARE_PRODUCTS": indented(12, [f"var p_{i} = vec4<f32>();" for i in EACH]),
        "GRADS": product("p", my_grad, their_grad) if step.grads else "",
    }


def _row(i: int) -> str:
    return f"(y + {8 * i}u)"


def _weight_places(row: str) -> list[str]:
    """Where the four weights lie that a lane has of a row."""
    return [f"weights[{row} * 16u + x / 4u + {4 * j}u][x & 3u]" for j in range(4)]


def _put_places(value: str) -> list[str]:
    return [
        f"{place} = {value.format(i=i, c=c)};"
        for i in EACH
        for place, c in zip(_weight_places(_row(i)), "xyzw", strict=True)
    ]


def _get_places(name: str) -> list[str]:
    return [f"let {name}_{i} = vec4<f32>({', '.join(_weight_places(_row(i)))});" for i in EACH]


def _multiply_slices(total: str) -> str:
    """The unrolled lines that add products of one vector of each row to `TOTAL_ROW`."""
    lines = [f"let b_{j} = room[{MINE * 4}u + (x + {16 * j}u) * 5u + i];" for j in range(4)]
    lines += [f"let t_{c} = vec4<f32>(b_0.{c}, b_1.{c}, b_2.{c}, b_3.{c});" for c in "xyzw"]
    for i in EACH:
        lines.append(f"let a_{i} = room[{_row(i)} * 4u + i];")
        lines += [f"{total}_{i} = fma(vec4<f32>(a_{i}.{c}), t_{c}, {total}_{i});" for c in "xyzw"]
    return indented(20, lines)


def _collected() -> dict[str, Any]:
    """The lines of the statistics: a lane's largest score, sum of weights, sum of products."""
    declare = [f"var most_{i} = LOWEST; var sum_{i} = 0.0; var total_{i} = 0.0;" for i in EACH]
    collect = _get_places("r")
    for i in EACH:
        collect += [
            f"let m_{i} = max(most_{i}, highest(r_{i}));",
            f"let f_{i} = exp_f32(most_{i} - m_{i});",
            f"let w_{i} = weights_of(r_{i}, m_{i});",
            f"most_{i} = m_{i};",
            f"sum_{i} = fma(sum_{i}, f_{i}, dot(w_{i}, vec4<f32>(1.0)));",
            # What is hidden stays out even where v holds NaN.
            f"p_{i} = select(w_{i} * p_{i}, vec4<f32>(), w_{i} == vec4<f32>());",
            f"total_{i} = fma(total_{i}, f_{i}, dot(p_{i}, vec4<f32>(1.0)));",
        ]
    put = [
        f"weights[{_row(i)} * 16u + x] = vec4<f32>(most_{i}, sum_{i}, total_{i}, 0.0);"
        for i in EACH
    ]
    return {
        "DECLARE": indented(4, declare),
        "COLLECT": indented(12, collect),
        "PUT_COLLECTED": indented(4, put),
    }


def _weighted_sums(width: int) -> tuple[list[str], list[str]]:
    """The unrolled lines that add rows in `room`, by weight, to the results `o_ROW_VECTOR`.

    Four rows of `room` at a time, or one at a time with those left out that weigh nothing, whatever
    they hold.
    """
    columns, vectors = range(width // 64), width // 4
    multiply = [
        f"let v_{p}_{v} = room[(c + {p}u) * {vectors}u + x + {16 * v}u];"
        for p in range(4)
        for v in columns
    ]
    careful = [f"let v_{v} = room[c * {vectors}u + x + {16 * v}u];" for v in columns]
    careful.append("let at = start + c;")
    for i in EACH:
        row = _row(i)
        multiply.append(f"let w_{i} = weights[{row} * 16u + (start + c) / 4u];")
        multiply += [
            f"o_{i}_{v} = fma(vec4<f32>(w_{i}.{'xyzw'[p]}), v_{p}_{v}, o_{i}_{v});"
            for p in range(4)
            for v in columns
        ]
        careful.append(f"let w_{i} = weights[{row} * 16u + at / 4u][at & 3u];")
        careful.append(f"if (!(w_{i} == 0.0)) {{")
        careful += [f"    o_{i}_{v} = fma(vec4<f32>(w_{i}), v_{v}, o_{i}_{v});" for v in columns]
        careful.append("}")
    return multiply, careful


def _sums(step: Step, width: int) -> dict[str, Any]:
    """The lines that sum up rows of theirs by weights: results `o_ROW_VECTOR`."""
    columns = range(width // 64)
    vectors = width // 4
    weigh = _get_places("w")
    for i in EACH:
        deltas = f"vec4<f32>(delta_{i})" if step.by_query else "deltas"
        weigh.append(
            f"p_{i} = select(w_{i} * (p_{i} - {deltas}), vec4<f32>(), w_{i} == vec4<f32>());"
        )
    weigh += _put_places("p_{i}.{c}")
    put = []
    for n in range(2):
        row, d = f"(lane + {LANES * n}u) / {vectors}u", f"(lane + {LANES * n}u) % {vectors}u"
        put.append(
            f"let n_{n} = {step.factor}_vector(theirs, their_width, base + start + {row}, seen.y, "
            f"{d});"
        )
        put.append(f"room[lane + {LANES * n}u] = n_{n};")
    put.append("if (!(finite(n_0) && finite(n_1))) { atomicStore(&spoiled, 1u); }")
    multiply, careful = _weighted_sums(width)
    store = []
    for i in EACH:
        factor = " * params.scale" if step.grads else ""
        store.append(f"if (first + {_row(i)} < my_count) {{")
        store.append(f"    let at = mine + (first + {_row(i)}) * my_width;")
        store += [f"    store(at, x + {16 * v}u, o_{i}_{v}{factor});" for v in columns]
        store.append("}")
    return {
        "ROWS": _rows(width),
        "DECLARE": indented(4, [f"var o_{i}_{v} = vec4<f32>();" for i in EACH for v in columns]),
        "MY_DELTAS": indented(4, [f"let delta_{i} = delta[{_row(i)}];" for i in EACH]),
        "WEIGH": indented(12, weigh),
        "PUT_ROWS": indented(16, put),
        "MULTIPLY": indented(24, multiply),
        "MULTIPLY_CAREFULLY": indented(24, careful),
        "STORE": indented(4, store),
    }
