"""`tensai run MODEL`: generate text, once or in a chat."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import tensai

from .errors import DeviceLostError, TensaiError
from .models import LanguageModel
from .models.fetch import locate
from .models.loading import open_model
from .models.options import counted, drawing
from .models.prompts import Prompts

NO_TEXT = "the text that was given is not UTF-8; convert it first"


def main(argv: list[str] | None = None) -> int:
    """The command; 1 when there is no device, or the model or the prompt can't be used.

    130, as of other commands, when Ctrl-C ended the answer to a prompt.
    """
    options = _parser().parse_args(argv)
    try:
        # Whatever is wrong is said before a device is opened, and before any weight is read.
        _check_numbers(options)
        prompt = _prompt(options)
        files = open_model(locate(options.model), options.context)
        ids = _encoded(files.prompts, options, prompt)
        with tensai.open() as device:
            model = files.load(
                device,
                weights="q8" if options.q8 else "q4" if options.q4 else None,
                activations="f32" if options.exact else None,
                progress=True,
            )
            if ids is None:
                _chat(model, options)
            elif _answer(model, options, ids):
                print("interrupted", file=sys.stderr)
                return 130
    except (TensaiError, ImportError, ValueError, OverflowError) as error:
        print(f"tensai run: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensai run",
        description="Generate text with a language model: the answer to a prompt, or a chat where "
        "none is given.",
    )
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        help='a GGUF file, a folder with safetensors, or "smollm2" (a small one, fetched once)',
    )
    add("--prompt", metavar="TEXT", help="what to answer or go on with (- reads standard input)")
    add("--system", metavar="TEXT", help="what a chat starts with")
    add("--raw", action="store_true", help="take the prompt as text to go on with, not as a chat")
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--q8", action="store_true", help="quantize weights to 8 bits")
    weights.add_argument("--q4", action="store_true", help="quantize weights to 4 bits")
    add("--exact", action="store_true", help="keep activations in float32")
    add("--max-tokens", metavar="N", type=int, default=256, help="of an answer (default: 256)")
    add("--context", metavar="N", type=int, help="tokens that there is room for")
    add(
        "--temperature",
        metavar="T",
        type=float,
        help="0 always takes the most likely token; the default, unless one of the next is given, "
        "then it is 1",
    )
    add("--top-k", metavar="N", type=int, help="draw from the N most likely tokens only")
    add("--top-p", metavar="P", type=float, help="draw from the most likely that share P only")
    add("--seed", metavar="N", type=int, help="draw the same tokens again")
    add("--stats", action="store_true", help="print times, rates and memory to standard error")
    add("--json", action="store_true", help="print the answer and its figures as JSON")
    return parser


def _prompt(options: argparse.Namespace) -> str | None:
    """The prompt, or None for a chat."""
    if options.raw and options.system is not None:
        raise ValueError("--system starts a chat, which --raw does without; give one of them")
    given: str | None = options.prompt
    if given in (None, "-"):
        if sys.stdin is None:  # closed by whoever started the command
            raise ValueError("standard input is closed; give a --prompt")
        if given == "-" or not sys.stdin.isatty():
            given = _read_input()
    for option in ("json", "raw"):
        if given is None and getattr(options, option):
            raise ValueError(f"--{option} needs a --prompt")
    for text in (given, options.system):
        if text is not None:
            _check_text(text)
    if given is not None and not given.strip():
        raise ValueError("the prompt is empty")
    return given


def _check_numbers(options: argparse.Namespace) -> None:
    counted("max_tokens", options.max_tokens)
    way = drawing(options.temperature, options.top_k, options.top_p, options.seed)
    if options.temperature is None and way[0]:
        print("(tokens are drawn at a temperature of 1; --temperature sets it)", file=sys.stderr)


def _encoded(prompts: Prompts, options: argparse.Namespace, prompt: str | None) -> list[int] | None:
    """A prompt's tokens, None for a chat; refuses what the model has no template or no room for."""
    template, path = prompts.tokenizer.chat_template, prompts.tokenizer.path
    if template is None and options.system is not None:
        raise ValueError(f"{path} has no chat template, which --system needs")
    if prompt is None:
        if template is None:
            raise ValueError(f"{path} has no chat template; give a --prompt")
        prompts.check_room(1, options.max_tokens)
        return None
    raw = options.raw or template is None
    ids = prompts.encode(prompt if raw else [*_system(options), _message("user", prompt)], False)
    prompts.check_room(len(ids), options.max_tokens)
    return ids


