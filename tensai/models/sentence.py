"""Sentence embeddings (Reimers and Gurevych, 2019): a BERT encoder, pooled and normalized."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Device
from ..errors import ModelError
from .bert import BertConfig, BertEncoder
from .files import (
    Array,
    Settings,
    model_folder,
    read_json,
    read_settings,
    read_tokenizer,
    tokenizing,
)
from .progress import Progress
from .shards import Weights

POOLINGS = ("mean", "cls")
TOKENIZED_AT_ONCE = 1024  # sentences
BATCH_BYTES = 128 << 20  # of the largest intermediate result, where a device names no limit


class SentenceEncoder:
    """Turns sentences into vectors whose dot products say how alike their meanings are.

    `path` is the folder of a BERT that was trained for it, as sentence-transformers saves one:
    config.json, model.safetensors (float32, float16 or bfloat16) and tokenizer.json, and where they
    exist modules.json, sentence_bert_config.json and 1_Pooling/config.json, which say where text is
    cut and how tokens become one vector (the mean over them where nothing is said). `device` comes
    from tensai.open().

    Raises ModelError, which names the file, when one is missing, damaged, or asks for something
    else than this; ImportError without the packages of tensai[models].
    """

    def __init__(self, path: str | os.PathLike[str], device: Device) -> None:
        root = model_folder(path)
        folder, self.pooling = _modules(root)
        config_path = folder / "config.json"
        self.config = BertConfig.read(read_settings(config_path))
        self._path = folder / "tokenizer.json"
        self._tokenizer = read_tokenizer(self._path)
        known = self._tokenizer.get_vocab_size()
        if known > self.config.vocabulary:
            raise ModelError(
                f"{self._path} knows {known} tokens, but {config_path} says "
                f"vocab_size {self.config.vocabulary}; the two files belong to different models"
            )
        self.max_length, self._lower = _limits(folder, self.config.positions, self._tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_length)
        self.device = device
        self._encoder = BertEncoder(self.config, Weights(folder), device)

    @property
    def dim(self) -> int:
        """Numbers in an embedding."""
        return self.config.hidden

    def encode(
        self, sentences: Iterable[str], batch_size: int = 32, progress: bool = False
    ) -> Array:
        """Embeddings (n, dim) of n sentences, float32, each of length 1.

        A sentence's embedding does not depend on the others (but for rounding). Text beyond
        `max_length` tokens is cut off. At most `batch_size` sentences are computed together, fewer
        where they are long. `progress` shows how far it is on standard error.

        Raises TypeError for anything that is not a string, ValueError for a batch_size below 1.
        """
        texts = _checked(sentences)
        if batch_size < 1:
            raise ValueError(f"expected a batch_size of at least 1, but got {batch_size}")
        result = np.zeros((len(texts), self.dim), dtype=np.float32)
        with Progress("sentences embedded", len(texts), progress) as line:
            tokens = self._tokenize(texts)
            done = 0
            for rows in self._batches(tokens, batch_size):
                result[rows] = self._embed([tokens[row] for row in rows])
                done += len(rows)
                line.show(done)
        return result

    def _tokenize(self, texts: Sequence[str]) -> list[Array]:
        tokens: list[Array] = []
        for start in range(0, len(texts), TOKENIZED_AT_ONCE):
            some = texts[start : start + TOKENIZED_AT_ONCE]
            if self._lower:
                some = [text.lower() for text in some]
            with tokenizing(self._path):
                encoded = self._tokenizer.encode_batch(list(some))
            tokens.extend(np.array(one.ids, dtype=np.int32) for one in encoded)
        return tokens

    def _batches(self, tokens: Sequence[Array], batch_size: int) -> Iterator[list[int]]:
        """Sentences that are computed together: of like length, so that little is padding."""
        limit = self.device.limits.get("maxStorageBufferBindingSize", BATCH_BYTES)
        widest = 4 * max(self.config.intermediate, self.config.hidden)
        most = min(limit, BATCH_BYTES) // widest  # tokens
        order = sorted(range(len(tokens)), key=lambda row: -len(tokens[row]))
        start = 0
        while start < len(order):
            longest = max(len(tokens[order[start]]), 1)
            count = min(batch_size, max(most // longest, 1))
            yield order[start : start + count]
            start += count

    def _embed(self, tokens: Sequence[Array]) -> Array:
        """Embeddings of a few sentences, given as token ids."""
        lengths = np.array([len(ids) for ids in tokens])
        length = max(int(lengths.max()), 1)
        mask = np.arange(length) < lengths[:, None]
        ids = np.zeros(mask.shape, dtype=np.int32)
        ids[mask] = np.concatenate(tokens)
        # Pooling is a product with the share that each token has in its sentence's vector.
        share = np.zeros((len(tokens), 1, length), dtype=np.float32)
        if self.pooling == "cls":
            share[:, 0, 0] = lengths > 0
        else:
            share[:, 0] = mask / np.maximum(lengths, 1)[:, None]
        with self.device.batch():
            hidden = self._encoder(ids, mask)
            pooled = (self.device.upload(share) @ hidden).download()[:, 0]
        norms = np.linalg.norm(pooled.astype(np.float64), axis=1, keepdims=True)
        return np.asarray(pooled / np.maximum(norms, 1e-12), dtype=np.float32)


def _checked(sentences: Iterable[str]) -> list[str]:
    if isinstance(sentences, (str, bytes)):
        raise TypeError(
            f"expected a list of strings, but got one {type(sentences).__name__}; put it in a list"
        )
    texts = list(sentences)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"expected strings, but sentence {index} is of type {type(text).__name__}"
            )
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"sentence {index} holds {text[error.start]!r}, half of a character; decode "
                    'the text with errors="replace"'
                ) from error
    return texts


def _modules(root: Path) -> tuple[Path, str]:
    """Where the encoder's files are, and how its tokens are pooled."""
    listing = root / "modules.json"
    if not listing.is_file():
        pooling = root / "1_Pooling" / "config.json"
        return root, _pooling(read_settings(pooling)) if pooling.is_file() else "mean"
    modules = read_json(listing)
    if not isinstance(modules, list) or not all(isinstance(entry, dict) for entry in modules):
        raise ModelError(f"{listing}: expected a list of objects, one for each module")
    folder, pooling_mode = root, "mean"
    for entry in modules:
        settings = Settings(listing, entry)
        kind = settings.get("type", str).rpartition(".")[2]
        place = root / settings.get("path", str, "")
        if kind == "Transformer":
            folder = place
        elif kind == "Pooling":
            pooling_mode = _pooling(read_settings(place / "config.json"))
        elif kind != "Normalize":
            raise ModelError(
                f"{listing} lists a module {kind!r}; tensai runs Transformer, Pooling and Normalize"
            )
    return folder, pooling_mode


