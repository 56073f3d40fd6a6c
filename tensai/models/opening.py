"""Finding out what a model's path is: a folder, a safetensors file or a GGUF."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelError
from .gguffile import GGUFFile
from .ggufvocab import gguf_tokenizer
from .shards import Weights
from .source import TensorSource
from .vocabulary import TextTokenizer, folder_tokenizer


def open_source(path: str | os.PathLike[str]) -> TensorSource:
    """The tensors at a path: Weights for a folder or a .safetensors, GGUFFile for any other file.

    Nothing but headers is read. Raises ModelError, which names the file, for a path where there is
    neither, and for whatever is damaged.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        return Weights(place)
    if not place.exists():
        raise ModelError(
            f"{place} does not exist; expected a folder with config.json, model.safetensors and "
            "tokenizer.json, or a .gguf file"
        )
    if place.suffix in (".safetensors", ".json"):
        return Weights(place)
    return GGUFFile(place)


def open_tokenizer(source: TensorSource) -> TextTokenizer:
    """The tokenizer that belongs to these tensors: out of the GGUF, or of the files beside them.

    Raises ModelError when there is none, or one that tensai does not know.
    """
    if isinstance(source, GGUFFile):
        return gguf_tokenizer(source)
    return folder_tokenizer(source.path.parent)
