"""WGSL kernels, one .wgsl file an operation family, and the small template language they use.

`#include NAME` inserts NAME.wgsl once, `#if NAME` / `#else` / `#endif` choose lines by a value
being true, and `{{NAME}}` stands for a value. `source("reduce", T="f32", ...)` gives the
text that a device compiles.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any

_VALUE = re.compile(r"\{\{(\w+)\}\}")


@functools.cache
def template(name: str) -> str:
    """The text of NAME.wgsl."""
    return (resources.files(__package__) / f"{name}.wgsl").read_text(encoding="utf-8")


def source(name: str, **values: Any) -> str:
    """The WGSL of kernel `name` with its template values filled in."""
    return fill(template(name), values)


def fill(text: str, values: dict[str, Any]) -> str:
    """Fill a template; ValueError for a value that is missing or an #if without its #endif."""
    lines: list[str] = []
    _walk(text, values, lines, set())
    return "\n".join(lines) + "\n"


def _walk(text: str, values: dict[str, Any], lines: list[str], included: set[str]) -> None:
    shown = [True]
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "#if":
            if rest not in values:
                raise ValueError(f"a kernel's template asks for {rest!r}, which has no value")
            shown.append(shown[-1] and bool(values[rest]))
        elif word == "#else":
            shown[-1] = shown[-2] and not shown[-1]
        elif word == "#endif":
            shown.pop()
        elif not shown[-1]:
            continue
        elif word == "#include":
            if rest not in included:
                included.add(rest)
                _walk(template(rest), values, lines, included)
        else:
            lines.append(_VALUE.sub(lambda found: _value(found[1], values), line))
    if len(shown) != 1:
        raise ValueError("an #if of a kernel's template has no #endif")


def _value(name: str, values: dict[str, Any]) -> str:
    if name not in values:
        raise ValueError(f"a kernel's template asks for {name!r}, which has no value")
    return str(values[name])
