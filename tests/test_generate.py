"""Generating text: pieces, ends, bad input, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tinyllm
from safetensors.torch import load_file, save_file

import tensai
from tensai import run
from tensai.__main__ import main as command
from tensai.errors import ModelError
from tensai.models import LanguageModel, load
from tensai.models.fetch import SMOLLM2, fetch, locate

CHATML = (
    "{% for m in messages %}<a>{{ m.role }}\n{{ m.content }}<b>\n{% endfor %}"
    "{% if add_generation_prompt %}<a>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tinyllm.make(tmp_path_factory.mktemp("models") / "tiny", "qwen2")
    (made / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return made


@pytest.fixture(scope="module")
def model(gpu: tensai.Device, folder: Path) -> LanguageModel:
    return load(folder, gpu, context=120)


def test_pieces_are_the_text_of_the_tokens(model: LanguageModel) -> None:
    ids = model.encode("The cat", chat=False)
    assert ids == model.tokenizer.encode("The cat")
    made = list(model.tokens(ids, 30))
    pieces = list(model.generate("The cat", 30))
    assert "".join(pieces) == model.tokenizer.decode([*ids, *made])[len("The cat") :]
    assert list(model.generate(ids, 30)) == pieces
    assert list(model.generate("The cat", 0)) == []
    text = model.tokenizer.decode(model.encode([{"role": "user", "content": "hi"}]))
    assert text == "user\nhi\nassistant\n"
    assert model.encode("hi", chat=None) == model.encode([{"role": "user", "content": "hi"}])


def test_an_answer_ends_at_an_end_token(model: LanguageModel) -> None:
    ids = model.encode("The cat", chat=False)
    made = list(model.tokens(ids, 40))
    ends = model.tokenizer.eos
    model.tokenizer.eos = frozenset({made[7]})
    try:
        assert list(model.tokens(ids, 40)) == made[: made.index(made[7])]
    finally:
        model.tokenizer.eos = ends


def test_seeds(model: LanguageModel) -> None:
    ways = [list(model.tokens([5, 6, 7], 20, temperature=1.5, seed=seed)) for seed in (1, 2, 1)]
    assert ways[0] == ways[2] != ways[1]
    assert list(model.tokens([5, 6, 7], 20, top_k=1, temperature=2.0, seed=3)) == list(
        model.tokens([5, 6, 7], 20)
    )


def test_an_answer_may_be_left_in_the_middle(model: LanguageModel) -> None:
    whole = list(model.tokens([5, 6, 7], 30))
    some = model.tokens([5, 6, 7], 30)
    assert [next(some) for _ in range(9)] == whole[:9]
    assert list(model.tokens([5, 6, 8], 5)) == list(model.tokens([5, 6, 8], 5))
    assert list(model.tokens([5, 6, 7], 30)) == whole


def test_answers_do_not_mix(model: LanguageModel) -> None:
    first, second = model.tokens([5, 6, 7], 30), model.tokens([8, 9], 30)
    next(first)
    next(second)
    with pytest.raises(RuntimeError, match="one cache"):
        next(first)
    assert len(list(second)) == 29


def test_an_answer_that_has_nothing_left_just_ends(model: LanguageModel) -> None:
    whole = list(model.tokens([5, 6, 7], 2))
    for taken in (1, 2):
        some = model.tokens([5, 6, 7], taken)
        assert [next(some) for _ in range(taken)] == whole[:taken]
        list(model.tokens([8, 9], 3))
        assert list(some) == []
    assert model.timings.generated == 3


def test_timings_count_the_tokens_of_the_answer(model: LanguageModel) -> None:
    list(model.tokens([5, 6, 7], 4))
    assert model.timings.generated == 4
    list(model.tokens([5, 6, 7], 0))
    assert (model.timings.generated, model.timings.prefill) == (0, 0.0)
    some = model.tokens([5, 6, 7], 4)
    next(some)
    assert model.timings.generated == 1
    assert model.timings.load > 0


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m: m.generate([1] * 100, 21), ModelError, "100 tokens and 21 more.*120"),
        (lambda m: m.logits([1] * 121), ModelError, "121 tokens.*120"),
        (lambda m: m.generate([], 5), ValueError, "at least one"),
        (lambda m: m.generate([1, 264], 5), ValueError, "0 to 263, but got 264"),
        (lambda m: m.generate([-1], 5), ValueError, "-1"),
        (lambda m: m.generate([1], -5), ValueError, "max_tokens"),
        (lambda m: m.generate([1], 5, temperature=-1.0), ValueError, "temperature"),
        (lambda m: m.generate([1], 5, top_p=0.0, temperature=1.0), ValueError, "top_p"),
        (lambda m: m.generate([1], 5, temperature=10**400), ValueError, "temperature"),
        (lambda m: m.generate([1], 5, temperature="x"), TypeError, "number for temperature.*x"),
        (lambda m: m.generate([1], 5, temperature="1"), TypeError, "number for temperature.*'1'"),
        (lambda m: m.generate([1], 5, top_p="1"), TypeError, "number for top_p.*'1'"),
        (lambda m: m.generate([1], 5, top_k=1.5), TypeError, "integer for top_k.*1.5"),
        (lambda m: m.generate([1], 1.5), TypeError, "integer for max_tokens.*1.5"),
        (lambda m: m.generate([1], "3"), TypeError, "integer for max_tokens.*'3'"),
        (lambda m: m.generate([1], 5, seed="a"), TypeError, "integer for seed.*'a'"),
        (lambda m: m.generate([1], 5, seed=1.5), TypeError, "integer for seed.*1.5"),
        (lambda m: m.generate([1.7, 2.2]), TypeError, "list of token ids.*1.7"),
        (lambda m: m.encode(["1", "2"]), TypeError, "list of token ids.*'1'"),
        (lambda m: m.generate([None]), TypeError, "list of token ids.*None"),
        (lambda m: m.generate([1, True]), TypeError, "list of token ids.*True"),
        (lambda m: m.generate(b"abc"), TypeError, "list of token ids.*bytes"),
        (lambda m: m.generate(None), TypeError, "list of token ids.*NoneType"),
        (lambda m: m.generate({"role": "user", "content": "x"}), TypeError, "in a list"),
        (lambda m: m.generate([{"content": "x"}]), TypeError, "without a role"),
        (lambda m: m.generate([{"role": "user", "content": "x"}, 5]), TypeError, "list with"),
        (lambda m: m.generate(""), ValueError, "the prompt is empty"),
        (lambda m: m.generate([]), ValueError, "the prompt is empty"),
        (lambda m: m.tokens(["1"]), ValueError, r"list of at least one integer.*\['1'\]"),
        (lambda m: m.tokens([1.5]), ValueError, "list of at least one integer.*1.5"),
        (lambda m: m.tokens(b"abc"), ValueError, "list of at least one integer.*abc"),
    ],
)
def test_bad_input(model: LanguageModel, call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(model)
    assert len(list(model.tokens([1, 2], 3))) == 3


def test_models_that_can_not_be_loaded(gpu: tensai.Device, folder: Path, tmp_path: Path) -> None:
    def copy(**settings: Any) -> Path:
        place = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        for file in folder.iterdir():
            (place / file.name).write_bytes(file.read_bytes())
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, **settings}))
        return place

    with pytest.raises(ModelError, match="config.json.*'other'.*llama"):
        load(copy(model_type="other"), gpu)
    with pytest.raises(ModelError, match=r"model.safetensors.*shape \(96, 64\).*\(128, 64\)"):
        load(copy(intermediate_size=128), gpu)
    with pytest.raises(ModelError, match="'num_hidden_layers' is 4, .* of 3 layers"):
        load(copy(num_hidden_layers=4), gpu)
    with pytest.raises(ModelError, match="263 tokens.*200"):
        load(copy(vocab_size=200), gpu)
    with pytest.raises(ModelError, match="context of 513 .*1 to 512"):
        load(folder, gpu, context=513)
    with pytest.raises(ValueError, match="'q5'"):
        load(folder, gpu, weights="q5")
    missing = copy()
    (missing / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer.json is missing"):
        load(missing, gpu)
    cut = copy()
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model.safetensors is damaged"):
        load(cut, gpu)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"context": "8"}, "integer for context, but got '8'"),
        ({"context": 1.5}, "integer for context, but got 1.5"),
        ({"device": "cpu"}, "a device, which tensai.open.. gives, but got 'cpu'"),
    ],
)
def test_bad_arguments_of_load(
    gpu: tensai.Device, folder: Path, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(TypeError, match=match):
        load(folder, **{"device": gpu, **options})


def test_scores_that_are_nan(gpu: tensai.Device, folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.layers.1.input_layernorm.weight"][3] = math.nan
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    model = load(tmp_path, gpu, context=64)
    for _ in range(2):  # nothing of it is kept
        with pytest.raises(ModelError, match=r"config.json: the scores .* NaN: its weights"):
            list(model.generate("The cat", 5))
    assert model.timings.generated == 0


def test_a_matrix_that_the_device_can_not_bind(
    gpu: tensai.Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu.limits, "maxStorageBufferBindingSize", 30_000)
    before = gpu.memory()["in_use"]
    with pytest.raises(ModelError, match=r"embed_tokens.*binds at most 30,000.*q8"):
        load(folder, gpu)
    assert gpu.memory()["in_use"] == before


# The command --------------------------------------------------------------------------------


def test_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(folder), "--prompt", "The cat", "--max-tokens", "12", "--context", "64"]
    assert run.main([*arguments, "--raw", "--stats"]) == 0
    shown = capsys.readouterr()
    assert "decode tokens per second" in shown.err
    assert run.main([*arguments, "--raw", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert shown.out == report["text"] + "\n"
    assert 0 < report["tokens"] <= 12 and report["prompt_tokens"] == 7
    assert run.main([*arguments, "--json", "--max-tokens", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 0
    assert run.main([*arguments, "--q8", "--exact", "--system", "Be brief."]) == 0
    assert capsys.readouterr().out


def test_a_chat(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter(["hello", "and then?", "/quit"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert run.main([str(folder), "--max-tokens", "5", "--context", "200"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 2
    assert next(lines, None) is None


def test_ctrl_c_keeps_what_there_is(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(self: Any, *arguments: Any) -> Any:
        yield "a"
        yield "b"
        raise KeyboardInterrupt

    monkeypatch.setattr(LanguageModel, "generate", generate)
    assert run.main([str(folder), "--prompt", "x"]) == 130
    shown = capsys.readouterr()
    assert shown.out == "ab\n" and shown.err.endswith("interrupted\n")
    assert run.main([str(folder), "--prompt", "x", "--json"]) == 130
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["text"] == "ab" and report["interrupted"] is True
    assert shown.err.endswith("interrupted\n")


def test_ctrl_c_while_the_prompt_is_computed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, prompt: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(LanguageModel, "_prefill", interrupted)
    assert run.main([str(folder), "--prompt", "x", "--json"]) == 130
    report = json.loads(capsys.readouterr().out)
    assert (report["text"], report["tokens"], report["interrupted"]) == ("", 0, True)


def chat(monkeypatch: pytest.MonkeyPatch, lines: list[Any], *arguments: str) -> int:
    """A chat with these lines, of which one may be an error."""
    left = iter(lines)

    def line(prompt: str) -> Any:
        given = next(left)
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", line)
    status = run.main(list(arguments))
    assert next(left, None) is None
    return status


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The contents of the messages of each answer, as they are asked for; the answers are "ok"."""
    asked: list[list[str]] = []

    def generate(self: LanguageModel, prompt: Any, most: int, *others: Any) -> Any:
        self.prompts.check_room(len(self.encode(prompt)), most)
        asked.append([message["content"] for message in prompt])
        return iter(["ok"])

    monkeypatch.setattr(LanguageModel, "generate", generate)
    return asked


