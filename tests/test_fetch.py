"""Fetching the library: what is kept, what is checked, and that no failure leaves a partial file.

Nothing here leaves the machine: wheels are made in a temporary folder, and the release archive
comes from a server on 127.0.0.1.
"""

import contextlib
import dataclasses
import errno
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archives import archive, cut_pip_off, files_below

from wgpu_native_py import FetchError, fetch, pins
from wgpu_native_py.paths import library_dir

LIBRARY = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(LIBRARY).hexdigest()


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, a pin for LIBRARY, and a pip that can reach no index."""
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TENSAI_WGPU_API", raising=False)
    real = pins.pin
    monkeypatch.setattr(fetch, "pin", lambda api: dataclasses.replace(real(api), sha256=SHA256))
    cut_pip_off(monkeypatch, tmp_path)


def serve_wheel(monkeypatch: pytest.MonkeyPatch, wheel: Path | None) -> list[str]:
    """Stand in for pip's download; gives the list of what is asked for."""
    asked: list[str] = []

    @contextlib.contextmanager
    def download(requirement: str, **_: Any) -> Iterator[Path]:
        asked.append(requirement)
        if wheel is None:
            raise FetchError("no network")
        yield wheel

    monkeypatch.setattr(fetch, "download_wheel", download)
    return asked


def library_wheel(tmp_path: Path, content: bytes = LIBRARY) -> Path:
    return archive(tmp_path / "wgpu.whl", {pins.pin("v29").wheel_member: content})


# What is fetched, and what is kept


def test_the_library_lands_where_the_search_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = serve_wheel(monkeypatch, library_wheel(tmp_path))
    expected = [library_dir(api) / pins.library_file_name() for api in ("v22", "v29")]
    assert fetch.fetch("both") == expected
    assert asked == ["wgpu==0.19.0", "wgpu==0.32.0"]
    assert [path.read_bytes() for path in expected] == [LIBRARY, LIBRARY]
    assert sorted(files_below(tmp_path / "cache")) == sorted(expected)


def test_a_library_that_is_there_is_not_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = serve_wheel(monkeypatch, library_wheel(tmp_path))
    first = fetch.fetch("v29", dest=tmp_path / "mine")
    assert first[0].is_relative_to(tmp_path / "mine")
    assert fetch.fetch("v29", dest=tmp_path / "mine") == first
    assert len(asked) == 1
    first[0].write_bytes(LIBRARY[:-1])
    fetch.fetch("v29", dest=tmp_path / "mine")
    assert len(asked) == 2
    assert first[0].read_bytes() == LIBRARY


def test_the_generation_is_the_environments_or_v29(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_wheel(monkeypatch, library_wheel(tmp_path))
    assert fetch.fetch() == [library_dir("v29") / pins.library_file_name()]
    monkeypatch.setenv("TENSAI_WGPU_API", "v22")
    assert fetch.fetch() == [library_dir("v22") / pins.library_file_name()]


def test_unknown_choices_name_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="'v22' or 'v29'"):
        fetch.fetch("v23")
    with pytest.raises(ValueError, match="pypi or github"):
        fetch.fetch("v29", source="elsewhere")


def test_both_generations_are_pinned_for_the_same_platforms() -> None:
    platforms = {name for _, name in pins._SHA256}
    assert set(pins._SHA256) == {(api, name) for api in pins.VERSIONS for name in platforms}
    assert len(set(pins._SHA256.values())) == len(pins._SHA256)
    assert pins.pin("v22", "windows-aarch64").release_asset == (
        "wgpu-windows-aarch64-msvc-release.zip"
    )
    assert pins.pin("v29", "macos-x86_64").file_name == "libwgpu_native.dylib"
    with pytest.raises(FetchError, match=r"linux-riscv64.*linux-x86_64.*TENSAI_WGPU_LIB"):
        pins.pin("v29", "linux-riscv64")


# Archives that are wrong


def damaged(tmp_path: Path, how: str) -> Path:
    wheel = library_wheel(tmp_path)
    content = wheel.read_bytes()
    if how == "cut short":
        wheel.write_bytes(content[: len(content) // 2])
    elif how == "flipped byte":
        middle = len(content) // 2
        wheel.write_bytes(
            content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        )
    elif how == "other content":
        library_wheel(tmp_path, LIBRARY + b"!")
    elif how == "no library":
        archive(wheel, {"wgpu/__init__.py": b""})
    elif how == "empty":
        wheel.write_bytes(b"")
    return wheel


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut short", "damaged or cut short"),
        ("flipped byte", "damaged or cut short"),
        ("empty", "damaged or cut short"),
        ("other content", f"sha256 .* but {SHA256}"),
        ("no library", "holds no"),
    ],
)
def test_a_wrong_wheel_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, message: str
) -> None:
    serve_wheel(monkeypatch, damaged(tmp_path, how))
    with pytest.raises(FetchError, match=message):
        fetch.fetch("v29")
    assert files_below(tmp_path / "cache") == []


def test_a_wrong_wheel_does_not_touch_the_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_wheel(monkeypatch, damaged(tmp_path, "other content"))
    old = library_dir("v29") / pins.library_file_name()
    old.parent.mkdir(parents=True)
    old.write_bytes(b"an older one")
    with pytest.raises(FetchError):
        fetch.fetch("v29")
    assert files_below(tmp_path / "cache") == [old]
    assert old.read_bytes() == b"an older one"


