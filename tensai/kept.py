"""Small answers that were measured on a device and are kept in the cache folder.

One JSON file for each kind of answer and combination of adapter, driver and library version.
Processes may share the folder: a file appears once it is complete, and a damaged, foreign or
unreadable one counts as none.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wgpu_native_py.errors import WgpuError
from wgpu_native_py.paths import cache_dir, replacing

if TYPE_CHECKING:
    from .device import Device


def kept_file(kind: str, device: Device) -> Path:
    """Where answers of a kind ("thresholds", "paces") are kept; nothing is created."""
    name = hashlib.sha256(json.dumps(_identity(device)).encode()).hexdigest()[:24]
    return cache_dir() / kind / f"{name}.json"


def read_kept(kind: str, device: Device) -> dict[str, Any]:
    """What is kept, empty where nothing is."""
    try:
        kept = json.loads(kept_file(kind, device).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, WgpuError):
        return {}
    if not isinstance(kept, dict) or kept.get("device") != _identity(device):
        return {}
    return kept


def write_kept(kind: str, device: Device, answers: dict[str, Any]) -> Path:
    """Keep answers instead of what was kept before; the file.

    ValueError where the cache folder can't be written.
    """
    path = kept_file(kind, device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_text(json.dumps({"device": _identity(device), **answers}), encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"nothing can be kept in {path}: {error.strerror or error}; set TENSAI_CACHE_DIR to a "
            "folder that can be written"
        ) from error
    return path


def _identity(device: Device) -> dict[str, Any]:
    """What a measured answer depends on, as it comes back from JSON."""
    return {
        "adapter": device.info.name,
        "driver": device.info.driver,
        "backend": device.info.backend,
        "library": None if device.library is None else device.library.version,
    }
