"""GGUF files: what is read equals what the gguf package's own writer and reader say.

Damaged ones are made by hand, and byte by byte: whatever is wrong is refused, and quickly.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensai.errors import ModelError
from tensai.models.gguffile import GGUFFile
from tensai.models.opening import open_source
from tensai.models.source import BLOCKS

Kind = gguf.GGMLQuantizationType
METADATA: dict[str, tuple[Any, gguf.GGUFValueType]] = {
    "a.uint8": (200, gguf.GGUFValueType.UINT8),
    "a.int8": (-100, gguf.GGUFValueType.INT8),
    "a.uint16": (60_000, gguf.GGUFValueType.UINT16),
    "a.int16": (-30_000, gguf.GGUFValueType.INT16),
    "a.uint32": (4_000_000_000, gguf.GGUFValueType.UINT32),
    "a.int32": (-2_000_000_000, gguf.GGUFValueType.INT32),
    "a.float32": (0.5, gguf.GGUFValueType.FLOAT32),
    "a.uint64": (1 << 63, gguf.GGUFValueType.UINT64),
    "a.int64": (-(1 << 62), gguf.GGUFValueType.INT64),
    "a.float64": (0.1, gguf.GGUFValueType.FLOAT64),
    "a.true": (True, gguf.GGUFValueType.BOOL),
    "a.false": (False, gguf.GGUFValueType.BOOL),
    "a.string": ("größer, 大きい", gguf.GGUFValueType.STRING),
    "a.nothing": ("", gguf.GGUFValueType.STRING),
}
LISTS: dict[str, list[Any]] = {
    "b.strings": ["", "a", " \n", "日本"],
    "b.integers": [1, -2, 3],
    "b.floats": [0.25, -1.0],
    "b.truths": [True, False],
}


def random_blocks(kind: str, rows: int, width: int) -> np.ndarray:
    """Random blocks, whose scales are small float16 numbers."""
    rng = np.random.default_rng(7)
    block, size = BLOCKS[kind]
    made = rng.integers(0, 256, (rows * width // block, size), dtype=np.uint8)
    scales = rng.uniform(-0.1, 0.1, (len(made), 2)).astype(np.float16).view(np.uint8)
    if kind == "Q6_K":
        made[:, -2:] = scales[:, :2]
    elif kind in ("Q4_K", "Q5_K"):
        made[:, :4] = scales
    else:
        made[:, :2] = scales[:, :2]
    return made.reshape(rows, -1)


def written(path: Path, alignment: int | None = None) -> dict[str, np.ndarray]:
    """A file with all that tensai reads, and its tensors in float32."""
    rng = np.random.default_rng(3)
    writer = gguf.GGUFWriter(str(path), "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, (value, kind) in METADATA.items():
        writer.add_key_value(key, value, kind)
    for key, values in LISTS.items():
        writer.add_array(key, values)
    expected = {}
    for name, dtype in (("f32", np.float32), ("f16", np.float16), ("f64", np.float64)):
        array = rng.standard_normal((3, 5)).astype(dtype)
        writer.add_tensor(name, array)
        expected[name] = array.astype(np.float32)
    expected["norm"] = rng.standard_normal(7).astype(np.float32)
    writer.add_tensor("norm", expected["norm"])
    for kind in ("BF16", *BLOCKS):
        width = 512 if kind in BLOCKS else 12
        if kind in BLOCKS:
            raw = random_blocks(kind, 4, width)
        else:
            raw = gguf.quants.quantize(
                rng.standard_normal((4, width)).astype(np.float32), Kind.BF16
            )
        writer.add_tensor(kind, raw, raw_dtype=Kind[kind])
        expected[kind] = gguf.quants.dequantize(raw, Kind[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


@pytest.mark.parametrize("alignment", [None, 64])
def test_what_the_writer_wrote_is_read(tmp_path: Path, alignment: int | None) -> None:
    path = tmp_path / "model.gguf"
    expected = written(path, alignment)
    source = open_source(path)
    assert isinstance(source, GGUFFile)
    assert source.path == path
    for key, (value, kind) in METADATA.items():
        found = source.metadata[key]
        assert type(found) is type(value)
        assert found == value, kind
    for key, values in LISTS.items():
        assert source.metadata[key] == values
        assert [type(one) for one in source.metadata[key]] == [type(one) for one in values]
    assert source.settings.get("general.architecture", str) == "llama"
    reader = gguf.GGUFReader(path)
    assert source.names() == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        name = tensor.name
        assert source.kind(name) == tensor.tensor_type.name
        assert source.shape(name) == tuple(tensor.shape.tolist())[::-1] == expected[name].shape
        np.testing.assert_array_equal(source.raw(name), tensor.data.reshape(-1).view(np.uint8))
        read = source.tensor(name, source.shape(name))
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, expected[name])
        np.testing.assert_array_equal(source.rows(name, 1, 3), expected[name][1:3])
        assert source.rows(name, 2, 2).shape == (0, *expected[name].shape[1:])


def test_version_2_is_read_and_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    expected = written(path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + struct.pack("<I", 2) + content[8:])
    np.testing.assert_array_equal(open_source(path).tensor("f32", (3, 5)), expected["f32"])
    for version in (0, 1, 4):
        path.write_bytes(content[:4] + struct.pack("<I", version) + content[8:])
        with pytest.raises(ModelError, match=f"is of GGUF version {version}; tensai reads 2 and 3"):
            open_source(path)
    path.write_bytes(content[:4] + struct.pack(">I", 3) + content[8:])
    with pytest.raises(ModelError, match="model.gguf is big-endian"):
        open_source(path)


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    written(path)
    source = open_source(path)
    message = r"'Q4_K' is of shape \(4, 512\), but its metadata asks for \(512, 4\)"
    with pytest.raises(ModelError, match=message) as raised:
        source.tensor("Q4_K", (512, 4))
    assert str(path) in str(raised.value)
    with pytest.raises(ModelError, match="has no tensor 'blk.0.attn_q.weight'"):
        source.raw("blk.0.attn_q.weight")


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def described(name: str, dims: Sequence[int], kind: int, offset: int) -> bytes:
    layout = f"<I{len(dims)}QIQ"
    return text(name) + struct.pack(layout, len(dims), *dims, kind, offset)


def array(kind: int, count: int, content: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + content


X = described("x", (8, 4), Kind.F32, 0)
HUGE = 1 << 62


def file(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (X,),
    counts: tuple[int, int] | None = None,
    data: int = 1024,
) -> bytes:
    counts = counts or (len(tensors), len(keys))
    header = b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join((*keys, *tensors))
    return header + bytes(-len(header) % 32) + bytes(data)


def test_a_file_made_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file([key("general.name", 8, text("x"))]))
    source = open_source(path)
    assert source.shape("x") == (4, 8)
    assert not source.tensor("x", (4, 8)).any()
    path.write_bytes(file(tensors=(), data=0))
    assert open_source(path).names() == []


DAMAGED = {
    "no tensors for the count": (file(counts=(HUGE, 0)), "promises 4611686018427387904 desc"),
    "no keys for the count": (file(counts=(1, HUGE)), "promises 4611686018427387904 keys"),
    "one key too many": (file(counts=(1, 1)), "damaged"),
    "one tensor too many": (file(counts=(2, 0)), "an empty name"),
    "a long key": (file([struct.pack("<QI", HUGE, 4)]), "a key is 4611686018427387904 bytes long"),
    "a long value": (file([key("a", 8, struct.pack("<Q", 1 << 25))]), "'a' is 33554432 bytes long"),
    "a very long value": (file([key("a", 8, struct.pack("<Q", HUGE))]), "'a' is 46116860184"),
    "a long array": (file([key("a", 9, array(4, HUGE))]), "'a' has 46116860184.* elements"),
    "an array too long for the file": (file([key("a", 9, array(4, 1 << 20))]), "4194304 bytes of"),
    "strings too many for the file": (file([key("a", 9, array(8, 1 << 20))]), "1048576 strings of"),
    "a string in an array": (
        file([key("a", 9, array(8, 2, text("b") + struct.pack("<Q", HUGE)))]),
        "'a' is 4611686018427387904 bytes long",
    ),
    "arrays in an array": (
        file([key("a", 9, array(9, 1) * 100)]),
        r"'a' is of a type that GGUF does not have \(9\)",
    ),
    "a type of value": (file([key("a", 13, b"")]), r"a type that GGUF does not have \(13\)"),
    "a truth": (file([key("a", 7, b"\2")]), "'a' is neither true nor false"),
    "a key twice": (file([key("a", 0, b"\1")] * 2), "its key 'a' is there twice"),
    "an empty key": (file([key("", 0, b"\1")]), "an empty key"),
    "text of other bytes": (file([key("a", 8, text(b"\xff"))]), "'a' is not UTF-8"),
    "a key of other bytes": (file([key(b"\xff", 0, b"\1")]), "a key is not UTF-8"),
    "a tensor twice": (file(tensors=[X, X]), "tensor 'x' is there twice"),
    "many dimensions": (
        file(tensors=[text("x") + struct.pack("<I", 1 << 31)]),
        "tensor 'x' has 2147483648 dimensions",
    ),
    "no elements": (file(tensors=[described("x", (8, 0), 0, 0)]), r"'x' is of shape \(0, 8\)"),
    "many elements": (
        file(tensors=[described("x", (HUGE, HUGE), 0, 0)]),
        "'x' of shape .* ends at byte .*, but the file has 1120",
    ),
    "an offset beyond the file": (
        file(tensors=[described("x", (8, 4), 0, HUGE)]),
        "'x' of shape .* ends at byte 4611686018427388",
    ),
    "an offset between": (
        file(tensors=[described("x", (8, 4), 0, 16)]),
        "'x' lies at 16, which is no multiple of 32",
    ),
    "one over the other": (
        file(tensors=[X, described("y", (8, 4), 0, 96)]),
        "'y' lies over the one before it",
    ),
    "the end is missing": (
        file(data=127),
        "'x' of shape .* ends at byte 224, but the file has 223",
    ),
    "half a block": (
        file(tensors=[described("x", (48, 2), Kind.Q8_0, 0)]),
        r"'x' of Q8_0 is of shape \(2, 48\), whose rows are not whole blocks of 32",
    ),
    "a scalar of blocks": (file(tensors=[described("x", (), Kind.Q8_0, 0)]), "not whole blocks"),
    "an alignment of 3": (
        file([key("general.alignment", 4, struct.pack("<I", 3))]),
        "general.alignment is 3, not a power of two",
    ),
    "an alignment of 0": (
        file([key("general.alignment", 4, struct.pack("<I", 0))]),
        "general.alignment is 0, not a power of two",
    ),
    "an alignment in words": (
        file([key("general.alignment", 8, text("32"))]),
        "expected int for 'general.alignment', but got '32'",
    ),
    "one part": (file([key("split.count", 2, b"\3\0")]), "is one part of 3; merge them"),
    "nothing": (b"", "it is empty"),
    "a page": (b"<html>404</html>", "not a GGUF file"),
    "the first four bytes": (b"GGUF", "cut short"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_file_that_is_damaged(tmp_path: Path, how: str) -> None:
    content, message = DAMAGED[how]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as raised:
        open_source(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("kind", [Kind.Q3_K, Kind.IQ4_XS, Kind.Q5_1, Kind.I32, 4, 200])
def test_kinds_that_tensai_does_not_read(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file(tensors=[X, described("blk.0.ffn_up.weight", (256, 2), kind, 128)]))
    name = kind.name if isinstance(kind, Kind) else f"number {kind}"
    message = f"model.gguf: tensor 'blk.0.ffn_up.weight' is of dtype {name}; tensai reads .* Q4_K"
    source = open_source(path)
    assert source.tensor("x", (4, 8)).shape == (4, 8)
    assert source.readable() == ["x"]
    assert source.names() == ["x", "blk.0.ffn_up.weight"]
    for call in (source.shape, source.kind, source.raw):
        with pytest.raises(ModelError, match=message):
            call("blk.0.ffn_up.weight")


def small(path: Path) -> bytes:
    """A file of a few hundred bytes with every kind of thing in it."""
    keys = [
        key("general.architecture", 8, text("llama")),
        key("llama.rope.freq_base", 6, struct.pack("<f", 1e4)),
        key("tokenizer.ggml.tokens", 9, array(8, 3, text("<s>") + text("a") + text("本"))),
        key("tokenizer.ggml.scores", 9, array(6, 3, struct.pack("<3f", 0, -1, -2))),
        key("tokenizer.ggml.add_bos_token", 7, b"\1"),
    ]
    q8 = described("y", (32, 2), Kind.Q8_0, 128)
    content = file(keys, [X, q8], data=128 + 68)
    path.write_bytes(content)
    return content


def opened(path: Path) -> None:
    """Open a file that may be damaged: it either says so, or all its tensors can be read."""
    try:
        source = open_source(path)
        for name in source.names():
            source.tensor(name, source.shape(name))
    except ModelError as error:
        assert str(path) in str(error)


def test_a_file_cut_short_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    content = small(path)
    opened(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match="model.gguf is damaged"):
            open_source(path)


def test_every_byte_of_a_header_turned_to_one_and_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    content = small(path)
    chosen = random.Random(5)
    for place in range(content.index(b"y") + 40):
        for byte in (0, 255, chosen.randrange(256)):
            path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
            opened(path)


@settings(
    deadline=1000, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(st.tuples(st.integers(0, 700), st.binary(min_size=1, max_size=8)), max_size=4),
    cut=st.integers(0, 700),
)
def test_a_header_with_wrong_bytes(
    tmp_path: Path, changes: list[tuple[int, bytes]], cut: int
) -> None:
    path = tmp_path / "model.gguf"
    content = bytearray(small(path))
    for place, wrong in changes:
        place %= len(content) - 8
        content[place : place + len(wrong)] = wrong
    path.write_bytes(content[: len(content) - cut] if cut < 64 else content)
    opened(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="gone.gguf is missing"):
        GGUFFile(tmp_path / "gone.gguf")
    with pytest.raises(ModelError, match="is no file"):
        GGUFFile(tmp_path)


def test_without_the_gguf_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"gguf package: pip install tensai\[models\]"):
        open_source(path)
