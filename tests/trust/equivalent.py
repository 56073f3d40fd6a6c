"""Mutants that compute the same, with why: no probe can tell them from the right kernel."""

from __future__ import annotations

import re


class _Entry:
    def __init__(self, kernel: str, mutation: str, why: str) -> None:
        self.kernel = re.compile(kernel)
        self.mutation = re.compile(mutation)
        self.why = why


# (operation/kernel, mutation, why), the first two as patterns that match from the start.
_TABLE: list[tuple[str, str, str]] = []
_ENTRIES = [_Entry(*entry) for entry in _TABLE]


def reason(operation: str, kernel: str, mutation: str) -> str:
    """Why this mutant of a kernel computes the same; "" if nothing says so."""
    for entry in _ENTRIES:
        if entry.kernel.match(f"{operation}/{kernel}") and entry.mutation.match(mutation):
            return entry.why
    return ""
