"""tensai: GPU tensors for Python on any GPU, from a pure-Python install.

    import tensai

    dev = tensai.open()
    x = dev.upload([[1.0, 2.0], [3.0, 4.0]])
    print((x @ x).softmax().download())

Importing it loads no GPU library and has no other effect.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from . import autograd, debug, errors, kernels, ops, optim
    from .accelerator import (
        DEFAULT_ACCELERATOR_THRESHOLD,
        accelerated,
        matmul,
        use_accelerator,
    )
    from .device import Device
    from .errors import (
        DeviceLostError,
        DeviceMismatchError,
        DeviceNotFoundError,
        DTypeError,
        GradientError,
        KernelError,
        LibraryMismatchError,
        LibraryNotFoundError,
        LimitExceededError,
        NaNError,
        OutOfDeviceMemoryError,
        ShapeError,
        TensaiError,
        TensorFreedError,
    )
    from .opening import adapters, open
    from .quantized import QuantizedTensor, quantize_q4, quantize_q8
    from .saving import load, save
    from .selfcheck import Verdict
    from .tensor import Tensor

# Where each name that is no error lives.
_HOME = {
    "DEFAULT_ACCELERATOR_THRESHOLD": ".accelerator",
    "Device": ".device",
    "QuantizedTensor": ".quantized",
    "Tensor": ".tensor",
    "Verdict": ".selfcheck",
    "accelerated": ".accelerator",
    "adapters": ".opening",
    "load": ".saving",
    "matmul": ".accelerator",
    "open": ".opening",
    "quantize_q4": ".quantized",
    "quantize_q8": ".quantized",
    "save": ".saving",
    "use_accelerator": ".accelerator",
}
_MODULES = ("autograd", "debug", "errors", "kernels", "models", "ops", "optim")

__all__ = [
    "DEFAULT_ACCELERATOR_THRESHOLD",
    "DTypeError",
    "Device",
    "DeviceLostError",
    "DeviceMismatchError",
    "DeviceNotFoundError",
    "GradientError",
    "KernelError",
    "LibraryMismatchError",
    "LibraryNotFoundError",
    "LimitExceededError",
    "NaNError",
    "OutOfDeviceMemoryError",
    "QuantizedTensor",
    "ShapeError",
    "TensaiError",
    "Tensor",
    "TensorFreedError",
    "Verdict",
    "__version__",
    "accelerated",
    "adapters",
    "autograd",
    "debug",
    "errors",
    "kernels",
    "load",
    "matmul",
    "open",
    "ops",
    "optim",
    "quantize_q4",
    "quantize_q8",
    "save",
    "use_accelerator",
]


def __getattr__(name: str) -> Any:
    # Names load when first used, so that importing tensai costs a program little.
    if name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    elif name in __all__:
        home = importlib.import_module(_HOME.get(name, ".errors"), __name__)
        value = getattr(home, name)
    else:
        raise AttributeError(f"module 'tensai' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
