"""Settings that an architecture has, or that another one has: what transformers makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinyllm
import torch
from changed import changed_folder
from safetensors.torch import load_file

import tensai
from tensai.errors import ModelError
from tensai.models import load

KINDS = ("llama2", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
IDS = np.random.default_rng(4).integers(0, 256, 30).tolist()
LAYERS = {"gemma3": 7}
SETTINGS: dict[str, dict[str, Any]] = {
    "attention softcap": {"attn_logit_softcapping": 1.5},
    "final softcap": {"final_logit_softcapping": 2.0},
    "no softcaps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    "window": {"sliding_window": 5},
    "window used": {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1},
    "pattern": {"sliding_window": 5, "sliding_window_pattern": 3, "layer_types": None},
    "biases": {"mlp_bias": False, "attention_bias": False},
    "scale": {"query_pre_attn_scalar": 7},
    "two ways": {"use_bidirectional_attention": False},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: tinyllm.make(root / kind, kind) for kind in KINDS}


def same_as_transformers(gpu: tensai.Device, folder: Path) -> None:
    expected = tinyllm.logits(tinyllm.reference(folder), IDS)
    off = np.abs(load(folder, gpu, context=64).logits(IDS) - expected).max()
    assert off <= 1e-4 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_settings_of_this_and_other_architectures(
    gpu: tensai.Device, folders: Any, tmp_path: Path, kind: str, setting: str
) -> None:
    folder = changed_folder(folders[kind], tmp_path / "changed", **SETTINGS[setting])
    same_as_transformers(gpu, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_layer_by_layer(
    gpu: tensai.Device, folders: Any, tmp_path: Path, kind: str
) -> None:
    count = LAYERS.get(kind, 3)
    types = [f"{'full' if number == 1 else 'sliding'}_attention" for number in range(count)]
    settings = {"sliding_window": 5, "use_sliding_window": True, "layer_types": types}
    same_as_transformers(gpu, changed_folder(folders[kind], tmp_path / "changed", **settings))


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_beside_tied_embeddings(
    gpu: tensai.Device, folders: Any, tmp_path: Path, kind: str
) -> None:
    table = load_file(folders[kind] / "model.safetensors")[TABLE]
    other = torch.randn(table.shape, generator=torch.Generator().manual_seed(1))
    heads = {"other": other, "almost": table.clone(), "same": table.clone()}
    heads["almost"][-1, -1] += 1
    sizes = {}
    for name, head in heads.items():
        folder = changed_folder(
            folders[kind], tmp_path / name, {HEAD: head}, tie_word_embeddings=True
        )
        same_as_transformers(gpu, folder)
        sizes[name] = load(folder, gpu, context=64).decoder.nbytes
    assert sizes["other"] == sizes["almost"] == sizes["same"] + table.numpy().nbytes
    alone = {HEAD: other, TABLE: None}
    folder = changed_folder(folders[kind], tmp_path / "alone", alone, tie_word_embeddings=True)
    same_as_transformers(gpu, folder)
    folder = changed_folder(
        folders[kind], tmp_path / "two", {HEAD: other}, tie_word_embeddings=False
    )
    same_as_transformers(gpu, folder)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_attention_both_ways(gpu: tensai.Device, folders: Any, tmp_path: Path, kind: str) -> None:
    folder = changed_folder(folders[kind], tmp_path / "changed", use_bidirectional_attention=True)
    with pytest.raises(ModelError, match="config.json: use_bidirectional_attention is true"):
        load(folder, gpu)
