"""Where a model's weights come from: the tensors of its files, mapped, whatever the file format."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ModelError
from .files import Array, extra

# Kinds whose elements NumPy reads, and how. It has no bfloat16: its bits are the upper half of a
# float32's.
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Kinds of GGUF files that store blocks, as (elements, bytes) of one.
BLOCKS = {
    "Q8_0": (32, 34),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
KINDS = (*FLOATS, *BLOCKS)  # that tensai reads
AT_ONCE = 1 << 24  # bytes that are compared at a time


class Entry(NamedTuple):
    """One tensor: the file it is in, its kind, its shape and its mapped bytes."""

    path: Path
    kind: str
    shape: tuple[int, ...]
    data: memoryview


class TensorSource:
    """The tensors of a model, by name. They are mapped, and read when asked for.

    `path` is the file that lists them. Shapes are row-major: a matrix is (outputs, inputs), also
    where the file lists dimensions the other way round. Every method that takes a name raises
    ModelError, which names the file, the tensor and the reason, when there is none of that name
    or it is of a kind that tensai does not read.
    """

    kinds: tuple[str, ...] = KINDS  # that files of this format have, and tensai reads
    sizes = "config.json"  # what says which shapes the tensors have

    def __init__(self, path: Path, entries: Mapping[str, Entry]) -> None:
        self.path = path
        self._entries = entries

    def names(self) -> list[str]:
        """The names of all tensors, in the file's order."""
        return list(self._entries)

    def readable(self) -> list[str]:
        """The names of the tensors of kinds that tensai reads."""
        return [name for name, entry in self._entries.items() if entry.kind in self.kinds]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, a matrix as (outputs, inputs)."""
        return self._entry(name).shape

    def kind(self, name: str) -> str:
        """How a tensor's elements are stored: one of KINDS."""
        return self._entry(name).kind

    def file(self, name: str) -> Path:
        """The file that a tensor is in, of whatever kind it is."""
        return self._entries[name].path if name in self._entries else self.path

    def raw(self, name: str) -> Array:
        """The bytes of a tensor as they are in the file, uint8, read-only, not copied."""
        return np.frombuffer(self._entry(name).data, np.uint8)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        """A tensor, which must have `shape`, as float32. It may be read-only.

        Blocks are expanded by the gguf package.
        """
        self.check_shape(name, shape)
        entry = self._entry(name)
        return _floats(entry.data, entry.kind, shape)

    def check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise ModelError where a tensor is not of `shape`."""
        entry = self._entry(name)
        if entry.shape != shape:
            raise ModelError(
                f"{entry.path}: tensor {name!r} is of shape {entry.shape}, but {self.sizes} asks "
                f"for {shape}; {self._mismatch()}"
            )

    def same(self, name: str, other: str) -> bool:
        """Whether two tensors hold the same bytes as the same kind and shape."""
        if (self.kind(name), self.shape(name)) != (self.kind(other), self.shape(other)):
            return False
        a, b = self.raw(name), self.raw(other)
        parts = (slice(start, start + AT_ONCE) for start in range(0, len(a), AT_ONCE))
        return all(np.array_equal(a[part], b[part]) for part in parts)

    def rows(self, name: str, start: int, stop: int) -> Array:
        """Rows start to stop (not included) of a tensor, along its first axis, as float32.

        Only these are read. Raises IndexError for rows that it does not have.
        """
        entry = self._entry(name)
        if not entry.shape or not 0 <= start <= stop <= entry.shape[0]:
            raise IndexError(
                f"expected rows of tensor {name!r} of shape {entry.shape}, but got "
                f"{start} to {stop}"
            )
        row = len(entry.data) // max(entry.shape[0], 1)
        shape = (stop - start, *entry.shape[1:])
        return _floats(entry.data[start * row : stop * row], entry.kind, shape)

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise ModelError(
                f"{self.path} has no tensor {name!r}; it is of another architecture, or incomplete"
            )
        if entry.kind not in self.kinds:
            raise ModelError(
                f"{entry.path}: tensor {name!r} is of dtype {entry.kind}; tensai reads "
                f"{', '.join(self.kinds)}"
            )
        return entry

    def _mismatch(self) -> str:
        return "the two files belong to different models"


def map_file(path: Path) -> memoryview:
    """A file's bytes, mapped. They stay valid for as long as anything refers to them."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError as error:  # an empty file can't be mapped
        raise ModelError(f"{path} is damaged: it is empty; copy or fetch it again") from error
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror or error}") from error


def _floats(data: memoryview, kind: str, shape: tuple[int, ...]) -> Array:
    if kind in BLOCKS:
        return _expanded(data, kind, shape)
    array = np.frombuffer(data, FLOATS[kind]).reshape(shape)
    if kind == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float32)


def _expanded(data: memoryview, kind: str, shape: tuple[int, ...]) -> Array:
    gguf = gguf_package()
    elements, size = BLOCKS[kind]
    blocks = np.frombuffer(data, np.uint8).reshape(*shape[:-1], shape[-1] // elements * size)
    if not blocks.size:
        return np.zeros(shape, np.float32)
    # Scales of damaged or extreme blocks may be infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        made: Array = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])
    return made.reshape(shape)


def gguf_package() -> Any:
    """The gguf package, or the error that says how to install it."""
    try:
        import gguf
    except ImportError as error:
        raise extra("gguf") from error
    return gguf
