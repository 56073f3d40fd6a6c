"""Tensors of a model that are missing or wrong: refused by name, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tinyllm
import torch
from changed import changed_folder, changed_gguf
from safetensors.torch import load_file

import tensai
from tensai.errors import ModelError
from tensai.models import load

KINDS = ("qwen2", "qwen3", "gemma2")  # which together have every part that there is


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Folder and GGUF of each kind."""
    root = tmp_path_factory.mktemp("models")
    made = {}
    for kind in KINDS:
        folder = tinyllm.make(root / kind, kind)
        made[kind] = folder, tinyllm.write_gguf(folder, root / f"{kind}.gguf")
    return made


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where anything is put on a device."""

    def used(self: tensai.Device, *arguments: Any) -> None:
        raise AssertionError("the device was used")

    for name in ("upload", "upload_gguf", "empty"):
        monkeypatch.setattr(tensai.Device, name, used)


def shapes(right: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Wrong ones of every rank, of as many elements where that can be."""
    size = int(np.prod(right))
    yield ()
    for axes in range(1, 5):
        if axes != len(right):
            yield (1,) * (axes - 1) + (size,)
    yield (*right[:-1], right[-1] + 32)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_every_wrong_shape(
    gpu: tensai.Device, models: Any, kind: str, tmp_path: Path, nothing_loaded: None
) -> None:
    folder, file = models[kind]
    source = load_file(folder / "model.safetensors")
    parts = {**tinyllm.GGUF_PARTS, **(tinyllm.GEMMA_PARTS if kind == "gemma2" else {})}
    for number, (name, tensor) in enumerate(source.items()):
        if "layers." in name and "layers.1." not in name:
            continue
        other = tinyllm._gguf_name(name, parts)
        for place, shape in enumerate(shapes(tuple(tensor.shape))):
            wrong = torch.zeros(shape)
            target = changed_folder(folder, tmp_path / f"{number}-{place}", {name: wrong})
            with pytest.raises(ModelError, match=rf"model.safetensors: .*'{name}' is of shape"):
                load(target, gpu)
            target = changed_gguf(file, tmp_path / f"{number}-{place}.gguf", {other: wrong.numpy()})
            with pytest.raises(ModelError, match=rf"-{place}\.gguf: .*'{other}' is of shape"):
                load(target, gpu)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_that_are_missing(
    gpu: tensai.Device, models: Any, kind: str, tmp_path: Path, nothing_loaded: None
) -> None:
    folder, _ = models[kind]
    for number, name in enumerate(load_file(folder / "model.safetensors")):
        target = changed_folder(folder, tmp_path / str(number), {name: None})
        with pytest.raises(ModelError, match=rf"model.safetensors has no tensor '{name}'"):
            load(target, gpu)


UNUSED = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)
UNUSED += (torch.float8_e4m3fn, torch.float8_e5m2)
UNUSED_BLOCKS = {"Q3_K": 110, "IQ4_XS": 136, "Q5_1": 192, "TQ1_0": 54}


def test_tensors_that_no_model_of_this_kind_has(
    gpu: tensai.Device, models: Any, tmp_path: Path
) -> None:
    folder, file = models["qwen3"]
    ids = list(range(20))
    expected = load(folder, gpu).logits(ids)
    extra: dict[str, Any] = {
        f"vision.{number}": torch.ones(5).to(dtype) for number, dtype in enumerate(UNUSED)
    }
    extra["model.layers.0.k_scale"] = torch.ones(2, 3, 4, 5, 6).to(torch.float8_e4m3fn)
    extra["scalar"] = torch.tensor(3)
    made = load(changed_folder(folder, tmp_path / "folder", extra), gpu)
    np.testing.assert_array_equal(made.logits(ids), expected)
    more: dict[str, Any] = {
        f"extra.{number}": np.ones(5, dtype)
        for number, dtype in enumerate((np.int8, np.int16, np.int32, np.int64))
    }
    for kind, size in UNUSED_BLOCKS.items():
        more[kind] = np.zeros((2, size), np.uint8), gguf.GGMLQuantizationType[kind]
    made = load(changed_gguf(file, tmp_path / "model.gguf", more), gpu)
    np.testing.assert_allclose(made.logits(ids), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["qwen3"])
def test_tensors_of_kinds_that_are_not_read(
    gpu: tensai.Device, models: Any, kind: str, tmp_path: Path, nothing_loaded: None
) -> None:
    folder, file = models[kind]
    for number, (name, tensor) in enumerate(load_file(folder / "model.safetensors").items()):
        if "layers." in name and "layers.1." not in name:
            continue
        wrong = tensor.to(torch.float8_e4m3fn)
        target = changed_folder(folder, tmp_path / str(number), {name: wrong})
        with pytest.raises(ModelError, match=f"'{name}' is of dtype F8_E4M3; tensai reads"):
            load(target, gpu)
        other = tinyllm._gguf_name(name, tinyllm.GGUF_PARTS)
        changes = {other: tensor.to(torch.int32).numpy()}
        target = changed_gguf(file, tmp_path / f"{number}.gguf", changes)
        with pytest.raises(ModelError, match=f"'{other}' is of dtype I32; tensai reads"):
            load(target, gpu)


