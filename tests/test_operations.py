"""Elementwise operations, conversions and reductions, on the GPU and on the NumPy device.

The right answers are NumPy's, in float64 unless a test says otherwise; those of activation
functions are PyTorch's, in float64 on the CPU.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest
import torch
from compare import narrowed, same

import tensai

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32
Array = np.ndarray[Any, Any]

ARITHMETIC = {
    "+": (operator.add, np.add),
    "-": (operator.sub, np.subtract),
    "*": (operator.mul, np.multiply),
    "/": (operator.truediv, np.true_divide),
    "//": (operator.floordiv, np.floor_divide),
    "%": (operator.mod, np.remainder),
    "**": (operator.pow, np.power),
    "maximum": (tensai.ops.maximum, np.maximum),
    "minimum": (tensai.ops.minimum, np.minimum),
}
COMPARISONS = {
    "==": (operator.eq, np.equal),
    "!=": (operator.ne, np.not_equal),
    "<": (operator.lt, np.less),
    "<=": (operator.le, np.less_equal),
    ">": (operator.gt, np.greater),
    ">=": (operator.ge, np.greater_equal),
}
BITWISE = {
    "&": (operator.and_, np.bitwise_and),
    "|": (operator.or_, np.bitwise_or),
    "^": (operator.xor, np.bitwise_xor),
}
# Division may be off by 2.5 units in the last place on a GPU, and so is what is made of it.
TOLERANCE = {"/": 3e-7, "**": 1e-6}

SHAPES = [
    ((3, 4), (3, 4)),
    ((5,), ()),
    ((), (5,)),
    ((), ()),
    ((1,), (1,)),
    ((3, 1), (1, 4)),
    ((2, 1, 4), (3, 1)),
    ((5, 1, 3, 1), (4, 1, 2)),
    ((2, 1, 3, 1, 2), (1, 5, 1, 7, 1)),
    ((1031,), (1031,)),
    ((7, 1, 130), (7, 11, 1)),
    ((0, 3), (1, 3)),
    ((4, 1), (0,)),
]

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, -2.5, 3, 88, -88, 1e4, -1e4, 3e38, 1e-20],
    dtype=f32,
)


def numbers(shape: Any, dtype: Any = f32, seed: int = 1) -> Array:
    """Fractions of both signs, or small integers."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (rng.uniform(-4, 4, shape)).astype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape).astype(dtype)


def wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


# Operators --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARITHMETIC | COMPARISONS)
def test_operators_broadcast(dev: tensai.Device, name: str) -> None:
    ours, theirs = (ARITHMETIC | COMPARISONS)[name]
    for shape_a, shape_b in SHAPES:
        a, b = numbers(shape_a), numbers(shape_b, seed=2)
        if name == "**":
            a = np.abs(a)
        got = ours(dev.upload(a), dev.upload(b))
        expected = theirs(wide(a), wide(b))
        same(got, expected, TOLERANCE.get(name, 6e-8), each=True, what=(name, shape_a, shape_b))


@pytest.mark.parametrize("name", ARITHMETIC | COMPARISONS)
def test_operators_of_dtypes(dev: tensai.Device, name: str) -> None:
    # Each pair gives what NumPy gives, in 32 bits.
    ours, theirs = (ARITHMETIC | COMPARISONS)[name]
    for kind_a, kind_b in itertools.product((f32, f16, i32, u32, np.bool_), repeat=2):
        a, b = numbers((6, 17), kind_a), numbers((17,), kind_b, 2)
        if name == "**":
            a, b = abs(a), abs(b)  # NumPy refuses integers to a negative power
        what = (name, kind_a.__name__, kind_b.__name__)
        if {kind_a, kind_b} == {i32, u32} or (name == "-" and kind_a == kind_b == np.bool_):
            with pytest.raises(tensai.DTypeError):
                ours(dev.upload(a), dev.upload(b))
            continue
        with np.errstate(all="ignore"):
            expected = theirs(a, b)
        # float16 is computed in float32 and rounded once, as in NumPy.
        rounded = expected.dtype == f16 and name in TOLERANCE
        tolerance = 1e-3 if rounded else TOLERANCE.get(name, 6e-8)
        same(ours(dev.upload(a), dev.upload(b)), expected, tolerance, each=True, what=what)


