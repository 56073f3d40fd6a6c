"""Rotary positions (Su et al., 2021), and the caches that keys and values go to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import f32, i32, u32, widened
from ..errors import DTypeError, ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation, pack
from ..tensor import Tensor
from .frequencies import frequencies

STYLES = ("neox", "gptj")


# Frequencies ----------------------------------------------------------------------------------


def turns(radians: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Radians a position as 64-bit fractions of a turn, (pairs, 2) uint32: high and low words."""
    fractions = [int(math.ldexp(value, 64) / (2 * math.pi)) % (1 << 64) for value in radians]
    return np.array([(f >> 32, f & 0xFFFF_FFFF) for f in fractions], np.uint32).reshape(-1, 2)


def _table(device: Any, dims: int, theta: float | None, scaling: Any) -> tuple[Tensor, float]:
    """The frequencies on a device, made once; with a theta of None nothing turns."""
    if theta is None:
        dims, theta = 0, 1.0
    key = ("rope", dims, theta, _frozen(scaling))
    found = device.plans.get(key)
    if found is None:
        radians, scale = frequencies(dims, theta, scaling)
        found = device.upload(turns(radians) if dims else np.zeros((1, 2), np.uint32)), scale
        device.remember(key, found)
    tensor, scale = found
    return tensor, scale


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _frozen(entry)) for key, entry in value.items()))
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(_frozen(entry) for entry in value)
    return value


def _dims(name: str, dim: int, dims: int | None) -> int:
    turning = dim if dims is None else dims
    if turning < 0 or turning > dim or turning % 2:
        raise ShapeError(
            f"[{name}] expected an even number of up to {dim} elements of a head to turn, but got "
            f"{turning}"
        )
    return turning


def _check_table(name: str, table: Spec, pairs: int, dim: int) -> None:
    """Whether a table of frequencies has those of so many pairs, and a head has the pairs."""
    enough = len(table.shape) == 2 and table.shape[0] >= pairs and table.shape[1] == 2
    if not enough or 2 * pairs > dim:
        raise ShapeError(
            f"[{name}] expected frequencies ({pairs} of up to {dim // 2}, 2), but got {table.shape}"
        )


def _style(name: str, style: str) -> bool:
    if style not in STYLES:
        raise ValueError(f'[{name}] expected style "neox" or "gptj", but got {style!r}')
    return style == "gptj"


# Operations ---------------------------------------------------------------------------------


