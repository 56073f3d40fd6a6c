"""GGUF files: a model's sizes, tokenizer and tensors in one file.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The header is read here, and
not by the gguf package, because every count and length in it is compared with the file's size
before anything is made of it. Versions 2 and 3, little endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ModelError
from .files import Settings
from .source import BLOCKS, FLOATS, KINDS, Entry, TensorSource, gguf_package, map_file

# Types of metadata: the number in the file -> what NumPy calls it.
NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
BOOL, STRING, ARRAY = 7, 8, 9
# No model's header comes near these. They bound what a damaged one can make us read.
MOST_ELEMENTS = 1 << 24
LONGEST_STRING = 1 << 26
MOST_AXES = 4
LENGTH = struct.Struct("<Q")  # of a string


class GGUFFile(TensorSource):
    """The tensors and the metadata of a GGUF file.

    `metadata` holds what the file says of the model, as plain Python values, lists for arrays;
    `settings` is the same, checked as it is asked for. Tensors keep the names that the file has for
    them (`blk.0.attn_q.weight`).

    In files of architecture "llama" (and what is stored as such: Mistral, Mixtral, SmolLM,
    TinyLlama) the rows of `attn_q.weight` and `attn_k.weight`, and of their biases, are permuted:
    of each head, row i of the first half and row i of the second lie side by side. Such a file
    runs as it is with rope style "gptj". Safetensors of the same models, and files of qwen2,
    qwen3, gemma, gemma2, gemma3 and phi3, are not permuted and take "neox".

    Raises ModelError, which names the file, for a file that is no GGUF, is cut short or damaged,
    or is one part of several; a tensor of a kind that tensai does not read when it is asked for.
    """

    sizes = "its metadata"

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ModelError(f"{path} is {'no file' if path.exists() else 'missing'}")
        data = map_file(path)
        header = _Header(path, data)
        tensors, kv_count = header.counts()
        self.metadata: dict[str, Any] = {}
        for _ in range(kv_count):
            key = header.text("a key", longest=1 << 16)
            if not key or key in self.metadata:
                raise header.damaged(f"its key {key!r} is there twice" if key else "an empty key")
            self.metadata[key] = header.value(header.number("<I"), f"the value of {key!r}")
        self.settings = Settings(path, self.metadata)
        parts = self.settings.get("split.count", int, 1)
        if parts > 1:
            raise ModelError(
                f"{path} is one part of {parts}; merge them into one file "
                "(llama-gguf-split --merge)"
            )
        described = header.tensors(tensors)
        alignment = self.settings.get("general.alignment", int, 32)
        super().__init__(path, _mapped(header, described, alignment))

    def _mismatch(self) -> str:
        return "it is damaged, or of another architecture"


class Described(NamedTuple):
    """What the header says of a tensor; `place` counts from where the tensors start."""

    kind: str
    shape: tuple[int, ...]
    place: int


class _Header:
    """Reads a file from its start, and never beyond its end."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path = path
        self.data = data
        self.place = 0
        self._elements = MOST_ELEMENTS  # that arrays may still have

    def damaged(self, why: str) -> ModelError:
        return ModelError(f"{self.path} is damaged: {why}; copy or fetch it again")

    def counts(self) -> tuple[int, int]:
        """How many tensors the file has, and how many keys."""
        if bytes(self.data[:4]) != b"GGUF":
            raise ModelError(
                f"{self.path} is damaged, or not a GGUF file: it does not start as one"
            )
        self.place = 4
        version = self.number("<I")
        if version and not version & 0xFFFF:
            raise ModelError(f"{self.path} is big-endian; tensai reads little-endian GGUF files")
        if version not in (2, 3):
            raise ModelError(f"{self.path} is of GGUF version {version}; tensai reads 2 and 3")
        tensors, keys = self.number("<Q"), self.number("<Q")
        # The least that a tensor's description takes: an empty name, no dimensions.
        self.room(tensors, 24, "descriptions of tensors")
        self.room(keys, 13, "keys")
        return tensors, keys

    def tensors(self, count: int) -> dict[str, Described]:
        """The descriptions of tensors, which follow the keys."""
        described: dict[str, Described] = {}
        for _ in range(count):
            name = self.text("a tensor's name", longest=1 << 16)
            if not name or name in described:
                raise self.damaged(f"tensor {name!r} is there twice" if name else "an empty name")
            axes = self.number("<I")
            if axes > MOST_AXES:
                raise self.damaged(f"tensor {name!r} has {axes} dimensions")
            shape = tuple(self.number("<Q") for _ in range(axes))[::-1]
            if 0 in shape:
                raise self.damaged(f"tensor {name!r} is of shape {shape}")
            kind = _kind_name(self.number("<I"))
            described[name] = Described(kind, shape, self.number("<Q"))
        return described

    def room(self, count: int, size: int, what: str) -> None:
        """Raise where the file has no place for `count` things of at least `size` bytes."""
        if count * size > len(self.data) - self.place:
            raise self.damaged(f"it is cut short, or wrong where it promises {count} {what}")

    def number(self, layout: str) -> Any:
        size = struct.calcsize(layout)
        self.room(1, size, "more number")
        (value,) = struct.unpack_from(layout, self.data, self.place)
        self.place += size
        return value

    def text(self, what: str, longest: int = LONGEST_STRING) -> str:
        return self._strings(1, what, longest)[0]

    def value(self, kind: int, what: str) -> Any:
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self._array(what)
        return self._numbers(kind, 1, what)[0]

    def _array(self, what: str) -> list[Any]:
        kind, count = self.number("<I"), self.number("<Q")
        # Every element becomes a Python object, which is larger than in the file.
        if count > self._elements:
            raise self.damaged(f"{what} has {count} elements, more than any model's")
        self._elements -= count
        if kind != STRING:
            return self._numbers(kind, count, what)
        return self._strings(count, what, LONGEST_STRING)

    def _strings(self, count: int, what: str, longest: int) -> list[str]:
        self.room(count, 8, f"strings of {what}")
        # A vocabulary has hundreds of thousands, so that this loop is most of opening a file.
        data, place, end = self.data, self.place, len(self.data)
        length_at = LENGTH.unpack_from
        found = []
        try:
            for _ in range(count):
                (length,) = length_at(data, place)
                start = place + LENGTH.size
                place = start + length
                if length > longest or place > end:
                    raise self.damaged(f"{what} is {length} bytes long")
                found.append(str(data[start:place], "utf-8"))
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8") from error
        except struct.error as error:
            raise self.damaged(f"it is cut short in {what}") from error
        self.place = place
        return found

    def _numbers(self, kind: int, count: int, what: str) -> list[Any]:
        layout = "<u1" if kind == BOOL else NUMBERS.get(kind)
        if layout is None:
            raise self.damaged(f"{what} is of a type that GGUF does not have ({kind})")
        size = count * int(layout[2])
        self.room(size, 1, f"bytes of {what}")
        found = np.frombuffer(self.data[self.place : self.place + size], layout)
        self.place += size
        if kind == BOOL:
            if np.any(found > 1):
                raise self.damaged(f"{what} is neither true nor false")
            found = found.astype(bool)
        return found.tolist()