@pytest.mark.parametrize("name", BITWISE)
def test_bitwise_operators(dev: tensai.Device, name: str) -> None:
    ours, theirs = BITWISE[name]
    for kind in (i32, u32, np.bool_):
        a, b = numbers((5, 30), kind), numbers((30,), kind, 2)
        same(ours(dev.upload(a), dev.upload(b)), theirs(a, b), what=(name, kind))
        same(ours(dev.upload(a), b), theirs(a, b), what=(name, kind))
        same(ours(a, dev.upload(b)), theirs(a, b), what=(name, kind))
        same(~dev.upload(a), ~a)
    with pytest.raises(tensai.DTypeError):
        ours(dev.upload([1.0]), dev.upload([2.0]))


@pytest.mark.parametrize("name", ARITHMETIC | COMPARISONS)
def test_operators_of_special_values(dev: tensai.Device, name: str) -> None:
    # Infinities, NaN and zeros as IEEE 754 has them: NumPy in float32.
    ours, theirs = (ARITHMETIC | COMPARISONS)[name]
    a, b = SPECIAL[:, None], SPECIAL[None, :]
    with np.errstate(all="ignore"):
        expected = theirs(a, b) if name != "**" else theirs(wide(a), wide(b))
    same(ours(dev.upload(a), dev.upload(b)), expected, TOLERANCE.get(name, 1e-7), each=True)
    # The same elements in the same places take another kernel.
    full_a, full_b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b))
    got = ours(dev.upload(full_a), dev.upload(full_b))
    same(got, expected, TOLERANCE.get(name, 1e-7), each=True)


