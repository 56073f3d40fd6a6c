"""Tensors and a training's state in safetensors files: `tensai.save`, `tensai.load`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wgpu_native_py.paths import replacing

from .errors import DTypeError, ModelError
from .program import once
from .tensor import Tensor

if TYPE_CHECKING:
    from .device import Device
    from .optim import Optimizer

Array = np.ndarray[Any, Any]
OPTIMIZER = "optimizer."  # before the names of an optimizer's tensors


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, Any], optimizer: Optimizer | None = None
) -> None:
    """Write named tensors, parameters or arrays to a safetensors file, with an optimizer's state.

    The file is written beside and then renamed, so that there is the old one or the new one, never
    a half. Needs the extra tensai[models].
    """
    if not isinstance(tensors, Mapping):
        raise DTypeError(f"save() takes a dict of named tensors, not a {type(tensors).__name__}")
    arrays: dict[str, Array] = {}
    for name, value in tensors.items():
        if not isinstance(name, str) or name.startswith(OPTIMIZER) or name == "__metadata__":
            raise ValueError(
                f'a tensor\'s name is text, not "__metadata__", and does not begin with '
                f"{OPTIMIZER!r}: {name!r}"
            )
        array = value.download() if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise DTypeError(f"{name!r} is of {array.dtype}, which no safetensors file holds")
        own = array.astype(array.dtype.newbyteorder("="))
        arrays[name] = np.ascontiguousarray(own).reshape(array.shape)
    if optimizer is not None:
        for name, array in optimizer.state_dict().items():
            arrays[OPTIMIZER + name] = array
    target = Path(os.path.realpath(path))  # what a link points to
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; say a file's name")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder of {path} does not exist")
    data = _safetensors().save(arrays)
    with replacing(target) as part, part.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def load(
    path: str | os.PathLike[str],
    into: Mapping[str, Tensor] | None = None,
    optimizer: Optimizer | None = None,
    device: Device | None = None,
) -> dict[str, Any]:
    """Read what save() wrote: a dict of tensors on `device`, or of arrays without one.

    With `into`, fills those tensors or parameters in place, wherever they are, and an `optimizer`
    goes on from the state in the file. Raises ModelError, and changes nothing, when a name is
    missing on either side, a shape or dtype differs, or the file is damaged; ValueError for `into`
    and `device` together.
    """
    if into is not None and not isinstance(into, Mapping):
        raise DTypeError(f"load() fills a dict of named tensors, not a {type(into).__name__}")
    if into is not None and device is not None:
        raise ValueError("load() fills tensors where they are: say `into` or `device`, not both")
    arrays = _read(Path(path))
    state = {
        name[len(OPTIMIZER) :]: arrays.pop(name)
        for name in list(arrays)
        if name.startswith(OPTIMIZER)
    }
    if optimizer is not None and not state:
        raise ModelError(f"{path} holds no optimizer's state")
    if into is not None:
        _check(path, arrays, into)
    if optimizer is not None:
        try:
            optimizer.load_state_dict(state)
        except ValueError as error:
            raise ModelError(f"{path}: {error}") from error
    once("tensors were loaded while it was recorded")
    if into is not None:
        for name, tensor in into.items():
            tensor.device.overwrite(tensor.storage, arrays[name])
        return dict(into)
    if device is not None:
        return {name: device.upload(array) for name, array in arrays.items()}
    return dict(arrays)


def _check(path: Any, arrays: Mapping[str, Array], into: Mapping[str, Tensor]) -> None:
    missing, left = sorted(set(into) - set(arrays)), sorted(set(arrays) - set(into))
    if missing or left:
        raise ModelError(
            f"{path} does not fit: "
            + "; ".join(
                f"{what} {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
                for what, names in (("it lacks", missing), ("nothing asks for", left))
                if names
            )
        )
    for name, tensor in into.items():
        if not isinstance(tensor, Tensor):
            raise DTypeError(f"load() fills tensors, but {name} is a {type(tensor).__name__}")
        array = arrays[name]
        if array.shape != tensor.shape or array.dtype != tensor.dtype:
            raise ModelError(
                f"{path}: {name} is {array.dtype} {array.shape}, but {tensor.dtype} "
                f"{tensor.shape} is asked for"
            )
        _ = tensor.storage  # a freed one raises here, before anything is changed


def _read(path: Path) -> dict[str, Array]:
    library = _safetensors()
    data = path.read_bytes()
    try:
        found: dict[str, Array] = library.load(data)
    except KeyError as error:  # a dtype that NumPy lacks
        raise ModelError(f"{path} holds tensors of {error}, which NumPy has no dtype for") from None
    except Exception as error:  # the library's own, and what NumPy says of odd headers
        raise ModelError(f"{path} is no safetensors file, or damaged: {error}") from error
    return found


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "saving and loading needs safetensors: pip install tensai[models]"
        ) from None
    return safetensors.numpy
