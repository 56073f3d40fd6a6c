"""Language models on a device: text in, text out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ops
from ..errors import ModelError
from ..program import Program
from ..tensor import Tensor
from .decoder import Cache, Decoder
from .description import Description
from .files import Array
from .options import counted, drawing
from .prompts import Prompts

CHUNK = 512  # tokens of a prompt that are computed together
AHEAD = 32  # steps that are queued at most before their tokens are read
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


class LanguageModel:
    """A model with its tokenizer and a cache for one text; `load` makes one.

    Not for several threads at once. `timings` says what the last generate() took.
    """

    def __init__(self, decoder: Decoder, cache: Cache, prompts: Prompts) -> None:
        self.decoder = decoder
        self.prompts = prompts
        self.tokenizer = prompts.tokenizer
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
        tokens = self.prompts.checked(ids)
        self.prompts.check_room(len(tokens))
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

        Text becomes a user's message where `chat` is true, or None and the model has a template;
        `values` are the template's. Raises TypeError for anything else.
        """
        return self.prompts.encode(prompt, chat, **values)

    def generate(
        self,
        prompt: str | Sequence[Any],
        max_tokens: int = 256,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        chat: bool | None = False,
    ) -> Iterator[str]:
        """The model's answer, piece by piece.

        `prompt` is text, a list of token ids, or the messages of a chat, each with "role" and
        "content". Text goes in as it is, or with `chat` (None: where the model has a template) as a
        user's message. At a temperature of 0 always the most likely token comes next; else one is
        drawn as by ops.sample, by the same random numbers for the same `seed`. The temperature is 0
        where none is given, and 1 where top_k, top_p or seed is. Ends after max_tokens, or at a
        token that ends a turn.

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
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[int]:
        """The token ids of an answer to token ids (see generate), without the one that ends it."""
        prompt = self.prompts.checked(ids)
        max_tokens = counted("max_tokens", max_tokens)
        self.prompts.check_room(len(prompt), max_tokens)
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
