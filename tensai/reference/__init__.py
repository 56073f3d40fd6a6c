"""NumPy references: what operations mean, in plain code. They are the NumPy device, the fallback
of every GPU kernel, and what a kernel's probe is compared with."""

from .attention import attention, attention_grad
from .functions import astype, erf, gelu, power, sigmoid, silu
from .matrix import matmul
from .movement import embed, put, strided_copy
from .normalize import layer_norm, log_softmax, rms_norm, softmax
from .packed import packed_dequantize, packed_embed, packed_matmul
from .positions import append_kv, copy_rows, rope
from .reduce import argmax, maximum, mean, minimum, total
from .sampling import sample

__all__ = [
    "append_kv",
    "argmax",
    "astype",
    "attention",
    "attention_grad",
    "copy_rows",
    "embed",
    "erf",
    "gelu",
    "layer_norm",
    "log_softmax",
    "matmul",
    "maximum",
    "mean",
    "minimum",
    "packed_dequantize",
    "packed_embed",
    "packed_matmul",
    "power",
    "put",
    "rms_norm",
    "rope",
    "sample",
    "sigmoid",
    "silu",
    "softmax",
    "strided_copy",
    "total",
]
