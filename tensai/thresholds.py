"""The accelerator's threshold on this machine, which `tensai sweep --save` measures and keeps."""

from __future__ import annotations

import contextlib
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

from .kept import kept_file, read_kept, write_kept

if TYPE_CHECKING:
    from .device import Device

logger = logging.getLogger("tensai")

KIND = "thresholds"


def threshold_file(device: Device) -> Path:
    """Where the threshold of a device is kept; nothing is created."""
    return kept_file(KIND, device)


def saved_threshold(device: Device) -> float | None:
    """The kept threshold in multiply-accumulates, infinity where a device never wins, or None."""
    threshold = read_kept(KIND, device).get("threshold")
    if threshold is None:
        return None
    if threshold == "never":
        return math.inf
    if isinstance(threshold, (int, float)) and not isinstance(threshold, bool) and threshold >= 0:
        with contextlib.suppress(OverflowError):
            return float(threshold)
    logger.debug("ignored a damaged threshold in %s", threshold_file(device))
    return None


def save_threshold(device: Device, threshold: float) -> Path:
    """Keep a threshold, infinity included; the file. ValueError where it can't be written."""
    return write_kept(KIND, device, {"threshold": "never" if math.isinf(threshold) else threshold})