def test_operators_with_scalars(dev: tensai.Device) -> None:
    for kind, scalar in itertools.product((f32, f16, i32, u32, np.bool_), (2, 2.5, True, 0)):
        a = numbers((3, 5), kind)
        t = dev.upload(a)
        for name in ("+", "*", "/", "<", "==", "maximum"):
            ours, theirs = (ARITHMETIC | COMPARISONS)[name]
            with np.errstate(all="ignore"):
                right, reflected = theirs(a, scalar), theirs(scalar, a)
            tolerance = 1e-3 if right.dtype == f16 and name == "/" else 3e-7
            what = (name, kind.__name__, scalar)
            if name == "maximum":
                same(t.maximum(scalar), right, what=what)
            else:
                same(ours(t, scalar), right, tolerance, each=True, what=what)
                same(ours(scalar, t), reflected, tolerance, each=True, what=what)
    t = dev.upload(np.array([1.0, -2.0, 7.5], f32))
    same(2 - t, [1.0, 4.0, -5.5])
    same(2.0**t, [2.0, 0.25, 2**7.5], 1e-6, each=True)
    same(7 // t, [7.0, -4.0, 0.0])
    same(7 % t, [0.0, -1.0, 7.0])
    same(-t, [-1.0, 2.0, -7.5])
    same(abs(t), [1.0, 2.0, 7.5])
    assert +t is t
    with pytest.raises(OverflowError):
        dev.upload(np.array([1], u32)) + -1
    with pytest.raises(OverflowError):
        dev.upload(np.array([1], i32)) + 2**31


def test_operators_with_arrays(dev: tensai.Device) -> None:
    a, b = numbers((4, 3)), numbers((3,), seed=2)
    same(dev.upload(a) - b, wide(a) - b, 6e-8, each=True)
    same(a - dev.upload(b), wide(a) - b, 6e-8, each=True)
    same(dev.upload(a) - b.astype(np.float64), wide(a) - b, 6e-8, each=True)
    same(dev.upload(a) * b.tolist(), wide(a) * b, 1e-7, each=True)
    same(b.tolist() * dev.upload(a), wide(a) * b, 1e-7, each=True)
    same(np.float32(3) * dev.upload(a), 3 * wide(a), 6e-8, each=True)
    same(np.int64(3) * dev.upload(a), 3 * wide(a), 6e-8, each=True)
    same(np.arange(3) < dev.upload([2, 1, 0]), [True, False, False])
    same(a > dev.upload(b), a > b)
    same(a @ dev.upload(b), wide(a) @ wide(b), 1e-6)
    same(dev.upload(a) @ b, wide(a) @ wide(b), 1e-6)


@pytest.mark.parametrize("name", ["//", "%"])
def test_integer_division_rounds_down(dev: tensai.Device, name: str) -> None:
    ours, theirs = ARITHMETIC[name]
    low, high = np.iinfo(i32).min, np.iinfo(i32).max
    a = np.array([low, low + 1, -8, -7, -1, 0, 1, 7, 8, high - 1, high], i32)[:, None]
    b = np.array([low, -7, -3, -1, 0, 1, 2, 7, high], i32)
    with np.errstate(all="ignore"):
        same(ours(dev.upload(a), dev.upload(b)), theirs(a, b))
        a, b = a.astype(u32), b.astype(u32)
        same(ours(dev.upload(a), dev.upload(b)), theirs(a, b))


@pytest.mark.parametrize("name", ["//", "%"])
def test_float_division_rounds_down(dev: tensai.Device, name: str) -> None:
    # Exact multiples, quotients just below an integer, and quotients with more digits than
    # float32 has, whose remainder is still exact.
    ours, theirs = ARITHMETIC[name]
    a = np.array([0.0, 0.3, 6, -6, 5.9999995, -6.0000005, 1, 1e10, -1e10, 3e30, 16777217], f32)
    b = np.array([0.1, 3, -3, 2, 1e-3, -0.7, 7e-12], f32)
    got = ours(dev.upload(a[:, None]), dev.upload(b))
    same(got, theirs(wide(a)[:, None], wide(b)), 1e-7, each=True)


def test_power_of_integers(dev: tensai.Device) -> None:
    a = np.arange(-6, 7, dtype=i32)[:, None]
    b = np.arange(0, 15, dtype=i32)
    same(dev.upload(a) ** dev.upload(b), a**b)
    same(abs(dev.upload(a)).astype(u32) ** 31, abs(a).astype(u32) ** u32(31))
    # A negative power is PyTorch's: a fraction cut to 0 but for 1 and -1.
    bases = np.array([1, -1, 2, -2, 9], i32)
    for exponent in (-1, -2, -3):
        theirs = torch.tensor(bases).pow(torch.full((5,), exponent, dtype=torch.int32)).numpy()
        same(dev.upload(bases) ** exponent, theirs)


def test_power_is_accurate(dev: tensai.Device) -> None:
    rng = np.random.default_rng(4)
    a = np.exp(rng.uniform(-20, 20, 4000)).astype(f32)
    b = rng.uniform(-6, 6, 4000).astype(f32)
    expected = wide(a) ** wide(b)
    ordinary = (expected > 1e-37) & (expected < 1e38)
    same(dev.upload(a[ordinary]) ** b[ordinary], expected[ordinary], 2e-6, each=True)


def test_signs_of_zero(dev: tensai.Device) -> None:
    zeros = dev.upload(np.array([0.0, -0.0], f32))
    assert np.signbit((-zeros).download()).tolist() == [True, False]
    assert np.signbit(abs(zeros).download()).tolist() == [False, False]
    assert np.signbit(zeros.copy().download()).tolist() == [False, True]
    same(1 / zeros, [np.inf, -np.inf])
    same(1 / (zeros * -2.0), [-np.inf, np.inf])


# Functions of one number ------------------------------------------------------------------------

GRID = np.concatenate(
    [
        np.linspace(-12, 12, 3001),
        np.linspace(-1e-3, 1e-3, 101),
        [1e-7, -1e-7, 30.0, -30.0, 80.0, -80.0, 88.0, -88.0, 1e4, -1e4, 3e38, -3e38],
        [np.nan, np.inf, -np.inf, 0.0, -0.0],
    ]
).astype(f32)
POSITIVE = np.concatenate([np.geomspace(1e-37, 3e38, 3001), np.linspace(0.9, 1.1, 501)]).astype(f32)
FUNCTIONS: dict[str, tuple[Any, Array]] = {
    "exp": (torch.exp, GRID),
    "log": (torch.log, np.concatenate([POSITIVE, SPECIAL])),
    "sqrt": (torch.sqrt, np.concatenate([POSITIVE, SPECIAL])),
    "rsqrt": (torch.rsqrt, np.concatenate([POSITIVE, SPECIAL])),
    "square": (torch.square, GRID),
    "tanh": (torch.tanh, GRID),
    "sigmoid": (torch.sigmoid, GRID),
    "erf": (torch.erf, GRID),
    "relu": (torch.relu, GRID),
    "silu": (torch.nn.functional.silu, GRID),
    "gelu": (torch.nn.functional.gelu, GRID),
    "abs": (torch.abs, GRID),
    "negative": (torch.negative, GRID),
}


def activation(function: Any, x: Array) -> Array:
    """PyTorch in float64; silu and gelu go to 0 at minus infinity, where it answers NaN."""
    result = function(torch.tensor(x.astype(np.float64))).numpy()
    if function in (torch.nn.functional.silu, torch.nn.functional.gelu):
        result = np.where(np.isneginf(x), 0.0, result)
    return result


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(dev: tensai.Device, name: str) -> None:
    function, x = FUNCTIONS[name]
    got = getattr(dev.upload(x), name)()
    same(got, activation(function, x), 2e-6, each=True)
    same(getattr(tensai.ops, name)(dev.upload(x)), got.download())
    small = numbers((3, 1, 5), f16)
    expected = activation(function, small).astype(f16)
    same(getattr(dev.upload(small), name)(), expected, 1e-3, each=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_integers(dev: tensai.Device, name: str) -> None:
    # float32 where PyTorch gives a float, integers where it keeps them.
    function = FUNCTIONS[name][0]
    x = np.array([-3, -1, 0, 1, 2, 5], i32)
    floats = name in ("silu", "gelu")  # which PyTorch has for floats only
    expected = function(torch.tensor(x, dtype=torch.float64 if floats else None)).numpy()
    same(getattr(dev.upload(x), name)(), expected, 1e-6, each=True)


def test_gelu_by_tanh(dev: tensai.Device) -> None:
    # 1 + tanh(u) in float64 loses the digits of the far left, so this is x sigmoid(2u).
    x = GRID.astype(np.float64)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    gate = torch.sigmoid(torch.tensor(2 * inner)).numpy()
    expected = np.where(np.isneginf(x), 0.0, x * gate)
    same(dev.upload(GRID).gelu(approximate="tanh"), expected, 4e-6, each=True)
    theirs = torch.nn.functional.gelu(torch.tensor(x[:3001]), approximate="tanh").numpy()
    same(dev.upload(GRID[:3001]).gelu(approximate="tanh"), theirs, 1e-6)
    with pytest.raises(ValueError, match="approximate"):
        dev.upload(GRID).gelu(approximate="maybe")


def test_silu_mul(dev: tensai.Device) -> None:
    a, b = numbers((4, 33)), numbers((33,), seed=2)
    expected = torch.nn.functional.silu(torch.tensor(wide(a))).numpy() * b
    same(dev.upload(a).silu_mul(dev.upload(b)), expected, 1e-6, each=True)


# where, conversions, creation -------------------------------------------------------------------


def test_where(dev: tensai.Device) -> None:
    for kind in (f32, f16, i32, u32, np.bool_):
        condition = numbers((4, 1, 3), np.bool_)
        a, b = numbers((2, 3), kind), numbers((3,), kind, 2)
        expected = np.where(condition, a, b)
        same(dev.where(dev.upload(condition), dev.upload(a), dev.upload(b)), expected, what=kind)
        same(dev.where(condition, a, dev.upload(b)), expected, what=kind)
    x = np.array([1.0, -np.inf, np.nan, np.inf, 5.0], f32)
    t = dev.upload(x)
    # What is not chosen must not leak: an infinity times 0 would be NaN.
    same(dev.where(t > 0, t, 0.0), [1.0, 0.0, 0.0, np.inf, 5.0])
    same(dev.where([True, True, False, False, True], -np.inf, t), [-np.inf] * 2 + [np.nan, np.inf, -np.inf])
    same(dev.where(dev.upload([0, 2, -1]), 1, 2), np.array([2, 1, 1], i32))
    same(dev.where(True, dev.upload([1, 2]), dev.upload([0.5, 0.5])), [1.0, 2.0])


CONVERTED: dict[Any, Array] = {
    f32: np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.99, -0.99, 2.5, -3.7, 3e9, -3e9, 5e9, 1e38, -1e38]
        + [2147483520.0, -2147483648.0, 4294967040.0, 65504, 65519.996, 65520, -70000, 2049, 2051]
        + [5.9604645e-08, 2.9802322e-08, 2.9802326e-08, 6.1035156e-05, 6.1e-05, 1e-8, 1.00048828125],
        f32,
    ),
    i32: np.array([0, 1, -1, 2**31 - 1, -(2**31), 16777217, 2049, -70000], i32),
    u32: np.array([0, 1, 2**32 - 1, 2**31, 16777217, 2051, 70000], u32),
    np.bool_: np.array([True, False, True]),
}


