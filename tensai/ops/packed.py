"""Products with packed matrices, and their elements (layouts: tensai/formats.py)."""

from __future__ import annotations

import math

from .. import reference
from ..dtypes import f32, i32, narrowed_to, u32
from ..errors import DTypeError, ShapeError
from ..formats import FORMATS
from ..operation import Job, Kernel, Result, Spec, composition, operation, pack
from ..quantized import QuantizedTensor
from ..tensor import Tensor
from . import int8
from .packed_kernels import GATES, KERNELS, format_values, ragged, row_layout, units
from .packed_probes import embed_probes, matmul_probes, unpack_probes

ACTIVATIONS = ("f32", "int8")


def _check_words(
    name: str, codes: Spec, scales: Spec | None, kind: str, k: int, group: int
) -> None:
    """Refuse words that are no matrix of this kind with rows of k elements."""
    made = FORMATS[kind]
    n = codes.shape[0]
    broken = made.code_parts and k % made.block  # our own kinds are padded
    if broken or codes.shape[1:] != (made.row_words(k),) or codes.dtype != u32:
        raise ShapeError(
            f"[{name}] expected words of {kind} with rows of {k} elements, but got {codes.shape}"
        )
    count = n * made.row_scales(k, group)
    if made.scales:
        count = -(-count * made.scales // 4)
    if (0 if scales is None else scales.size) != count:
        raise ShapeError(f"[{name}] expected {count} words of scales for {kind} of ({n}, {k})")


def _unpack(job: Job) -> None:
    embedding = "indices" in job.facts["given"]
    quads = FORMATS[job.arguments["kind"]].quads
    values = {
        **format_values(job),
        "EMBED": embedding,
        "NOTHING": ", ".join(["nothing"] * quads),
        "PUT": "\n".join(
            f"    put_four(i, first + {i % 4}u{' + SECOND_HALF' if i > 3 else ''}, w.q{i});"
            for i in range(quads)
        ),
    }
    codes, *rest = job.inputs
    rows = job.inputs[1].size if embedding else codes.shape[0]
    count = rows * units(job)
    params = pack(count, units(job), job.facts["k"], codes.shape[0], *row_layout(job))
    operands = [codes, *rest[::-1], job.outputs[0]]  # scales before indices
    job.step("packed_unpack", values, operands, params, -(-count // 64))


@operation(
    kernels=[Kernel("packed_unpack", _unpack)],
    reference=reference.packed_dequantize,
    probes=unpack_probes,
    method=False,
)
def packed_dequantize(
    codes: Spec, scales: Spec | None = None, kind: str = "", k: int = 0, group: int = 0
) -> Result:
    """The elements (k, n) of a packed matrix, float32."""
    _check_words("dequantize", codes, scales, kind, k, group)
    cast = (u32,) if scales is None else (u32, u32)
    facts = {"given": ("codes", "scales")[: len(cast)], "k": k}
    return Result((Spec((k, codes.shape[0]), f32),), cast, None, facts)


@operation(
    kernels=[Kernel("packed_embed", _unpack)],
    reference=reference.packed_embed,
    probes=embed_probes,
    method=False,
)
def packed_embed(
    codes: Spec,
    indices: Spec,
    scales: Spec | None = None,
    kind: str = "",
    k: int = 0,
    group: int = 0,
) -> Result:
    """Rows (of n) of a packed matrix at int32 or uint32 indices: (*indices.shape, k), float32.

    A row of NaN where an index is out of range.
    """
    _check_words("embed", codes, scales, kind, k, group)
    if indices.dtype not in (i32, u32):
        raise DTypeError(f"[embed] expected integer indices, but got {indices.dtype}")
    cast = (u32, indices.dtype) if scales is None else (u32, indices.dtype, u32)
    facts = {"given": ("codes", "indices", "scales")[: len(cast)], "k": k}
    return Result((Spec((*indices.shape, k), f32),), cast, None, facts)


@operation(
    kernels=[*int8.KERNELS, *KERNELS],
    reference=reference.packed_matmul,
    probes=matmul_probes,
    method=False,
)
def packed_matmul(
    x: Spec,
    codes: Spec,
    scales: Spec | None = None,
    norm: Spec | None = None,
    bias: Spec | None = None,
    residual: Spec | None = None,
    kind: str = "",
    group: int = 0,
    eps: float = 1e-6,
    gate: str | None = None,
    activations: str = "f32",
) -> Result:
    """Rows of x (m, k) times a packed matrix of n rows of k elements, as `linear` says."""
    if len(x.shape) != 2:
        raise ShapeError(f"[linear] expected rows of x, but got shape {x.shape}")
    m, k = x.shape
    n = codes.shape[0]
    _check_words("linear", codes, scales, kind, k, group)
    check_options(n, gate, activations)
    columns = n if gate is None else n // 2
    if activations == "int8" and not FORMATS[kind].integers:
        raise DTypeError(f"[linear] {kind} has no integers for activations in int8 to meet")
    given = {"x": x, "codes": codes, "scales": scales, "norm": norm, "bias": bias}
    given["residual"] = residual
    wanted = {"norm": (k,), "bias": (n,), "residual": (m, columns)}
    for name, shape in wanted.items():
        spec = given[name]
        if spec is not None and spec.shape != shape:
            raise ShapeError(f"[linear] expected {name} of shape {shape}, but got {spec.shape}")
    names = tuple(name for name, spec in given.items() if spec is not None)
    cast = tuple(u32 if name in ("codes", "scales") else f32 for name in names)
    facts = {
        "given": names,
        "m": m,
        "n": n,
        "k": k,
        "columns": columns,
        "padded": FORMATS[kind].padded(k),
    }
    return Result((Spec((m, columns), f32),), cast, narrowed_to(x.dtype), facts)


def check_options(n: int, gate: str | None, activations: str) -> None:
    """Refuse a gate or a kind of activations that there is not."""
    if gate not in GATES:
        raise ValueError(f'[linear] expected gate "silu" or "gelu_tanh", but got {gate!r}')
    if gate is not None and n % 2:
        raise ShapeError(f"[linear] expected pairs of columns for a gate, but got {n} columns")
    if activations not in ACTIVATIONS:
        raise ValueError(f'[linear] expected activations "f32" or "int8", but got {activations!r}')


@composition
def linear(
    x: Tensor,
    weight: Tensor | QuantizedTensor,
    bias: Tensor | None = None,
    *,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gate: str | None = None,
    activations: str = "f32",
) -> Tensor:
    """x @ weight + bias, with what stands around it in a transformer: (..., k) -> (..., n).

    With `norm` (k,), x is x / sqrt(mean(x^2) + eps) * norm first. With `gate` ("silu" or
    "gelu_tanh"), the columns of the product are [gate | up], and the result is act(gate) * up, of
    half as many columns. `residual`, of the result's shape, is added last. weight is (k, n).

    activations="int8" rounds x, after the norm, to int8 with a scale for each 32 elements (max|x|
    / 127, to nearest, half away from zero) where the weight is of integers; the product is exact
    in integers for each 32 then. Other weights, and groups of no multiple of 16, take no notice.

    Raises ShapeError when shapes do not fit, ValueError for another gate or kind of activations.
    """
    if not x.shape or x.shape[-1] != weight.shape[0] or len(weight.shape) != 2:
        raise ShapeError(
            f"[linear] expected the last axis of x {x.shape} to match the first of the weight "
            f"{weight.shape}, a matrix"
        )
    k, n = weight.shape
    check_options(n, gate, activations)
    shape = (*x.shape[:-1], n if gate is None else n // 2)
    if residual is not None and residual.shape != shape:
        raise ShapeError(f"[linear] expected a residual of shape {shape}, but got {residual.shape}")
    if not isinstance(weight, QuantizedTensor):
        return _plain_linear(x, weight, bias, norm, eps, residual, gate)
    m = math.prod(x.shape[:-1])
    folded = x if x.ndim == 2 else x.reshape(m, k)
    if residual is not None and residual.ndim != 2:
        residual = residual.reshape(m, shape[-1])
    rounds = FORMATS[weight.kind].integers and not ragged(weight.kind, weight.group, k)
    made: Tensor = packed_matmul(
        folded,
        weight.codes,
        weight.scales,
        norm,
        bias,
        residual,
        weight.kind,
        weight.group,
        float(eps),
        gate,
        activations if rounds else "f32",
    )
    return made if x.ndim == 2 else made.reshape(shape)


def _plain_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: Tensor | None,
    eps: float,
    residual: Tensor | None,
    gate: str | None,
) -> Tensor:
    y = x if norm is None else x.rms_norm(norm, eps)
    y = y.matmul(weight)
    if bias is not None:
        y = y + bias
    if gate is not None:
        half = y.shape[-1] // 2
        first, up = y[..., :half], y[..., half:]
        y = first.silu_mul(up) if gate == "silu" else first.gelu("tanh") * up
    return y if residual is None else y + residual
