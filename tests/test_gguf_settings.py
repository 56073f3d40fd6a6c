"""GGUF settings that change a model's numbers: applied, or refused by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinyllm
from changed import changed_folder, changed_gguf

import tensai
from tensai.errors import ModelError
from tensai.models import load
from tensai.models.ggufsettings import NEUTRAL

KINDS = ("llama2", "qwen3", "gemma2", "gemma3")
IDS = np.random.default_rng(4).integers(0, 256, 40).tolist()
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
GGUF_YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
}
LINEAR = {"rope_type": "linear", "factor": 3.0}
MSCALE = 0.1 * np.log(4.0) + 1
# What a file says, and the same as transformers' rope_parameters.
SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({"rope.scaling.type": "linear", "rope.scaling.factor": 3.0}, LINEAR),
    "no type": ({"rope.scaling.factor": 3.0}, LINEAR),
    "older key": ({"rope.scale_linear": 3.0}, LINEAR),
    "both keys": ({"rope.scale_linear": 9.0, "rope.scaling.factor": 3.0}, LINEAR),
    "no scaling": ({"rope.scaling.type": "none", "rope.scaling.factor": 3.0}, {}),
    "no factor": ({"rope.scaling.type": "linear"}, {}),
    "yarn": (GGUF_YARN, YARN),
    "yarn stretched": (
        {**GGUF_YARN, "rope.scaling.attn_factor": 2.0},
        {**YARN, "attention_factor": 2 * MSCALE},
    ),
    "yarn between": (
        {**GGUF_YARN, "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0},
        {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    ),
    "yarn of the context": (
        {**GGUF_YARN, "rope.scaling.original_context_length": None},
        {**YARN, "original_max_position_embeddings": 512},
    ),
}
OTHERS: dict[str, Any] = {
    "attention.scale": 0.7,
    "attention.value_length": 8,
    "attention.key_length_swa": 8,
    "attention.value_length_swa": 8,
    "rope.dimension_count_swa": 8,
    "embedding_scale": 3.0,
    "rope.scaling.attn_factor": 2.0,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Folder and GGUF of each kind."""
    root = tmp_path_factory.mktemp("models")
    made = {}
    for kind in KINDS:
        # GGUF has no setting for the scale.
        more = {"query_pre_attn_scalar": 32} if kind == "gemma2" else {}
        folder = tinyllm.make(root / kind, kind, **more)
        made[kind] = folder, tinyllm.write_gguf(folder, root / f"{kind}.gguf")
    return made


def same(gpu: tensai.Device, file: Path, folder: Path) -> None:
    expected = tinyllm.logits(tinyllm.reference(folder), IDS)
    off = np.abs(load(file, gpu, context=64).logits(IDS) - expected).max()
    assert off <= 1e-4 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("kind", ["llama2", "qwen3"])
def test_scaled_positions(
    gpu: tensai.Device, models: Any, tmp_path: Path, kind: str, scaling: str
) -> None:
    folder, file = models[kind]
    settings, rope = SCALINGS[scaling]
    rope = {"rope_type": "default", "rope_theta": 1e4, **rope}
    same(
        gpu,
        changed_gguf(file, tmp_path / "model.gguf", settings=settings),
        changed_folder(folder, tmp_path / "folder", rope_parameters=rope),
    )


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_windows(gpu: tensai.Device, models: Any, tmp_path: Path, kind: str) -> None:
    folder, file = models[kind]
    count = 3 if kind == "gemma2" else 7
    near = [number % 3 != 1 for number in range(count)]
    types = [f"{'sliding' if one else 'full'}_attention" for one in near]
    key = "attention.sliding_window_pattern"
    pattern = changed_gguf(file, tmp_path / "pattern.gguf", settings={key: near})
    same(gpu, pattern, changed_folder(folder, tmp_path / "folder", layer_types=types))
    every = [f"{'sliding' if (number + 1) % 3 else 'full'}_attention" for number in range(count)]
    third = changed_gguf(file, tmp_path / "third.gguf", settings={key: 3})
    same(gpu, third, changed_folder(folder, tmp_path / "every", layer_types=every))
    for wrong in (near[1:], 0, "x"):
        made = changed_gguf(file, tmp_path / "wrong.gguf", settings={key: wrong})
        with pytest.raises(ModelError, match=r"wrong.gguf: expected .*sliding_window_pattern"):
            load(made, gpu)


def test_what_gemma_2_has_where_a_file_is_silent(
    gpu: tensai.Device, models: Any, tmp_path: Path
) -> None:
    folder, file = models["gemma2"]
    silent = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    same(
        gpu,
        changed_gguf(file, tmp_path / "model.gguf", settings=silent),
        changed_folder(folder, tmp_path / "folder", **caps),
    )


def test_a_softcap_and_a_base_of_gemma_3(gpu: tensai.Device, models: Any, tmp_path: Path) -> None:
    folder, file = models["gemma3"]
    rope = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 777.0},
    }
    settings = {"final_logit_softcapping": 2.0, "rope.freq_base_swa": 777.0}
    same(
        gpu,
        changed_gguf(file, tmp_path / "model.gguf", settings=settings),
        changed_folder(folder, tmp_path / "f", rope_parameters=rope, final_logit_softcapping=2.0),
    )


def test_neutral_values_are_taken(gpu: tensai.Device, models: Any, tmp_path: Path) -> None:
    folder, file = models["llama2"]
    settings = {
        key: value
        for key, values in NEUTRAL.items()
        for value in [float(values[0]) if "scale" in key or "factor" in key else values[0]]
    }
    settings |= {"attention.value_length": 16, "attention.scale": 0.25, "embedding_scale": 1.0}
    same(gpu, changed_gguf(file, tmp_path / "model.gguf", settings=settings), folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", [*NEUTRAL, *OTHERS])
def test_values_that_would_change_something(
    gpu: tensai.Device, models: Any, tmp_path: Path, key: str, kind: str
) -> None:
    wrong = OTHERS.get(key, not NEUTRAL[key][0] if type(NEUTRAL.get(key, [0])[0]) is bool else 5)
    for number, value in enumerate((wrong, "many", [1, 2, 3])):
        target = tmp_path / f"{number}.gguf"
        file = changed_gguf(models[kind][1], target, settings={key: value})
        with pytest.raises(ModelError, match=rf"{number}.gguf: .*{key}"):
            load(file, gpu)


@pytest.mark.parametrize("kind", ["llama2", "qwen3", "gemma3"])
def test_softcaps_of_another_architecture(
    gpu: tensai.Device, models: Any, tmp_path: Path, kind: str
) -> None:
    keys = ["attn_logit_softcapping"] + ([] if kind == "gemma3" else ["final_logit_softcapping"])
    for key in keys:
        file = changed_gguf(models[kind][1], tmp_path / f"{key}.gguf", settings={key: 3.0})
        with pytest.raises(ModelError, match=rf"{key} is 3.0, but"):
            load(file, gpu)


def test_two_ways_to_scale_positions(gpu: tensai.Device, models: Any, tmp_path: Path) -> None:
    _, file = models["llama2"]
    factors = {"rope_freqs.weight": np.full(8, 2.0, np.float32)}
    load(changed_gguf(file, tmp_path / "one.gguf", factors), gpu)
    settings = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    both = changed_gguf(file, tmp_path / "both.gguf", factors, settings)
    with pytest.raises(ModelError, match=r"both.gguf: .*'linear' and by the tensor 'rope_freqs"):
        load(both, gpu)
