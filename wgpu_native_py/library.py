"""Loading one wgpu-native library: find it, check its generation, bind its C functions."""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .declarations import ffi_for
from .errors import LibraryMismatchError, LibraryNotFoundError
from .find import fetch_command, find_library, requested_api

if TYPE_CHECKING:
    from .binding import Binding

logger = logging.getLogger("tensai.wgpu_native")

_lock = threading.Lock()
_loaded: dict[Path, Library] = {}


class Library:
    """A loaded wgpu-native library of one generation.

    ``path`` is the file, ``version`` is like "29.0.1.1", ``api`` is "v22" or "v29", and
    ``source`` says which rule of the search found it. ``binding`` holds what differs between
    the generations.
    """

    def __init__(self, path: Path, version: str, api: str, source: str, ffi: Any, c: Any) -> None:
        self.path = path
        self.version = version
        self.api = api
        self.source = source
        self.ffi = ffi
        self.c = c
        self.binding: Binding = _binding_class(api)(ffi, c)

    def __repr__(self) -> str:
        return f"<wgpu-native {self.version} ({self.api}) at {self.path}>"


def load(api: str | None = None, library: str | os.PathLike[str] | None = None) -> Library:
    """Load the library that the search order finds, or return it if it is loaded already.

    ``api`` ("v22" or "v29") asks for a generation, ``library`` names a file; both override the
    environment. Raises LibraryNotFoundError, or LibraryMismatchError when the library found is
    of another generation than the one asked for.
    """
    found = find_library(api, library)
    path = Path(found.path).resolve() if os.path.sep in str(found.path) else Path(found.path)
    # A file that is named by argument overrides the environment's generation too.
    wanted = requested_api(api) if api is not None or library is None else None
    with _lock:
        loaded = _loaded.get(path)
        if loaded is None:
            loaded = _load(path, found.source)
            _loaded[path] = loaded
    if wanted and loaded.api != wanted:
        raise LibraryMismatchError(
            f"{loaded.path} (from {loaded.source}) is wgpu-native {loaded.version}, which has the "
            f"{loaded.api} API, but {wanted} was asked for. Fetch the right one with "
            f"`{fetch_command(wanted)}`, or ask for {loaded.api}."
        )
    return loaded


def _load(path: Path, source: str) -> Library:
    if sys.platform == "win32" and path.parent != Path():
        # A dependent DLL (dxcompiler.dll) may lie beside the library.
        os.add_dll_directory(str(path.parent))
    _check_whole(path, source)
    try:
        # ctypes never closes a library, so this also pins it: handles may be released at
        # interpreter exit, after every Python reference to the library is gone.
        version_number = ctypes.CDLL(str(path)).wgpuGetVersion()
    except (OSError, AttributeError) as error:
        raise LibraryNotFoundError(
            f"{path} (from {source}) could not be loaded as wgpu-native: {error}. It must be a "
            f"wgpu-native library for {sys.platform}, built for this Python's architecture; "
            f"`{fetch_command('v29')}` fetches one."
        ) from error
    version = ".".join(str(version_number >> shift & 0xFF) for shift in (24, 16, 8, 0))
    api = {22: "v22", 29: "v29"}.get(version_number >> 24 & 0xFF)
    if api is None:
        # The C API changes between releases without a symbol changing: a call would crash.
        raise LibraryMismatchError(
            f"{path} (from {source}) is wgpu-native {version}; tensai speaks to 22.x and 29.x. "
            f"Fetch one of them with `{fetch_command('v29')}`."
        )
    ffi = ffi_for(api)
    c = ffi.dlopen(str(path), ffi.RTLD_NOW)
    library = Library(path, version, api, source, ffi, c)
    library.binding.route_log(logger)
    return library


def _check_whole(path: Path, source: str) -> None:
    """LibraryNotFoundError for an ELF file that was cut off, which the loader would die of."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            size = file.seek(0, os.SEEK_END)
    except OSError:
        return  # only the loader knows where it lies, or it says what is wrong
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
        return
    (sections,) = struct.unpack_from("<Q", head, 40)  # the table of sections is the file's end
    length, count = struct.unpack_from("<2H", head, 58)
    if size < sections + length * count:
        raise LibraryNotFoundError(
            f"{path} (from {source}) was cut off: it has {size:,} bytes of "
            f"{sections + length * count:,}. Fetch it again with `{fetch_command()}`."
        )


def _binding_class(api: str) -> type[Binding]:
    if api == "v22":
        from .v22 import BindingV22

        return BindingV22
    from .v29 import BindingV29

    return BindingV29
