"""Elementwise operations, each an expression in WGSL beside one in NumPy.

All broadcast as NumPy does, and their gradients may be of the broadcast shape: a tape sums what
was broadcast. float16 computes in float32. NaN goes in, NaN comes out, also through
maximum, minimum and relu; large arguments of exp, tanh, sigmoid and gelu saturate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import DType, bool_, f32, i32, narrowed_to, promote, u32, widened
from ..errors import DTypeError
from ..operation import Job, Operation, Probe, Result, Spec, operation
from ..reference import TINY
from .strided import elementwise

Array = np.ndarray[Any, Any]
Gradients = dict[Any, Callable[..., Any]]

NUMBERS = (f32, i32, u32)
EVERY = (*NUMBERS, bool_)

# Where functions change their form, saturate or have no value. No denormal: devices may take it
# for 0. The last are NaN with other bits than usual.
SPECIAL = np.array(
    [
        *(np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 0.5, -2.5, 3, -3, 2, 1e4, -1e4, 88.5, -87, 1e-6),
        *(3.4e38, -3.4e38, 1.2e-38, 1e30, 33, -32, 16777217, 0.999, 1.001, -0.7, 255.5, -101, 5e9),
    ],
    dtype=np.float32,
)
SPECIAL = np.append(SPECIAL, np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32))
WHOLE = np.array([0, 1, -1, 2, -2, 3, 7, -9, 10, 31, 65_537, 2**31 - 1, -(2**31), -31], np.int64)

COUNT = 2047  # elements: all but the last of two full workgroups, four a thread


def sample(count: int, dtype: DType, seed: int) -> Array:
    """Values that make a kernel's mistakes visible: fractions, signs, specials, small integers."""
    rng = np.random.default_rng(seed)
    if dtype == f32:
        array = rng.normal(0, 3, count).astype(np.float32)
        array[1::4] *= 12
        array[: len(SPECIAL)] = np.roll(SPECIAL, seed)[:count]
        return array
    if dtype == bool_:
        return rng.integers(0, 2, count).astype(np.bool_)
    return rng.integers(0 if dtype == u32 else -9, 10, count).astype(dtype)


def pairs(dtype: DType) -> tuple[Array, Array]:
    """COUNT pairs: every special value with every other, then others."""
    a, b = sample(COUNT, dtype, 1), sample(COUNT, dtype, 2)
    if dtype == bool_:
        return a, b
    special = SPECIAL if dtype == f32 else WHOLE.astype(dtype)
    a[: special.size**2] = np.repeat(special, special.size)
    b[: special.size**2] = np.tile(special, special.size)
    return a, b


def _define(
    name: str,
    doc: str,
    rule: Callable[..., Result],
    expression: str | Callable[[Job], str],
    compute: Callable[..., Any],
    probes: Callable[[], Sequence[Probe]],
    gradients: Gradients | None,
) -> Operation:
    rule.__name__ = rule.__qualname__ = name
    rule.__doc__ = doc
    return operation(
        kernels=[elementwise(name, expression)],
        reference=compute,
        probes=probes,
        gradients=gradients,
    )(rule)


def unary(
    name: str,
    doc: str,
    expression: str | dict[str, str],
    compute: Callable[[Array], Any],
    gradient: Callable[..., Any] | None,
    *,
    integers: bool = False,
    tolerance: float = 1e-6,
) -> Operation:
    """An operation on one tensor; integers are converted to float32 unless `integers`."""

    def rule(x: Spec) -> Result:
        if x.dtype == bool_ and integers:
            raise DTypeError(f"[{name}] expected numbers, but got bool; use astype()")
        cast = x.dtype if integers and x.dtype in (i32, u32) else f32
        return Result((Spec(x.shape, cast),), (cast,), narrowed_to(x.dtype))

    def probes() -> list[Probe]:
        dtypes = NUMBERS if integers else (f32,)
        return [
            Probe((x,), {}, tolerance, floor=TINY)
            for dtype in dtypes
            for x in (pairs(dtype)[0], sample(COUNT, dtype, 1))
        ]

    gradients = None if gradient is None else {"x": gradient}
    return _define(name, doc, rule, _by_dtype(expression), compute, probes, gradients)