# Disks that are full or closed


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "can't be written to.*TENSAI_CACHE_DIR")],
)
@pytest.mark.parametrize("call", ["mkdir", "fsync", "replace"])
def test_a_disk_that_refuses_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, message: str
) -> None:
    serve_wheel(monkeypatch, library_wheel(tmp_path))

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(Path if call == "mkdir" else os, call, refuse)
    with pytest.raises(FetchError, match=message):
        fetch.fetch("v29")
    assert files_below(tmp_path / "cache") == []


def test_a_file_in_the_folders_place_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_wheel(monkeypatch, library_wheel(tmp_path))
    (tmp_path / "blocked").write_bytes(b"")
    with pytest.raises(FetchError, match="blocked"):
        fetch.fetch("v29", dest=tmp_path / "blocked")


# pip


@pytest.mark.parametrize("retries", ["0", "1"])
def test_no_network_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, retries: str) -> None:
    monkeypatch.setenv("PIP_RETRIES", retries)
    with pytest.raises(FetchError, match=r"could not be reached.*--source github"):
        fetch.fetch("v29")


def test_a_python_without_pip_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    scripts = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / scripts))
    with pytest.raises(FetchError, match="has no pip; run .* -m ensurepip"):
        fetch.fetch("v29")


def test_pips_full_disk_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "ERROR: Could not install packages: [Errno 28] No space left on device\n"
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(FetchError, match="disk is full.*No space left"):
        fetch.fetch("v29")


# The release archive


class Release(http.server.BaseHTTPRequestHandler):
    """Serves one archive; the class attributes say how."""

    body = b""
    stated_length = 0
    paths: tuple[str, ...] = ()

    def do_GET(self) -> None:
        known = self.path in type(self).paths
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(self.stated_length if known else 0))
        self.end_headers()
        if known:
            self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Release]]:
    wanted = pins.pin("v29")
    members = {wanted.release_member: LIBRARY, "wgpu-native-meta/wgpu-native-git-tag": b"v29"}
    path = archive(tmp_path / "release.zip", members)

    class Served(Release):
        body = path.read_bytes()
        stated_length = len(body)
        paths = (f"/v29.0.1.1/{wanted.release_asset}",)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    monkeypatch.setattr(fetch, "RELEASES", f"http://127.0.0.1:{server.server_port}")
    yield Served
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_release_archive_is_the_other_source(release: type[Release]) -> None:
    (path,) = fetch.fetch("v29", source="github")
    assert path.read_bytes() == LIBRARY


def test_a_release_that_breaks_off_leaves_nothing(release: type[Release], tmp_path: Path) -> None:
    release.body = release.body[:1000]
    with pytest.raises(FetchError, match="could not download|broke off"):
        fetch.fetch("v29", source="github")
    assert files_below(tmp_path / "cache") == []


def test_a_release_that_is_missing_names_its_address(release: type[Release]) -> None:
    release.paths = ()
    with pytest.raises(FetchError, match=r"404.*/v29\.0\.1\.1/wgpu-.*--source pypi"):
        fetch.fetch("v29", source="github")


def test_a_release_of_another_build_is_refused(release: type[Release], tmp_path: Path) -> None:
    members = {pins.pin("v29").release_member: LIBRARY + b"!"}
    release.body = archive(tmp_path / "other.zip", members).read_bytes()
    release.stated_length = len(release.body)
    with pytest.raises(FetchError, match="sha256"):
        fetch.fetch("v29", source="github")
    assert files_below(tmp_path / "cache") == []


def test_a_release_server_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "RELEASES", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match="check the network"):
        fetch.fetch("v29", source="github")


def test_a_full_disk_during_the_release_download(
    release: type[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch._ProgressLine, "show", refuse)
    with pytest.raises(FetchError, match="disk is full"):
        fetch.fetch("v29", source="github")


# The command


def test_the_command_prints_paths_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_wheel(monkeypatch, library_wheel(tmp_path))
    path = library_dir("v29") / pins.library_file_name()
    assert fetch.main(["--api", "v29"]) == 0
    assert capsys.readouterr().out == f"wgpu-native 29.0.1.1 (v29), fetched: {path}\n"
    assert fetch.main(["--api", "v29", "--json"]) == 0
    entry = {"api": "v29", "version": "29.0.1.1", "path": str(path), "downloaded": False}
    assert json.loads(capsys.readouterr().out) == {"libraries": [entry]}


def test_the_command_fails_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_wheel(monkeypatch, None)
    assert fetch.main(["--api", "both"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no network. The other source is --source github\n"
    monkeypatch.setenv("TENSAI_WGPU_API", "v23")
    assert fetch.main([]) == 1
    assert "'v22' or 'v29'" in capsys.readouterr().err


def test_the_script_runs_from_a_checkout_with_nothing_installed(tmp_path: Path) -> None:
    script = Path(__file__).parent.parent / "scripts" / "fetch_wgpu.py"
    # -I and -S leave the standard library and nothing else.
    command = [sys.executable, "-I", "-S", str(script), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "--api {v22,v29,both}" in done.stdout
