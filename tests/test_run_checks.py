"""What `tensai run` refuses at once: before a device is opened, and before any weight is read."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tinyllm
from changed import changed_folder

import tensai
from tensai import run
from tensai.__main__ import main as command
from tensai.errors import ModelError
from tensai.models import load

TEMPLATE = "{% for m in messages %}<a>{{ m.content }}<b>{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinyllm.make(tmp_path_factory.mktemp("models") / "tiny", "llama2")


@pytest.fixture(scope="module")
def chatting(folder: Path) -> Path:
    made = changed_folder(folder, folder.parent / "chatting")
    (made / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return made


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def used(*arguments: Any) -> None:
        raise AssertionError("a device was opened")

    monkeypatch.setattr(tensai, "open", used)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--top-p", "0"], "top_p above 0"),
        (["--top-p", "1.1"], "top_p above 0"),
        (["--top-k", "-1"], "top_k from 0"),
        (["--temperature", "-1"], "temperature from 0"),
        (["--temperature", "nan"], "temperature from 0"),
        (["--max-tokens", "-1"], "max_tokens from 0"),
        (["--max-tokens", "99999"], "99999 more may follow"),
        (["--max-tokens", "512"], "512 more may follow"),
        (["--context", "20", "--max-tokens", "20"], "20 more may follow"),
        (["--context", "0"], "context of 0"),
        (["--context", "513"], "context of 513"),
    ],
)
def test_options_out_of_range(
    chatting: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_device: None,
    chat: bool,
    options: list[str],
    match: str,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    prompt = [] if chat else ["--prompt", "x"]
    assert run.main([str(chatting), *prompt, *options]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("tensai run: ") and match in shown.err
    assert shown.out == ""


def test_options_that_need_a_template(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_device: None,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    for options in (["--system", "s", "--prompt", "x"], ["--system", "s"], []):
        assert run.main([str(folder), *options]) == 1
        assert "tokenizer.json has no chat template" in capsys.readouterr().err


def test_a_prompt_that_is_too_long(
    chatting: Path, capsys: pytest.CaptureFixture[str], no_device: None
) -> None:
    assert run.main([str(chatting), "--prompt", "x" * 600]) == 1
    assert "the prompt has 602 tokens and 256 more may follow" in capsys.readouterr().err


def test_a_context_that_the_device_has_no_buffers_for(
    gpu: tensai.Device, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = changed_folder(folder, tmp_path / "large", max_position_embeddings=2**31 - 1)
    limits = [gpu.limits[name] for name in ("maxStorageBufferBindingSize", "maxBufferSize")]
    most = min(*limits, 2**40) // (4 * 64)

    def used(self: tensai.Device, *arguments: Any) -> None:
        raise AssertionError("weights were read")

    with monkeypatch.context() as patched:
        for name in ("upload", "upload_gguf", "empty"):
            patched.setattr(tensai.Device, name, used)
        for context in (most + 1, 2**31 - 1):
            message = f"config.json: a context of {context} tokens .* largest that fits is {most}$"
            with pytest.raises(ModelError, match=message):
                load(large, gpu, context=context)
    if most < 2**20:
        assert load(large, gpu, context=most).context == most


def test_the_cache_is_made_before_weights_are_read(
    gpu: tensai.Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: tensai.Device, *arguments: Any) -> None:
        raise tensai.OutOfDeviceMemoryError("no memory is left")

    def used(self: tensai.Device, *arguments: Any) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(tensai.Device, "empty", full)
    monkeypatch.setattr(tensai.Device, "upload_gguf", used)
    with pytest.raises(ModelError, match="does not fit .* with a context of 200 tokens"):
        load(folder, gpu, context=200)


# How tokens are drawn -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", [{"top_k": 9}, {"top_p": 0.9}, {"seed": 3}, {"top_k": 9, "seed": 3}]
)
def test_what_only_drawing_needs_asks_for_drawing(
    gpu: tensai.Device, folder: Path, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: 3)
    model = load(folder, gpu, context=100)
    greedy = list(model.tokens([5, 6, 7], 30))
    drawn = list(model.tokens([5, 6, 7], 30, temperature=1.0, **way))
    assert drawn != greedy
    assert list(model.tokens([5, 6, 7], 30, **way)) == drawn
    assert list(model.tokens([5, 6, 7], 30, temperature=0.0, **way)) == greedy


def test_run_says_that_it_draws(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "tokens are drawn at a temperature of 1"
    texts = {}
    for options in ("", "--temperature 0 --seed 2", "--seed 2", "--temperature 1 --seed 2"):
        arguments = [str(folder), "--prompt", "x", "--max-tokens", "20", *options.split()]
        assert run.main(arguments) == 0
        shown = capsys.readouterr()
        assert (said in shown.err) == (options == "--seed 2")
        texts[options] = shown.out
    assert texts[""] == texts["--temperature 0 --seed 2"] != texts["--seed 2"]
    assert texts["--seed 2"] == texts["--temperature 1 --seed 2"]


# Streams ------------------------------------------------------------------------------------------


def test_closed_standard_error_leaves_standard_output_alone(folder: Path, tmp_path: Path) -> None:
    code = "import sys; from tensai.__main__ import main; sys.exit(main(sys.argv[1:]))"
    options = ["--prompt", "x", "--max-tokens", "3", "--stats", "--json", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = tmp_path / "out"
    with found.open("wb") as out:
        status = subprocess.run(
            ["sh", "-c", '"$@" 2>&-', "sh", sys.executable, "-c", code, "run", folder, *options],
            stdout=out,
            env=environment,
        ).returncode
    assert status == 0
    assert json.loads(found.read_text())["tokens"] == 3
    with found.open("wb") as out:
        wrong = [sys.executable, "-c", code, "run", folder, "--prompt", "x", "--top-p", "0"]
        status = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *wrong], stdout=out).returncode
    assert (status, found.read_text()) == (1, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8", "utf-16"])
def test_json_on_outputs_of_every_encoding(
    folder: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    from tensai.models import LanguageModel

    text = "Größe 日本 🙂"
    monkeypatch.setattr(LanguageModel, "generate", lambda *arguments: iter([text]))
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding))
    assert command(["run", str(folder), "--prompt", "x", "--json"]) == 0
    shown = raw.getvalue().decode(encoding)
    assert json.loads(shown)["text"] == text
    assert (text in shown) == encoding.startswith("utf")
