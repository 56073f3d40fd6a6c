"""Safetensors, one file or several: what is read equals what torch and transformers wrote."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from tensai.errors import ModelError
from tensai.models.fetch import locate
from tensai.models.files import read_settings, read_text
from tensai.models.opening import open_source
from tensai.models.shards import Weights
from tensai.models.source import KINDS

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def tensors() -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    found = {f"x{kind}": torch.randn(5, 3, generator=made).to(dt) for kind, dt in DTYPES.items()}
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 1e-40, 65504.0])
    return found | {
        "special": special,
        "specialBF16": special.to(torch.bfloat16),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(3.5),
        "ids": torch.arange(4),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(tensors(), tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    """A folder that transformers split into several files, and what is in them."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(2)
    model = LlamaForCausalLM(config)
    folder = tmp_path_factory.mktemp("sharded")
    model.save_pretrained(folder, max_shard_size="20KB")
    return folder, model.state_dict()


def test_tensors_are_those_that_torch_wrote(folder: Path) -> None:
    source = open_source(folder)
    expected = tensors()
    assert sorted(source.names()) == sorted(expected)
    assert "ids" in source
    assert "nothing" not in source
    for name, tensor in expected.items():
        if name == "ids":
            continue
        shape = tuple(tensor.shape)
        assert source.shape(name) == shape
        read = source.tensor(name, shape)
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, tensor.float().numpy())
        if shape:
            np.testing.assert_array_equal(source.rows(name, 0, shape[0]), read)
            np.testing.assert_array_equal(source.rows(name, 0, 0), read[:0])
    for kind in DTYPES:
        name = f"x{kind}"
        assert source.kind(name) == kind
        assert kind in KINDS
        np.testing.assert_array_equal(source.rows(name, 1, 4), source.tensor(name, (5, 3))[1:4])
        raw = source.raw(name)
        assert raw.dtype == np.uint8
        assert not raw.flags.writeable
        assert raw.tobytes() == expected[name].view(torch.uint8).numpy().tobytes()


def test_every_way_to_name_the_same_file(folder: Path) -> None:
    for path in (folder, str(folder), folder / "model.safetensors"):
        source = open_source(path)
        assert isinstance(source, Weights)
        assert source.path == folder / "model.safetensors"
        assert source.folder == folder


def test_several_files_are_one_source(sharded: tuple[Path, dict[str, torch.Tensor]]) -> None:
    folder, expected = sharded
    assert len(list(folder.glob("*.safetensors"))) > 2
    for path in (folder, folder / "model.safetensors.index.json"):
        source = open_source(path)
        assert sorted(source.names()) == sorted(expected)
        for name, tensor in expected.items():
            np.testing.assert_array_equal(source.tensor(name, tuple(tensor.shape)), tensor.numpy())


def test_one_file_wins_over_an_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")
    assert open_source(folder).path == folder / "model.safetensors"


def test_a_tensor_that_is_not_there_or_of_another_shape(folder: Path) -> None:
    source = open_source(folder)
    path = str(folder / "model.safetensors")
    for call in (
        lambda: source.tensor("layers.9", (2,)),
        lambda: source.shape("layers.9"),
        lambda: source.kind("layers.9"),
        lambda: source.raw("layers.9"),
        lambda: source.rows("layers.9", 0, 1),
    ):
        with pytest.raises(ModelError, match="has no tensor 'layers.9'") as raised:
            call()
        assert path in str(raised.value)
    with pytest.raises(
        ModelError, match=r"'xF16' is of shape \(5, 3\), but config.json .*\(3, 5\)"
    ):
        source.tensor("xF16", (3, 5))
    with pytest.raises(ModelError, match="tensor 'ids' is of dtype I64; tensai reads F64, F32"):
        source.kind("ids")
    for start, stop in ((0, 6), (-1, 2), (3, 2)):
        with pytest.raises(IndexError, match=f"'xF32' of shape .* got {start} to {stop}"):
            source.rows("xF32", start, stop)
    with pytest.raises(IndexError):
        source.rows("scalar", 0, 1)


def test_paths_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"nowhere does not exist; expected a folder with .*\.gguf"
    ):
        open_source(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="model.safetensors is missing; .* folder .* file$"):
        open_source(tmp_path)
    (tmp_path / "tiny-q4.gguf").touch()
    with pytest.raises(ModelError, match=r"missing; .*or a .gguf file: give .*/tiny-q4.gguf$"):
        open_source(tmp_path)
    for empty in (open_source, locate):
        with pytest.raises(ModelError, match=r"path of the model is empty; .* folder .*\.gguf"):
            empty("")
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match="not from pytorch_model.bin"):
        open_source(tmp_path)
    (tmp_path / "notes.txt").write_text("a model, soon")
    with pytest.raises(ModelError, match="notes.txt is damaged, or not a GGUF file"):
        open_source(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        (None, "has no 'weight_map'"),
        ({"x": None}, "has no 'x'"),
        (["x"], "expected dict for 'weight_map'"),
        ({"x": 3}, "expected str for 'x'"),
        ({"x": "../model.safetensors"}, "the name of a file beside it for 'x'"),
        ({"x": ""}, "the name of a file beside it for 'x'"),
        ({"x": "gone.safetensors"}, "gone.safetensors is missing"),
        ({"x": "part.safetensors"}, r"part.safetensors has no tensor 'x', which .*index.json says"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, weight_map: Any, message: str) -> None:
    save_file({"y": torch.zeros(2)}, tmp_path / "part.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ModelError, match=message) as raised:
        open_source(tmp_path)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "other.json"])
def test_another_file_of_a_model_than_its_weights(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError, match=rf"{name} lists no files of tensors .*model's folder"):
        open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("what", ["pipe", "device", "folder", "terminal"])
def test_what_has_no_end_is_not_read(tmp_path: Path, name: str, what: str) -> None:
    path = tmp_path / name
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if what == "device" else "/dev/ptmx")
    with pytest.raises(ModelError, match=f"{name} can't be read: it is no file"):
        read_settings(path)


def test_text_files_that_are_too_large(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors.index.json", "chat_template.jinja"):
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(1 << 33)  # of which none is on the disk
        with pytest.raises(ModelError, match=f"{name} has 8,589,934,592 bytes; tensai reads up"):
            read_text(path)


def test_a_file_cut_short_anywhere(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for length in [*range(16), *range(16, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match="model.safetensors is damaged"):
            open_source(folder)


def opened(path: Path) -> None:
    """Open a file that may be damaged: it either says so, or all its tensors can be read."""
    try:
        source = open_source(path)
        for name in source.names():
            source.tensor(name, source.shape(name))
    except ModelError as error:
        assert str(path) in str(error)


@settings(
    deadline=1000, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_a_header_with_wrong_bytes(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    path = tmp_path / "model.safetensors"
    save_file(tensors(), path)
    content = bytearray(path.read_bytes())
    for place, byte in changes:
        content[place % len(content)] = byte
    path.write_bytes(content)
    opened(path)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}}',
        b'{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,99999999999999]}}',
        b'{"x":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}',
        b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}}',
        b'{"x":{"dtype":"Q9","shape":[4],"data_offsets":[0,16]}}',
        b'{"x":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}',
        b'{"a":' * 50_000,
    ],
)
def test_a_header_that_promises_what_is_not_there(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(ModelError, match="model.safetensors is damaged"):
        open_source(path)
    path.write_bytes((1 << 62).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(ModelError, match="model.safetensors is damaged"):
        open_source(path)


def test_without_safetensors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"safetensors package: pip install tensai\[models\]"):
        open_source(folder)