def _pooling(settings: Settings) -> str:
    start = "pooling_mode_"
    if "pooling_mode" in settings.values:
        chosen = [settings.get("pooling_mode", str)]
    else:
        names = {"cls_token": "cls", "mean_tokens": "mean"}
        flags = [key for key in settings.values if key.startswith(start)]
        chosen = [key[len(start) :] for key in flags if settings.get(key, bool)]
        chosen = [names.get(name, name) for name in chosen]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ModelError(
            f"{settings.path} asks for pooling by {' and '.join(chosen) or 'nothing'}; tensai "
            f"pools by {' or '.join(POOLINGS)}"
        )
    return str(chosen[0])


def _limits(folder: Path, positions: int, tokenizer: Any) -> tuple[int, bool]:
    """How many tokens of a text count, and whether it is lowered first."""
    path = folder / "sentence_bert_config.json"
    source, longest, lower = folder / "config.json", positions, False
    if tokenizer.truncation is not None:
        source, longest = folder / "tokenizer.json", tokenizer.truncation["max_length"]
    if path.is_file():
        settings = read_settings(path)
        lower = settings.get("do_lower_case", bool, False)
        if settings.values.get("max_seq_length") is not None:
            source, longest = path, settings.count("max_seq_length")
    special = tokenizer.num_special_tokens_to_add(False)
    if longest <= special:
        raise ModelError(
            f"{source} cuts text at {longest} tokens, but the tokenizer adds {special} to each; "
            "expected more"
        )
    return min(longest, positions), lower
