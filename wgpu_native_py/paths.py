"""Where tensai keeps what it downloads and learns."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import WgpuError
from .pins import VERSIONS, platform_key


def cache_dir() -> Path:
    """TENSAI_CACHE_DIR, else the user's cache folder for tensai. Not created here.

    Only the standard library is used, so that a bare checkout can fetch a library.
    """
    given = os.environ.get("TENSAI_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else _home() / "AppData" / "Local"
        return base / "tensai" / "Cache"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "tensai"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path there is to be ignored.
    base = Path(xdg) if os.path.isabs(xdg) else _home() / ".cache"
    return base / "tensai"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise WgpuError(
            "this user has no home folder to keep a cache in; set TENSAI_CACHE_DIR to a folder"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to be written, which takes its place at the end; gone if that raises."""
    part = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def library_dir(api: str, root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of one generation's fetched library, below ``root`` (default: the cache).

    The platform is in its name because a home folder may be shared by machines of several kinds.
    """
    base = cache_dir() / "lib" if root is None else Path(root).expanduser().absolute()
    return base / f"{VERSIONS[api]}-{platform_key()}"