@pytest.mark.parametrize("kind", CONVERTED)
def test_astype(dev: tensai.Device, kind: Any) -> None:
    x = CONVERTED[kind]
    for target in (f32, f16, i32, u32, np.bool_):
        with np.errstate(all="ignore"):
            expected = x.astype(target)
        if kind == f32 and target in (i32, u32):
            # Toward zero, saturating, NaN as 0: NumPy leaves these to the processor.
            limits = np.iinfo(target)
            whole = np.trunc(np.nan_to_num(x.astype(np.float64), posinf=1e300, neginf=-1e300))
            expected = np.clip(whole, limits.min, limits.max).astype(target)
        got = dev.upload(x).astype(target)
        same(got, expected, what=(kind, target))
        same(dev.upload(x).astype(np.dtype(target).name), expected)
    same(dev.upload(x).astype(kind), x)
    with pytest.raises(tensai.DTypeError):
        dev.upload(x).astype(np.float64)


def test_every_float16(dev: tensai.Device) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(f16)
    t = dev.upload(every)
    same(t, every)
    same(t.astype(f32), every.astype(f32))
    same(t.astype(f32).astype(f16), every)
    same(t.astype(i32), np.trunc(np.nan_to_num(every.astype(np.float64), posinf=2**31 - 1, neginf=-(2**31))).astype(i32))
    # Midway between neighbours, just above, and just below: ties to even.
    finite = every[np.isfinite(every)].astype(np.float64)
    middle = ((finite[:-1] + finite[1:]) / 2).astype(f32)
    for x in (middle, np.nextafter(middle, f32(np.inf)), np.nextafter(middle, f32(-np.inf))):
        same(dev.upload(x).astype(f16), x.astype(f16))


