"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import reference
from ..dtypes import f32, narrowed_to
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation
from ..tensor import Tensor
from .attending_grad import attend_grad
from .attending_plans import WIDEST, simple
from .attending_rules import length_tensor, sizes
from .attending_split import Split
from .attending_tiles import Tiles

FEW = 8  # queries
MANY = 256  # workgroups: about two for each core of a large GPU
# For heads up to a width, larger tiles first; each does more for what it reads.
TILES = (
    Tiles(width=64, rows=64, positions=64, across=8, down=16, slice=4, v_rows=8),
    Tiles(width=64, rows=32, positions=128, across=16, down=8, slice=4, v_rows=16),
    Tiles(width=128, rows=128, positions=128, across=16, down=16, slice=4, v_rows=8),
    Tiles(width=128, rows=32, positions=128, across=16, down=8, slice=4, v_rows=8),
    Tiles(width=WIDEST, rows=32, positions=64, across=16, down=8, slice=4, v_rows=4),
)
SPLITS = (Split(rows=1), Split(rows=4), Split(rows=8))


def _tiles(tiles: Tiles) -> Kernel:
    narrower = max((other.width for other in TILES if other.width < tiles.width), default=0)
    smallest = min(other.rows for other in TILES if other.width == tiles.width)

    def fits(job: Job) -> bool:
        return job.facts["dim"] > narrower and tiles.fits(job)

    def plan(job: Job) -> None:
        # In software, unrolled code takes half longer to compile and is no faster.
        tiles.plan(job, unroll=not job.device.info.software)

    def worth(job: Job) -> bool:
        queries = job.facts["queries"]
        if tiles.rows == smallest:
            return bool(queries > FEW)
        # Large tiles pay off where every core has one, and little of them lies beyond the queries.
        enough = job.device.info.software or tiles.workgroups(job) >= MANY
        computed = -(-queries // tiles.rows) * tiles.rows
        return bool(enough and 8 * computed <= 9 * queries)

    return Kernel(f"attention_tiles_{tiles.width}x{tiles.rows}", plan, fits=fits, worth=worth)


def _split(number: int) -> Kernel:
    split = SPLITS[number]
    fewer = SPLITS[number - 1].rows if number else 0

    def fits(job: Job) -> bool:
        return job.facts["queries"] <= FEW and split.fits(job)

    def worth(job: Job) -> bool:
        rows = job.facts["queries"] * job.facts["heads"] // job.facts["kv_heads"]
        return rows > fewer and (rows <= split.rows or number == len(SPLITS) - 1)

    return Kernel(f"attention_split_{split.rows}", split.plan, fits=fits, worth=worth)


def _probes() -> list[Probe]:
    rng = np.random.default_rng(19)
    made = []

    def add(queries: int, rows: int, dim: int, mask: str = "", **options: Any) -> None:
        """Two batches of four heads, two of k and v; the last rows of those do not count."""
        valid = rows - 4
        q = rng.normal(0, 1, (2, queries, 4 * dim)).astype(np.float32)
        k, v = rng.normal(0, 1, (2, 2, rows, 2 * dim)).astype(np.float32)
        v[:, valid:] = np.nan
        v[1, valid - 2, 0] = np.nan  # which not everybody sees
        inputs = [q, k, v, np.array(valid, np.uint32 if mask else np.int32)]
        if mask:
            seen = rng.integers(0, 3, (2, 1, queries, rows)) > 0
            seen[1, 0, queries // 2] = False  # a query that sees nothing
            added = np.where(seen, rng.normal(0, 1, seen.shape), -np.inf).astype(np.float32)
            inputs.append(seen if mask == "bool" else added)
        made.append(Probe(tuple(inputs), {"heads": 4, "kv_heads": 2, **options}, 5e-6))

    for dim in (21, 62, 102, 199):
        add(19, 45, dim, causal=True, window=9)
        add(19, 45, dim, "bool", softcap=2.0)
    for dim in (60, 100, 200):
        add(75, 150, dim, "added", scale=0.05)
        add(75, 150, dim, causal=True, window=80)

    def add_peaks(queries: int, rows: int, dim: int) -> None:
        """Exact scores so far apart that any other largest one than theirs overflows."""
        q = rng.integers(-2, 3, (2, queries, 4 * dim)).astype(np.float32)
        k = rng.integers(-2, 3, (2, rows, 2 * dim)).astype(np.float32)
        v = rng.normal(0, 1, k.shape).astype(np.float32)
        length = np.array(2**31 - 1, np.int32)  # more than there are
        options = {"heads": 4, "kv_heads": 2, "scale": 32.0}
        made.append(Probe((q, k, v, length), options, 5e-6))

    for dim in (21, 62, 102, 199, 60, 100, 200):
        add_peaks(19, 45, dim)
    for queries, rows, dim in ((1, 300, 60), (5, 300, 200), (7, 60, 128)):
        add_peaks(queries, rows, dim)
        add(queries, rows, dim, causal=True, softcap=2.0)
        add(queries, rows, dim, "bool", window=200)
        add(queries, rows, dim, "added", scale=0.05)
    return made


def _grad(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_length: Tensor,
    mask: Tensor | None,
    heads: int,
    kv_heads: int | None,
    causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
) -> tuple[Tensor, ...]:
    how = (heads, kv_heads, causal, scale, window, softcap)
    made: tuple[Tensor, ...] = attend_grad(q, k, v, grad, kv_length, mask, *how)
    return made


@operation(
    kernels=[
        *map(_split, range(len(SPLITS))),
        *map(_tiles, TILES),
        Kernel("attention", simple),
    ],
    reference=reference.attention,
    probes=_probes,
    name="attention",
    method=False,
    gradients={("q", "k", "v"): _grad},
)
def attend(
    q: Spec,
    k: Spec,
    v: Spec,
    kv_length: Spec,
    mask: Spec | None = None,
    heads: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Result:
    """Attention over as many rows of k and v as the one element of kv_length says."""
    facts, cast = sizes(
        "attention", q, k, v, kv_length, mask, heads, kv_heads, scale, window, softcap
    )
    return Result((Spec(q.shape, f32),), cast, narrowed_to(q.dtype), facts)


@composition
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    kv_length: int | Tensor | None = None,
    window: int | None = None,
    mask: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """softmax(scale q k^T + mask) v for each head (Vaswani et al., 2017), never storing scores.

    q is (batch, queries, heads * dim), k and v are (batch, rows, kv_heads * dim), all float32 or
    float16; batch may be left out. The result has q's shape. kv_heads (default heads) must divide
    heads: each serves heads / kv_heads of them. scale defaults to 1 / sqrt(dim).

    Only the first kv_length rows of k and v count; those beyond, NaN included, never reach the
    result. Nor does a row whose score is -inf, or whose weight is so far below the heaviest that
    float32 has no normal number for it. A kv_length that is an int32 or uint32 tensor of one
    element is read on the device, so that recorded work follows it; there a negative one counts as
    0, and one beyond the rows as all of them. With causal, query i sees positions up to i +
    (kv_length - queries); with window, only the last `window` of them. mask, bool (True may attend)
    or float32 (added to the scores), broadcasts to (batch, heads, queries, rows). softcap turns
    scores, before the mask, into softcap tanh(score / softcap) (Gemma 2). A query that sees nothing
    gives zeros.

    Raises ShapeError for shapes and numbers that do not fit, DTypeError for other dtypes.
    """
    kv_length = length_tensor("attention", q, k, v, kv_length)
    return attend(q, k, v, kv_length, mask, heads, kv_heads, causal, scale, window, softcap)