def binary(
    name: str,
    doc: str,
    expression: str | dict[str, str],
    compute: Callable[[Array, Array], Any],
    gradients: Gradients | None = None,
    *,
    result: DType | None = None,
    dtypes: tuple[DType, ...] = NUMBERS,
    tolerance: float = 0.0,
) -> Operation:
    """An operation on two tensors that broadcast.

    `dtypes` are those it computes in (others are converted to float32), `result` that of its
    output when it is another one.
    """

    def rule(a: Spec, b: Spec) -> Result:
        shape = rules.broadcast(name, a.shape, b.shape)
        common = promote(a.dtype, b.dtype)
        working = widened(common)
        if working not in dtypes:
            if f32 not in dtypes or name == "subtract":  # which NumPy refuses for bools
                raise DTypeError(f"[{name}] does not take {a.dtype} and {b.dtype}; use astype()")
            working = i32 if working == bool_ and i32 in dtypes else f32
        finish = narrowed_to(common) if result is None else None
        return Result((Spec(shape, result or working),), (working, working), finish)

    def probes() -> list[Probe]:
        made = []
        for dtype in dtypes:
            a, b = pairs(dtype)
            made.append(Probe((a, b), {}, tolerance, floor=TINY))
            a, b = sample(COUNT, dtype, 1), sample(COUNT, dtype, 2)
            for value in (True, False) if dtype == bool_ else (2.5,):
                one = np.array([value]).astype(dtype)
                a[6::51] = one  # in every place of four, but seldom
                made.append(Probe((a, one), {}, tolerance, floor=TINY))
                made.append(Probe((one, a), {}, tolerance, floor=TINY))
            strided = a[:64].reshape(1, 2, 1, 2, 1, 16), b[:12].reshape(2, 1, 3, 1, 2, 1)
            made.append(Probe(strided, {}, tolerance, floor=TINY))
        return made

    return _define(name, doc, rule, _by_dtype(expression), compute, probes, gradients)


def _by_dtype(expression: str | dict[str, str]) -> str | Callable[[Job], str]:
    if isinstance(expression, str):
        return expression
    return lambda job: expression[job.inputs[0].dtype.name]


def typed(
    floats: str, signed: str, unsigned: str | None = None, bools: str | None = None
) -> dict[str, str]:
    """An expression for each dtype that kernels compute in."""
    return {
        "float32": floats,
        "int32": signed,
        "uint32": unsigned or signed,
        "bool": bools or signed,
    }


negative = unary(
    "negative",
    "-x; unsigned integers wrap around.",
    typed("-a", "-a", "0u - a"),
    np.negative,
    lambda grad: -grad,
    integers=True,
    tolerance=0,
)
absolute = unary(
    "abs",
    "Absolute value.",
    "abs(a)",
    np.abs,
    lambda grad, x: grad * ((x > 0).astype(f32) - (x < 0).astype(f32)),
    integers=True,
    tolerance=0,
)
square = unary(
    "square",
    "x * x.",
    "a * a",
    np.square,
    lambda grad, x: grad * x * 2,
    integers=True,
    tolerance=1e-7,
)
exp = unary(
    "exp",
    "e ** x; 0 and inf for large arguments.",
    "exp_f32(a)",
    np.exp,
    lambda grad, out: grad * out,
    tolerance=1e-6,
)
log = unary(
    "log",
    "Natural logarithm; -inf at 0, NaN below.",
    "log_f32(a)",
    np.log,
    lambda grad, x: grad / x,
    tolerance=1e-6,
)
sqrt = unary(
    "sqrt", "Square root; NaN below 0.", "sqrt(a)", np.sqrt, lambda grad, out: grad / (out * 2)
)
rsqrt = unary(
    "rsqrt",
    "1 / sqrt(x).",
    "1.0 / sqrt(a)",
    lambda x: 1 / np.sqrt(x),
    lambda grad, out: grad * (out * out * out * -0.5),
)
erf = unary(
    "erf",
    "The error function.",
    "erf_f32(a)",
    reference.erf,
    lambda grad, x: grad * (-(x * x)).exp() * (2 / math.sqrt(math.pi)),
    tolerance=1e-6,
)


def _share(a: Any, b: Any, worse: Any) -> Any:
    """0 where maximum or minimum takes the other, 1/2 where both are equal, else 1, as PyTorch."""
    where = a.device.where
    return where(worse, 0.0, where(a == b, 0.5, 1.0))