def _mapped(
    header: _Header, described: Mapping[str, Described], alignment: int
) -> dict[str, Entry]:
    """The tensors, each where the header says, none outside the file or over another."""
    if alignment < 1 or alignment & (alignment - 1):
        raise header.damaged(f"general.alignment is {alignment}, not a power of two")
    base = header.place + -header.place % alignment
    entries, end = {}, base
    for name, one in sorted(described.items(), key=lambda item: item[1].place):
        if one.place % alignment:
            raise header.damaged(
                f"tensor {name!r} lies at {one.place}, which is no multiple of {alignment}"
            )
        start = base + one.place
        if start < end:
            raise header.damaged(f"tensor {name!r} lies over the one before it")
        # What tensai does not read, and refuses where it is asked for, has at least a byte.
        end = start + (_size(header, name, one) if one.kind in KINDS else 1)
        if end > len(header.data):
            raise header.damaged(
                f"tensor {name!r} of shape {one.shape} ends at byte {end}, but the file has "
                f"{len(header.data)}"
            )
        entries[name] = Entry(header.path, one.kind, one.shape, header.data[start:end])
    return {name: entries[name] for name in described}


def _size(header: _Header, name: str, one: Described) -> int:
    """Bytes of a tensor."""
    elements = math.prod(one.shape)
    if one.kind in FLOATS:
        return elements * int(FLOATS[one.kind][2])
    block, size = BLOCKS[one.kind]
    if not one.shape or one.shape[-1] % block:
        raise header.damaged(
            f"tensor {name!r} of {one.kind} is of shape {one.shape}, whose rows are not whole "
            f"blocks of {block}"
        )
    return elements // block * size


def _kind_name(number: int) -> str:
    """A kind's name, also of one that tensai does not read."""
    try:
        return str(gguf_package().GGMLQuantizationType(number).name)
    except ValueError:
        return f"number {number}"
