"""Every operation against its reference over float64: shapes, layouts, dtypes, special values.

Shapes have axes of 0 and 1, primes, and lengths just under and over a workgroup; arrays lie in any
way; elements are now and then infinite, NaN, denormal, -0.0 or the largest there is. Each example
runs with trusted and with checked kernels, on devices that know no verdict yet.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from compare import SMALLEST_NORMAL, Array, same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensai
from tensai.operation import OPERATIONS, Operation

f32, i32, u32, b1 = (np.dtype(kind) for kind in (np.float32, np.int32, np.uint32, np.bool_))
FULL = os.environ.get("TENSAI_TRUST") == "full"
SPECIAL = np.array([np.inf, -np.inf, np.nan, 1e-40, -3e-42, -0.0, 0.0, 3.4028235e38], f32)
Made = tuple[list[Any], dict[str, Any]]

lengths = st.sampled_from([0, 1, 1, 2, 3, 5, 7, 31, 63, 64, 65, 127, 129, 251, 255, 256, 257, 1025])
filled = lengths.filter(bool)


def shapes(axes: Any = lengths, least: int = 0, most: int = 4) -> Any:
    shape = st.lists(axes, min_size=least, max_size=most).map(tuple)
    return shape.filter(lambda lengths: math.prod(lengths) <= 70_000)


@st.composite
def arrays(draw: Any, shape: Any, dtype: np.dtype[Any] = f32, special: bool = False) -> Array:
    """Small numbers of that shape, laid out in any way."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    if dtype == b1:
        array = rng.integers(0, 2, shape) > 0
    elif dtype == f32:
        array = (rng.integers(-32, 33, shape) / 8).astype(f32)
        if special and draw(st.booleans()):
            places = rng.integers(0, 4, shape) == 0
            array = np.where(places, rng.choice(SPECIAL, shape), array)
    else:
        array = rng.integers(0 if dtype == u32 else -9, 10, shape).astype(dtype)
    if draw(st.booleans()):
        array = np.asfortranarray(array)
    return array