def _read_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ValueError(NO_TEXT) from error


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # Python's way to keep bytes that it could not read
        raise ValueError(NO_TEXT) from error


def _answer(model: LanguageModel, options: argparse.Namespace, ids: list[int]) -> bool:
    """Print the answer to a prompt; whether Ctrl-C ended it."""
    text, interrupted = _stream(model, options, ids)
    if options.json:
        report = {"text": text, "interrupted": interrupted, **figures(model)}
        # Escapes survive an output that can't show every character.
        every = str(sys.stdout.encoding).lower().startswith("utf")
        print(json.dumps(report, indent=2, ensure_ascii=not every))
    if options.stats:
        _print_stats(model)
    return interrupted


def _chat(model: LanguageModel, options: argparse.Namespace) -> None:
    print("An empty line or /quit ends the chat; Ctrl-C ends an answer.", file=sys.stderr)
    messages = _system(options)
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        except UnicodeDecodeError:
            print(f"tensai run: {NO_TEXT}", file=sys.stderr)
            continue
        if line in ("", "/quit"):
            return
        try:
            _check_text(line)
            messages = _turn(model, options, [*messages, _message("user", line)])
        except DeviceLostError:
            raise  # no further message can be answered
        except (TensaiError, ValueError, OverflowError) as error:
            # As if it had not been said; the chat so far stays.
            print(f"tensai run: {error}", file=sys.stderr)


def _turn(
    model: LanguageModel, options: argparse.Namespace, messages: list[dict[str, str]]
) -> list[dict[str, str]]:
    """Answer the last of the messages; the messages that the chat goes on from."""
    kept = _fitting(model, options, messages)
    text, _ = _stream(model, options, kept)
    if options.stats:
        _print_stats(model)
    return [*kept, _message("assistant", text)]


def _fitting(
    model: LanguageModel, options: argparse.Namespace, messages: list[dict[str, str]]
) -> list[dict[str, str]]:
    """The messages without the oldest turns, as many as an answer needs the room of."""
    start = len(_system(options))
    kept, dropped = messages, 0
    while len(model.encode(kept)) + options.max_tokens > model.context:
        if len(kept) == start + 1:
            return messages  # the last one alone is too long, which generate() says
        kept = kept[:start] + kept[start + 2 :]  # a question and its answer
        dropped += 1
    if dropped:
        turns = "turn" if dropped == 1 else f"{dropped} turns"
        print(f"(the context is full: forgot the oldest {turns})", file=sys.stderr)
    return kept


def _stream(model: LanguageModel, options: argparse.Namespace, prompt: Any) -> tuple[str, bool]:
    """Print an answer as it comes. Ctrl-C ends it with what there is."""
    pieces: list[str] = []
    interrupted = False
    try:
        answer: Iterator[str] = model.generate(
            prompt,
            options.max_tokens,
            options.temperature,
            options.top_k,
            options.top_p,
            options.seed,
        )
        for piece in answer:
            pieces.append(piece)
            if not options.json:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    except (TensaiError, ValueError):
        if pieces and not options.json:
            print()  # so that the error has a line of its own
        raise
    if not options.json:
        print()
    return "".join(pieces), interrupted


def _system(options: argparse.Namespace) -> list[dict[str, str]]:
    return [] if options.system is None else [_message("system", options.system)]


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def figures(model: LanguageModel) -> dict[str, Any]:
    """Times, rates and memory of the last answer."""
    timings, memory = model.timings, model.device.memory()

    def rate(tokens: int, seconds: float) -> float | None:
        return round(tokens / seconds, 2) if seconds and tokens else None

    return {
        "device": model.device.name,
        "load_seconds": round(timings.load, 3),
        "prompt_tokens": timings.prompt_tokens,
        "prefill_tokens_per_second": rate(timings.prompt_tokens, timings.prefill),
        "tokens": timings.generated,
        "decode_tokens_per_second": rate(timings.tokens, timings.decode),
        "weight_bytes": model.decoder.nbytes,
        "memory_bytes": memory["in_use"],
        "peak_memory_bytes": memory["peak"],
    }


def _print_stats(model: LanguageModel) -> None:
    found = figures(model)
    width = max(len(name) for name in found)
    for name, value in found.items():
        shown = f"{value:,}" if isinstance(value, (int, float)) else str(value or "-")
        print(f"{name.replace('_', ' '):{width}}  {shown}", file=sys.stderr)


if __name__ == "__main__":
    from .__main__ import main as command

    sys.exit(command(["run", *sys.argv[1:]]))
