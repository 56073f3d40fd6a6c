"""Elementwise operations, conversions and creation, on the GPU and on the NumPy device.

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
from compare import SMALLEST_NORMAL, Array, numbers, same, wide

import tensai

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32

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


def test_powers_near_the_ends_of_float32(dev: tensai.Device) -> None:
    # On the way to a whole negative power lies its inverse, which may be no normal number.
    b = np.repeat(np.arange(-32, 33, dtype=f32), 64)
    b = b[b != 0]
    size = np.tile(np.linspace(80, 88.6, 32), 128)  # logarithms of results
    for sign in (1, -1):
        a = (np.exp(sign * size / b) * np.where(np.arange(b.size) % 2, -1, 1)).astype(f32)
        expected = wide(a) ** wide(b)
        ordinary = (abs(expected) < 3.4e38) & (abs(expected) > 1.2e-38)
        assert ordinary.sum() > 3000
        same(dev.upload(a[ordinary]) ** b[ordinary], expected[ordinary], 2e-6, each=True)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2.0, 3.0, -1.0])
def test_powers_of_what_is_no_ordinary_number(dev: tensai.Device, exponent: float) -> None:
    a = np.array([-np.inf, -0.0, 0.0, np.inf, np.nan, -2.0], f32)
    with np.errstate(all="ignore"):
        expected = np.power(a, np.full(6, exponent, f32))  # element by element
    for b in (exponent, dev.upload(np.array([exponent], f32)), np.full(6, exponent, f32)):
        found = (dev.upload(a) ** b).download()
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found[:4]), np.signbit(expected[:4]))


def test_signs_of_zero(dev: tensai.Device) -> None:
    zeros = dev.upload(np.array([0.0, -0.0], f32))
    assert np.signbit((-zeros).download()).tolist() == [True, False]
    assert np.signbit(abs(zeros).download()).tolist() == [False, False]
    assert np.signbit(zeros.copy().download()).tolist() == [False, True]
    same(1 / zeros, [np.inf, -np.inf])
    same(1 / (zeros * -2.0), [-np.inf, np.inf])
    same(1 / (dev.ones(1) * 0.0), [np.inf])
    same(1 / (dev.ones(1) * -0.0), [-np.inf])


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
    "gelu": (lambda x: x / 2 * torch.special.erfc(-x / 2**0.5), GRID),  # without cancellation
    "abs": (torch.abs, GRID),
    "negative": (torch.negative, GRID),
}


def right(name: str, x: Array) -> Array:
    """PyTorch in float64; silu and gelu go to 0 at minus infinity, where it answers NaN."""
    result = FUNCTIONS[name][0](torch.tensor(x.astype(np.float64))).numpy()
    return np.where(np.isneginf(x), 0.0, result) if name in ("silu", "gelu") else result


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(dev: tensai.Device, name: str) -> None:
    x = FUNCTIONS[name][1]
    got = getattr(dev.upload(x), name)()
    # The far left of gelu is e to the power of a large number, which magnifies its rounding.
    floor = 1e-9 if name == "gelu" else SMALLEST_NORMAL
    same(got, right(name, x), 2e-6, each=True, floor=floor)
    same(getattr(tensai.ops, name)(dev.upload(x)), got.download())
    small = numbers((3, 1, 5), f16)
    same(getattr(dev.upload(small), name)(), right(name, small).astype(f16), 1e-3, each=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_integers(dev: tensai.Device, name: str) -> None:
    # float32 where PyTorch gives a float, integers where it keeps them.
    function = FUNCTIONS[name][0]
    x = np.array([-3, -1, 0, 1, 2, 5], i32)
    floats = name in ("silu", "gelu")  # which PyTorch has for floats only
    expected = function(torch.tensor(x, dtype=torch.float64 if floats else torch.int32)).numpy()
    same(getattr(dev.upload(x), name)(), expected, 1e-6, each=True)


def test_gelu_by_tanh(dev: tensai.Device) -> None:
    # At minus infinity PyTorch answers NaN instead of the limit.
    x = torch.tensor(GRID.astype(np.float64))
    theirs = torch.nn.functional.gelu(x, approximate="tanh").numpy()
    expected = np.where(np.isneginf(GRID), 0.0, theirs)
    same(dev.upload(GRID).gelu(approximate="tanh"), expected, 2e-6, each=True, floor=1e-9)
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
    same(
        dev.where([True, True, False, False, True], -np.inf, t),
        [-np.inf] * 2 + [np.nan, np.inf, -np.inf],
    )
    same(dev.where(dev.upload([0, 2, -1]), 1, 2), np.array([2, 1, 1], i32))
    same(dev.where(True, dev.upload([1, 2]), dev.upload([0.5, 0.5])), [1.0, 2.0])


FRACTIONS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 0.99, -0.99, 2.5, -3.7, 1e38, -1e38)
ENDS = (2147483520, -2147483648, 3e9, -3e9, 4294967040, 5e9)  # of the integers' ranges
# float16's largest number, what rounds to it and to infinity, ties, the smallest and half of it.
HALVES = (65504, 65519.996, 65520, -70000, 2049, 2051, 1.00048828125, 6.1035156e-05, 6.1e-05)
HALVES += (5.9604645e-08, 2.9802322e-08, 2.9802326e-08, 1e-8)
CONVERTED: dict[Any, Array] = {
    f32: np.array([*FRACTIONS, *ENDS, *HALVES], f32),
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
    same(
        t.astype(i32),
        np.trunc(np.nan_to_num(every.astype(np.float64), posinf=2**31 - 1, neginf=-(2**31))).astype(
            i32
        ),
    )
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
    same(np.concatenate(list(t)), x.reshape(-1))
    one = dev.upload(7)
    assert (one.item(), float(one), int(one), bool(one), [5] * 8) == (
        7,
        7.0,
        7,
        True,
        [5] * (one + 1).item(),
    )
    assert range(10)[one] == 7
    assert dev.upload([[2.5]]).item() == 2.5
    assert dev.upload(False).item() is False
    for wrong in (float, t.item.__func__, bool):
        with pytest.raises(ValueError):
            wrong(t)
    with pytest.raises(TypeError):
        len(one)
    assert len({t, t, one}) == 2
