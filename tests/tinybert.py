"""What the tests of sentence encoders share: small BERTs with random weights, and transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = "the cat sat on a mat and then it ran away from big old dog that slept in sun"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def make(folder: Path, dtype: torch.dtype = torch.float32, **config: Any) -> Path:
    """A folder with config.json, model.safetensors and tokenizer.json of a random BERT."""
    tokenizer = _tokenizer()
    values = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 72,
        "max_position_embeddings": 24,
        # Weights of the usual size for training would hardly make sentences differ.
        "initializer_range": 0.2,
        **config,
    }
    torch.manual_seed(3)
    model = BertModel(BertConfig(**values), add_pooling_layer=False)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name:  # which start as zeros and ones
            torch.nn.init.normal_(parameter, mean=float("Norm.weight" in name), std=0.2)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write(path: Path, value: Any) -> None:
    """A JSON file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def expected(
    folder: Path, sentences: Sequence[str], max_length: int, pooling: str = "mean"
) -> np.ndarray[Any, Any]:
    """transformers' embeddings, in float32 on the CPU."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]"
    )
    model = AutoModel.from_pretrained(folder).float().eval()
    encoded = tokenizer(
        list(sentences), padding=True, truncation=True, max_length=max_length, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = model(**encoded).last_hidden_state
    seen = encoded["attention_mask"][..., None]
    pooled = hidden[:, 0] if pooling == "cls" else (hidden * seen).sum(1) / seen.sum(1)
    return torch.nn.functional.normalize(pooled, dim=1).numpy()


def _tokenizer() -> Tokenizer:
    names = [*SPECIAL, *WORDS.split(), *"abcdefghijklmnopqrstuvwxyz"]
    names += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer
