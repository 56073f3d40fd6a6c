"""Prompts of a language model, as token ids that fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from .chat import render
from .description import Description
from .files import Array
from .options import listed
from .vocabulary import TextTokenizer


class Prompts:
    """Makes prompts of text and chats; `context` tokens have room with their answer."""

    def __init__(self, tokenizer: TextTokenizer, description: Description, context: int) -> None:
        self.tokenizer = tokenizer
        self.description = description
        self.context = context

    def encode(self, prompt: str | Sequence[Any], chat: bool | None, **values: Any) -> list[int]:
        """The token ids of a prompt (see LanguageModel.encode)."""
        template = self.tokenizer.chat_template
        if isinstance(prompt, str):
            if chat is False or (chat is None and template is None):
                return self.tokenizer.encode(prompt)
            prompt = [{"role": "user", "content": prompt}]
        messages = listed(prompt)
        if not messages or not isinstance(messages[0], Mapping):
            return messages
        if template is None:
            raise ModelError(f"{self.tokenizer.path} has no chat template; give the prompt as text")
        bos, eos = self.tokenizer.bos_token, self.tokenizer.eos_token
        return self.tokenizer.encode(render(template, messages, bos, eos, **values), special=False)

    def checked(self, ids: Sequence[int]) -> Array:
        """Token ids as int32; ValueError for none, and for those that the model does not have."""
        tokens = np.asarray(ids)
        if tokens.ndim == 1 and not tokens.size:
            raise ValueError("the prompt is empty; expected token ids: at least one integer")
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise ValueError(
                f"expected token ids: a list of at least one integer, but got {repr(ids)[:80]}"
            )
        vocabulary = self.description.vocabulary
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            worst = tokens.max() if tokens.max() >= vocabulary else tokens.min()
            raise ValueError(f"expected token ids from 0 to {vocabulary - 1}, but got {worst}")
        return tokens.astype(np.int32)

    def check_room(self, prompt: int, more: int = 0) -> None:
        """Raise ModelError where a prompt and so many more tokens do not fit the context."""
        if prompt + more > self.context:
            raise ModelError(
                f"the prompt has {prompt} tokens and {more} more may follow, but the context has "
                f"room for {self.context} (the model was made for {self.description.context}); "
                "shorten the prompt, ask for fewer tokens, or load the model with more context"
            )
