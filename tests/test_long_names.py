"""Vocabularies of a GGUF whose names are absurdly long: read or refused, but soon."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from test_tokenizers import opened, write_gguf

from tensai.errors import ModelError

LONG = "h" * 3_000_000
PIECES = ["<unk>", "<s>", "</s>", "h", "hh"]


def keys(model: str, names: list[str], kind: int) -> dict[str, Any]:
    tokens = [*PIECES, *names]
    found = {"tokens": tokens, "token_type": [2, 3, 3, 1, 1] + [kind] * len(names)}
    if model == "gpt2":
        return {**found, "pre": "gpt-2", "merges": ["h h"]}
    return {**found, "scores": [-float(place) for place in range(len(tokens))]}


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_a_name_of_millions(tmp_path: Path, model: str, kind: int) -> None:
    path = write_gguf(tmp_path / "model.gguf", model, **keys(model, [LONG], kind))
    start = time.process_time()
    if model == "llama" and kind in (1, 5):
        with pytest.raises(ModelError, match=r"model.gguf: .*token 5 has 3000000 characters.* 512"):
            opened(path)
    else:
        tokenizer = opened(path)
        assert tokenizer.decode(tokenizer.encode("hhh", special=False)).strip() == "hhh"
    assert time.process_time() - start < 5


def test_many_names_as_long_as_they_may_be(tmp_path: Path) -> None:
    names = ["h" * length for length in range(3, 513)]
    names += ["h" * 500 + f"{place:012}" for place in range(3000)]
    path = write_gguf(tmp_path / "model.gguf", "llama", **keys("llama", names, 1))
    start = time.process_time()
    assert len(opened(path).encode("h" * 512, special=False)) < 512
    assert time.process_time() - start < 10
