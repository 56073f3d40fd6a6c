"""Wrong numbers in what a model's files say of it: refused, with the file and the key."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import tinyllm

from tensai.errors import ModelError
from tensai.models.description import Description
from tensai.models.files import Settings, read_settings
from tensai.models.opening import open_source

NOT_POSITIVE = [0, 0.0, -1, math.nan, math.inf, -math.inf, 1e300, 10**400]
ORIGINAL = {"original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, **ORIGINAL}
SCALINGS: list[tuple[dict[str, Any], str]] = [
    ({"rope_type": "linear", "factor": 4.0}, "factor"),
    *((tinyllm.LLAMA3_ROPE, key) for key in tinyllm.LLAMA3_ROPE if key != "rope_type"),
    *((YARN, key) for key in ("factor", "beta_fast", "beta_slow", "attention_factor")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinyllm.make(tmp_path_factory.mktemp("models") / "tiny", "gemma2")


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return tinyllm.write_gguf(folder, folder.parent / "tiny.gguf")


def from_config(folder: Path, **wrong: Any) -> Description:
    settings = read_settings(folder / "config.json")
    values = {**settings.values, "rope_parameters": None, **wrong}
    return Description.from_config(Settings(settings.path, values), open_source(folder).names())


def from_metadata(file: Path, **wrong: Any) -> Description:
    source = open_source(file)
    values = {**source.settings.values, **{f"gemma2.{key}": wrong[key] for key in wrong}}
    return Description.from_metadata(Settings(source.path, values), source.names())


@pytest.mark.parametrize("value", NOT_POSITIVE)
def test_numbers_that_must_be_positive(folder: Path, file: Path, value: Any) -> None:
    keys = ["rope_theta", "rms_norm_eps", "query_pre_attn_scalar", "final_logit_softcapping"]
    for key in keys:
        with pytest.raises(ModelError, match=f"config.json: .*finite number above 0 for '{key}'"):
            from_config(folder, **{key: value})
    with pytest.raises(ModelError, match="finite number above 0 for 'rope_theta'"):
        from_config(folder, rope_parameters={"rope_type": "default", "rope_theta": value})
    scaled = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    for key in ("rope.freq_base", "attention.layer_norm_rms_epsilon", "rope.scaling.factor"):
        with pytest.raises(ModelError, match=f"tiny.gguf: .*finite number above 0 for '{key}'"):
            from_metadata(file, **{**scaled, key: value})


@pytest.mark.parametrize("value", [0, -2.0, math.nan, math.inf, "4", True])
@pytest.mark.parametrize(("scaling", "key"), SCALINGS)
def test_scaled_positions(folder: Path, scaling: dict[str, Any], key: str, value: Any) -> None:
    from_config(folder, rope_scaling=scaling)
    if value == 0 and key in ORIGINAL:  # then the model's own is taken
        return
    with pytest.raises(ModelError, match=f"config.json: .*above 0 for scaling's {key}, but got"):
        from_config(folder, rope_scaling={**scaling, key: value})


@pytest.mark.parametrize("layers", [1, 2, 4, 10**8, 2**31 - 1, 2**31, 10**12, 2**70, 0, -1])
def test_layers_that_are_not_there(folder: Path, file: Path, layers: int) -> None:
    start = time.perf_counter()
    with pytest.raises(ModelError, match=r"config\.json: .*'num_hidden_layers'"):
        from_config(folder, num_hidden_layers=layers)
    with pytest.raises(ModelError, match=r"tiny\.gguf: .*'block_count'"):
        from_metadata(file, block_count=layers)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**70, 1.5, "8", True])
def test_whole_numbers_within_bounds(folder: Path, file: Path, value: Any) -> None:
    for key in ("hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings"):
        with pytest.raises(ModelError, match=f"config.json: expected .* for '{key}', but got"):
            from_config(folder, **{key: value})
    for key in ("embedding_length", "attention.head_count", "context_length"):
        with pytest.raises(ModelError, match=f"tiny.gguf: expected .* for '{key}', but got"):
            from_metadata(file, **{key: value})


def test_what_json_calls_a_number(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    values = json.loads((folder / "config.json").read_text())
    path.write_text(json.dumps({**values, "rms_norm_eps": math.nan}))
    with pytest.raises(ModelError, match="'rms_norm_eps' .*but got nan"):
        Description.from_config(read_settings(path), open_source(folder).names())