def test_creation(dev: tensai.Device) -> None:
    for shape in ((), (3,), (2, 0, 4), (2, 3, 5), (1025,)):
        for kind in (f32, f16, i32, u32, np.bool_):
            same(dev.zeros(shape, dtype=kind), np.zeros(shape, kind))
            same(dev.full(shape, 3, dtype=kind), np.full(shape, 3, kind))
            empty = dev.empty(shape, dtype=kind)
            assert (empty.shape, empty.dtype) == (shape, kind)
    same(dev.zeros(4), np.zeros(4, f32))
    same(dev.ones((2, 2)), np.ones((2, 2), f32))
    same(dev.full((2,), -np.inf), np.full(2, -np.inf, f32))
    same(dev.full((2,), 2**31, dtype=u32), np.full(2, 2**31, u32))


def test_the_host_sees_a_tensor(dev: tensai.Device) -> None:
    x = numbers((2, 3))
    t = dev.upload(x)
    assert (t.shape, t.ndim, t.size, t.dtype, t.nbytes, t.device) == ((2, 3), 2, 6, f32, 24, dev)
    assert len(t) == 2
    assert t.tolist() == x.tolist()
    same(np.asarray(t), x)
    same(np.asarray(t, dtype=f16), x.astype(f16))
    same(np.concatenate([row for row in t]), x.reshape(-1))
    one = dev.upload(7)
    assert (one.item(), float(one), int(one), bool(one), [5] * 8) == (7, 7.0, 7, True, [5] * (one + 1).item())
    assert range(10)[one] == 7
    assert dev.upload([[2.5]]).item() == 2.5
    assert dev.upload(False).item() is False
    for wrong in (float, t.item.__func__, bool):
        with pytest.raises(ValueError):
            wrong(t)
    with pytest.raises(TypeError):
        len(one)
    assert len({t, t, one}) == 2


