"""A training step that is recorded once and replayed."""

from __future__ import annotations

import enum
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import operation
from ..dtypes import host_array
from ..operation import Spec
from ..program import Program
from ..tensor import Tensor
from .tape import mode, tape_number

logger = logging.getLogger("tensai")

KEPT = 16  # combinations of shapes
PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)
KINDS = (enum.Enum, np.dtype, np.number, np.bool_)


class _Step:
    """A function for one combination of shapes: how often it ran, and its program."""

    def __init__(self, function: Callable[..., Any], device: Any) -> None:
        self.function = function
        self.device = device
        self.runs = 0  # as it is: once before it is recorded; -1: it is never recorded
        self.program: Program | None = None
        self.inputs: list[Tensor] = []
        self.checks: list[tuple[int, Callable[[Any], Any]]] = []  # of the array for an input
        self.grads: dict[Any, Tensor | None] = {}  # that it leaves
        self.result: Any = None

    def run(self, given: Sequence[Any]) -> Any:
        """Run the function for the first time, to be recorded the next."""
        before = [_state(value) for value in given]
        result = _as_it_is(self.function, self.device, given, {})
        self.runs = 1
        if before != [_state(value) for value in given]:
            self._never("it changed an argument in place")
        return result

    def record(self, given: Sequence[Any]) -> Any:
        """Run the function for the second time, and keep what it did if that can be repeated."""
        device = self.device
        with _uploaded(device, given, Tensor, np.ndarray) as own:
            before = [_state(value) for value in own]
            with device.record() as program:
                program.began = tape_number()
                result = _each(lambda leaf: leaf.detach(), self.function(*own))
        for value, copy, state in zip(given, own, before, strict=True):
            if isinstance(value, Tensor) and _state(copy) != state:
                program.fixed("it changed an argument in place")
                if copy._storage is None:
                    value.free()
                else:
                    device.assign(value, copy)
        for other in _others(result):
            program.fixed(f"it returned a {type(other).__name__}")
        if program.fixed_by is not None:
            self._never(program.fixed_by)
            return _copied(result)
        self.program, self.result = program, result
        self.inputs = [copy for copy in own if isinstance(copy, Tensor)]
        self.checks = [
            (place, check)
            for place, tensor in enumerate(self.inputs)
            for storage, check in program.checks
            if storage is tensor._storage
        ]
        # Tensors of its own, which nobody else frees.
        self.grads = {parameter: _another(parameter.grad) for parameter in program.graded}
        return _copied(result)

    def replays(self, given: Sequence[Any]) -> bool:
        """Whether a replay would do now what the function does."""
        program = self.program
        return (
            program is not None
            and not any(p.grad is not None for p, none in program.graded.items() if none)
            and not any(p.grad is not None for p in program.ungraded)
            and not any(isinstance(v, Tensor) and program.writes(v.storage) for v in given)
        )

    def replay(self, given: Sequence[Any]) -> Any:
        """Do again what was recorded."""
        assert self.program is not None
        values = [value for value in given if _moving(value)]
        for place, check in self.checks:
            if isinstance(values[place], np.ndarray):
                check(values[place])
        for target, value in zip(self.inputs, values, strict=True):
            if isinstance(value, Tensor):
                self.device.assign(target, value)
            else:
                self.device.overwrite(target.storage, value)
        self.program.replay()
        for parameter, grad in self.grads.items():
            parameter.grad = _another(grad)
        return _copied(self.result)

    def _never(self, why: str) -> None:
        logger.info("%s is not replayed: %s", getattr(self.function, "__name__", "a step"), why)
        self.runs = -1


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

    An array becomes a tensor, on the device of the first tensor, before the function sees it.
    Where it is taken for indices or labels it is checked in every call as arrays are: IndexError
    out of range, and take() counts negative ones from the end.

    It runs as it is where a replay would not do the same: where something in it happens on the
    host (a download such as float(loss), an upload) or on another device, where it adds to or reads
    gradients from before the call, changes an argument in place or is given what it changes, or
    returns anything else, where arguments are parameters, named, or cannot be told apart (only
    None, numbers, text, enums, dtypes and tuples of them can, besides tensors and arrays), where a
    learning rate is set or a state is loaded in it, or variables from before are used, inside
    another recording and under nan_check(). It is recorded again when a parameter has moved to
    another device, or a number of an optimizer other than its learning rate was set; and apart
    inside no_grad().

    Raises TypeError for a generator or coroutine function: its work begins after the call.
    """
    later = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(kind(function) for kind in later):
        raise TypeError(
            f"{function.__name__} is a generator or coroutine function: its work begins after the "
            "call, and is not recorded; decorate the functions that it calls"
        )
    steps: dict[Any, _Step] = {}
    lock = threading.RLock()

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not tensors:
            return _copied(function(*args, **kwargs))
        device = tensors[0].device
        plain = all(
            type(value) is Tensor and value.device is device and value.storage.known is None
            for value in tensors
        )
        if not plain or kwargs or device.program is not None or operation.watchers:
            return _as_it_is(function, device, args, kwargs)
        given = [host_array(value) if isinstance(value, np.ndarray) else value for value in args]
        key = (device, mode.enabled, *map(_key, given))
        if None in key:
            return _as_it_is(function, device, args, kwargs)
        with lock:
            step = steps.get(key)
            if step is None and len(steps) >= KEPT:
                steps.pop(next(iter(steps)))
            if step is None or (step.program is not None and not step.program.holds()):
                step = steps[key] = _Step(function, device)
            if step.replays(given):
                return step.replay(given)
            if step.runs == 0:
                return step.run(given)
            if step.runs == 1 and step.program is None:
                return step.record(given)
            return _as_it_is(function, device, args, kwargs)

    return run


def _as_it_is(
    function: Callable[..., Any], device: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    with _uploaded(device, [*args, *kwargs.values()], np.ndarray) as own:
        named = dict(zip(kwargs, own[len(args) :], strict=True))
        return _copied(function(*own[: len(args)], **named))


@contextmanager
def _uploaded(device: Any, values: Sequence[Any], *kinds: type) -> Iterator[list[Any]]:
    """The values, those of some kinds as new tensors; what was an array is known in the block."""
    own = [device.upload(value) if isinstance(value, kinds) else value for value in values]
    arrays = [
        (tensor.storage, value)
        for tensor, value in zip(own, values, strict=True)
        if isinstance(value, np.ndarray)
    ]
    for storage, value in arrays:
        storage.known = value
    try:
        yield own
    finally:
        for storage, _ in arrays:
            storage.known = None


def _moving(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _key(value: Any) -> Any:
    """What tells arguments apart; None of what may change unseen."""
    if _moving(value):
        return (isinstance(value, Tensor), Spec(tuple(value.shape), value.dtype))
    return (type(value), value, repr(value)) if _plain(value) else None


def _plain(value: Any) -> bool:
    """Whether an argument stays what it is."""
    if isinstance(value, tuple):
        return all(_plain(one) for one in value)
    if isinstance(value, type):
        return value in PLAIN or issubclass(value, np.generic)
    return type(value) in PLAIN or isinstance(value, KINDS)


def _state(value: Any) -> Any:
    """What changes when an argument is changed in place or freed."""
    storage = value._storage if isinstance(value, Tensor) else None
    return None if storage is None else (id(storage), storage.version)


def _another(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else Tensor(tensor.device, tensor._storage, tensor.spec)


def _each(function: Callable[[Tensor], Any], result: Any) -> Any:
    """A result with something done to each of its tensors."""
    if isinstance(result, Tensor):
        return function(result)
    made: Any = result
    if type(result) is dict:
        made = {key: _each(function, value) for key, value in result.items()}
    elif _row(result):
        made = [_each(function, value) for value in result]
        if type(result) is not list:
            made = tuple(made) if type(result) is tuple else type(result)._make(made)
    return made


def _others(result: Any) -> list[Any]:
    """What a result holds that is no tensor."""
    if _row(result) or type(result) is dict:
        parts = result.values() if type(result) is dict else result
        return [other for part in parts for other in _others(part)]
    return [] if result is None or isinstance(result, Tensor) else [result]


def _row(result: Any) -> bool:
    named = isinstance(result, tuple) and hasattr(result, "_make")
    return type(result) in (tuple, list) or named


def _copied(result: Any) -> Any:
    return _each(lambda tensor: tensor.detach().copy(), result)