# Tensors that would change the model, by the kind of model that does not have them. In GGUF files
# biases and norms of heads are read where layer 0 has those of the first matrix.
FOREIGN_GGUF = {
    "qwen2": [
        "output.bias",
        "output_norm.bias",
        "token_embd_norm.weight",
        "blk.0.attn_norm.bias",
        "blk.1.ffn_norm.bias",
        "blk.0.attn_sinks.weight",
        "blk.0.ffn_gate_inp.weight",
        "blk.0.attn_q.scale",
        "blk.2.layer_output_scale.weight",
        "blk.0.post_attention_norm.weight",
        "blk.*.ffn_down.bias",
        "blk.*.ffn_up.bias",
        "blk.*.attn_k_norm.weight",
        "blk.1.attn_q_norm.weight",
        "blk.2.attn_output.bias",
    ],
    "qwen3": ["blk.*.attn_v.bias", "blk.*.attn_k.bias", "blk.1.attn_q.bias", "blk.2.attn_v.bias"],
    "gemma2": ["blk.*.ffn_down.bias", "blk.1.attn_q.bias", "blk.0.ffn_norm.bias", "output.bias"],
}
FOREIGN_FOLDER = {
    "qwen2": [
        "lm_head.bias",
        "model.norm.bias",
        "model.embed_tokens.bias",
        "model.embed_tokens_norm.weight",
        "model.layers.0.input_layernorm.bias",
        "model.layers.0.self_attn.sinks",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.self_attn.q_proj.weight_scale",
        "model.layers.0.pre_feedforward_layernorm.weight",
        "model.layers.*.self_attn.o_proj.bias",
        "model.layers.*.self_attn.q_norm.weight",
        "model.layers.1.self_attn.k_norm.weight",
        "model.layers.*.mlp.gate_proj.bias",
        "model.layers.2.mlp.down_proj.bias",
    ],
    "qwen3": ["model.layers.*.self_attn.q_proj.bias", "model.layers.2.self_attn.v_proj.bias"],
    "gemma2": ["model.layers.*.mlp.up_proj.bias", "model.layers.1.self_attn.q_norm.weight"],
}


def every(foreign: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(kind, name) for kind, names in foreign.items() for name in names]


def added(name: str) -> list[str]:
    """The names that a name with * stands for, in models of three layers."""
    return [name.replace("*", str(number)) for number in range(3 if "*" in name else 1)]


@pytest.mark.parametrize(("kind", "name"), every(FOREIGN_GGUF))
def test_tensors_of_a_gguf_that_the_decoder_does_not_have(
    gpu: tensai.Device, models: Any, kind: str, name: str, tmp_path: Path, nothing_loaded: None
) -> None:
    names = added(name)
    changes = {one: np.ones(64, np.float32) for one in names}
    target = changed_gguf(models[kind][1], tmp_path / "model.gguf", changes)
    with pytest.raises(ModelError, match=rf"model\.gguf: tensor '{names[0]}' is part of the model"):
        load(target, gpu)


@pytest.mark.parametrize(("kind", "name"), every(FOREIGN_FOLDER))
def test_tensors_of_a_folder_that_the_decoder_does_not_have(
    gpu: tensai.Device, models: Any, kind: str, name: str, tmp_path: Path, nothing_loaded: None
) -> None:
    names = added(name)
    target = changed_folder(models[kind][0], tmp_path / "m", {one: torch.ones(64) for one in names})
    with pytest.raises(ModelError, match=rf"safetensors: tensor '{names[0]}' is part of the model"):
        load(target, gpu)


def test_a_foreign_tensor_of_a_kind_that_is_not_read(
    gpu: tensai.Device, models: Any, tmp_path: Path, nothing_loaded: None
) -> None:
    name = "model.layers.0.self_attn.q_proj.qzeros"
    extra = {name: torch.ones(4, dtype=torch.int32)}
    with pytest.raises(ModelError, match=rf"tensor '{name}' is part of the model"):
        load(changed_folder(models["qwen3"][0], tmp_path / "m", extra), gpu)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_that_are_left_over(
    gpu: tensai.Device, models: Any, kind: str, tmp_path: Path
) -> None:
    """Computed from settings, or of other parts: the model is the same without them."""
    folder, file = models[kind]
    ids = list(range(20))
    expected = load(folder, gpu).logits(ids)
    leftovers = ["rotary_emb.inv_freq", "rotary_emb.cos_cached", "masked_bias", "bias"]
    leftovers += ["k_proj.k_scale", "v_proj.v_scale"]
    names = [f"model.layers.{number}.self_attn.{one}" for number in range(3) for one in leftovers]
    names += ["model.rotary_emb.inv_freq", "vision_tower.layers.0.mlp.up_proj.bias"]
    names += ["multi_modal_projector.norm.weight"]
    made = load(changed_folder(folder, tmp_path / "m", {one: torch.ones(7) for one in names}), gpu)
    np.testing.assert_array_equal(made.logits(ids), expected)
    more = {"blk.0.attn_rot_embd": np.ones(7, np.float32), "v.blk.0.ln1.bias": np.ones(7)}
    expected = load(file, gpu).logits(ids)
    made = load(changed_gguf(file, tmp_path / "model.gguf", more), gpu)
    np.testing.assert_array_equal(made.logits(ids), expected)


@pytest.mark.parametrize("kind", tinyllm.CONFIGS)
def test_every_architecture_has_all_its_tensors_read(
    gpu: tensai.Device, kind: str, tmp_path: Path
) -> None:
    folder = tinyllm.make(tmp_path / "m", kind)
    load(folder, gpu)
    load(tinyllm.write_gguf(folder, tmp_path / "model.gguf"), gpu)
