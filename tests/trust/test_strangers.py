"""Files from strangers: whatever is in a model's files, they are refused by name or they run.

Changes are made by hypothesis: bytes anywhere, and in JSON also values of every kind in the place
of any other. Each file is loaded and asked for two tokens, on NumPy, within bounded time and
memory. The formats' own tests try what each field may hold, byte by byte and cut anywhere.
"""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tinyllm
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tensai
from tensai.errors import ModelError
from tensai.models import load
from tensai.models.files import read_tokenizer

FULL = os.environ.get("TENSAI_TRUST") == "full"
SECONDS = 10  # for any file, on a slow machine
ROOM = 128 << 20  # bytes that it may need
GGUF = "model.gguf"
FILES = ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors", GGUF)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([2**15, 2**31, 2**63, 10**400, 0.5, -1e308, 1e308, float("nan")]),
    st.text(max_size=4),
    st.sampled_from([[], {}, [[]], [1, 2], ["a"], {"a": 1}, "llama", "yarn", "\ud800"]),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small model's files, by their names, and the same as a GGUF."""
    folder = tmp_path_factory.mktemp("whole")
    small = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32}
    tinyllm.make(folder, "llama3", **small)
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    found[GGUF] = tinyllm.write_gguf(folder, folder / GGUF, "F32").read_bytes()
    assert found.keys() >= set(FILES)
    return found


def peak() -> int:
    """The most bytes that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@st.composite
def bytes_changed(draw: Any, content: bytes) -> bytes:
    """Bytes replaced, put in or left out, near the beginning or anywhere, or the end cut off."""
    made = bytearray(content)
    reach = draw(st.sampled_from([64, 3000, *[len(content)] * 3]))
    # Most in place of as many: what moves all that follows is told at once.
    more = draw(st.sampled_from([0] * 5 + [1, 100, -1]))
    for _ in range(draw(st.integers(1, 3))):
        # Evenly: hypothesis itself prefers small numbers, which lie in the header.
        place = random.Random(draw(st.integers(0, 2**32))).randrange(reach)
        put = draw(st.binary(min_size=1, max_size=8))
        made[place : place + len(put) + more] = put
    end = draw(st.sampled_from([None] * 9 + [0.01, 0.5, 0.99]))
    return bytes(made if end is None else made[: int(end * len(made))])


@st.composite
def values_changed(draw: Any, content: bytes) -> bytes:
    """JSON with values in the place of others, of whatever kind, or with keys left out."""
    made = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        at = made
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = draw(st.sampled_from(keys[:60]))
            if isinstance(at[key], (dict, list)) and at[key] and draw(st.integers(0, 3)):
                at = at[key]
                continue
            if draw(st.integers(0, 4)):
                at[key] = copy.deepcopy(draw(VALUES))
            else:
                del at[key]
            break
    return json.dumps(made).encode()


def changed(name: str, content: bytes) -> st.SearchStrategy[bytes]:
    if name.endswith(".json"):
        return st.one_of(values_changed(content), values_changed(content), bytes_changed(content))
    return bytes_changed(content)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused_or_runs(
    whole: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for other in whole.keys() - {GGUF} if name != GGUF else ():
        (folder / other).write_bytes(whole[other])
    path = folder / name
    outcomes = {"ran": 0, "refused": 0}

    @settings(
        max_examples=3000 if FULL else 60,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(content=changed(name, whole[name]))
    def attempt(content: bytes) -> None:
        path.write_bytes(content)
        start, before = time.perf_counter(), peak()
        try:
            model = load(path if name == GGUF else folder, tensai.open("cpu"), context=16)
            list(model.generate("an", max_tokens=2, chat=False))
            outcomes["ran"] += 1
        except ModelError as error:
            assert str(folder) in str(error)
            outcomes["refused"] += 1
        assert time.perf_counter() - start < SECONDS
        assert peak() - before < ROOM

    attempt()
    assert min(outcomes.values()) > 3, outcomes
    path.write_bytes(whole[name])
    if name != GGUF:
        (folder / "config.json").write_bytes(whole["config.json"])
    assert list(load(path if name == GGUF else folder, tensai.open("cpu")).tokens([1, 2], 2))


def test_a_panic_of_the_tokenizers_library(whole: dict[str, bytes], tmp_path: Path) -> None:
    # It is no Exception, so that no `except` would see it.
    made = json.loads(whole["tokenizer.json"])
    made["model"]["continuing_subword_prefix"] = "longer than a token"
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(ModelError, match="tokenizer.json is damaged.*out of range"):
        read_tokenizer(tmp_path / "tokenizer.json")


def test_processes_share_a_cache_folder(tmp_path: Path) -> None:
    """Ten that begin at once with nothing there, then one that finds all of it damaged."""
    library = tensai.open().library
    assert library is not None
    code = """if True:
        import numpy as np, tensai
        dev = tensai.open()
        x = dev.upload(np.arange(12, dtype=np.float32).reshape(3, 4))
        assert ((x @ x.T).softmax().sum(1).download() == 1).all()
        assert (x.exp() + x.sum(0)).argmax().item() == 11
    """
    env = {
        **os.environ,
        "TENSAI_SELF_CHECK": "first-use",
        "TENSAI_CACHE_DIR": str(tmp_path),
        "TENSAI_WGPU_LIB": str(library.path),
    }
    command = [sys.executable, "-c", code]
    started = [
        subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) for _ in range(10)
    ]
    for process in started:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    kept = [
        path for path in tmp_path.rglob("*") if path.is_file() and "__pycache__" not in str(path)
    ]
    assert {path.suffix for path in kept} == {".json", ".py"}  # and nothing half written
    assert {path.parent.name for path in kept} >= {"verdicts", "declarations"}
    for path in kept:
        if path.suffix == ".json":
            json.loads(path.read_text())
        path.write_bytes(path.read_bytes()[:-20])
    for folder in tmp_path.rglob("__pycache__"):
        shutil.rmtree(folder)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
