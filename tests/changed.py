"""Copies of a model's files that are wrong somewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
from safetensors.torch import load_file, save_file


def changed_folder(
    folder: Path, target: Path, changes: dict[str, Any] | None = None, **settings: Any
) -> Path:
    """A folder with tensors replaced or added, removed where there is None, and other settings."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **settings}))
    if changes is None:
        return target
    tensors = {**load_file(folder / "model.safetensors"), **changes}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, target / "model.safetensors", {"format": "pt"})
    return target


def changed_gguf(
    file: Path,
    target: Path,
    changes: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
) -> Path:
    """The same of a GGUF; a tensor may be (bytes, kind), and settings lack the architecture."""
    reader = gguf.GGUFReader(file)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(str(target), architecture)
    for name, field in reader.fields.items():
        own = name.removeprefix(f"{architecture}.")
        if not name.startswith("GGUF.") and own not in ("general.architecture", *(settings or {})):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for name, value in (settings or {}).items():
        add = {bool: writer.add_bool, int: writer.add_int32, float: writer.add_float32}
        add |= {str: writer.add_string, list: writer.add_array}
        if value is not None:
            add[type(value)](f"{architecture}.{name}", value)
    tensors = {one.name: (one.data, one.tensor_type) for one in reader.tensors}
    for name, tensor in {**tensors, **(changes or {})}.items():
        if tensor is not None:
            data, kind = tensor if isinstance(tensor, tuple) else (tensor, None)
            writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
