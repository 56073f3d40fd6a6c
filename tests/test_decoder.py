"""Language models of every architecture, against transformers on the CPU in float32."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinyllm
import torch

import tensai
from tensai.models import LanguageModel, load, loading
from tensai.models import language as language_module
from tensai.models.opening import open_source

IDS = np.random.default_rng(4).integers(0, 256, 40).tolist()
TOLERANCE = 1e-4


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder of each architecture, made when first asked for."""
    root = tmp_path_factory.mktemp("models")

    def folder(name: str) -> Path:
        place = root / name
        return place if place.is_dir() else tinyllm.make(place, name)

    return folder


def tokens(model: LanguageModel, ids: Any, count: int) -> list[int]:
    """The most likely tokens after ids, whatever ends a text."""
    model.tokenizer.eos = frozenset()
    return list(model.tokens(ids, count))


def close(got: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", list(tinyllm.CONFIGS))
def test_logits_and_greedy_tokens(dev: tensai.Device, folders: Any, name: str) -> None:
    folder = folders(name)
    reference = tinyllm.reference(folder)
    model = load(folder, dev, context=200)
    close(model.logits(IDS), tinyllm.logits(reference, IDS))
    assert tokens(model, IDS, 64) == tinyllm.greedy(reference, IDS, 64)


@pytest.mark.parametrize("name", ["llama3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_a_gguf_of_the_same_weights(
    dev: tensai.Device, folders: Any, tmp_path: Path, name: str
) -> None:
    more = {}
    if name == "gemma2":  # of which GGUF has no setting for the scale
        more = {"query_pre_attn_scalar": 32}
    if name == "mistral":  # nor for a window
        more = {"sliding_window": None}
    folder = tinyllm.make(tmp_path / "folder", name, **more) if more else folders(name)
    file = tinyllm.write_gguf(folder, tmp_path / "model.gguf")
    model = load(file, dev, context=64)
    close(model.logits(IDS), tinyllm.logits(tinyllm.reference(folder), IDS))
    assert model.tokenizer.encode("héllo") == load(folder, dev, context=9).tokenizer.encode("héllo")


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0"])
def test_kinds_of_gguf_matrices(
    dev: tensai.Device, folders: Any, tmp_path: Path, kind: str
) -> None:
    file = tinyllm.write_gguf(folders("qwen2"), tmp_path / "model.gguf", kind)
    model = load(file, dev, activations="f32")
    # The same values, unpacked by the gguf package, as a folder that transformers reads.
    unpacked = tinyllm.make(tmp_path / "unpacked", "qwen2")
    reference = tinyllm.reference(unpacked)
    source = open_source(file)
    names = {"model.embed_tokens.weight": "token_embd.weight"}
    with torch.no_grad():
        for key, parameter in reference.named_parameters():
            name = names.get(key) or tinyllm._gguf_name(key, tinyllm.GGUF_PARTS)
            parameter.copy_(torch.from_numpy(source.tensor(name, tuple(parameter.shape)).copy()))
    close(model.logits(IDS), tinyllm.logits(reference, IDS))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_shards(dev: tensai.Device, tmp_path: Path, dtype: Any) -> None:
    folder = tinyllm.make(tmp_path / "model", "llama3", dtype, shard="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    close(load(folder, dev).logits(IDS), tinyllm.logits(tinyllm.reference(folder), IDS))


@pytest.mark.parametrize("name", ["mistral", "gemma3"])
def test_chunks_and_steps_agree(
    dev: tensai.Device, folders: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(folders(name), dev, context=100)
    whole = model.logits(IDS)
    monkeypatch.setattr(language_module, "CHUNK", 7)
    close(model.logits(IDS), whole, 1e-5)
    monkeypatch.setattr(language_module, "CHUNK", 1)
    close(model.logits(IDS), whole, 1e-5)
    first = tokens(model, IDS, 20)
    monkeypatch.undo()
    model.forget()
    assert tokens(model, IDS, 20) == first


def test_the_cache_is_used_again(dev: tensai.Device, folders: Any) -> None:
    model = load(folders("qwen3"), dev, context=100)
    first = tokens(model, IDS, 10)
    assert model.timings.prompt_tokens == len(IDS)
    assert tokens(model, IDS, 10) == first
    assert model.timings.prompt_tokens == 1
    longer = [*IDS, *first, 5, 6]  # a chat goes on
    again = tokens(model, longer, 10)
    assert model.timings.prompt_tokens == 3  # the last token of an answer is not in the cache
    model.forget()
    assert tokens(model, longer, 10) == again
    other = [*IDS[:20], 1, 2, 3]
    made = tokens(model, other, 10)
    assert model.timings.prompt_tokens == 3
    model.forget()
    assert tokens(model, other, 10) == made


@pytest.mark.parametrize("weights", ["q8", "q4", "f16", "f32"])
def test_weights_on_request(dev: tensai.Device, folders: Any, weights: str) -> None:
    exact = tinyllm.logits(tinyllm.reference(folders("llama3")), IDS)
    model = load(folders("llama3"), dev, weights=weights, activations="f32")
    off = np.linalg.norm(model.logits(IDS) - exact) / np.linalg.norm(exact)
    most = {"q8": 0.05, "q4": 0.6, "f16": 2e-3, "f32": 1e-5}[weights]
    assert off < most, off
    sizes = {"q8": 9 / 8, "q4": 5 / 8, "f16": 2, "f32": 4}  # bytes an element, scales included
    elements = sum(p.numel() for p in tinyllm.reference(folders("llama3")).parameters())
    assert model.decoder.nbytes <= elements * sizes["q8" if weights == "q4" else weights]


@pytest.mark.parametrize("weights", ["q8", "q4"])
def test_int8_activations_change_no_clear_choice(
    dev: tensai.Device, folders: Any, weights: str
) -> None:
    exact = load(folders("llama3"), dev, weights=weights, activations="f32")
    rounded = load(folders("llama3"), dev, weights=weights, activations="int8")
    compared = 0
    for seed in range(8):
        ids = np.random.default_rng(seed).integers(0, 256, 12).tolist()
        expected = tokens(exact, ids, 16)
        scores = np.sort(exact.logits([*ids, *expected])[len(ids) - 1 : -1], axis=1)
        clear = scores[:, -1] - scores[:, -2] > 0.1
        count = 16 if clear.all() else int(np.argmin(clear))
        assert tokens(rounded, ids, 16)[:count] == expected[:count]
        compared += count
    assert compared > 20
    a, b = exact.logits(IDS), rounded.logits(IDS)
    assert 0 < np.linalg.norm(a - b) < 0.05 * np.linalg.norm(a)


def test_what_rounds_activations_without_being_asked(
    dev: tensai.Device, folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(software: bool, weights: int) -> str:
        monkeypatch.setattr(dev, "info", dataclasses.replace(dev.info, software=software))
        monkeypatch.setattr(loading, "ENOUGH_WEIGHTS", weights)
        return load(folders("llama3"), dev, weights="q8").decoder.activations

    elements = sum(p.numel() for p in tinyllm.reference(folders("llama3")).parameters())
    instructions = "packed-dot" in dev.features
    assert chosen(False, elements) == ("int8" if instructions else "f32")
    assert chosen(False, elements + 1) == "f32"
    assert chosen(True, elements) == "f32"
