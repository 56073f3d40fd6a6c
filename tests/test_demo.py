"""`tensai demo` and `tensai embed`, run in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinybert

import tensai
from tensai import demo, embed
from tensai.models import SentenceEncoder

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinybert.make(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def checked_already(gpu: tensai.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # The commands open devices of their own, whose kernels the other tests check.
    monkeypatch.setenv("TENSAI_SELF_CHECK", "off")


def test_the_demo_finds_what_is_alike(capsys: Captured) -> None:
    assert demo.main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    nearest = {answer["query"]: answer["nearest"] for answer in report["queries"]}
    assert set(nearest) == set(demo.QUERIES)
    for query, word in zip(demo.QUERIES, ("Bread", "crashed", "Swallows"), strict=True):
        first, second, third = nearest[query]
        assert word in first["sentence"]
        assert 1 > first["score"] > second["score"] >= third["score"] > 0
    assert 0 < report["largest_difference"] <= 1e-5
    assert report["model"]["dim"] == 384


def test_the_demo_as_text(tiny: Path, gpu: tensai.Device, capsys: Captured) -> None:
    assert demo.main(["--model", str(tiny), "--query", "a dog slept"]) == 0
    shown, said = capsys.readouterr()
    assert gpu.name in shown
    assert gpu.library is not None
    assert f"wgpu-native {gpu.library.version}, C API {gpu.library.api}" in shown
    assert "tiny: 2 layers, 40 numbers to a sentence" in shown
    for row in ("first run", "later runs", "with NumPy", "difference", "\n  a dog slept\n"):
        assert row in shown
    assert all(query not in shown for query in demo.QUERIES)
    assert all(len(line) <= 80 for line in shown.splitlines() if gpu.name not in line)
    assert "first run" in said


def test_the_demo_as_json(tiny: Path, gpu: tensai.Device, capsys: Captured) -> None:
    assert demo.main(["--model", str(tiny), "--query", "cat", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["device"]["name"] == gpu.name
    assert gpu.library is not None
    assert report["library"]["api"] == gpu.library.api
    assert report["sentences"] == len(demo.shipped_sentences()) >= 36
    assert set(report["seconds"]) == {"first", "later", "numpy"}
    assert all(0 < run["per_sentence"] < run["all"] for run in report["seconds"].values())
    (answer,) = report["queries"]
    assert answer["query"] == "cat"
    assert len(answer["nearest"]) == 3


def test_shipped_sentences_fit_a_terminal_and_differ() -> None:
    sentences = demo.shipped_sentences()
    assert len(set(sentences)) == len(sentences)
    assert all(0 < len(sentence) <= 80 - 11 for sentence in sentences)


@pytest.mark.parametrize("command", ["demo", "embed"])
def test_no_model_or_no_device(
    tmp_path: Path, command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.txt").write_text("a line\n")
    missing = str(tmp_path / "nowhere")
    arguments = {"demo": ["--model", missing], "embed": [missing, str(tmp_path / "lines.txt")]}
    main = {"demo": demo.main, "embed": embed.main}[command]

    def error() -> str:
        assert main(arguments[command]) == 1
        shown, said = capsys.readouterr()
        assert shown == ""
        lines = [line for line in said.splitlines() if line.startswith("tensai ")]
        assert len(lines) == 1
        return lines[0]

    assert error().startswith(f"tensai {command}: {missing} does not exist")
    monkeypatch.setenv("TENSAI_ADAPTER", "no such card")
    assert "no adapter's name contains 'no such card'" in error()
    monkeypatch.setenv("TENSAI_POWER", "much")
    assert 'power is "low" or "high"' in error()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt"]


def test_embeddings_of_the_lines_of_a_file(
    tiny: Path, gpu: tensai.Device, tmp_path: Path, capsys: Captured
) -> None:
    lines = ["the cat sat", "", "größe", "a big old dog slept", " the mat "]
    file = tmp_path / "some.lines.txt"
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert embed.main([str(tiny), str(file)]) == 0
    assert "5 embeddings of 40 numbers" in capsys.readouterr().out
    embeddings = np.load(tmp_path / "some.lines.npy")
    assert embeddings.dtype == np.float32
    expected = SentenceEncoder(tiny, gpu).encode(lines)
    np.testing.assert_allclose(embeddings, expected, rtol=0, atol=1e-6)

    out = tmp_path / "elsewhere"
    assert embed.main([str(tiny), str(file), "--out", str(out), "--batch-size=2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["shape"] == [5, 40]
    assert (report["out"], report["device"]) == (str(out), gpu.name)
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-6)


def test_an_empty_file_has_no_embeddings(tiny: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "lines.txt").touch()
    assert embed.main([str(tiny), str(tmp_path / "lines.txt")]) == 0
    assert np.load(tmp_path / "lines.npy").shape == (0, 40)
    assert "0 embeddings of 40 numbers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("none.txt", None, [], "none.txt can't be read: "),
        ("folder", None, [], "folder can't be read: "),
        ("latin1.txt", "größe".encode("latin1"), [], "latin1.txt is not UTF-8 text .byte 0xf6"),
        ("data.npy", b"text", [], "data.npy would be overwritten with its embeddings"),
        ("a.txt", b"text", ["--out", "{}/no/a.npy"], "a.npy can't be written: its folder does not"),
        ("a.txt", b"text", ["--out", "{}/folder"], "folder can't be written: "),
        ("a.txt", b"text", ["--batch-size", "0"], "batch_size of at least 1"),
    ],
)
def test_files_that_embed_refuses(
    tiny: Path,
    tmp_path: Path,
    capsys: Captured,
    name: str,
    content: bytes | None,
    options: list[str],
    message: str,
) -> None:
    (tmp_path / "folder").mkdir()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    given = [option.format(tmp_path) for option in options]
    assert embed.main([str(tiny), str(tmp_path / name), *given]) == 1
    said = capsys.readouterr().err
    assert said.startswith("tensai embed: ") or "\ntensai embed: " in said

    assert re.search(message, said), said
    assert sorted(tmp_path.rglob("*")) == before