# Reductions -------------------------------------------------------------------------------------

REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_axes(dev: tensai.Device, name: str) -> None:
    for shape in ((), (1,), (7,), (5, 3), (2, 3, 4, 5), (1, 6, 1), (33, 300)):
        x = numbers(shape)
        t = dev.upload(x)
        axes: list[Any] = [None, *range(-len(shape), len(shape))]
        for count in range(len(shape) + 1):
            axes += itertools.combinations(range(len(shape)), count)
        for axis, keepdims in itertools.product(axes, (False, True)):
            expected = REDUCTIONS[name](wide(x), axis=axis, keepdims=keepdims)
            tolerance = 1e-6 * max(1, np.sqrt(x.size)) if name in ("sum", "mean") else 0
            got = getattr(t, name)(axis=axis, keepdims=keepdims)
            same(got, expected, tolerance, what=(name, shape, axis, keepdims))
    same(getattr(t, name)([0, 1]), REDUCTIONS[name](wide(x)), 1e-4)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_dtypes(dev: tensai.Device, name: str) -> None:
    for kind in (f32, f16, i32, u32, np.bool_):
        x = numbers((3, 300, 2), kind)
        for axis in (None, 1, (0, 2), -1):
            expected = REDUCTIONS[name](x, axis=axis)
            if kind == f16 or name == "mean":
                expected = REDUCTIONS[name](wide(x), axis=axis).astype(f16 if kind == f16 else f32)
            tolerance = 1e-3 if kind == f16 else 1e-6 if name in ("sum", "mean") else 0
            same(getattr(dev.upload(x), name)(axis), expected, tolerance, what=(kind, axis))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_special_values(dev: tensai.Device, name: str) -> None:
    for at in (0, 17, 255, 256, 4095, 4096, 9999):
        for values in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [-np.inf, np.nan]):
            x = numbers((10_000,))
            x[at : at + len(values)] = values[: 10_000 - at]
            with np.errstate(all="ignore"):
                expected = REDUCTIONS[name](wide(x))
            same(getattr(dev.upload(x), name)(), expected, 1e-4, what=(at, values))
    x = np.full((3, 500), -np.inf, f32)
    same(getattr(dev.upload(x), name)(-1), np.full(3, -np.inf, f32))
    x = np.full((500, 3), -1e30 if name == "max" else 1e30, f32)
    same(getattr(dev.upload(x), name)(0), REDUCTIONS[name](wide(x), axis=0), 1e-6)


