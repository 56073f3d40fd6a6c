"""Language models from their files: text in, text out."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import ops
from ..device import Device
from ..errors import ModelError, OutOfDeviceMemoryError
from ..program import Program
from ..tensor import Tensor
from .chat import render
from .decoder import Cache, Decoder
from .description import Description
from .files import Array, read_settings
from .gguffile import GGUFFile
from .opening import open_source, open_tokenizer
from .options import drawing, integer, listed
from .progress import Progress
from .source import TensorSource
from .vocabulary import TextTokenizer

CONTEXT = 4096  # tokens that a cache has room for, where nothing is asked for
CHUNK = 512  # tokens of a prompt that are computed together
AHEAD = 32  # steps that are queued at most before their tokens are read
# Of a model whose activations are rounded without being asked for. That moves the scores of one of
# 135 million (SmolLM2) by up to half their standard deviation: its first answer turns French.
ENOUGH_WEIGHTS = 500_000_000
PATIENCE = 0.1  # seconds that a reader waits for tokens at most, about


@dataclass
class Timings:
    """What the last generate() took, in seconds."""

    load: float = 0.0
    prompt_tokens: int = 0  # computed, without those that the cache had already
    prefill: float = 0.0
    tokens: int = 0  # computed after the first, which the prompt gives
    decode: float = 0.0
    generated: int = 0  # that the answer has so far


def load(
    path: str | os.PathLike[str],
    device: Device,
    weights: str | None = None,
    activations: str | None = None,
    context: int | None = None,
    progress: bool = False,
) -> LanguageModel:
    """A language model (Llama, Mistral, Qwen2 and 3, Gemma 2 and 3, SmolLM) on a device.

    `path` is a folder with config.json, tokenizer.json and safetensors, or a GGUF file. `weights`:
    None keeps them as the file has them, "q8" and "q4" quantize (a scale for each 32 elements;
    with "q4", embedding and head are q8), "f16" and "f32" convert. `activations`: "int8" rounds
    what meets quantized weights to int8, with a scale for each 32 elements, "f32" does not; None
    takes int8 where the device has instructions for it and the model at least 500 million weights:
    smaller ones are fast anyway, and say other things for it. `context`: tokens that the model's
    cache has room for, by default the model's longest, at most 4096. `progress` shows how far it is
    on standard error.

    Raises ModelError, which names the file and the reason, for whatever is missing, damaged, not
    known or too large, before the weights are read; ImportError without tensai[models].
    """
    start = time.perf_counter()
    if not isinstance(device, Device):
        raise TypeError(f"expected a device, which tensai.open() gives, but got {device!r}")
    if context is not None:
        context = integer("context", context)
    if activations not in ("f32", "int8", None):
        raise ValueError(f'expected activations "f32", "int8" or None, but got {activations!r}')
    source = open_source(path)
    tokenizer = open_tokenizer(source)
    description = describe(source)
    tokenizer.check_rows(description.vocabulary, description.path)
    room = min(description.context, CONTEXT) if context is None else context
    if not 1 <= room <= description.context:
        raise ModelError(
            f"{description.path}: a context of {room} tokens was asked for; the model was made for "
            f"1 to {description.context}"
        )
    if activations is None:
        # Software adapters have no instructions for it, whatever their language has.
        fast = "packed-dot" in device.features and not device.info.software
        activations = "int8" if fast and _weights(source) >= ENOUGH_WEIGHTS else "f32"
    name = Path(path).name
    with Progress(f"MB of {name} loaded", _megabytes(source), progress) as line:
        try:
            decoder = Decoder(
                description,
                source,
                device,
                weights,
                activations,
                lambda done, total: line.show(done // 1_000_000),
            )
            cache = Cache(description, device, room)
        except OutOfDeviceMemoryError as error:
            raise ModelError(
                f"{description.path} does not fit {device.name} with a context of {room} tokens, "
                f"which takes {Cache.nbytes(description, room):,} bytes beside the weights: {error}"
            ) from error
    device.synchronize()
    model = LanguageModel(decoder, cache, tokenizer)
    model.timings.load = time.perf_counter() - start
    return model


def describe(source: TensorSource) -> Description:
    """What the model in these files is made of."""
    if isinstance(source, GGUFFile):
        found = Description.from_metadata(source.settings, source.names())
        table = found.names.embedding
        if len(source.shape(table)) != 2:
            source.check_shape(table, (found.vocabulary, found.hidden))
        # Some of the rows may stand for no token.
        return replace(found, vocabulary=source.shape(table)[0])
    config = read_settings(source.path.parent / "config.json")
    found = Description.from_config(config, source.names())
    names = found.names
    # A head in the file that is not the embedding counts, whatever the settings say.
    if found.tied and names.head in source and not source.same(names.head, names.embedding):
        return replace(found, tied=False)
    return found


def _weights(source: TensorSource) -> int:
    return sum(math.prod(source.shape(name)) for name in source.names())


def _megabytes(source: TensorSource) -> int:
    return sum(source.raw(name).nbytes for name in source.names()) // 1_000_000


class LanguageModel:
    """A model with its tokenizer and a cache for one text; `load` makes one.

    Not for several threads at once. `timings` says what the last generate() took.
    """

    def __init__(self, decoder: Decoder, cache: Cache, tokenizer: TextTokenizer) -> None:
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.device = device = decoder.device
        self.timings = Timings()
        self._cache = cache
        self._known: list[int] = []  # tokens whose keys and values are in the cache
        # Where the next token goes, and how many there are with it; on the device, so that a
        # recorded step can move on by itself.
        self._at = device.upload(np.zeros(1, np.int32))
        self._length = device.upload(np.zeros(1, np.int32))
        self._token = device.upload(np.zeros(1, np.int32))
        self._history = device.upload(np.zeros(cache.capacity + 1, np.int32))
        self._step: tuple[Any, Program] | None = None  # for one way of drawing tokens
        self._turn = 0  # of the answer that the cache is for

    @property
    def description(self) -> Description:
        """Sizes and settings of the model."""
        return self.decoder.description

    @property
    def context(self) -> int:
        """Tokens that prompt and answer can have together."""
        return self._cache.capacity

    @property
    def step(self) -> Program | None:
        """The recorded step of the last generate(), for whoever measures it."""
        return None if self._step is None else self._step[1]

    def forget(self) -> None:
        """Compute the next prompt from its start, whatever the cache has of it."""
        self._known = []

    def logits(self, ids: Sequence[int]) -> Array:
        """The scores of every next token after each of `ids`: (len(ids), vocabulary), float32."""
        tokens = self._checked(ids)
        self._check_room(len(tokens), 0)
        self._known = []
        self._turn += 1
        made = np.empty((len(tokens), self.description.vocabulary), np.float32)
        for start in range(0, len(tokens), CHUNK):
            some = slice(start, start + CHUNK)
            with self.device.batch():
                hidden = self._forward(tokens[some], start)
                made[some] = self.decoder.logits(hidden).download()
        return made

    def encode(
        self, prompt: str | Sequence[Any], chat: bool | None = None, **values: Any
    ) -> list[int]:
        """The token ids of a prompt: text, messages of a chat, or ids, which stay as they are.

        Text becomes a user's message where `chat` is true, or None and the model has a template.
        Raises TypeError for anything else.
        """
        if isinstance(prompt, str):
            template = self.tokenizer.chat_template
            if chat is False or (chat is None and template is None):
                return self.tokenizer.encode(prompt)
            prompt = [{"role": "user", "content": prompt}]
        messages = listed(prompt)
        if not messages or not isinstance(messages[0], Mapping):
            return messages
        if self.tokenizer.chat_template is None:
            raise ModelError(f"{self.tokenizer.path} has no chat template; give the prompt as text")
        tokenizer = self.tokenizer
        text = render(
            self.tokenizer.chat_template,
            messages,
            tokenizer.bos_token,
            tokenizer.eos_token,
            **values,
        )
        return tokenizer.encode(text, special=False)

    def generate(
        self,
        prompt: str | Sequence[Any],
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        chat: bool | None = False,
    ) -> Iterator[str]:
        """The model's answer, piece by piece.

        `prompt` is text, a list of token ids, or the messages of a chat, each with "role" and
        "content". Text goes in as it is, or with `chat` (None: where the model has a template) as a
        user's message. At a temperature of 0 always the most likely token comes next; else one is
        drawn as by ops.sample, by the same random numbers for the same `seed`. Ends after
        max_tokens, or at a token that ends a turn.

        Raises, before anything is computed, ModelError for a prompt that does not fit the context
        together with max_tokens, ValueError for numbers out of range, TypeError for what is none;
        later ModelError where the scores after the prompt, or after a token of the answer, are NaN.
        """
        ids = self.encode(prompt, chat)
        return self._text(ids, self.tokens(ids, max_tokens, temperature, top_k, top_p, seed))

    def _text(self, ids: Sequence[int], tokens: Iterator[int]) -> Iterator[str]:
        stream = self.tokenizer.stream(ids)
        for token in tokens:
            piece = stream.push(token)
            if piece:
                yield piece
        last = stream.finish()
        if last:
            yield last

    def tokens(
        self,
        ids: Sequence[int],
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[int]:
        """The token ids of an answer to token ids (see generate), without the one that ends it."""
        prompt = self._checked(ids)
        max_tokens = integer("max_tokens", max_tokens)
        if max_tokens < 0:
            raise ValueError(f"expected max_tokens from 0 up, but got {max_tokens}")
        self._check_room(len(prompt), max_tokens)
        return self._tokens(prompt, max_tokens, drawing(temperature, top_k, top_p, seed))

    def _tokens(self, prompt: Array, max_tokens: int, way: tuple[Any, ...]) -> Iterator[int]:
        self.timings = Timings(load=self.timings.load)
        if not max_tokens:
            return
        self._turn = turn = self._turn + 1
        start = time.perf_counter()
        self._draw(self._prefill(prompt), way)
        count = len(prompt)
        made = self._read(count, count + 1)
        self.timings.prefill = time.perf_counter() - start
        left, ahead = max_tokens - 1, 1
        while True:
            for token in made:
                if token < 0:
                    raise self._broken()
                if token in self.tokenizer.eos:
                    return
                self.timings.generated += turn == self._turn  # not of another answer
                yield token
            if not left:
                return
            # What was read before that still is of this answer; what would be computed is not.
            if turn != self._turn:
                raise RuntimeError(
                    "the model went on to something else before this answer ended; it has one "
                    "cache: finish or close one answer before the next"
                )
            start = time.perf_counter()
            last = made[-1]  # drawn, but not in the cache yet
            steps = min(ahead, left)
            for _ in range(steps):
                self._advance(way)
            count += steps
            made = self._read(count - steps + 1, count + 1)
            self._known += [last, *made[:-1]]
            seconds = time.perf_counter() - start
            self.timings.tokens += steps
            self.timings.decode += seconds
            left -= steps
            ahead = max(1, min(AHEAD, 2 * ahead, int(PATIENCE * steps / seconds)))

    def _advance(self, way: tuple[Any, ...]) -> None:
        """One more token: its step is recorded once and replayed from then on."""
        if self._step is not None and self._step[0] == way:
            self._step[1].replay()
            return
        self._step = None  # its memory, before the next one's is taken
        with self.device.record() as program:
            hidden = self.decoder(self._token, self._cache, self._at, self._length)
            self._draw(self.decoder.logits(hidden), way)
        self._step = way, program

    def _draw(self, logits: Tensor, way: tuple[Any, ...]) -> None:
        """Draw the token after the last one, and move on to it."""
        temperature, top_k, top_p, seed = way
        token = ops.sample(logits, self._at, temperature, top_k, top_p, seed)
        self._token.copy_rows_(token, 0)
        self._history.copy_rows_(token, self._length)
        self._at.add_(1)
        self._length.add_(1)

    def _read(self, start: int, stop: int) -> list[int]:
        """Tokens that were drawn, by their positions."""
        # All of them: a slice would be a new plan for every place.
        tokens: list[int] = self._history.download()[start:stop].tolist()
        return tokens

    def _prefill(self, prompt: Array) -> Tensor:
        """Compute a prompt, as far as the cache does not have it, and the logits after it."""
        known = 0
        for mine, its in zip(self._known, prompt[:-1].tolist(), strict=False):
            if mine != its:
                break
            known += 1
        self._known = []  # until all of it is there
        for start in range(known, len(prompt), CHUNK):
            hidden = self._forward(prompt[start : start + CHUNK], start)
        self._at.copy_rows_(self.device.upload(np.array([len(prompt) - 1], np.int32)), 0)
        self._length.copy_rows_(self.device.upload(np.array([len(prompt)], np.int32)), 0)
        self._known = prompt.tolist()
        self.timings.prompt_tokens = len(prompt) - known
        return self.decoder.logits(hidden[-1:])

    def _broken(self) -> ModelError:
        """What to raise where sampling found NaN, by which no token can be drawn."""
        self._known = []  # keys and values are NaN as well
        given = self.timings.generated
        where = f"{given} tokens of the answer" if given else "this prompt"
        return ModelError(
            f"{self.description.path}: the scores that the model gives after {where} are NaN: its "
            "weights hold NaN or infinity, or numbers grow beyond float32; fetch its files again, "
            "or compare with other weights and activations"
        )

    def _forward(self, tokens: Array, start: int) -> Tensor:
        upload = self.device.upload
        at = upload(np.array([start], np.int32))
        length = upload(np.array([start + len(tokens)], np.int32))
        return self.decoder(upload(tokens), self._cache, at, length)

    def _checked(self, ids: Sequence[int]) -> Array:
        tokens = np.asarray(ids)
        if tokens.ndim != 1 or not tokens.size or tokens.dtype.kind not in "iu":
            raise ValueError(
                f"expected token ids: a list of at least one integer, but got {repr(ids)[:80]}"
            )
        vocabulary = self.description.vocabulary
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            worst = tokens.max() if tokens.max() >= vocabulary else tokens.min()
            raise ValueError(f"expected token ids from 0 to {vocabulary - 1}, but got {worst}")
        return tokens.astype(np.int32)

    def _check_room(self, prompt: int, more: int) -> None:
        if prompt + more > self.context:
            raise ModelError(
                f"the prompt has {prompt} tokens and {more} more may follow, but the context has "
                f"room for {self.context} (the model was made for {self.description.context}); "
                "shorten the prompt, ask for fewer tokens, or load the model with more context"
            )
