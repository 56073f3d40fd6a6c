"""NumPy references: what operations mean, in plain code. They are the NumPy device, the fallback
of every GPU kernel, and what a kernel's probe is compared with."""

from .attention import attention, attention_grad
from .functions import TINY, astype, erf, gelu, power, sigmoid, silu, slope
from .gradients import (
    adam_step,
    cross_entropy,
    embed_grad,
    layer_norm_grad,
    log_softmax_grad,
    rms_norm_grad,
    sgd_step,
    softmax_grad,
    strided_put,
)
from .matrix import matmul
from .movement import embed, put, strided_copy
from .normalize import layer_norm, layer_norm_xhat, log_softmax, rms_norm, softmax
from .packed import packed_dequantize, packed_embed, packed_matmul
from .positions import append_kv, copy_rows, rope
from .reduce import argmax, maximum, mean, minimum, total
from .sampling import likeliest, sample

__all__ = [
    "TINY",
    "adam_step",
    "append_kv",
    "argmax",
    "astype",
    "attention",
    "attention_grad",
    "copy_rows",
    "cross_entropy",
    "embed",
    "embed_grad",
    "erf",
    "gelu",
    "layer_norm",
    "layer_norm_grad",
    "layer_norm_xhat",
    "likeliest",
    "log_softmax",
    "log_softmax_grad",
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
    "rms_norm_grad",
    "rope",
    "sample",
    "sgd_step",
    "sigmoid",
    "silu",
    "slope",
    "softmax",
    "softmax_grad",
    "strided_copy",
    "strided_put",
    "total",
]
