"""Reading a model's folder: its JSON files and its tokenizer.json.

Whatever is missing, damaged or of the wrong kind raises ModelError, which names the file.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError

Array = np.ndarray[Any, Any]

MOST = 2**31 - 1  # of whatever a setting counts: indices on a device are 32 bits wide
LARGEST_TEXT = 1 << 26  # bytes of a file that is read whole; an index of shards may have millions
SMALLEST, LARGEST = (float(bound) for bound in (np.finfo("f4").tiny, np.finfo("f4").max))

# Ends of a missing file's name -> what may lie in its folder instead, and what to say then.
INSTEAD = {
    ".safetensors": (
        (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"),
        "; tensai reads weights from safetensors files, not from {}: save the model as safetensors",
    ),
    "tokenizer.json": (
        ("tokenizer.model", "merges.txt", "tekken.json"),
        "; tensai does not read {}: save tokenizer.json, which transformers writes",
    ),
}


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
        """A whole number from 1 to 2^31 - 1."""
        value: int = self.get(key, int, default)
        if not 1 <= value <= MOST:
            wanted = "at least 1" if value < 1 else f"at most {MOST}"
            raise ModelError(f"{self.path}: expected {wanted} for {key!r}, but got {value}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0, as float32 has them: devices compute in it."""
        value: float = self.get(key, (float, int), default)
        if not SMALLEST <= value <= LARGEST:  # nor is NaN
            raise ModelError(
                f"{self.path}: expected a finite number above 0 for {key!r} (from {SMALLEST:.2g} "
                f"to {LARGEST:.2g}), but got {value}"
            )
        return float(value)


def read_text(path: Path) -> str:
    """A small text file; UnicodeDecodeError where it is not UTF-8.

    A pipe or a device is refused: it may have no end.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path} can't be read: it is no file")
        if status.st_size > LARGEST_TEXT:
            raise ModelError(
                f"{path} has {status.st_size:,} bytes; tensai reads up to {LARGEST_TEXT:,} of text"
            )
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ModelError(missing(path)) from error
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from error


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(read_text(path))
    except ModelError:
        raise
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
        raise extra("tokenizers") from error
    if not path.is_file():
        raise ModelError(missing(path))
    with tokenizing(path):
        return Tokenizer.from_file(str(path))


@contextmanager
def tokenizing(path: Path) -> Iterator[None]:
    """Whatever goes wrong in the tokenizers library as a ModelError that names its file."""
    try:
        yield
    except BaseException as error:
        # The library raises nothing narrower than Exception, and its panics are not even that.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(
            f"{path} is damaged, or not a file of the tokenizers library: {error}"
        ) from error


def missing(path: Path) -> str:
    """What to say of a file that is not there."""
    if not path.parent.is_dir():
        return f"{path} is missing, and so is its folder"
    there = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    text = f"{path} is missing"
    for end, (others, advice) in INSTEAD.items():
        found = [name for name in there if path.name.endswith(end) and name.endswith(others)]
        if found:
            text += advice.format(found[0])
    return text


def extra(package: str) -> ImportError:
    """What to raise where a package of tensai[models] is not installed."""
    return ImportError(
        f"reading a model needs the {package} package: pip install tensai[models]", name=package
    )
