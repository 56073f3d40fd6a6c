"""Products of up to eight vectors with a matrix, at the memory's speed.

Either side of a product may be the matrix, and either layout of it is read in place: rows along k,
or columns side by side. Where that gives too few workgroups, k is split over several and a
second pass adds their sums.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from .. import rules
from ..dtypes import f32
from ..operation import Job, Kernel, Operand, Probe, pack
from .reduction import sum_rows
from .strided import LANES, MAX_AXES, merge_axes, values
from .teams import Team, team_values

MOST = 8  # vectors
BUSY, BUSY_COLUMNS = 1024, 264  # workgroups of rows, or of columns, that keep a GPU busy
LEAST = 8  # units of k for each lane of a split part


class Shape(NamedTuple):
    """How a workgroup shares out its work."""

    lanes: int
    rows: int  # of the matrix; with columns side by side: lanes across them
    ahead: int  # loads of each row on their way at a time; with columns: fours of rows


# By vectors: what is read of them serves several rows, as long as the sums of all fit in registers.
ROWS = {1: Shape(128, 4, 2), 2: Shape(128, 4, 2), 4: Shape(128, 4, 2), 8: Shape(128, 2, 1)}
COLUMNS = Shape(256, 32, 2)
# For a single vector, where rows are long enough and workgroups may have as many lanes.
ONE_ROWS, ONE_COLUMNS = Shape(256, 1, 2), Shape(512, 64, 2)


class Product(NamedTuple):
    """A product as vectors times a matrix."""

    vectors: Operand
    matrix: Operand
    few: int  # vectors
    n: int
    along: bool  # whether the matrix's rows lie along k
    turned: bool  # whether elements of one vector lie `few` apart
    swapped: bool  # whether the vectors are the right side
    shapes: tuple[tuple[int, ...], tuple[int, ...]]  # batch axes of vectors and matrix

    @property
    def step(self) -> tuple[int, int]:
        """From one result to the next, and from one vector's to the next vector's."""
        return (self.few, 1) if self.swapped else (1, self.n)


def _product(job: Job) -> Product:
    a, b = job.inputs
    facts, arguments = job.facts, job.arguments
    m, n = facts["m"], facts["n"]
    if m <= n:
        along = arguments["transpose_b"] or n == 1
        turned = arguments["transpose_a"] and m > 1
        return Product(a, b, m, n, along, turned, False, (facts["batch_a"], facts["batch_b"]))
    along = not arguments["transpose_a"]
    turned = not arguments["transpose_b"] and n > 1
    return Product(b, a, n, m, along, turned, True, (facts["batch_b"], facts["batch_a"]))


def _batches(job: Job, product: Product) -> tuple[int, list[int]] | None:
    """How many products, and the matrices from one to the next; None if not evenly apart."""
    batch = job.facts["batch"]
    strides = [rules.broadcast_strides(shape, batch) for shape in product.shapes]
    lengths, steps = merge_axes(batch, strides)
    if len(lengths) > 1:
        return None
    return math.prod(batch), [row[0] if row else 0 for row in steps]


def _fits(job: Job, along: bool) -> bool:
    facts = job.facts
    if job.inputs[0].dtype != f32 or min(facts["m"], facts["n"]) > MOST:
        return False
    product = _product(job)
    return product.along == along and _batches(job, product) is not None


def _straight(job: Job, product: Product) -> Operand:
    """The vectors with the elements of each side by side."""
    if not product.turned:
        return product.vectors
    k, batch = job.facts["k"], product.shapes[0]
    source = product.vectors
    out = job.temporary(source.size, f32)
    shape = (*batch, product.few, k)
    own = rules.strides(source.shape)
    lengths, steps = merge_axes(shape, [(*own[:-2], own[-1], own[-2])])
    padded = [tuple(row) + (0,) * (MAX_AXES - len(row)) for row in (lengths, *steps)]
    params = pack(source.size, len(lengths), 0, 0, *padded)
    job.step("strided", values(job, "a", [f32]), [source, out], params, -(-source.size // LANES))
    return out


def _splits(groups: int, busy: int, units: int, least: int) -> tuple[int, int]:
    """Into how many parts to split k, and the units in each but the last."""
    wanted = max(1, min(busy // groups, units // least))
    chunk = -(-units // wanted)
    return -(-units // chunk), chunk


def _step(
    job: Job,
    product: Product,
    kernel: str,
    template: dict[str, Any],
    params: tuple[int, int, int],
    width: tuple[int, int],
    loops: int,
) -> None:
    """The step itself, and the sum of its parts; `width` are elements in a unit of the matrix and
    of the vectors."""
    groups, splits, chunk = params
    k, out = job.facts["k"], job.outputs[0]
    found = _batches(job, product)
    assert found is not None
    batches, (step_x, step_w) = found
    vectors = _straight(job, product)
    target = job.temporary(splits * out.size, f32) if splits > 1 else out
    packed = pack(
        product.few,
        product.n,
        k,
        groups,
        splits,
        chunk,
        batches,
        step_w * product.n * k // width[0],
        step_x * product.few * k // width[1],
        *product.step,
    )
    operands = [product.matrix, vectors, target]
    job.step(kernel, template, operands, packed, groups * splits * batches, loops)
    if splits > 1:
        sum_rows(job, target, out)


def _rows_shape(count: int, units: int) -> Shape:
    enough = units >= ONE_ROWS.lanes * ONE_ROWS.ahead
    return ONE_ROWS if count == 1 and enough else ROWS[count]


def plan_rows(job: Job, subgroup: bool, shape: Shape | None = None) -> None:
    """Rows along k: named sums, one for each row and vector."""
    product = _product(job)
    k = job.facts["k"]
    count = 1 << (product.few - 1).bit_length()
    vector = k % 4 == 0
    width = 4 if vector else 1
    units = k // width
    lanes, rows, ahead = shape or _rows_shape(count, units)
    pairs = list(itertools.product(range(rows), range(count)))
    declare = [f"    var sum_{r}_{j} = 0.0;" for r, j in pairs]
    declare += [
        f"    let row_{r} = batch * params.batch_w + min(first_row + {r}u, params.n - 1u) * units;"
        for r in range(rows)
    ]
    declare += [
        f"    let vector_{j} = batch * params.batch_x + min({j}u, params.count - 1u) * units;"
        for j in range(count)
    ]

    def body(steps: int) -> str:
        made = []
        for i in range(steps):
            at = f"unit + {i * lanes}u" if i else "unit"
            made += [f"        let w_{i}_{r} = w[row_{r} + {at}];" for r in range(rows)]
            made += [f"        let x_{i}_{j} = x[vector_{j} + {at}];" for j in range(count)]
        term = "dot(w_{i}_{r}, x_{i}_{j})" if vector else "w_{i}_{r} * x_{i}_{j}"
        for i in range(steps):
            made += [
                f"        sum_{r}_{j} += " + term.format(i=i, r=r, j=j) + ";" for r, j in pairs
            ]
        return "\n".join(made)

    # As many sums at a time as make a vector are joined.
    size = min(4, len(pairs))
    shared = f"vec{size}<f32>" if size > 1 else "f32"
    join, totals = [], []
    for start in range(0, len(pairs), size):
        sums = ", ".join(f"sum_{r}_{j}" for r, j in pairs[start : start + size])
        name = f"total_{start // size}"
        join.append(f"    let {name} = team_joined({shared}({sums}), 0u, lane, subgroup_size);")
        totals += [name + (f".{letter}" if size > 1 else "") for letter in "xyzw"[:size]]
    template = {
        **team_values(Team(lanes, 0), vector, subgroup),
        "SHARED": shared,
        "LANES": lanes,
        "COUNT": count,
        "ROWS": rows,
        "WIDTH": width,
        "W": "vec4<f32>" if vector else "f32",
        "X": "vec4<f32>" if vector else "f32",
        "AHEAD": ahead,
        "REACH": (ahead - 1) * lanes,
        "STRIDE": ahead * lanes,
        "DECLARE": "\n".join(declare),
        "AHEAD_BODY": body(ahead),
        "BODY": body(1),
        "JOIN": "\n".join(join),
        "STORE": "\n".join(
            [
                f"        store(split, batch, first_row + {r}u, {j}u, {total});"
                for (r, j), total in zip(pairs, totals, strict=True)
            ]
        ),
    }
    groups = -(-product.n // rows)
    splits, chunk = _splits(groups * math.prod(job.facts["batch"]), BUSY, units, LEAST * lanes)
    loops = -(-chunk // lanes) + 2 + len(join) * (lanes // 4 + 6)
    _step(job, product, "skinny_rows", template, (groups, splits, chunk), (width, width), loops)


def _columns_shape(job: Job, count: int) -> Shape:
    most = job.device.limits["maxComputeInvocationsPerWorkgroup"]
    return ONE_COLUMNS if count == 1 and ONE_COLUMNS.lanes <= most else COLUMNS


def plan_columns(job: Job, shape: Shape | None = None) -> None:
    """Columns side by side: named sums, one for each vector, over a unit of columns."""
    product = _product(job)
    k, n = job.facts["k"], product.n
    count = 1 << (product.few - 1).bit_length()
    lanes, across, ahead = shape or _columns_shape(job, count)
    slices = lanes // across
    vector, x_vector = n % 4 == 0, k % 4 == 0
    width = 4 if vector else 1
    unit = "vec4<f32>" if vector else "f32"
    x_units = "params.k / 4u" if x_vector else "params.k"
    declare = [f"    var sum_{j} = {unit}();" for j in range(count)]
    declare += [
        f"    let vector_{j} = batch * params.batch_x + min({j}u, params.count - 1u) * {x_units};"
        for j in range(count)
    ]

    def body(steps: int) -> str:
        made = []
        for i in range(steps):
            made.append(f"        let k_{i} = (unit + {i * slices}u) * 4u;")
            for part in range(4):
                load = f"w[base + (k_{i} + {part}u) * width]"
                if x_vector or not part:
                    made.append(f"        let w_{i}_{part} = {load};")
                else:
                    made.append(f"        var w_{i}_{part} = {unit}();")
                    made.append(
                        f"        if (k_{i} + {part}u < params.k) {{ w_{i}_{part} = {load}; }}"
                    )
            made += [f"        let x_{i}_{j} = four(vector_{j}, k_{i});" for j in range(count)]
        for i, part, j in itertools.product(range(steps), range(4), range(count)):
            made.append(
                f"        sum_{j} = fma(w_{i}_{part}, {unit}(x_{i}_{j}.{'xyzw'[part]}), sum_{j});"
            )
        return "\n".join(made)

    join = []
    for j in range(count):
        join += ["    workgroupBarrier();"] if j else []
        join += [f"    parts[lane] = sum_{j};", "    workgroupBarrier();", "    if (slice == 0u) {"]
        join.append("        var total = parts[lane];")
        join += [f"        total += parts[lane + {across * s}u];" for s in range(1, slices)]
        join += [
            f"        store(split, batch, column * {width}u + {i}u, {j}u, total"
            + (f".{'xyzw'[i]});" if vector else ");")
            for i in range(width)
        ]
        join.append("    }")
    template = {
        "LANES": lanes,
        "COUNT": count,
        "WIDTH": width,
        "W": unit,
        "X": "vec4<f32>" if x_vector else "f32",
        "X_VECTOR": x_vector,
        "ACROSS": across,
        "SLICES": slices,
        "REACH": (ahead - 1) * slices,
        "STRIDE": ahead * slices,
        "DECLARE": "\n".join(declare),
        "AHEAD_BODY": body(ahead),
        "BODY": body(1),
        "JOIN": "\n".join(join),
    }
    units = -(-k // 4)
    groups = -(-n // (width * across))
    busy = BUSY_COLUMNS if count == 1 else BUSY
    splits, chunk = _splits(groups * math.prod(job.facts["batch"]), busy, units, 4 * slices)
    widths = (width, 4 if x_vector else 1)
    loops = -(-chunk // slices) + 2
    _step(job, product, "skinny_columns", template, (groups, splits, chunk), widths, loops)


KERNELS = [
    Kernel(
        "skinny_rows_subgroup",
        lambda job: plan_rows(job, subgroup=True),
        needs=frozenset({"subgroup"}),
        fits=lambda job: _fits(job, along=True),
    ),
    Kernel(
        "skinny_rows",
        lambda job: plan_rows(job, subgroup=False),
        fits=lambda job: _fits(job, along=True),
    ),
    Kernel("skinny_columns", plan_columns, fits=lambda job: _fits(job, along=False)),
]


def probes() -> list[Probe]:
    """Small integers, whose products are exact: every number of vectors, in either layout, in
    vectors of four and in single elements; and what takes further steps."""
    rng = np.random.default_rng(18)

    def made(a: tuple[int, ...], b: tuple[int, ...], ta: bool = False, tb: bool = False) -> Probe:
        arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in (a, b)]
        return Probe((arrays[0], arrays[1]), {"transpose_a": ta, "transpose_b": tb})

    found = []
    for count, k in itertools.product((1, 2, 3, 4, 7, 8), (101, 104)):
        found += [made((count, k), (k, n)) for n in (1031, 1032)]
        found.append(made((count, k), (133, k), tb=True))
    return [
        *found,
        # Split along k; a single sum is added up by another kernel.
        made((1, 3001), (3001, 41)),
        made((2, 12_345), (37, 12_345), tb=True),
        made((1, 4100), (37, 4100), tb=True),
        made((1, 70_001), (70_001, 1)),
        # Vectors turned first, on either side, and batches.
        made((104, 3), (104, 50), ta=True),
        made((2, 50, 104), (104, 3)),
        made((2, 1, 104), (104, 50)),
        made((3, 2, 104), (3, 37, 104), tb=True),
    ]
