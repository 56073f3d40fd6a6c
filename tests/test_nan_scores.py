"""Scores that are NaN, after the prompt or late in an answer: no text is made of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tinyllm
from changed import changed_folder, changed_gguf
from safetensors.torch import load_file

import tensai
from tensai.errors import ModelError
from tensai.models import load
from tensai.models.language import AHEAD

LATE = AHEAD + 5
TABLE = "model.embed_tokens.weight"
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.2, "seed": 6},
    "filtered": {"temperature": 1.2, "top_k": 50, "top_p": 0.99, "seed": 6},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinyllm.make(tmp_path_factory.mktemp("models") / "tiny", "llama3")


def answer(model: Any, prompt: list[int], **way: Any) -> list[int]:
    model.tokenizer.eos = frozenset()
    return list(model.tokens(prompt, 2 * AHEAD + 20, **way))


def newcomer(model: Any, least: int, **way: Any) -> tuple[list[int], list[int], int]:
    """A prompt, its answer, and a place from `least` on of a token that was not there before."""
    for start in range(200):
        prompt = [start, start + 1]
        made = answer(model, prompt, **way)
        for place in range(least, len(made) - 5):
            if made[place] not in [*prompt, *made[:place]]:
                return prompt, made, place
    raise AssertionError("every answer repeats itself")


@pytest.mark.parametrize("least", [0, 3, LATE])
@pytest.mark.parametrize("way", WAYS)
def test_nan_within_an_answer(
    dev: tensai.Device, folder: Path, tmp_path: Path, way: str, least: int
) -> None:
    prompt, made, place = newcomer(load(folder, dev, context=120), least, **WAYS[way])
    table = load_file(folder / "model.safetensors")[TABLE]
    table[made[place]] = math.nan  # what comes after this token is NaN
    model = load(changed_folder(folder, tmp_path / "wrong", {TABLE: table}), dev, context=120)
    for _ in range(2):
        given = []
        with pytest.raises(ModelError, match=rf"config.json: .*after {place + 1} tokens .* NaN: "):
            for token in model.tokens(prompt, 2 * AHEAD + 20, **WAYS[way]):
                given.append(token)
        assert given == made[: place + 1]
    # What does not come by it is as before.
    assert list(model.tokens(prompt, place + 1, **WAYS[way])) == made[: place + 1]


@pytest.mark.parametrize("activations", ["f32", "int8"])
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_nan_among_quantized_weights(
    gpu: tensai.Device, folder: Path, tmp_path: Path, kind: str, activations: str
) -> None:
    file = tinyllm.write_gguf(folder, tmp_path / "model.gguf", kind)
    tensors = {one.name: one for one in gguf.GGUFReader(file).tensors}
    name = "token_embd.weight"
    blocks = np.array(tensors[name].data)
    prompt, made, place = newcomer(load(file, gpu, activations=activations, context=120), 2)
    blocks[made[place], :2] = np.array([math.nan], np.float16).view(np.uint8)  # a scale
    changes = {name: (blocks, tensors[name].tensor_type)}
    wrong = changed_gguf(file, tmp_path / "wrong.gguf", changes)
    model = load(wrong, gpu, activations=activations, context=120)
    with pytest.raises(ModelError, match=rf"wrong.gguf: .*after {place + 1} tokens .* NaN: "):
        list(model.tokens(prompt, 40))
    changes = {"blk.1.ffn_norm.weight": np.full(64, math.nan, np.float32)}
    model = load(changed_gguf(file, tmp_path / "2.gguf", changes), gpu, activations=activations)
    with pytest.raises(ModelError, match=r"2.gguf: .*after this prompt are NaN: "):
        list(model.tokens(prompt, 40))


def test_a_step_takes_no_more_for_it(gpu: tensai.Device, folder: Path) -> None:
    """One dispatch for each sample, as argmax has."""
    logits = gpu.zeros((1, 264))
    counts = []
    for call in (lambda: logits.argmax(axis=1), lambda: tensai.ops.sample(logits, 0, 0.0)):
        with gpu.record() as program:
            call()
        counts.append(len(program))
    assert counts[0] == counts[1] == 1
