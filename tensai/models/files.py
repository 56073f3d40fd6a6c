"""Reading a model's folder: its JSON files, its tokenizer, its weights.

Whatever is missing, damaged or of the wrong kind raises ModelError, which names the file.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError

Array = np.ndarray[Any, Any]

# Names of dtypes in safetensors files -> what NumPy reads them as. NumPy has no bfloat16: its
# bits are the upper half of a float32's.
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Settings:
    """The object in a JSON file, whose values are checked as they are asked for."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self.values = values

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The value of `key`; `default` (None: the key is required) where it is not there."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise ModelError(f"{self.path} has no {key!r}, which tensai needs")
            return default
        # JSON's true is an int to Python, and an int is a fine float.
        right = isinstance(value, kind) and (isinstance(value, bool) == (kind is bool))
        if not right:
            kinds = kind if isinstance(kind, tuple) else (kind,)
            names = " or ".join(one.__name__ for one in kinds)
            raise ModelError(f"{self.path}: expected {names} for {key!r}, but got {value!r}")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number from 1 up."""
        value: int = self.get(key, int, default)
        if value < 1:
            raise ModelError(f"{self.path}: expected at least 1 for {key!r}, but got {value}")
        return value


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ModelError(_missing(path)) from error
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: it is not JSON ({error})") from error


def read_settings(path: Path) -> Settings:
    """What a JSON file that holds one object says."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: expected a JSON object, but got a {type(values).__name__}")
    return Settings(path, values)


def model_folder(path: Any) -> Path:
    """A path as an existing folder."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ModelError(
            f"{folder} {what}; expected a folder with config.json, model.safetensors and "
            "tokenizer.json"
        )
    return folder


def read_tokenizer(path: Path) -> Any:
    """The tokenizers.Tokenizer of a tokenizer.json, which neither pads nor truncates yet."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _extra("tokenizers") from error
    if not path.is_file():
        raise ModelError(_missing(path))
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(
            f"{path} is damaged, or not a file of the tokenizers library: {error}"
        ) from error
    return tokenizer


class Weights:
    """The tensors of a safetensors file. They are read when asked for, as float32."""

    def __init__(self, path: Path) -> None:
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise _extra("safetensors") from error
        if not path.is_file():
            raise ModelError(_missing(path))
        try:
            # The library checks that the header is sound and that the file is complete.
            with safe_open(str(path), framework="numpy"):
                pass
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except SafetensorError as error:
            raise ModelError(
                f"{path} is damaged, or not a safetensors file: {error}; copy or fetch it again"
            ) from error
        except OSError as error:
            raise ModelError(f"{path} can't be read: {error.strerror or error}") from error
        self.path = path
        # A file's tensors are mapped, not loaded: NumPy's own reader of the library has no
        # bfloat16, and would hold every tensor twice on its way to a device.
        self._data = memoryview(mapped)
        self._start = 8 + int.from_bytes(self._data[:8], "little")
        self.entries: dict[str, Any] = json.loads(bytes(self._data[8 : self._start]))
        self.entries.pop("__metadata__", None)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        """A float tensor, which must have `shape`, as float32. It may be read-only."""
        entry = self.entries.get(name)
        if entry is None:
            raise ModelError(
                f"{self.path} has no tensor {name!r}; it is of another architecture, or incomplete"
            )
        found = tuple(entry["shape"])
        if found != shape:
            raise ModelError(
                f"{self.path}: tensor {name!r} is of shape {found}, but config.json asks for "
                f"{shape}; the two files belong to different models"
            )
        stored = entry["dtype"]
        if stored not in FLOATS:
            raise ModelError(
                f"{self.path}: tensor {name!r} is of dtype {stored}; tensai reads "
                f"{', '.join(FLOATS)} here"
            )
        first, last = (self._start + offset for offset in entry["data_offsets"])
        array = np.frombuffer(self._data[first:last], FLOATS[stored]).reshape(shape)
        if stored == "BF16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float32)


def _missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"{path} is missing, and so is its folder"
    there = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    text = f"{path} is missing"
    if path.suffix == ".safetensors":
        others = [name for name in there if name.endswith((".bin", ".pt", ".ckpt", ".index.json"))]
        if others:
            text += (
                f"; tensai reads the weights from that one file only, not from {others[0]}: save "
                "the model as safetensors, unsharded"
            )
    return text


def _extra(package: str) -> ImportError:
    return ImportError(
        f"reading a model needs the {package} package: pip install tensai[models]", name=package
    )
