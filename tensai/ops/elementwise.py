"""Elementwise operations, each an expression in WGSL beside one in NumPy.

All broadcast as NumPy does. float16 computes in float32. NaN goes in, NaN comes out, also through
maximum, minimum and relu; large arguments of exp, tanh, sigmoid and gelu saturate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import DType, bool_, f32, i32, narrowed_to, promote, u32, widened
from ..errors import DTypeError
from ..operation import Job, Operation, Probe, Result, Spec, operation
from .strided import elementwise

Array = np.ndarray[Any, Any]

NUMBERS = (f32, i32, u32)
EVERY = (*NUMBERS, bool_)

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e4, -1e4, 88.5, -87.0, 1e-6],
    dtype=np.float32,
)


def _sample(count: int, dtype: DType, seed: int) -> Array:
    """Values that make a kernel's mistakes visible: fractions, signs, specials, small integers."""
    rng = np.random.default_rng(seed)
    if dtype == f32:
        array = rng.normal(0, 3, count).astype(np.float32)
        array[: len(SPECIAL)] = np.roll(SPECIAL, seed)[:count]
        return array
    if dtype == bool_:
        return rng.integers(0, 2, count).astype(np.bool_)
    return rng.integers(0 if dtype == u32 else -9, 10, count).astype(dtype)


def _define(
    name: str,
    doc: str,
    rule: Callable[..., Result],
    expression: str | Callable[[Job], str],
    compute: Callable[..., Any],
    probes: Callable[[], Sequence[Probe]],
) -> Operation:
    rule.__name__ = rule.__qualname__ = name
    rule.__doc__ = doc
    return operation(kernels=[elementwise(name, expression)], reference=compute, probes=probes)(
        rule
    )


def unary(
    name: str,
    doc: str,
    expression: str | dict[str, str],
    compute: Callable[[Array], Any],
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
        return [Probe((_sample(1027, dtype, 1),), {}, tolerance) for dtype in dtypes]

    return _define(name, doc, rule, _by_dtype(expression), compute, probes)


def binary(
    name: str,
    doc: str,
    expression: str | dict[str, str],
    compute: Callable[[Array, Array], Any],
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
            a, b = _sample(1027, dtype, 1), _sample(1027, dtype, 2)
            made.append(Probe((a, b), {}, tolerance))
            made.append(Probe((a[200:], b[3:4]), {}, tolerance))
            made.append(Probe((a[:60].reshape(5, 1, 12), b[:84].reshape(7, 12)), {}, tolerance))
        return made

    return _define(name, doc, rule, _by_dtype(expression), compute, probes)


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
    integers=True,
    tolerance=0,
)
absolute = unary("abs", "Absolute value.", "abs(a)", np.abs, integers=True, tolerance=0)
square = unary("square", "x * x.", "a * a", np.square, integers=True, tolerance=1e-7)
exp = unary("exp", "e ** x; 0 and inf for large arguments.", "exp_f32(a)", np.exp, tolerance=3e-7)
log = unary("log", "Natural logarithm; -inf at 0, NaN below.", "log_f32(a)", np.log, tolerance=3e-7)
sqrt = unary("sqrt", "Square root; NaN below 0.", "sqrt(a)", np.sqrt)
rsqrt = unary("rsqrt", "1 / sqrt(x).", "1.0 / sqrt(a)", lambda x: 1 / np.sqrt(x))
relu = unary(
    "relu",
    "max(x, 0), and NaN for NaN.",
    typed("select(max(a, 0.0), a, is_nan(a))", "max(a, 0)", "a"),
    lambda x: np.maximum(x, 0),
    integers=True,
    tolerance=0,
)
tanh = unary("tanh", "Hyperbolic tangent.", "tanh_f32(a)", np.tanh, tolerance=3e-7)
sigmoid = unary(
    "sigmoid", "1 / (1 + e ** -x).", "sigmoid_f32(a)", reference.sigmoid, tolerance=3e-7
)
silu = unary("silu", "x sigmoid(x).", "silu_f32(a)", reference.silu, tolerance=3e-7)
erf = unary("erf", "The error function.", "erf_f32(a)", reference.erf, tolerance=3e-7)


def _gelu_expression(job: Job) -> str:
    return "gelu_erf(a)" if job.arguments["approximate"] == "none" else "gelu_tanh(a)"


@operation(
    kernels=[elementwise("gelu", _gelu_expression)],
    reference=reference.gelu,
    probes=lambda: [
        Probe((_sample(1027, f32, 1),), {"approximate": form}, 3e-7) for form in ("none", "tanh")
    ],
)
def gelu(x: Spec, approximate: str = "none") -> Result:
    """Gaussian error linear unit (Hendrycks and Gimpel, 2016).

    x/2 (1 + erf(x / sqrt 2)) for approximate="none", and with "tanh" the form
    x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Same shape as x.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'[gelu] expected approximate "none" or "tanh", but got {approximate!r}')
    return Result((Spec(x.shape, f32),), (f32,), narrowed_to(x.dtype))


add = binary(
    "add",
    "a + b; of bools, whether either is true.",
    typed("a + b", "a + b", bools="a || b"),
    np.add,
    dtypes=EVERY,
)
subtract = binary("subtract", "a - b; not of bools.", "a - b", np.subtract)
multiply = binary(
    "multiply",
    "a * b; of bools, whether both are true.",
    typed("a * b", "a * b", bools="a && b"),
    np.multiply,
    dtypes=EVERY,
)
divide = binary(
    "divide",
    "a / b in float32, also for integers.",
    "divide_f32(a, b)",
    np.divide,
    dtypes=(f32,),
    tolerance=3e-7,
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
    tolerance=2e-6,
)
maximum = binary(
    "maximum",
    "The larger of a and b; NaN if either is NaN.",
    typed("max_nan(a, b)", "max(a, b)", bools="a || b"),
    np.maximum,
    dtypes=EVERY,
)
minimum = binary(
    "minimum",
    "The smaller of a and b; NaN if either is NaN.",
    typed("min_nan(a, b)", "min(a, b)", bools="a && b"),
    np.minimum,
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
silu_mul = binary(
    "silu_mul",
    "silu(a) * b, as in a gated feed-forward layer.",
    "silu_f32(a) * b",
    lambda a, b: reference.silu(a) * b,
    dtypes=(f32,),
    tolerance=1e-6,
)


@operation(
    kernels=[elementwise("invert", lambda job: "!a" if job.inputs[0].dtype == bool_ else "~a")],
    reference=np.invert,
    probes=lambda: [Probe((_sample(1027, dtype, 1),)) for dtype in (i32, u32, bool_)],
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
        for probe in (
            Probe((_sample(1027, bool_, 3), _sample(1027, dtype, 1), _sample(1027, dtype, 2))),
            Probe(
                (
                    _sample(12, bool_, 3).reshape(4, 3),
                    _sample(24, dtype, 1).reshape(2, 4, 3),
                    _sample(3, dtype, 2),
                )
            ),
        )
    ],
    method=False,
)
def where(condition: Spec, a: Spec, b: Spec) -> Result:
    """Elements of a where condition is true (not 0), else of b; all three broadcast."""
    shape = rules.broadcast("where", condition.shape, a.shape, b.shape)
    common = promote(a.dtype, b.dtype)
    working = widened(common)
    return Result((Spec(shape, working),), (bool_, working, working), narrowed_to(common))
