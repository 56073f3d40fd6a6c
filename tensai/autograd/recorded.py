"""A training step that is recorded once and replayed."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import operation
from ..dtypes import host_array
from ..operation import Spec
from ..program import Program
from ..tensor import Tensor

logger = logging.getLogger("tensai")

KEPT = 16  # combinations of shapes


class _Step:
    """A function for one combination of shapes: how often it ran, and its program."""

    def __init__(self) -> None:
        self.runs = 0  # as it is: once before it is recorded; -1: it is never recorded again
        self.program: Program | None = None
        self.inputs: list[Tensor] = []
        self.grads: dict[Any, Tensor | None] = {}  # that it leaves
        self.result: Any = None

    def record(self, function: Callable[..., Any], device: Any, given: Sequence[Any]) -> Any:
        """Run the function for the second time, and keep what it did if that can be repeated."""
        inputs = [device.upload(value) for value in given if _moving(value)]
        waiting = iter(inputs)
        own = [next(waiting) if _moving(value) else value for value in given]
        with device.record() as program:
            result = _plain(function(*own))
        if program.fixed_by is not None:
            name = getattr(function, "__name__", "a step")
            logger.info("%s is not replayed: %s", name, program.fixed_by)
            self.runs = -1
            return result
        self.program, self.inputs, self.result = program, inputs, result
        self.grads = {parameter: parameter.grad for parameter in program.graded}
        return _copied(result)

    def replay(self, given: Sequence[Any]) -> Any:
        """Do again what was recorded."""
        program = self.program
        assert program is not None
        device: Any = program.device
        for target, value in zip(self.inputs, filter(_moving, given), strict=True):
            if isinstance(value, Tensor):
                device.assign(target, value)
            else:
                device.overwrite(target.storage, value)
        program.replay()
        for parameter, grad in self.grads.items():
            parameter.grad = grad
        return _copied(self.result)


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose work on the device is recorded once and replayed from then on.

        @recorded
        def step(x, y):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

    It takes tensors or arrays, at least one tensor, and returns a tensor, or a tuple, list or dict
    of them, or None. For each combination of shapes it runs once as it is, once more while it is
    recorded, and is then replayed, with the Python in it no longer run: it costs a dispatch's time
    each instead of an operation's. What it returns is a copy, without a part in gradients;
    gradients that it leaves in `.grad` are its own memory, which the next call writes again.
    Numbers inside are those of the recording.

    It runs as it is where a replay would not do the same: where something in it happens on the
    host (a download such as float(loss), an upload), where it adds to gradients from before the
    call, where arguments are parameters, named, or cannot be told apart, and under nan_check().
    A parameter that has moved to another device, or an optimizer whose momentum or the like was
    set to another number, has it recorded again.
    """
    steps: dict[Any, _Step] = {}
    lock = threading.RLock()

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        device = next((value.device for value in args if isinstance(value, Tensor)), None)
        plain = all(
            type(value) is Tensor and value.device is device
            for value in args
            if isinstance(value, Tensor)
        )
        if device is None or not plain or kwargs or device.program or operation.watchers:
            return function(*args, **kwargs)
        given = [host_array(value) if isinstance(value, np.ndarray) else value for value in args]
        key = (device, *map(_key, given))
        try:
            hash(key)
        except TypeError:
            return function(*args)
        with lock:
            step = steps.get(key)
            if step is None:
                if len(steps) >= KEPT:
                    steps.pop(next(iter(steps)))
                step = steps[key] = _Step()
            program = step.program
            if program is not None and not program.holds():
                steps[key] = step = _Step()
                program = None
            if program is not None:
                if not any(p.grad is not None for p, none in program.graded.items() if none):
                    return step.replay(given)
            elif step.runs == 1:
                return step.record(function, device, given)
            elif step.runs == 0:
                result = _plain(function(*given))
                step.runs = 1
                return result
            return _plain(function(*given))

    return run


def _moving(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _key(value: Any) -> Any:
    return (
        Spec(tuple(value.shape), value.dtype)
        if _moving(value)
        else (type(value), value, repr(value))
    )


def _each(function: Callable[[Tensor], Any], result: Any) -> Any:
    """A result with something done to each of its tensors."""
    if type(result) in (tuple, list):
        return type(result)(_each(function, value) for value in result)
    if isinstance(result, dict):
        return {key: _each(function, value) for key, value in result.items()}
    return function(result) if isinstance(result, Tensor) else result


def _plain(result: Any) -> Any:
    return _each(lambda tensor: tensor.detach(), result)


def _copied(result: Any) -> Any:
    return _each(lambda tensor: tensor.copy(), result)
