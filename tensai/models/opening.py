"""Finding out what a model's path is: a folder, a safetensors file or a GGUF."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelError
from .files import missing
from .gguffile import GGUFFile
from .ggufvocab import gguf_tokenizer
from .shards import INDEX, SINGLE, Weights
from .source import TensorSource
from .vocabulary import TextTokenizer, folder_tokenizer

EXPECTED = "a folder with config.json, model.safetensors and tokenizer.json, or a .gguf file"


def open_source(path: str | os.PathLike[str]) -> TensorSource:
    """The tensors at a path: Weights for a folder or a .safetensors, GGUFFile for any other file.

    Nothing but headers is read. Raises ModelError, which names the file, for a path where there is
    neither, and for whatever is damaged.
    """
    if not os.fspath(path):
        raise ModelError(f"the path of the model is empty; expected {EXPECTED}")
    place = Path(path).expanduser()
    if place.is_dir():
        if not any((place / name).is_file() for name in (SINGLE, INDEX)):
            raise ModelError(_without_model(place))
        return Weights(place)
    if not place.exists():
        raise ModelError(f"{place} does not exist; expected {EXPECTED}")
    if place.suffix in (".safetensors", ".json"):
        return Weights(place)
    return GGUFFile(place)


def _without_model(folder: Path) -> str:
    """What to say of a folder that is given as a model."""
    text = f"{missing(folder / SINGLE)}; expected {EXPECTED}"
    files = sorted(file.name for file in folder.iterdir() if file.suffix.lower() == ".gguf")
    return text + (f": give {folder / files[0]}" if files else "")


def open_tokenizer(source: TensorSource) -> TextTokenizer:
    """The tokenizer that belongs to these tensors: out of the GGUF, or of the files beside them.

    Raises ModelError when there is none, or one that tensai does not know.
    """
    if isinstance(source, GGUFFile):
        return gguf_tokenizer(source)
    return folder_tokenizer(source.path.parent)
