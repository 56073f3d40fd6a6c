"""A sandbox for templates out of models' files, in which none can run for hours or fill memory.

Turns of loops, calls and characters shown are counted, and sums and products bounded. What a filter
or a string's method makes by itself, such as a line of a given width, is not.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_STEPS = 1_000_000  # turns of loops, calls, and elements of ranges
LONGEST = 1 << 25  # characters or elements
MOST_BITS = 1 << 16  # of a number

_steps: contextvars.ContextVar[int] = contextvars.ContextVar("steps", default=0)
_shown: contextvars.ContextVar[int] = contextvars.ContextVar("shown", default=0)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with bounds for each text that `rendered` makes."""

    intercepted_binops = frozenset(["+", "*", "**"])

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_show, **options)
        self.filters |= {"counted": _counted, "bounded": _bounded}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, "counted")
        for joined in tree.find_all(nodes.Concat):
            joined.nodes = [_filtered(part, "bounded") for part in joined.nodes]
        return tree

    def call(self, context: Any, obj: Any, *arguments: Any, **named: Any) -> Any:
        """Call something of the template."""
        _count(1)
        made = super().call(context, obj, *arguments, **named)
        if isinstance(made, range):
            _count(len(made))
        return made

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute left operator right, where the result is not too large."""
        if isinstance(left, int) and isinstance(right, int):
            bits, more = left.bit_length(), right.bit_length()
            if (bits * abs(right) if operator == "**" else bits + more) > MOST_BITS:
                raise SecurityError(f"{operator} makes a number of more than {MOST_BITS:,} bits")
        elif operator == "*" and (isinstance(left, int) or isinstance(right, int)):
            times, part = (left, right) if isinstance(left, int) else (right, left)
            _check(operator, times * _size(part))
        else:
            _check(operator, _size(left) + _size(right))
        return super().call_binop(context, operator, left, right)


def rendered(template: Any, values: dict[str, Any]) -> str:
    """The text of a template; SecurityError where it does or shows too much."""
    _steps.set(0)
    _shown.set(0)
    parts, size = [], 0
    for part in template.generate(values):
        parts.append(part)
        size += len(part)
        if size > LONGEST:
            raise SecurityError(f"it shows more than {LONGEST:,} characters")
    return "".join(parts)


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _count(more: int) -> None:
    steps = _steps.get() + more
    if steps > MOST_STEPS:
        raise SecurityError(f"it takes more than {MOST_STEPS:,} steps")
    _steps.set(steps)


def _counted(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _count(1)
        yield value


def _show(value: Any) -> Any:
    shown = _shown.get() + _size(value)
    if shown > LONGEST:
        raise SecurityError(f"it shows more than {LONGEST:,} characters")
    _shown.set(shown)
    return value


def _bounded(value: Any) -> Any:
    _check("~", _size(value))
    return value


def _check(operator: str, size: int) -> None:
    if size > LONGEST:
        raise SecurityError(f"{operator} makes more than {LONGEST:,} characters or elements")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple)) else 0