add = binary(
    "add",
    "a + b; of bools, whether either is true.",
    typed("a + b", "a + b", bools="a || b"),
    np.add,
    {"a": lambda grad: grad, "b": lambda grad: grad},
    dtypes=EVERY,
)
subtract = binary(
    "subtract",
    "a - b; not of bools.",
    "a - b",
    np.subtract,
    {"a": lambda grad: grad, "b": lambda grad: -grad},
)
multiply = binary(
    "multiply",
    "a * b; of bools, whether both are true.",
    typed("a * b", "a * b", bools="a && b"),
    np.multiply,
    {"a": lambda grad, b: grad * b, "b": lambda grad, a: grad * a},
    dtypes=EVERY,
)
divide = binary(
    "divide",
    "a / b in float32, also for integers.",
    "divide_f32(a, b)",
    np.divide,
    {"a": lambda grad, b: grad / b, "b": lambda grad, b, out: -(grad * out / b)},
    dtypes=(f32,),
    tolerance=1e-6,
)
floor_divide = binary(
    "floor_divide",
    "a // b, rounded toward minus infinity; 0 for an integer divided by 0.",
    typed("divmod_f32(a, b).x", "divmod_i32(a, b).x", "divmod_u32(a, b).x"),
    np.floor_divide,
    tolerance=1e-6,
)
remainder = binary(
    "remainder",
    "a % b, with the sign of b; 0 for an integer modulo 0.",
    typed("divmod_f32(a, b).y", "divmod_i32(a, b).y", "divmod_u32(a, b).y"),
    np.remainder,
    tolerance=1e-6,
)
power = binary(
    "power",
    "a ** b. Integers to a negative power give 0, or a power of 1 or -1.",
    typed("power_f32(a, b)", "power_i32(a, b)", "power_u32(a, b)"),
    reference.power,
    {
        # A power of 0 is 1 everywhere, also at 0.
        "a": lambda grad, a, b: grad * grad.device.where(b == 0, 0.0, b * a ** (b - 1.0)),
        # 0 ** b is 0 for every b > 0, so nothing follows from b there; b = 0 as in PyTorch.
        "b": lambda grad, a, b, out: (
            grad * grad.device.where((a == 0) & (b >= 0), 0.0, out * a.log())
        ),
    },
    tolerance=2e-6,
)
maximum = binary(
    "maximum",
    "The larger of a and b; NaN if either is NaN.",
    typed("max_nan(a, b)", "max(a, b)", bools="a || b"),
    np.maximum,
    {
        "a": lambda grad, a, b: grad * _share(a, b, a < b),
        "b": lambda grad, a, b: grad * _share(a, b, b < a),
    },
    dtypes=EVERY,
)
minimum = binary(
    "minimum",
    "The smaller of a and b; NaN if either is NaN.",
    typed("min_nan(a, b)", "min(a, b)", bools="a && b"),
    np.minimum,
    {
        "a": lambda grad, a, b: grad * _share(a, b, a > b),
        "b": lambda grad, a, b: grad * _share(a, b, b > a),
    },
    dtypes=EVERY,
)
equal = binary("equal", "a == b, as bool.", "a == b", np.equal, result=bool_)
not_equal = binary("not_equal", "a != b, as bool.", "!(a == b)", np.not_equal, result=bool_)
less = binary("less", "a < b, as bool.", "a < b", np.less, result=bool_)
less_equal = binary("less_equal", "a <= b, as bool.", "a <= b", np.less_equal, result=bool_)
greater = binary("greater", "a > b, as bool.", "a > b", np.greater, result=bool_)
greater_equal = binary(
    "greater_equal", "a >= b, as bool.", "a >= b", np.greater_equal, result=bool_
)
bitwise_and = binary(
    "bitwise_and",
    "a & b, for integers and bool.",
    "a & b",
    np.bitwise_and,
    dtypes=(i32, u32, bool_),
)
bitwise_or = binary(
    "bitwise_or", "a | b, for integers and bool.", "a | b", np.bitwise_or, dtypes=(i32, u32, bool_)
)
bitwise_xor = binary(
    "bitwise_xor",
    "a ^ b, for integers and bool.",
    {"int32": "a ^ b", "uint32": "a ^ b", "bool": "a != b"},
    np.bitwise_xor,
    dtypes=(i32, u32, bool_),
)


@operation(
    kernels=[elementwise("invert", lambda job: "!a" if job.inputs[0].dtype == bool_ else "~a")],
    reference=np.invert,
    probes=lambda: [Probe((pairs(dtype)[0],)) for dtype in (i32, u32, bool_)],
)
def invert(x: Spec) -> Result:
    """~x, for integers and bool."""
    if x.dtype.kind == "f":
        raise DTypeError(f"[invert] expected integers or bool, but got {x.dtype}")
    return Result((x,), (x.dtype,))


@operation(
    kernels=[elementwise("where", "select(c, b, a)")],
    reference=np.where,
    probes=lambda: [
        probe
        for dtype in (f32, i32, u32, bool_)
        for c, a, b in (
            (sample(COUNT, bool_, 3), sample(COUNT, dtype, 1), sample(COUNT, dtype, 2)),
            (sample(COUNT, bool_, 3), sample(COUNT, dtype, 1)[:1], sample(COUNT, dtype, 2)[-1:]),
            (np.array([True]), sample(COUNT, dtype, 1), sample(COUNT, dtype, 2)),
            (
                sample(24, bool_, 3).reshape(2, 1, 3, 2, 2, 1),
                sample(64, dtype, 1).reshape(1, 2, 1, 2, 1, 16),
                sample(12, dtype, 2).reshape(2, 1, 3, 1, 2, 1),
            ),
        )
        for probe in (Probe((c, a, b)),)
    ],
    method=False,
    gradients={
        "a": lambda grad, condition: grad.device.where(condition, grad, 0.0),
        "b": lambda grad, condition: grad.device.where(condition, 0.0, grad),
    },
)
def where(condition: Spec, a: Spec, b: Spec) -> Result:
    """Elements of a where condition is true (not 0), else of b; all three broadcast."""
    shape = rules.broadcast("where", condition.shape, a.shape, b.shape)
    common = promote(a.dtype, b.dtype)
    working = widened(common)
    return Result((Spec(shape, working),), (bool_, working, working), narrowed_to(common))
