"""Chats as text, by the template that a model brings."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..errors import ModelError
from .files import extra


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    bos: str = "",
    eos: str = "",
    add_generation_prompt: bool = True,
    **values: Any,
) -> str:
    """The text of a chat, as the model was trained to see it.

    `template` is Jinja, as in tokenizer_config.json or a GGUF (TextTokenizer.chat_template); it
    runs in a sandbox that bounds its loops and what it makes (see templates.py). Each message has a
    "role" ("system", "user", "assistant") and "content". `bos` and `eos` are the texts of these
    tokens. `add_generation_prompt` ends the text where the model's answer starts. Further values
    (`tools`, `enable_thinking`, ...) are the template's.

    The text holds its special tokens: encode it with special=False. Raises ModelError, with what
    the template says, when it is broken or refuses the messages.
    """
    try:
        import jinja2

        from .templates import rendered
    except ImportError as error:
        raise extra("jinja2") from error
    try:
        own: dict[str, Any] = {"messages": messages, "bos_token": bos, "eos_token": eos}
        own["add_generation_prompt"] = add_generation_prompt
        text = rendered(_compiled(template), {"tools": None, "documents": None, **values, **own})
    except jinja2.TemplateError as error:
        raise ModelError(f"the chat template fails: {error}") from error
    except Exception as error:  # whatever an expression in it does
        raise ModelError(f"the chat template fails: {type(error).__name__}: {error}") from error
    return text


@functools.lru_cache(maxsize=8)
def _compiled(template: str) -> Any:
    """A template with what templates expect to be there, which transformers set the example for."""
    import jinja2
    from jinja2.ext import Extension

    from .templates import BoundedEnvironment

    class Generation(Extension):  # type: ignore[misc, unused-ignore]  # Any where it is not installed
        """Marks the model's own words for training; here it is as if the tags were not there."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **layout)

    environment = BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    # Jinja's own tojson escapes what HTML would not bear.
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)