def _rope(job: Job) -> None:
    x, positions, table = job.inputs
    heads, turning = job.arguments["heads"], table.shape[0]
    rows, dim = x.shape[-2], x.shape[-1] // heads
    pairs = x.size // dim * turning
    params = pack(
        pairs,
        rows,
        heads,
        dim,
        turning,
        int(job.arguments["neighbours"]),
        int(positions.size == rows),
        float(job.arguments["scale"]),
    )
    job.step("rope", {}, [x, positions, table], params, -(-pairs // 256))


def _rope_probes() -> list[Probe]:
    rng = np.random.default_rng(41)
    x = rng.normal(0, 1, (2, 7, 5 * 24)).astype(np.float32)
    table = turns(frequencies(16, 1e4)[0])
    made = []
    for neighbours in (False, True):
        for positions in (np.array([1_000_003]), rng.integers(0, 1 << 31, 7)):
            options = {"heads": 5, "neighbours": neighbours, "scale": 1.25}
            made.append(Probe((x, positions.astype(np.int32), table), options, 1e-6))
    return made


@operation(
    kernels=[Kernel("rope", _rope)],
    reference=reference.rope,
    probes=_rope_probes,
    name="turn_",
    method=False,
    writes=("x",),
)
def turn(
    x: Spec, positions: Spec, table: Spec, heads: int, neighbours: bool, scale: float
) -> Result:
    """Rotary positions in place by a table of frequencies (see rope_)."""
    if len(x.shape) < 2 or heads < 1 or x.shape[-1] % heads:
        raise ShapeError(f"[rope_] expected (..., rows, {heads} heads), but got shape {x.shape}")
    rules.floats_only("rope_", x.dtype)
    if positions.dtype.kind not in "iu":
        raise DTypeError(f"[rope_] expected integer positions, but got {positions.dtype}")
    if positions.size not in (1, x.shape[-2]):
        raise ShapeError(
            f"[rope_] expected one position or {x.shape[-2]}, but got shape {positions.shape}"
        )
    _check_table("rope_", table, table.shape[0] if table.shape else 0, x.shape[-1] // heads)
    return Result((), (f32, i32, u32))


@composition
def rope_(
    x: Tensor,
    positions: Any,
    theta: float = 1e4,
    heads: int = 1,
    style: str = "neox",
    scaling: Any = None,
    dims: int | None = None,
) -> Tensor:
    """Turn pairs of elements of each head by their row's position, in place (Su et al., 2021).

    x is (..., rows, heads * dim), float32 or float16. Pair i turns by position * theta^(-2i/dims)
    radians; style "neox" pairs elements i and i + dims/2 of a head, "gptj" 2i and 2i + 1.
    `positions`: an integer, or integers of one element, are the position of the first row, which
    the others follow; else one for each row. `dims` (all by default) is how many of a head's
    elements turn. `scaling` is what a config.json has for rope_scaling (see `frequencies`). Angles
    are exact for every position below 2^31. Raises ShapeError, DTypeError or ValueError.
    """
    heads = rules.integer("rope_", "heads", heads)
    if x.ndim < 2 or heads < 1 or x.shape[-1] % heads:
        raise ShapeError(f"[rope_] expected (..., rows, {heads} heads), but got shape {x.shape}")
    neighbours = _style("rope_", style)
    turning = _dims("rope_", x.shape[-1] // heads, dims)
    if turning == 0:
        return x
    table, scale = _table(x.device, turning, theta, scaling)
    made: Tensor = turn(x, _place(x.device, "rope_", positions), table, heads, neighbours, scale)
    return made


def _place(device: Any, name: str, at: Any) -> Tensor:
    """An integer or integers as a tensor of the device."""
    if isinstance(at, Tensor):
        return at
    if not isinstance(at, (int, np.integer)):
        array = np.asarray(at)
        if array.dtype.kind not in "iu":
            raise DTypeError(f"[{name}] expected integers, but got {array.dtype}")
        return device.upload(array)
    if at < 0:
        raise IndexError(f"[{name}] expected a position from 0 up, but got {at}")
    return device.constant(int(at), i32)


def _append(job: Job) -> None:
    k_cache, v_cache, qkv, at, table, *norms = job.inputs
    arguments = job.arguments
    heads, kv_heads = arguments["heads"], arguments["kv_heads"]
    groups = qkv.shape[0] * (heads + 2 * kv_heads)
    params = pack(
        qkv.shape[0],
        heads,
        kv_heads,
        qkv.shape[1] // (heads + 2 * kv_heads),
        arguments["pairs"],
        int(arguments["neighbours"]),
        k_cache.shape[0],
        float(arguments["eps"]),
        float(arguments["scale"]),
    )
    operands = [k_cache, v_cache, qkv, at, table, *norms, job.outputs[0]]
    job.step("append_kv", {"NORM": bool(norms)}, operands, params, groups, 32)


def _append_probes() -> list[Probe]:
    rng = np.random.default_rng(43)
    made = []
    for dim, dims, norm in ((10, 10, False), (134, 64, False), (7, 4, True), (256, 256, True)):
        caches = rng.normal(0, 1, (2, 9, 2 * dim)).astype(np.float32)
        qkv = rng.normal(0, 1, (4, 7 * dim)).astype(np.float32)
        norms = rng.normal(1, 0.3, (2, dim)).astype(np.float32) if norm else None
        table = turns(frequencies(dims, 1e4)[0])
        for place, neighbours in ((3, False), (7, True), (2_000_000_000, dim < 64)):
            # From 7 on the last rows find no room, and later none does.
            at = np.array([place], np.int32)
            options = {
                "heads": 3,
                "kv_heads": 2,
                "pairs": dims // 2,
                "neighbours": neighbours,
                "scale": 1.25,
            }
            made.append(Probe((*caches, qkv, at, table, norms), options, 3e-6))
    return made


def _append_reference(*given: Any) -> Any:
    k_cache, v_cache, qkv, at, table, norms, heads, kv_heads, pairs, neighbours, scale, eps = given
    return reference.append_kv(
        k_cache, v_cache, qkv, at, table[:pairs], norms, heads, kv_heads, neighbours, scale, eps
    )


@operation(
    kernels=[Kernel("append_kv", _append)],
    reference=_append_reference,
    probes=_append_probes,
    name="append_turned_",
    method=False,
    writes=("k_cache", "v_cache"),
)
def append(
    k_cache: Spec,
    v_cache: Spec,
    qkv: Spec,
    at: Spec,
    table: Spec,
    norms: Spec | None = None,
    heads: int = 1,
    kv_heads: int = 1,
    pairs: int = 0,
    neighbours: bool = False,
    scale: float = 1.0,
    eps: float = 1e-6,
) -> Result:
    """Queries, keys and values by a table of frequencies (see append_kv_)."""
    rules.floats_only("append_kv_", k_cache.dtype, v_cache.dtype, qkv.dtype)
    parts = heads + 2 * kv_heads
    if heads < 1 or kv_heads < 1 or len(qkv.shape) != 2 or qkv.shape[1] % parts:
        raise ShapeError(
            f"[append_kv_] expected rows of {heads} + 2 x {kv_heads} heads, but got {qkv.shape}"
        )
    dim = qkv.shape[1] // parts
    wanted = (k_cache.shape[0] if k_cache.shape else 0, kv_heads * dim)
    if k_cache.shape != wanted or v_cache.shape != wanted:
        raise ShapeError(
            f"[append_kv_] expected caches (rows, {kv_heads * dim}), but got {k_cache.shape} and "
            f"{v_cache.shape}"
        )
    _check_table("append_kv_", table, pairs, dim)
    if at.size != 1 or at.dtype.kind not in "iu":
        raise ShapeError(f"[append_kv_] expected one integer for at, but got shape {at.shape}")
    cast: tuple[Any, ...] = (f32, f32, f32, i32, u32)
    if norms is not None:
        if norms.shape != (2, dim):
            raise ShapeError(f"[append_kv_] expected norms (2, {dim}), but got {norms.shape}")
        cast = (*cast, f32)
    return Result((Spec((qkv.shape[0], heads * dim), f32),), cast)


@composition
def append_kv_(
    k_cache: Tensor,
    v_cache: Tensor,
    qkv: Tensor,
    at: Any,
    heads: int = 1,
    kv_heads: int | None = None,
    theta: float | None = 1e4,
    style: str = "neox",
    scaling: Any = None,
    dims: int | None = None,
    norms: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Put keys and values into their caches, and return the queries, ready for attention.

    qkv (rows, (heads + 2 kv_heads) * dim) has the queries, keys and values of each row side by
    side, the caches are (capacity, kv_heads * dim), all float32. Queries and keys turn by their
    position as by rope_ (theta=None: not at all); keys and values go to rows `at`, at + 1, ... of
    the caches, which are their positions too. `norms` (2, dim): weights of a rms_norm over each
    head of the queries, then of the keys, that goes before. `at`: an integer, or a tensor of one;
    an integer beyond the caches raises IndexError, rows beyond it from a tensor are left out.
    Returns (rows, heads * dim).
    """
    heads = rules.integer("append_kv_", "heads", heads)
    kv_heads = heads if kv_heads is None else rules.integer("append_kv_", "kv_heads", kv_heads)
    parts = heads + 2 * kv_heads
    dim = qkv.shape[-1] // parts if parts > 0 and qkv.ndim else 0
    turning = 0 if theta is None else _dims("append_kv_", dim, dims)
    neighbours = _style("append_kv_", style)
    _check_room("append_kv_", k_cache, qkv, at)
    table, scale = _table(qkv.device, turning, theta, scaling)
    made: Tensor = append(
        k_cache,
        v_cache,
        qkv,
        _place(qkv.device, "append_kv_", at),
        table,
        norms,
        heads,
        kv_heads,
        turning // 2,
        neighbours,
        scale,
        float(eps),
    )
    return made


def _check_room(name: str, cache: Tensor, source: Tensor, at: Any) -> None:
    if isinstance(at, (int, np.integer)) and cache.ndim and source.ndim:
        rows, capacity = source.shape[0], cache.shape[0]
        if at < 0 or at + rows > capacity:
            raise IndexError(
                f"[{name}] {rows} rows at {at} do not fit {capacity} rows; make room for them first"
            )


def _copy_rows(job: Job) -> None:
    x, source, at = job.inputs
    params = pack(source.size, source.size // source.shape[0], x.shape[0])
    job.step("copy_rows", {}, [x, source, at], params, -(-source.size // 256))


def _copy_rows_probes() -> list[Probe]:
    rng = np.random.default_rng(47)
    made = []
    for dtype in (f32, i32, u32):
        x = rng.integers(0, 99, (40, 3, 5)).astype(dtype)
        source = rng.integers(0, 99, (21, 3, 5)).astype(dtype)
        made += [Probe((x, source, np.array([at], np.int32))) for at in (0, 11, 30, 39, 40, -2)]
    return made


@operation(
    kernels=[Kernel("copy_rows", _copy_rows)],
    reference=reference.copy_rows,
    probes=_copy_rows_probes,
    name="place_rows_",
    method=False,
    writes=("x",),
)
def place_rows(x: Spec, source: Spec, at: Spec) -> Result:
    """x with rows of source written over its own (see copy_rows_)."""
    if not x.shape or not source.shape or x.shape[1:] != source.shape[1:]:
        raise ShapeError(
            f"[copy_rows_] expected rows of shape {x.shape[1:]}, but got a source {source.shape}"
        )
    if x.dtype != source.dtype:
        raise DTypeError(f"[copy_rows_] expected a source of {x.dtype}, but got {source.dtype}")
    if at.size != 1 or at.dtype.kind not in "iu":
        raise ShapeError(f"[copy_rows_] expected one integer for at, but got shape {at.shape}")
    through = widened(x.dtype)
    return Result((), (through, through, i32))


@composition
def copy_rows_(x: Tensor, source: Tensor, at: Any) -> Tensor:
    """Write the rows of source (rows, ...) over rows at, at + 1, ... of x, in place. Returns x.

    Both have one dtype and rows of one shape. `at`: an integer (IndexError where the rows do not
    fit), or an integer tensor of one element, from which rows beyond the end are left out.
    """
    _check_room("copy_rows_", x, source, at)
    made: Tensor = place_rows(x, source, _place(x.device, "copy_rows_", at))
    return made
