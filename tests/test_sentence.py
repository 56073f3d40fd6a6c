"""Sentence embeddings against transformers' (PyTorch on the CPU), with the same weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinybert
import torch
from safetensors.numpy import load_file, save_file

import tensai
from tensai.errors import ModelError
from tensai.models import SentenceEncoder
from tensai.models.fetch import MINILM, fetch

TOLERANCE = 1e-5  # the largest difference from transformers that counts as right

SENTENCES = [
    "The cat sat on the mat.",
    "",
    "A black hole is so dense that light cannot leave it, as Schwarzschild's solution shows.",
    "naïve café, 北京 und Größe",
    "ok \N{THUMBS UP SIGN} tabs\tand\nlines, and a [MASK] and a [SEP] in the text",
    "x",
    "word " * 60,
    "The cat sat on the mat!",
]
TINY = ["the cat sat", "a big old dog slept in the sun and then it ran", "", "cat", "xyz on a mat"]


@pytest.fixture(scope="module")
def folder() -> Path:
    return fetch(MINILM)


@pytest.fixture(scope="module")
def encoder(folder: Path, dev: tensai.Device) -> SentenceEncoder:
    return SentenceEncoder(folder, dev)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tinybert.make(tmp_path / "tiny")


def test_embeddings_are_those_of_transformers(folder: Path, encoder: SentenceEncoder) -> None:
    embeddings = encoder.encode(SENTENCES)
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (len(SENTENCES), 384) == (len(SENTENCES), encoder.dim)
    expected = tinybert.expected(folder, SENTENCES, 256)
    assert np.abs(embeddings - expected).max() <= TOLERANCE
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


def test_long_text_is_cut_where_the_model_says(folder: Path, encoder: SentenceEncoder) -> None:
    # Not after the 128 tokens that tokenizer.json says, nor the 512 that config.json has room for.
    assert encoder.max_length == 256
    words = " ".join(f"{number} apples" for number in range(200))
    same = [words, words + " and a pear"]
    embeddings = encoder.encode([*same, words[:900], "short"], batch_size=2)
    expected = tinybert.expected(folder, same, 256)
    assert np.abs(embeddings[:2] - expected).max() <= TOLERANCE
    # But for rounding: a BLAS may treat the rows of a matrix differently.
    np.testing.assert_allclose(embeddings[0], embeddings[1], atol=1e-6)
    assert np.abs(embeddings[0] - embeddings[2]).max() > 1e-3


def test_a_sentence_does_not_depend_on_its_batch(tiny: Path, dev: tensai.Device) -> None:
    encoder = SentenceEncoder(tiny, dev)
    alone = np.concatenate([encoder.encode([sentence]) for sentence in TINY])
    for size in (1, 2, 3, 32):
        together = encoder.encode(iter(TINY), batch_size=size)
        np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)


def test_input_that_is_not_a_list_of_strings(tiny: Path, dev: tensai.Device) -> None:
    encoder = SentenceEncoder(tiny, dev)
    empty = encoder.encode([])
    assert (empty.shape, empty.dtype) == ((0, 40), np.float32)
    with pytest.raises(TypeError, match="a list of strings.*one str; put it in a list"):
        encoder.encode("the cat")
    with pytest.raises(TypeError, match="sentence 1 is of type NoneType"):
        encoder.encode(["the cat", None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="batch_size of at least 1, but got 0"):
        encoder.encode(["the cat"], batch_size=0)
    with pytest.raises(ValueError, match=r"sentence 0 holds '\\ud800', half of a character"):
        encoder.encode(["the \ud800"])


@pytest.mark.parametrize(
    ("dtype", "config"),
    [
        (torch.float32, {"hidden_act": "relu", "num_hidden_layers": 1, "layer_norm_eps": 1e-3}),
        (torch.float16, {"hidden_act": "gelu_new", "hidden_size": 66, "num_attention_heads": 2}),
        (torch.bfloat16, {"hidden_act": "silu", "num_hidden_layers": 3, "intermediate_size": 33}),
        (torch.float64, {"hidden_act": "gelu_pytorch_tanh", "num_attention_heads": 1}),
    ],
)
def test_other_sizes_activations_and_dtypes(
    tmp_path: Path, dev: tensai.Device, dtype: torch.dtype, config: dict[str, Any]
) -> None:
    folder = tinybert.make(tmp_path / "model", dtype, **config)
    embeddings = SentenceEncoder(folder, dev).encode(TINY)
    expected = tinybert.expected(folder, TINY, 24)
    assert np.abs(embeddings - expected).max() <= TOLERANCE


def test_pooling_by_the_first_token_and_lowering(tiny: Path, gpu: tensai.Device) -> None:
    # An older layout: the encoder in a folder of its own, the other files beside it.
    (tiny / "0_BERT").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tiny / name).rename(tiny / "0_BERT" / name)
    modules = {"Transformer": "0_BERT", "Pooling": "pool", "Normalize": "2_Normalize"}
    listing = [{"type": f"some.package.{kind}", "path": at} for kind, at in modules.items()]
    tinybert.write(tiny / "modules.json", listing)
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    tinybert.write(tiny / "pool" / "config.json", pooling)
    tinybert.write(tiny / "0_BERT" / "sentence_bert_config.json", {"do_lower_case": True})
    embeddings = SentenceEncoder(tiny, gpu).encode([text.upper() for text in TINY])
    expected = tinybert.expected(tiny / "0_BERT", TINY, 24, "cls")
    assert np.abs(embeddings - expected).max() <= TOLERANCE
    tinybert.write(tiny / "pool" / "config.json", {"pooling_mode": "cls"})
    again = SentenceEncoder(tiny, gpu).encode([text.upper() for text in TINY])
    np.testing.assert_array_equal(again, embeddings)


def test_names_of_tensors_that_other_releases_wrote(tiny: Path, gpu: tensai.Device) -> None:
    expected = SentenceEncoder(tiny, gpu).encode(TINY)
    tensors = load_file(tiny / "model.safetensors")
    older = {"Norm.weight": "Norm.gamma", "Norm.bias": "Norm.beta"}
    renamed = {}
    for name, tensor in tensors.items():
        for new, old in older.items():
            name = name.replace(new, old)
        renamed[f"bert.{name}"] = tensor
    renamed["cls.predictions.bias"] = np.zeros(3, np.float32)
    save_file(renamed, tiny / "model.safetensors")
    np.testing.assert_array_equal(SentenceEncoder(tiny, gpu).encode(TINY), expected)


def test_where_text_is_cut_if_files_are_missing(tiny: Path, cpu: tensai.Device) -> None:
    assert SentenceEncoder(tiny, cpu).max_length == 24  # max_position_embeddings
    tokenizer = json.loads((tiny / "tokenizer.json").read_text())
    tokenizer["truncation"] = {
        "direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    tinybert.write(tiny / "tokenizer.json", tokenizer)
    assert SentenceEncoder(tiny, cpu).max_length == 9
    for given, taken in ((7, 7), (100, 24), (None, 9)):
        tinybert.write(tiny / "sentence_bert_config.json", {"max_seq_length": given})
        assert SentenceEncoder(tiny, cpu).max_length == taken
    encoder = SentenceEncoder(tiny, cpu)
    expected = tinybert.expected(tiny, ["the cat " * 20], 9)
    assert np.abs(encoder.encode(["the cat " * 20]) - expected).max() <= TOLERANCE


def test_more_words_or_tokens_than_a_device_binds_at_once(
    tiny: Path, gpu: tensai.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = SentenceEncoder(tiny, gpu).encode(TINY)
    most = 20  # tokens in a batch: the widest intermediate result is of 72 numbers for each
    monkeypatch.setitem(gpu.limits, "maxStorageBufferBindingSize", 4 * 72 * most)
    uploaded = []
    upload = gpu.upload

    def watched(array: Any, *rest: Any) -> Any:
        uploaded.append(array.shape)
        return upload(array, *rest)

    monkeypatch.setattr(gpu, "upload", watched)
    encoder = SentenceEncoder(tiny, gpu)
    np.testing.assert_allclose(encoder.encode(TINY), expected, rtol=0, atol=1e-6)
    assert (encoder.config.vocabulary, encoder.dim) not in uploaded
    masks = [shape for shape in uploaded if len(shape) == 4]
    assert len(masks) > 1
    assert all(np.prod(shape) <= most for shape in masks)


def test_the_folder_is_missing(tmp_path: Path, cpu: tensai.Device) -> None:
    with pytest.raises(ModelError, match="nowhere does not exist; expected a folder with config"):
        SentenceEncoder(tmp_path / "nowhere", cpu)
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="file is a file; expected a folder"):
        SentenceEncoder(tmp_path / "file", cpu)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_is_missing(tiny: Path, cpu: tensai.Device, name: str) -> None:
    (tiny / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing"):
        SentenceEncoder(tiny, cpu)
    (tiny / "pytorch_model.bin").touch()
    advice = "not from pytorch_model.bin: save the model as safetensors"
    with pytest.raises(ModelError, match=advice if name == "model.safetensors" else name):
        SentenceEncoder(tiny, cpu)


def damaged(content: bytes, how: str) -> bytes:
    return {
        "cut short": content[: len(content) // 2],
        "empty": b"",
        "other bytes": b"\xff\x00 not this" * 20,
        "a page": b"<html>404</html>",
    }[how]


@pytest.mark.parametrize("how", ["cut short", "empty", "other bytes", "a page"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_is_damaged(tiny: Path, cpu: tensai.Device, name: str, how: str) -> None:
    path = tiny / name
    path.write_bytes(damaged(path.read_bytes(), how))
    with pytest.raises(ModelError, match=f"{name} is damaged"):
        SentenceEncoder(tiny, cpu)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "gpt2"}, "config.json: model_type is 'gpt2', but .* runs bert"),
        ({"model_type": None}, "model_type is 'not given'"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish', but .* gelu_new"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_size": None}, "config.json has no 'hidden_size'"),
        ({"hidden_size": "40"}, "expected int for 'hidden_size', but got '40'"),
        ({"hidden_size": True}, "expected int for 'hidden_size', but got True"),
        ({"num_hidden_layers": 0}, "expected at least 1 for 'num_hidden_layers', but got 0"),
        ({"num_attention_heads": 7}, "num_attention_heads to divide hidden_size"),
        ({"hidden_size": 1200}, "heads of at most 256, but got 4 and 1200"),
        ({"intermediate_size": 80}, r"shape \(72, 40\), but config.json asks for \(80, 40\)"),
        ({"num_hidden_layers": 3}, "model.safetensors has no tensor 'encoder.layer.2."),
        ({"vocab_size": 20}, r"tokenizer.json knows \d+ tokens, but .*config.json says vocab_size"),
    ],
)
def test_config_asks_for_something_else(
    tiny: Path, cpu: tensai.Device, changed: dict[str, Any], message: str
) -> None:
    config = json.loads((tiny / "config.json").read_text())
    tinybert.write(tiny / "config.json", {**config, **changed})
    with pytest.raises(ModelError, match=message) as raised:
        SentenceEncoder(tiny, cpu)
    assert str(tiny) in str(raised.value)


def test_weights_of_integers(tiny: Path, cpu: tensai.Device) -> None:
    tensors = load_file(tiny / "model.safetensors")
    name = "embeddings.LayerNorm.bias"
    save_file({**tensors, name: np.zeros(40, np.int64)}, tiny / "model.safetensors")
    with pytest.raises(ModelError, match=f"tensor '{name}' is of dtype I64; tensai reads F64"):
        SentenceEncoder(tiny, cpu)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling by max_tokens"),
        ("1_Pooling/config.json", {"word_embedding_dimension": 40}, "pooling by nothing"),
        ("modules.json", {"type": "x.Transformer"}, "modules.json: expected a list of objects"),
        ("modules.json", [{"type": "x.Dense", "path": "2"}], "lists a module 'Dense'"),
        ("modules.json", [{"type": "x.Pooling", "path": "p"}], "p/config.json is missing"),
        ("sentence_bert_config.json", {"max_seq_length": 2}, "cuts text at 2 tokens"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "at least 1 for 'max_seq_length'"),
        ("sentence_bert_config.json", ["max_seq_length"], "expected a JSON object, but got a list"),
    ],
)
def test_files_of_sentence_transformers_that_ask_for_something_else(
    tiny: Path, cpu: tensai.Device, name: str, content: Any, message: str
) -> None:
    tinybert.write(tiny / name, content)
    with pytest.raises(ModelError, match=message):
        SentenceEncoder(tiny, cpu)


@pytest.mark.parametrize("package", ["safetensors", "tokenizers"])
def test_without_the_packages_that_read_models(
    tiny: Path, cpu: tensai.Device, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package} package: pip install tensai\[models\]"):
        SentenceEncoder(tiny, cpu)