def test_integer_sums_wrap_around(dev: tensai.Device) -> None:
    for kind in (i32, u32):
        x = np.full(5000, np.iinfo(kind).max - 3, kind)
        same(dev.upload(x).sum(), np.sum(x, dtype=kind))
    extremes = np.array([-(2**31), 2**31 - 1, 5], i32)
    assert dev.upload(extremes).max().item() == 2**31 - 1
    assert dev.upload(extremes).min().item() == -(2**31)
    assert dev.upload(extremes.astype(u32)).max().item() == 2**31


SIZES = [1, 2, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 65536, 65537, 100000, 100001]


@pytest.mark.parametrize("kind", [f32, i32])
@pytest.mark.parametrize("batched", [False, True])
def test_sums_are_exact(dev: tensai.Device, kind: Any, batched: bool) -> None:
    rng = np.random.default_rng(6)
    arrays = [np.ones(size, kind) for size in SIZES]
    arrays += [rng.integers(-100, 101, size).astype(kind) for size in SIZES]
    if batched:
        with dev.batch():
            sums = [dev.upload(array).sum() for array in arrays]
        got = [total.item() for total in sums]
    else:
        got = [dev.upload(array).sum().item() for array in arrays]
    assert got == [array.sum(dtype=np.int64) for array in arrays]


def test_sums_of_fractions(dev: tensai.Device) -> None:
    for size in (100_001, 1_000_003):
        x = np.random.default_rng(size).uniform(0, 1, size).astype(f32)
        assert dev.upload(x).sum().item() == pytest.approx(x.sum(dtype=np.float64), rel=1e-6)
        assert dev.upload(x).mean().item() == pytest.approx(x.mean(dtype=np.float64), rel=1e-6)
    # More than 65,536 elements: the count itself must not be cut.
    assert dev.upload(np.full(70_001, 3, f32)).mean().item() == 3
    assert dev.upload(np.full(70_001, 3, i32)).mean().item() == 3


def test_long_and_many_reductions(dev: tensai.Device) -> None:
    for shape in ((2, 70_001), (70_001, 2), (300, 500), (3, 9001, 5)):
        x = np.random.default_rng(1).integers(-9, 10, shape).astype(f32)
        for axis in range(len(shape)):
            for name, theirs in REDUCTIONS.items():
                got = getattr(dev.upload(x), name)(axis)
                same(got, theirs(wide(x), axis=axis), 1e-6 if name == "mean" else 0)


def test_sum_cols(dev: tensai.Device) -> None:
    for shape in ((5,), (4, 6), (2, 3, 7), (0, 3), ()):
        x = numbers(shape)
        if not shape:
            continue
        expected = wide(x).sum(axis=tuple(range(len(shape) - 1)))
        same(dev.upload(x).sum_cols(), expected, 1e-6)


def test_argmax(dev: tensai.Device) -> None:
    for kind in (f32, f16, i32, u32, np.bool_):
        for shape in ((1,), (9,), (4, 700), (3, 5, 7), (513, 2)):
            x = numbers(shape, kind, 3)  # with ties among integers: the first one counts
            for axis, keepdims in itertools.product([None, *range(-len(shape), len(shape))], (False, True)):
                expected = np.argmax(x, axis=axis, keepdims=keepdims)
                what = (kind, shape, axis, keepdims)
                same(dev.upload(x).argmax(axis, keepdims), expected, what=what)
    x = numbers((3, 1000))
    x[0, 700], x[0, 800], x[1] = np.nan, np.nan, -np.inf
    x[2, 999] = np.inf
    assert dev.upload(x).argmax(-1).tolist() == [700, 0, 999]
    assert dev.upload(np.zeros(70_001, f32)).argmax().item() == 0
    assert dev.upload(np.arange(70_001, dtype=f32)).argmax().item() == 70_000