def test_a_chat_outlives_what_is_wrong_with_one_message(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    prompts: list[list[str]],
) -> None:
    wrong = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    lines = ["hello", "x" * 300, wrong, "half \ud800", "and then?", "/quit"]
    options = (str(folder), "--max-tokens", "5", "--context", "150", "--system", "s")
    assert chat(monkeypatch, lines, *options) == 0
    assert prompts == [["s", "hello"], ["s", "hello", "ok", "and then?"]]
    error = capsys.readouterr().err
    assert error.count("5 more may follow") == 1
    assert error.count("the text that was given is not UTF-8") == 2
    assert error.count("tensai run: ") == 3


def test_a_chat_forgets_its_oldest_turns(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    prompts: list[list[str]],
) -> None:
    lines = [letter * 30 for letter in "abcd"]
    options = (str(folder), "--max-tokens", "5", "--context", "150", "--system", "s")
    assert chat(monkeypatch, [*lines, "/quit"], *options) == 0
    assert prompts[1] == ["s", lines[0], "ok", lines[1]]
    assert prompts[-1] == ["s", lines[2], "ok", lines[3]]
    error = capsys.readouterr().err
    assert error.count("(the context is full: forgot the oldest turn") == 2


def test_streams_that_are_closed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    for arguments in ([], ["--prompt", "-"]):
        assert run.main([str(folder), *arguments]) == 1
        assert capsys.readouterr().err == (
            "tensai run: standard input is closed; give a --prompt\n"
        )
    assert run.main([str(folder), "--prompt", "x", "--max-tokens", "1"]) == 0
    monkeypatch.setattr("sys.stdout", None)
    capsys.readouterr()
    assert command(["run", str(folder), "--prompt", "x"]) == 1
    assert "standard output is closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["/nowhere", "--prompt", "x"], "/nowhere does not exist"),
        (["FOLDER", "--prompt", " "], "empty"),
        (["FOLDER", "--prompt", "x" * 600], "more may follow"),
        (["FOLDER", "--prompt", "x", "--context", "0"], "context of 0"),
        (["FOLDER", "--prompt", "x", "--max-tokens", "-1"], "max_tokens"),
        (["FOLDER", "--prompt", "x", "--max-tokens", "9" * 99], "more may follow"),
        (["FOLDER", "--prompt", "x", "--context", "9" * 99], "context of 999"),
        (["FOLDER", "--prompt", "x", "--temperature", "inf"], "temperature"),
        (["FOLDER", "--prompt", "x", "--temperature", "nan"], "temperature"),
        (["FOLDER", "--prompt", "x", "--temperature", "1", "--top-p", "nan"], "top_p"),
        (["FOLDER", "--prompt", "x", "--raw", "--system", "s"], "give one of them"),
        (["FOLDER", "--prompt", "\udcff"], "not UTF-8"),
        (["", "--prompt", "x"], "path of the model is empty"),
    ],
)
def test_what_run_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], match: str
) -> None:
    assert run.main([str(folder) if part == "FOLDER" else part for part in arguments]) == 1
    error = capsys.readouterr().err
    assert "tensai run: " in error and match in error


def test_a_chat_is_not_raw(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for option in ("--raw", "--json"):
        assert chat(monkeypatch, [], str(folder), option) == 1
        assert f"tensai run: {option} needs a --prompt" in capsys.readouterr().err


def test_a_real_model_tells_the_capital_of_france(gpu: tensai.Device) -> None:
    fetch(SMOLLM2)
    model = load(locate("smollm2"), gpu, context=64)
    assert "".join(model.generate("The capital of France is", 2)).startswith(" Paris")
