"""Finding a wgpu-native library. Nothing is loaded here: the caller loads it and checks it."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import LibraryMismatchError, LibraryNotFoundError, WgpuError
from .paths import library_dir
from .pins import VERSIONS, library_file_name

APIS = tuple(VERSIONS)


@dataclass(frozen=True)
class Found:
    """A library file, the rule that found it, and its generation where that is known.

    ``source`` is "argument", "TENSAI_WGPU_LIB", "fetched", "wheel" or "system". ``path`` is a
    bare name where only the system loader knows the folder. ``api_hint`` is like "v29", read
    from the folder or the wheel, never from the library; None where nothing says it.
    """

    path: Path
    source: str
    api_hint: str | None = None


def find_library(api: str | None = None, library: str | os.PathLike[str] | None = None) -> Found:
    """The library to load: ``library``, else the first that the search order gives.

    The order is: the argument, TENSAI_WGPU_LIB, the fetched libraries (v29 before v22), an
    installed ``wgpu`` wheel, the system loader. ``api`` (default: TENSAI_WGPU_API) leaves out
    those known to be of another generation. A file that was named is taken whatever ``api`` says.

    Raises ValueError for an unknown ``api``, LibraryNotFoundError, or LibraryMismatchError where
    only libraries of other generations were found.
    """
    wanted = requested_api(api)
    named = _named(library)
    if named is not None:
        return named
    usable = APIS if wanted is None else (wanted,)
    tried: list[str] = []
    others: list[Found] = []
    for found in _search(tried):
        if found.api_hint is None or found.api_hint in usable:
            return found
        others.append(found)
    target = wanted or "v29"
    if others:
        seen = "; ".join(f"{other.path} ({other.source}) is {other.api_hint}" for other in others)
        raise LibraryMismatchError(
            f"tensai needs a wgpu-native library with the {' or '.join(usable)} API, and found "
            f"only others: {seen}. Fetch the right one with `{fetch_command(target)}`"
            + (f", or ask for {others[0].api_hint}." if others[0].api_hint in APIS else ".")
        )
    raise LibraryNotFoundError(
        "no wgpu-native library was found. Looked at: "
        + "; ".join(tried)
        + f". Fetch one with `{fetch_command(target)}`, or name a file in TENSAI_WGPU_LIB."
    )


def list_libraries() -> list[Found]:
    """Every library that the search order knows of, in that order, of whatever generation.

    A file that TENSAI_WGPU_LIB names is left out if it does not exist.
    """
    try:
        named = _named(None)
    except LibraryNotFoundError:
        named = None
    return ([] if named is None else [named]) + list(_search([]))


def requested_api(api: str | None = None) -> str | None:
    """The generation asked for by ``api`` or else by TENSAI_WGPU_API; None where neither does."""
    origin = "api="
    if api is None:
        api = os.environ.get("TENSAI_WGPU_API") or None
        origin = "TENSAI_WGPU_API="
    if api is not None and api not in APIS:
        allowed = " or ".join(repr(name) for name in APIS)
        raise ValueError(f"{origin}{api!r} is not a C API generation; it must be {allowed}")
    return api


def fetch_command(api: str = "v29") -> str:
    """The command that fetches the library of one generation."""
    return f"python -m wgpu_native_py.fetch --api {api}"


def _named(library: str | os.PathLike[str] | None) -> Found | None:
    """The file named by the caller, else by the environment; None where neither names one."""
    source = "argument"
    if library is None:
        source = "TENSAI_WGPU_LIB"
        library = os.environ.get("TENSAI_WGPU_LIB") or None
        if library is None:
            return None
    path = Path(library).expanduser().absolute()
    origin = "the library argument" if source == "argument" else source
    if path.is_dir():
        raise LibraryNotFoundError(
            f"{origin} names a folder, {path}; it must name the library file itself, such as "
            f"{path / library_file_name()}"
        )
    if not path.exists():
        raise LibraryNotFoundError(
            f"{origin} names {path}, which does not exist; correct it, or leave it out to search, "
            f"or fetch a library with `{fetch_command()}`"
        )
    return Found(path, source)


def _search(tried: list[str]) -> Iterator[Found]:
    """The candidates in order, each looked for only when asked; notes every miss in ``tried``."""
    for api in ("v29", "v22"):
        try:
            path = library_dir(api) / library_file_name()
        except WgpuError as error:
            tried.append(f"fetched {api} ({error})")
            continue
        if path.is_file():
            yield Found(path, "fetched", api)
        else:
            tried.append(f"fetched {api} ({path})")
    yield from _in_wheel(tried)
    yield from _on_system(tried)


def _in_wheel(tried: list[str]) -> Iterator[Found]:
    try:
        # For a top-level name this only asks the finders; the package's code does not run.
        spec = importlib.util.find_spec("wgpu")
    except (ImportError, ValueError):
        spec = None
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if not folders:
        tried.append("the wgpu package (not installed)")
    for folder in folders:
        resources = folder / "resources"
        libraries = sorted(resources.glob(f"*wgpu_native*{Path(library_file_name()).suffix}"))
        if not libraries:
            tried.append(f"the wgpu package (no library in {resources})")
        for path in libraries:
            yield Found(path, "wheel", _wheel_api(folder))


def _wheel_api(package: Path) -> str | None:
    """The generation of a wgpu package's library: its back end states the release it is for."""
    try:
        text = (package / "backends" / "wgpu_native" / "__init__.py").read_text(encoding="utf-8")
    except OSError:
        return None
    stated = re.search(r"""^__version__\s*=\s*["'](\d+)\.""", text, re.MULTILINE)
    return f"v{stated[1]}" if stated else None


def _on_system(tried: list[str]) -> Iterator[Found]:
    # Imported late: it is slow to import and slower to ask, and rarely reached.
    from ctypes.util import find_library as ask_loader

    name = library_file_name()
    paths = [folder / name for folder in _loader_folders() if (folder / name).is_file()]
    # wgpu-native has no SONAME, without which ctypes can't see it in LD_LIBRARY_PATH: hence both.
    loaded_as = ask_loader("wgpu_native")
    if loaded_as and Path(loaded_as) not in paths:
        paths.append(Path(loaded_as))
    for path in paths:
        yield Found(path, "system")
    tried.append(f"the system loader ({name})")


def _loader_folders() -> list[Path]:
    """The folders that the environment adds to the system loader's own."""
    variable = {"win32": "PATH", "darwin": "DYLD_LIBRARY_PATH"}.get(sys.platform, "LD_LIBRARY_PATH")
    value = os.environ.get(variable, "")
    folders = [Path(folder).absolute() for folder in value.split(os.pathsep) if folder]
    if sys.platform == "win32" and sys.executable:
        folders.insert(0, Path(sys.executable).parent)
    return folders
