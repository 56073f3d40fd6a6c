"""A training step that is recorded once and replayed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import host_array
from ..operation import Spec
from ..program import Program
from ..tensor import Tensor

logger = logging.getLogger("tensai")

KEPT = 16  # combinations of shapes


class _Step:
    """A function for one combination of shapes: how often it ran, and its program."""

    def __init__(self) -> None:
        self.runs = 0
        self.program: Program | None = None
        self.inputs: list[Tensor] = []
        self.result: Any = None


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose work on the device is recorded once and replayed from then on.

        @recorded
        def step(x, y):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

    It takes tensors or arrays, at least one tensor on first use, and returns a tensor, a tuple of
    them or None. For each combination of shapes it runs once as it is, once more while it is
    recorded, and is then replayed, with the Python in it no longer run: it costs a dispatch's
    time each instead of an operation's. What it returns is a copy, without a part in gradients.
    Numbers inside are those of the recording. Where something in it happens on the host (a
    download such as float(loss), an upload, a gradient added to one from before the step), it
    goes on running as it is, which one line in the log says.
    """
    steps: dict[Any, _Step] = {}

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        device = next((value.device for value in args if isinstance(value, Tensor)), None)
        if device is None or device.program is not None:
            return function(*args)
        given = [_array(value) for value in args]
        key = (device, *(_key(value) for value in given))
        step = steps.get(key)
        if step is None:
            if len(steps) >= KEPT:
                steps.pop(next(iter(steps)))
            step = steps[key] = _Step()
        if step.runs >= 0:
            step.runs += 1
        if step.program is not None:
            _fill(device, step.inputs, given)
            step.program.replay()
            return _copied(step.result)
        if step.runs != 2:
            return _plain(function(*given))
        step.inputs = [device.upload(value) for value in given if _moving(value)]
        waiting = iter(step.inputs)
        own = [next(waiting) if _moving(value) else value for value in given]
        step.runs = 1  # if it raises, the next call records
        with device.record() as program:
            step.result = _plain(function(*own))
        step.runs = 2
        if program.fixed_by is None:
            step.program = program
            return _copied(step.result)
        logger.info("%s is not replayed: %s", getattr(function, "__name__", "?"), program.fixed_by)
        result, step.result, step.inputs, step.runs = step.result, None, [], -1
        return result

    return run


def _array(value: Any) -> Any:
    return host_array(value) if isinstance(value, np.ndarray) else value


def _moving(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _key(value: Any) -> Any:
    return Spec(tuple(value.shape), value.dtype) if _moving(value) else (type(value), value)


def _fill(device: Any, inputs: Sequence[Tensor], given: Sequence[Any]) -> None:
    for target, value in zip(inputs, filter(_moving, given), strict=True):
        if isinstance(value, Tensor):
            device.assign(target, value)
        else:
            device.overwrite(target.storage, value)


def _plain(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_plain(value) for value in result)
    return result.detach() if isinstance(result, Tensor) else result


def _copied(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_copied(value) for value in result)
    return result.copy() if isinstance(result, Tensor) else result
