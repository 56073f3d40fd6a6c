"""Verdicts of self-checks, kept in the cache folder so that a second process pays nothing."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING

from wgpu_native_py.paths import cache_dir, replacing

from .version import __version__

if TYPE_CHECKING:
    from .gpu import GpuDevice

logger = logging.getLogger("tensai")


class VerdictStore:
    """One file for each combination of adapter, driver, library and tensai version.

    Several processes may share it: each writes a whole new file, with what the old one held. A
    damaged or unreadable file counts as empty, and a folder that can't be written only costs the
    next process its checks.
    """

    def __init__(self, device: GpuDevice) -> None:
        adapter = device.native.adapter.info
        library = device.library
        assert library is not None
        identity = (adapter, library.version, __version__)
        name = hashlib.sha256(repr(identity).encode()).hexdigest()[:24]
        self._path = cache_dir() / "verdicts" / f"{name}.json"
        self._known = self._read()

    def get(self, key: str) -> str | None:
        """Empty for a source that is right, the reason for one that is not, None when unknown."""
        return self._known.get(key)

    def put(self, key: str, reason: str) -> None:
        """Keep a verdict."""
        self._known[key] = reason
        merged = {**self._read(), **self._known}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as part:
                part.write_text(json.dumps(merged), encoding="utf-8")
        except OSError as error:
            logger.debug("verdicts could not be kept in %s: %s", self._path, error)

    def _read(self) -> dict[str, str]:
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(kept, dict):
            return {}
        return {k: v for k, v in kept.items() if isinstance(k, str) and isinstance(v, str)}
