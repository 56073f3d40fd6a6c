"""The search for the library: its order, what it leaves out, and what it says on failure."""

import subprocess
import sys
from pathlib import Path

import pytest

from wgpu_native_py import LibraryMismatchError, LibraryNotFoundError
from wgpu_native_py import find as find_module
from wgpu_native_py.find import Found, find_library, list_libraries
from wgpu_native_py.paths import cache_dir, library_dir
from wgpu_native_py.pins import library_file_name


class Places:
    """The places of the search order, all empty until a test puts a library there."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        monkeypatch.setenv("TENSAI_CACHE_DIR", str(root / "cache"))
        for name in ("TENSAI_WGPU_LIB", "TENSAI_WGPU_API"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(find_module, "_loader_folders", list)
        monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
        monkeypatch.delitem(sys.modules, "wgpu", raising=False)
        # None stands for "not to be found" whether or not the package is installed.
        monkeypatch.setitem(sys.modules, "wgpu", None)

    def file(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"never loaded")
        return path

    def fetched(self, api: str) -> Path:
        return self.file(library_dir(api) / library_file_name())

    def wheel(self, version: str) -> Path:
        package = self.root / "site" / "wgpu"
        backend = self.file(package / "backends" / "wgpu_native" / "__init__.py")
        backend.write_text(f'# what it is for\n__version__ = "{version}"\n', encoding="utf-8")
        (package / "__init__.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
        self.monkeypatch.delitem(sys.modules, "wgpu", raising=False)
        self.monkeypatch.syspath_prepend(str(package.parent))
        name = Path(library_file_name())
        return self.file(package / "resources" / f"{name.stem}-release{name.suffix}")

    def system(self) -> Path:
        folder = self.root / "system"
        self.monkeypatch.setattr(find_module, "_loader_folders", lambda: [folder])
        return self.file(folder / library_file_name())


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(tmp_path, monkeypatch)


def test_order_is_argument_environment_fetched_wheel_system(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = places.system()
    assert find_library() == Found(system, "system", None)
    wheel = places.wheel("29.0.1.1")
    assert find_library() == Found(wheel, "wheel", "v29")
    fetched = places.fetched("v22")
    assert find_library() == Found(fetched, "fetched", "v22")
    named = places.file(tmp_path / "named")
    monkeypatch.setenv("TENSAI_WGPU_LIB", str(named))
    assert find_library() == Found(named, "TENSAI_WGPU_LIB", None)
    argument = places.file(tmp_path / "argument")
    assert find_library(library=argument) == Found(argument, "argument", None)
    assert find_library(library=str(argument)) == Found(argument, "argument", None)
    everything = [named, fetched, wheel, system]
    assert [found.path for found in list_libraries()] == everything


def test_the_wheel_is_found_without_importing_it(places: Places) -> None:
    places.wheel("22.1.0.5")
    assert find_library().api_hint == "v22"
    assert "wgpu" not in sys.modules


def test_v29_is_preferred_where_both_are_fetched(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    v22, v29 = places.fetched("v22"), places.fetched("v29")
    assert find_library().path == v29
    assert find_library(api="v22").path == v22
    monkeypatch.setenv("TENSAI_WGPU_API", "v22")
    assert find_library().path == v22
    assert find_library(api="v29").path == v29, "the argument overrides the environment"


def test_a_known_other_generation_is_passed_over(places: Places) -> None:
    wheel = places.wheel("22.1.0.5")
    system = places.system()
    assert find_library("v22").path == wheel
    assert find_library("v29").path == system


@pytest.mark.parametrize("stated", ["22.1.0.5", "27.0.4.0"])
def test_only_another_generation_is_a_mismatch(places: Places, stated: str) -> None:
    wheel = places.wheel(stated)
    with pytest.raises(LibraryMismatchError) as caught:
        find_library("v29")
    text = str(caught.value)
    assert str(wheel) in text
    assert "v" + stated[:2] in text
    assert "python -m wgpu_native_py.fetch --api v29" in text


def test_a_wheel_too_new_or_too_old_is_not_taken_unasked(places: Places) -> None:
    places.wheel("27.0.4.0")
    with pytest.raises(LibraryMismatchError, match="v22 or v29"):
        find_library()


def test_finding_none_says_where_it_looked_and_how_to_fetch(places: Places) -> None:
    with pytest.raises(LibraryNotFoundError) as caught:
        find_library("v22")
    text = str(caught.value)
    assert str(library_dir("v22")) in text
    assert "wgpu package" in text
    assert "system loader" in text
    assert "python -m wgpu_native_py.fetch --api v22" in text
    assert list_libraries() == []


def test_a_named_file_that_is_missing_is_an_error(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.fetched("v29")
    missing = tmp_path / "missing.so"
    with pytest.raises(LibraryNotFoundError, match="argument names .*missing.so.*not exist"):
        find_library(library=missing)
    with pytest.raises(LibraryNotFoundError, match="names a folder"):
        find_library(library=tmp_path)
    monkeypatch.setenv("TENSAI_WGPU_LIB", str(missing))
    with pytest.raises(LibraryNotFoundError, match="TENSAI_WGPU_LIB names .*missing.so"):
        find_library()
    assert [found.source for found in list_libraries()] == ["fetched"]


@pytest.mark.parametrize("api", ["v23", "29", "both", ""])
def test_an_unknown_generation_names_the_allowed_ones(
    places: Places, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    with pytest.raises(ValueError, match="'v22' or 'v29'"):
        find_library(api=api)
    if api:
        monkeypatch.setenv("TENSAI_WGPU_API", api)
        with pytest.raises(ValueError, match="TENSAI_WGPU_API"):
            find_library()


def test_empty_variables_are_unset_ones(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = places.fetched("v29")
    monkeypatch.setenv("TENSAI_WGPU_LIB", "")
    monkeypatch.setenv("TENSAI_WGPU_API", "")
    assert find_library().path == fetched


def test_the_environments_loader_folders_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = {"win32": "PATH", "darwin": "DYLD_LIBRARY_PATH"}.get(sys.platform, "LD_LIBRARY_PATH")
    monkeypatch.setenv(variable, str(tmp_path))
    assert tmp_path in find_module._loader_folders()


def test_the_cache_folder_follows_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    assert library_dir("v22").parent == tmp_path / "own" / "lib"
    monkeypatch.delenv("TENSAI_CACHE_DIR")
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_dir() == tmp_path / "xdg" / "tensai"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_dir() == tmp_path / ".cache" / "tensai"


def test_searching_loads_nothing_heavy() -> None:
    code = (
        "import sys, wgpu_native_py.find as find; find.list_libraries();"
        "print([name for name in ('cffi', 'numpy', 'requests', 'wgpu') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
