"""Steps that a signal must not come between.

Python runs a signal's handler between any two instructions of the main thread, and Ctrl-C's raises.
Half of some steps leaves the library in a state that it answers with an abort or a wait without
end: a buffer that is being mapped, a pass that is open and not known. Inside `uninterrupted()` the
handlers wait.
"""

from __future__ import annotations

import signal
import threading

# The functions themselves: signal's own convert to enumerations and back, ten times the cost.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from types import FrameType, TracebackType
from typing import Any

# Those whose handlers programs let raise: Ctrl-C, requests to end, timeouts.
SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)
]
_main = threading.main_thread().ident


_held = False


class uninterrupted:
    """`with uninterrupted(): ...` holds back Python's signal handlers until its end."""

    __slots__ = ("_came", "_handlers")

    def __enter__(self) -> None:
        global _held
        self._handlers: list[tuple[int, Any]] = []
        if _held or threading.get_ident() != _main:
            return  # handlers run in the main thread only
        self._came: list[tuple[int, FrameType | None]] = []
        try:
            for number in SIGNALS:
                handler = getsignal(number)
                if callable(handler):
                    self._handlers.append((number, handler))
                    set_handler(number, self._wait)
            _held = True
        except BaseException:
            self._restore()
            raise

    def _wait(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _held
        if not self._handlers:
            return
        _held = False
        try:
            self._restore()
        except BaseException:  # the handler of one that is back already
            self._restore()
            raise
        handlers = dict(self._handlers)
        for number, frame in self._came:
            handlers[number](number, frame)

    def _restore(self) -> None:
        for number, handler in self._handlers:
            set_handler(number, handler)
