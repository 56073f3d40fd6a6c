"""Conversion between dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import reference
from ..dtypes import as_dtype, bool_, f16, f32, i32, u32
from ..operation import Job, Kernel, Probe, Result, Spec, operation, pack
from .strided import LANES, elementwise

_EXPRESSIONS = {
    ("float32", "int32"): "to_i32(a)",
    ("float32", "uint32"): "to_u32(a)",
    ("float32", "bool"): "!(a == 0.0)",
    ("int32", "float32"): "f32(a)",
    ("uint32", "float32"): "f32(a)",
    ("bool", "float32"): "select(0.0, 1.0, a)",
    ("int32", "uint32"): "bitcast<u32>(a)",
    ("uint32", "int32"): "bitcast<i32>(a)",
    ("int32", "bool"): "a != 0",
    ("uint32", "bool"): "a != 0u",
    ("bool", "int32"): "select(0, 1, a)",
    ("bool", "uint32"): "select(0u, 1u, a)",
}


def _expression(job: Job) -> str:
    source, target = job.inputs[0].dtype, job.outputs[0].dtype
    return "a" if source == target else _EXPRESSIONS[source.name, target.name]


def _float16(job: Job) -> None:
    packing = job.outputs[0].dtype == f16
    words = -(-job.outputs[0].size // 2)
    job.step(
        "float16",
        {"PACK": packing},
        [job.inputs[0], job.outputs[0]],
        pack(words),
        -(-words // LANES),
    )


def _involves_float16(job: Job) -> bool:
    return f16 in (job.inputs[0].dtype, job.outputs[0].dtype)


def _probes() -> list[Probe]:
    rng = np.random.default_rng(5)
    edges = [
        np.nan,
        np.inf,
        -np.inf,
        -0.0,
        65504,
        65519.9,
        65520,
        2.0**-25,
        2.0**-24,
        3e-8,
        1e-5,
        2048.5,
        2049.5,
        -3e9,
        2147483648.0,
        4294967040.0,
        4294967296.0,
        -2147483904.0,
        0.25,
        3e9,
        5e9,
        -0.75,
        2147483520.0,
    ]
    floats = np.concatenate([edges, rng.normal(0, 100, 2029)]).astype(np.float32)
    # Every float16; and of some, the next float32 and the middle to the next float16, with the
    # next float32 on either side of it: where rounding changes.
    halves = rng.permutation(1 << 16).astype(np.uint16)[:-1]
    near = halves[:2001].view(np.float16).astype(f32).view(np.int32)
    near = np.concatenate([near + step for step in (0, -1, 1, 0xFFF, 0x1000, 0x1001)])
    small = [np.arange(at - 3, at + 4) for at in (0x33000000, 0x33800000, 0x38800000, 0x477FF000)]
    near = np.concatenate([near, *small]).astype(np.int32).view(f32)
    # Payloads of NaN may change on the way; whether it is NaN may not.
    made = [
        Probe((floats,), {"dtype": "float16"}),
        Probe((near,), {"dtype": "float16"}),
        Probe((halves.view(np.float16),), {"dtype": "float32"}),
    ]
    # No NaN that shows only in the upper bits; 0 and 1 often enough for bool.
    floats[3::5], floats[40:43] = (
        0.0,
        np.array([0x7F800001, 0xFFC12345, 0x3F800000], np.uint32).view(f32),
    )
    small_integers = rng.integers(-2, 3, 2047)
    large = rng.integers(-(2**31), 2**31, 2047)
    mixed = np.where(rng.integers(0, 2, 2047), small_integers, large)
    samples: dict[Any, Any] = {
        f32: floats,
        i32: mixed.astype(np.int32),
        u32: mixed.astype(np.int32).view(np.uint32),
        bool_: rng.integers(0, 2, 2047).astype(np.bool_),
    }
    for sample in samples.values():
        made.extend(
            Probe((sample,), {"dtype": target.name}, 1e-7 if target == f32 else 0.0, floor=0.0)
            for target in samples
        )
    return made


@operation(
    kernels=[
        Kernel("float16", _float16, fits=_involves_float16),
        elementwise("astype", _expression, lambda job: not _involves_float16(job)),
    ],
    reference=reference.astype,
    probes=_probes,
    gradients={"x": lambda grad: grad},  # converted to x's dtype as every gradient is
)
def astype(x: Spec, dtype: Any) -> Result:
    """The elements as another dtype: float32, float16, int32, uint32 or bool.

    Floats become integers toward zero, saturating, with NaN as 0; int32 and uint32 become each
    other by their bits, as in NumPy.
    """
    wanted = as_dtype(dtype)
    # float16 meets only float32 in a kernel: the other way goes through it.
    through = f32 if f16 in (x.dtype, wanted) and x.dtype not in (f16, f32) else x.dtype
    if x.dtype == f16 and wanted not in (f16, f32):
        through = f32
    if x.dtype == f16 and wanted == f16:
        return Result((Spec(x.shape, f32),), (f32,), f16)
    return Result((Spec(x.shape, wanted),), (through,))
