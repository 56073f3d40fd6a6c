"""Text to token ids and back, with the tokenizers library doing the encoding."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import ModelError
from .files import Settings, read_settings, read_text, read_tokenizer, tokenizing

SPACE = "\u2581"  # SentencePiece's sign for a space
BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")  # SentencePiece's name of a byte
# What ends a turn, by the names that model families have for it.
TURN_ENDS = (
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
)


def _byte_names() -> dict[str, int]:
    """The characters that GPT-2's byte-level vocabularies write bytes as, and their bytes."""
    same = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in same]
    names = {chr(byte): byte for byte in same}
    return names | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_NAMES = _byte_names()


class TextStream(Protocol):
    """Turns ids into text one by one; see TextTokenizer.stream."""

    def push(self, id: int) -> str:
        """The text that is certain once this id is there. It may be empty."""

    def finish(self) -> str:
        """What is left at the end: a replacement character for half a character, or nothing."""


class TextTokenizer:
    """A model's tokenizer.

    `bos` is the id that starts a text, or None; `eos` are the ids that end an answer: the end of
    text, and the ends of a turn in a chat. `bos_token` and `eos_token` are their texts ("" for
    none), for chat templates. `chat_template` is the model's Jinja template, or None. `size` is
    one more than the largest id, and `path` the file it all comes from.

    Made by opening.open_tokenizer. `tokenizer` is a tokenizers.Tokenizer; `add_bos` and `add_eos`
    put the start, and the first of `eos`, around a text beyond what it puts there itself.
    """

    def __init__(
        self,
        path: Path,
        tokenizer: Any,
        bos: int | None = None,
        eos: Sequence[int] = (),
        add_bos: bool = False,
        add_eos: bool = False,
        chat_template: str | None = None,
    ) -> None:
        self.path = path
        self.chat_template = chat_template
        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._names = {id: name for name, id in tokenizer.get_vocab(True).items()}
        self.size = max(self._names, default=-1) + 1
        added = tokenizer.get_added_tokens_decoder()
        self._added = {id: token.content for id, token in added.items()}
        self._special = {id for id, token in added.items() if token.special}
        ends = {id for id, name in self._added.items() if name in TURN_ENDS}
        self.bos = bos
        self.eos = frozenset(ends | set(eos))
        self.bos_token = "" if bos is None else self._names.get(bos, "")
        self.eos_token = self._names.get(eos[0], "") if eos else ""
        self._before = [bos] if add_bos and bos is not None else []
        self._after = [eos[0]] if add_eos and eos else []
        with tokenizing(path):
            self._decode_piece, self.strips = _decoding(tokenizer.decoder)
        self._known: dict[int, bytes] = {}

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text.

        `special` adds what the model wants around a text (the start, as a rule). A prompt that a
        chat template made has it already: pass False. Either way, the names of special tokens
        within the text become those tokens.

        Raises TypeError for anything that is not a string, ValueError for half of a surrogate pair.
        """
        if not isinstance(text, str):
            raise TypeError(f"expected text as a str, but got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text holds {text[error.start]!r}, half of a character; decode it with "
                'errors="replace"'
            ) from error
        with tokenizing(self.path):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return [*self._before, *ids, *self._after] if special else ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens. Bytes that are no UTF-8 become U+FFFD."""
        stream = self.stream()
        return "".join(stream.push(int(id)) for id in ids) + stream.finish()

    def stream(self, after: Iterable[int] = ()) -> TextStream:
        """A decoder that takes ids one by one, for text that is shown while it is generated.

        The pieces of `push` and of one `finish` at the end make the text that decode gives for
        all ids: a character whose bytes are spread over several tokens comes with the last one.
        `after` are ids that went before (a prompt): then the pieces continue its text, with the
        space that a SentencePiece vocabulary would drop at the start of a text.
        """
        stream = _WholeStream(self) if self._decode_piece is None else _ByteStream(self)
        for id in after:
            stream.push(int(id))
        return stream

    def check_rows(self, rows: int, path: Path) -> None:
        """Raise ModelError where a model's embedding in `path` has too few rows for the ids."""
        if self.size > rows:
            raise ModelError(
                f"{self.path} knows {self.size} tokens, but the embedding in {path} has {rows} "
                "rows; the two belong to different models"
            )

    def bytes_of(self, id: int) -> bytes:
        """What one id adds to a text: nothing for special tokens, and for ids without a token."""
        found = self._known.get(id)
        if found is None:
            found = self._known[id] = self._bytes(id)
        return found

    def _bytes(self, id: int) -> bytes:
        name = self._names.get(id)
        if name is None or id in self._special or self._decode_piece is None:
            return b""
        if id in self._added and self._decode_piece is _byte_level:
            return name.encode()
        return self._decode_piece(name)

    def whole(self, ids: Sequence[int]) -> str:
        """The text that the tokenizers library gives for ids."""
        with tokenizing(self.path):
            return str(self._tokenizer.decode([id for id in ids if id in self._names]))


