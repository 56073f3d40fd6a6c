"""How far long work is, on standard error."""

from __future__ import annotations

import sys
import time

EVERY = 10.0  # seconds between lines where standard error is no terminal


class Progress:
    """A count that moves: a line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self, what: str, total: int, wanted: bool) -> None:
        self.what = what
        self.total = total
        self.active = wanted and total > 0 and sys.stderr is not None
        self.terminal = self.active and sys.stderr.isatty()
        self._said = time.monotonic()

    def show(self, done: int) -> None:
        """Say that `done` of the total are done."""
        if self.terminal:
            print(f"\r{self.what}: {done:,} of {self.total:,}", end="", file=sys.stderr, flush=True)
        elif self.active and time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            print(f"{self.what}: {done:,} of {self.total:,}", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.terminal:
            print(file=sys.stderr)