@st.composite
def elementwise(draw: Any, operation: Operation) -> Made:
    """Operands that broadcast, of dtypes and with attributes that a probe has."""
    probe = draw(st.sampled_from(operation.probes()))
    whole = draw(shapes())
    given = []
    for like in probe.inputs:
        own = [1 if draw(st.integers(0, 3)) == 0 else length for length in whole]
        shape = tuple(own[draw(st.sampled_from([0, 0, len(own) // 2])) :])
        given.append(draw(arrays(shape, like.dtype, special=True)))
    return given, dict(probe.arguments)


@st.composite
def reduction(draw: Any, operation: Operation) -> Made:
    shape = draw(shapes(filled, 1))
    axes = st.integers(-len(shape), len(shape) - 1)
    axis = draw(st.one_of(st.none(), axes))
    if axis is not None and operation.name != "argmax" and draw(st.booleans()):
        axis = tuple(sorted({axis % len(shape), draw(axes) % len(shape)}))
    x = draw(arrays(shape, draw(st.sampled_from([f32, i32, u32]))))
    if operation.name in ("max", "min", "argmax") and x.dtype == f32:
        x = draw(arrays(shape, f32, special=True))
    return [x], {"axis": axis, "keepdims": draw(st.booleans())}


@st.composite
def rows(draw: Any, operation: Operation) -> Made:
    """Arrays of rows, and vectors of a row's length where the operation takes them."""
    shape = draw(shapes(filled, 1, 3))
    given = []
    for name in operation.tensors:
        if name in ("weight", "bias"):
            given.append(draw(arrays(shape[-1:])))
        elif name == "labels":
            rng = np.random.default_rng(draw(st.integers(0, 99)))
            given.append(rng.integers(-1, shape[-1], shape[:-1]).astype(i32))
        elif name == "residual":
            given.append(draw(st.one_of(st.none(), arrays(shape))))
        else:
            given.append(draw(arrays(shape)))
    if "axis" in operation.signature.parameters:
        return given, {"axis": draw(st.integers(-len(shape), len(shape) - 1))}
    return given, {"eps": 0.001} if "eps" in operation.signature.parameters else {}


@st.composite
def product(draw: Any, operation: Operation) -> Made:
    m, k, n = draw(lengths), draw(lengths), draw(lengths)
    batch = draw(st.sampled_from([(), (), (1,), (3,)]))
    turned = {name: draw(st.booleans()) for name in ("transpose_a", "transpose_b")}
    a = draw(arrays((*batch, *((k, m) if turned["transpose_a"] else (m, k)))))
    b = draw(arrays((n, k) if turned["transpose_b"] else (k, n)))
    return [a, b], turned


@st.composite
def looking_up(draw: Any, operation: Operation) -> Made:
    count, width = draw(filled), draw(filled)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    indices = rng.integers(0, count, draw(shapes(filled, 0, 2)) if width < 99 else (5,)).astype(i32)
    if operation.name == "embed":
        return [draw(arrays((count, width))), indices], {}
    return [indices, draw(arrays((*indices.shape, width)))], {"rows": count}


@st.composite
def placing(draw: Any, operation: Operation) -> Made:
    shape = draw(shapes(filled, 1, 3))
    axis = draw(st.integers(0, len(shape) - 1)) if operation.name == "put_" else 0
    length = draw(st.integers(1, shape[axis]))
    start = draw(st.integers(0, shape[axis] - length))
    part = draw(arrays((*shape[:axis], length, *shape[axis + 1 :])))
    x = draw(arrays(shape))
    if operation.name == "put_":
        return [x, part], {"axis": axis, "start": start}
    return [x, part, np.array([start], i32)], {}


@st.composite
def own(draw: Any, operation: Operation) -> Made:
    """One of the operation's probes: what hangs together in many ways has tests of its own."""
    probe = draw(st.sampled_from(operation.probes()))
    return list(probe.inputs), dict(probe.arguments)


NAMED: dict[Any, tuple[str, ...]] = {
    reduction: ("sum", "mean", "max", "min", "argmax"),
    rows: (
        *("softmax", "softmax_grad", "log_softmax", "log_softmax_grad", "cross_entropy_rows"),
        *("layer_norm", "layer_norm_xhat", "layer_norm_grad", "rms_norm", "rms_norm_grad"),
    ),
    product: ("matmul",),
    looking_up: ("embed", "embed_grad"),
    placing: ("put_", "place_rows_"),
}


def maker(operation: Operation) -> Callable[[Operation], Any]:
    for make, names in NAMED.items():
        if operation.name in names:
            return make  # type: ignore[no-any-return]
    module = operation.rule.__module__.rpartition(".")[2]
    return elementwise if module in ("elementwise", "activations") else own


def flushed(array: Any) -> Any:
    """As a device sees it that takes denormal numbers for 0."""
    if array is None or array.dtype != f32:
        return array
    return np.where(np.abs(array) < SMALLEST_NORMAL, f32.type(0), array)


def wide(array: Any) -> Any:
    return array.astype(np.float64) if array is not None and array.dtype == f32 else array


def right(operation: Operation, given: list[Any], arguments: dict[str, Any]) -> list[Array]:
    """What the reference gives for float64; what is written in place follows what is made."""
    named = dict(zip(operation.tensors, [None if x is None else wide(x).copy() for x in given]))
    bound = operation.signature.bind(**named, **arguments)
    bound.apply_defaults()
    with np.errstate(all="ignore"):
        made = operation.reference(*bound.arguments.values())
    return list(made) if isinstance(made, tuple) else [made]


def agree(operation: Operation, got: list[Array], expected: list[Array]) -> str:
    """Empty if they do, else what differs."""
    each = elementwise is maker(operation)
    tolerance = max(probe.tolerance for probe in operation.probes())
    tolerance = max(2 * tolerance, 1e-6)
    try:
        for one, other in zip(got, expected, strict=True):
            other = np.asarray(other)
            if other.dtype != one.dtype and one.dtype.kind in "iub":
                other = other.astype(one.dtype)
            exact = 0.0 if one.dtype.kind != "f" else tolerance
            same(one, other.reshape(one.shape), exact, each=each)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", params=["trusted", "checked"])
def fresh(request: pytest.FixtureRequest, gpu: Any) -> Iterator[Any]:
    """A device without any verdict, with trusted or with checked kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSAI_SHADER_CHECKS", str(int(request.param == "checked")))
        with tensai.open() as device:
            yield device


@pytest.mark.parametrize("name", sorted(OPERATIONS))
@settings(
    max_examples=200 if FULL else 12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_every_operation(fresh: Any, name: str, data: Any) -> None:
    operation = OPERATIONS[name]
    given, arguments = data.draw(maker(operation)(operation))
    tensors = [None if array is None else fresh.upload(array) for array in given]
    made = operation(*tensors, **arguments)
    results = list(made) if isinstance(made, tuple) else [made] if made is not None else []
    written = [tensors[operation.tensors.index(one)] for one in operation.writes]
    got = [tensor.download() for tensor in (*results, *written)]
    if operation.writes and len(results) and results[0] is written[0]:
        got = got[len(results) :]
    wrong = agree(operation, got, right(operation, given, arguments))
    if wrong and agree(operation, got, right(operation, [flushed(x) for x in given], arguments)):
        shapes_of = [None if x is None else (x.shape, x.dtype.name) for x in given]
        raise AssertionError(f"{name} of {shapes_of}, {arguments}: {wrong}")