class _ByteStream:
    """For vocabularies whose tokens are bytes, each whatever its neighbours are."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._bytes_of = tokenizer.bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = tokenizer.strips

    def push(self, id: int) -> str:
        piece = self._bytes_of(id)
        if self._strip and piece:
            self._strip = False
            piece = piece.removeprefix(b" ")
        return self._decoder.decode(piece)

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WholeStream:
    """For other vocabularies: decodes everything again, and gives what is new."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._whole = tokenizer.whole
        self._ids: list[int] = []
        self._said = 0

    def push(self, id: int) -> str:
        self._ids.append(id)
        return self._rest("\ufffd")

    def finish(self) -> str:
        return self._rest("")

    def _rest(self, unsure: str) -> str:
        text = self._whole(self._ids)
        if unsure and text.endswith(unsure):
            return ""
        start, self._said = self._said, len(text)
        return text[start:]


def _byte_level(name: str) -> bytes:
    try:
        return bytes(BYTE_NAMES[character] for character in name)
    except KeyError:
        return name.encode()


def _spaced(name: str) -> bytes:
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(SPACE, " ").encode()


def _decoding(decoder: Any) -> tuple[Callable[[str], bytes] | None, bool]:
    """How a token becomes bytes, and whether a text loses one space at its start.

    A decoder is known by what it does, not by what it is called: there are several that do the
    same. None is for those that are neither GPT-2's nor SentencePiece's.
    """
    if decoder is None:
        return None, False
    if decoder.decode(["\u0120a", "\u0120\u0142"]) == " a \ufffd":
        return _byte_level, False
    if decoder.decode(["a", SPACE + "b", "<0x43>"]) == "a bC":
        start = decoder.decode([SPACE * 2 + "a"])
        if start in ("  a", " a"):
            return _spaced, start == " a"
    return None, False


def folder_tokenizer(folder: Path) -> TextTokenizer:
    """The tokenizer of a model's folder.

    tokenizer.json is needed. tokenizer_config.json, special_tokens_map.json, config.json,
    generation_config.json and chat_template.jinja say more where they exist. Raises ModelError,
    which names the file, for what is missing or damaged.
    """
    path = folder / "tokenizer.json"
    tokenizer = read_tokenizer(path)
    config = _optional(folder / "tokenizer_config.json")
    names = _optional(folder / "special_tokens_map.json")
    ids = {}
    for key in ("bos_token", "eos_token"):
        name = _token_text(config, key) or _token_text(names, key)
        id = tokenizer.token_to_id(name) if name else None
        if id is not None:
            # Some files list these among the ordinary tokens, where text could not hold them.
            tokenizer.add_special_tokens([name])
            ids[key] = id
    model = [_optional(folder / name) for name in ("generation_config.json", "config.json")]
    known = set(tokenizer.get_vocab(True).values())
    starts = [ids["bos_token"]] if "bos_token" in ids else []
    ends = [ids["eos_token"]] if "eos_token" in ids else []
    for settings in model:
        starts += [id for id in _token_ids(settings, "bos_token_id") if id in known]
        ends += [id for id in _token_ids(settings, "eos_token_id") if id in known]
    # Mostly tokenizer.json says it all. Where it adds nothing, the flags of older releases count.
    silent = not tokenizer.num_special_tokens_to_add(False)
    return TextTokenizer(
        path,
        tokenizer,
        bos=starts[0] if starts else None,
        eos=ends,
        add_bos=config.get("add_bos_token", bool, False) and silent,
        add_eos=config.get("add_eos_token", bool, False) and silent,
        chat_template=_chat_template(folder, config),
    )


def _optional(path: Path) -> Settings:
    return read_settings(path) if path.is_file() else Settings(path, {})


def _token_text(settings: Settings, key: str) -> str:
    """A token's text, given as such or as an object that holds it."""
    value = settings.get(key, (str, dict), "")
    if isinstance(value, dict):
        return str(Settings(settings.path, value).get("content", str))
    return str(value)


def _token_ids(settings: Settings, key: str) -> list[int]:
    """One id or several."""
    value = settings.get(key, (int, list), [])
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(id, int) for id in ids):
        raise ModelError(f"{settings.path}: expected ids for {key!r}, but got {value!r}")
    return ids


def _chat_template(folder: Path, config: Settings) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return read_text(path)
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} can't be read: {error}") from error
    return chosen_template(config, "chat_template")


def chosen_template(settings: Settings, key: str) -> str | None:
    """A chat template: the only one, or of a list of named ones the default."""
    value = settings.get(key, (str, list), "")
    if isinstance(value, str):
        return value or None
    named = {}
    for entry in value:
        if not isinstance(entry, dict):
            raise ModelError(f"{settings.path}: expected named templates for {key!r}")
        one = Settings(settings.path, entry)
        named[one.get("name", str)] = one.get("template", str)
    found: str | None = named.get("default", next(iter(named.values()), None))
    return found
