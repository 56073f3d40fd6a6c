"""Tensors in safetensors files: one, or several with an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .files import Settings, extra, missing, read_settings
from .source import FLOATS, Entry, TensorSource, map_file

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class Weights(TensorSource):
    """The tensors of a safetensors file, or of the files that a folder has.

    `path` is a .safetensors file, a .safetensors.index.json, or a folder with model.safetensors
    or, where it is split into several files, model.safetensors.index.json. `folder` is where the
    model's other files are. Raises ModelError, which names the file, when one is missing or
    damaged, or a file has no tensor that the index promises.
    """

    kinds = tuple(FLOATS)

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            index = path / INDEX
            path = index if index.is_file() and not (path / SINGLE).is_file() else path / SINGLE
        self.folder = path.parent
        super().__init__(path, _indexed(path) if path.suffix == ".json" else _read(path))


def _read(path: Path) -> dict[str, Entry]:
    """The tensors of one file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise extra("safetensors") from error
    if not path.is_file():
        raise ModelError(missing(path))
    try:
        # The library checks that the header is sound and that the file is complete.
        with safe_open(str(path), framework="numpy"):
            pass
    except SafetensorError as error:
        raise ModelError(
            f"{path} is damaged, or not a safetensors file: {error}; copy or fetch it again"
        ) from error
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror or error}") from error
    # A file's tensors are mapped, not loaded: NumPy's own reader of the library has no bfloat16,
    # and would hold every tensor twice on its way to a device.
    data = map_file(path)
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(bytes(data[8:start]))
    header.pop("__metadata__", None)
    entries = {}
    for name, entry in header.items():
        first, last = (start + offset for offset in entry["data_offsets"])
        entries[name] = Entry(path, entry["dtype"], tuple(entry["shape"]), data[first:last])
    return entries


def _indexed(path: Path) -> dict[str, Entry]:
    """The tensors that an index names, each from the file that it names."""
    settings = read_settings(path)
    if "weight_map" not in settings.values:
        raise ModelError(
            f"{path} lists no files of tensors (it has no 'weight_map'); give the model's folder, "
            "its .safetensors file, or its .safetensors.index.json"
        )
    places = Settings(path, settings.get("weight_map", dict))
    files: dict[str, dict[str, Entry]] = {}
    entries = {}
    for name in places.values:
        file = places.get(name, str)
        if not file or Path(file).name != file:
            raise ModelError(
                f"{path}: expected the name of a file beside it for {name!r}, but got {file!r}"
            )
        if file not in files:
            files[file] = _read(path.parent / file)
        found = files[file].get(name)
        if found is None:
            raise ModelError(
                f"{path.parent / file} has no tensor {name!r}, which {path.name} says it has; the "
                "files belong to different models, or one is incomplete"
            )
        entries[name] = found
    return entries
