"""The accelerator's threshold on this machine: `tensai sweep --save` measures it and keeps it here.

One small file in the cache folder for each combination of adapter, driver and library version.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wgpu_native_py.errors import WgpuError
from wgpu_native_py.paths import cache_dir, replacing

if TYPE_CHECKING:
    from .device import Device

logger = logging.getLogger("tensai")


def threshold_file(device: Device) -> Path:
    """Where the threshold of a device is kept; nothing is created."""
    name = hashlib.sha256(json.dumps(_identity(device)).encode()).hexdigest()[:24]
    return cache_dir() / "thresholds" / f"{name}.json"


def saved_threshold(device: Device) -> float | None:
    """The kept threshold in multiply-accumulates, infinity where a device never wins, or None.

    A damaged or unreadable file counts as none.
    """
    try:
        kept = json.loads(threshold_file(device).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, WgpuError):
        return None
    if not isinstance(kept, dict) or kept.get("device") != _identity(device):
        return None
    threshold = kept.get("threshold")
    if threshold == "never":
        return math.inf
    if isinstance(threshold, (int, float)) and not isinstance(threshold, bool) and threshold >= 0:
        return float(threshold)
    logger.debug("ignored a damaged threshold in %s", threshold_file(device))
    return None


def save_threshold(device: Device, threshold: float) -> Path:
    """Keep a threshold, infinity included; the file, which appears once it is complete.

    ValueError where the cache folder can't be written.
    """
    path = threshold_file(device)
    kept = {
        "device": _identity(device),
        "threshold": "never" if math.isinf(threshold) else threshold,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_text(json.dumps(kept), encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"the threshold can't be kept in {path}: {error.strerror or error}; set "
            "TENSAI_CACHE_DIR to a folder that can be written"
        ) from error
    return path


def _identity(device: Device) -> dict[str, Any]:
    """What a measured threshold depends on, as it comes back from JSON."""
    return {
        "adapter": device.info.name,
        "driver": device.info.driver,
        "backend": device.info.backend,
        "library": None if device.library is None else device.library.version,
    }
