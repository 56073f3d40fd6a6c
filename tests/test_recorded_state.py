"""What a recorded function finds outside of its arguments: as when it is not recorded."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensai
from tensai.autograd import Parameter, no_grad, recorded
from tensai.optim import SGD, Adam, AdamW, clip_grad_norm_

pytestmark = pytest.mark.usefixtures("still_works")
CALLS = 7


def alike(run: Callable[[Any], list[Any]]) -> None:
    """What run() gives with a recorded function is what it gives with the function itself."""
    for mine, other in zip(run(recorded), run(lambda function: function), strict=True):
        np.testing.assert_allclose(np.array(mine), np.array(other), rtol=1e-6)


def summed(w: Any, x: Any) -> Any:
    old, w.grad = w.grad, None
    (x * w).sum().backward()
    return None if old is None else old + 1


GRADIENTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "an optimizer": lambda x, w, optimizer: optimizer.step(),
    "then none": lambda x, w, optimizer: (optimizer.step(), optimizer.zero_grad())[2:],
    "their norm": lambda x, w, optimizer: clip_grad_norm_([w], 1.0),
    "one itself": lambda x, w, optimizer: x if w.grad is None else w.grad * x,
    "the one before": lambda x, w, optimizer: summed(w, x),
}


@pytest.mark.parametrize("when", ["always", "at first", "later", "at times"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_from_before_the_call(dev: tensai.Device, name: str, when: str) -> None:
    given = {
        "always": range(CALLS),
        "at first": range(3),
        "later": range(3, CALLS),
        "at times": range(0, CALLS, 2),
    }[when]

    def run(wrap: Any) -> list[Any]:
        w = Parameter(dev.ones(2))
        optimizer = Adam([w], lr=0.1)
        step = wrap(lambda x: GRADIENTS[name](x, w, optimizer))
        seen: list[Any] = []
        for number in range(CALLS):
            w.grad = dev.full(2, float(number + 2)) if number in given else None
            if w.grad is None and name == "their norm":
                with pytest.raises(ValueError, match="no parameter has a gradient"):
                    step(dev.ones(2))
                continue
            made = step(dev.full(2, float(number)))
            seen += [w.tolist(), [] if w.grad is None else w.grad.tolist()]
            seen += [made.tolist()] if isinstance(made, tensai.Tensor) else []
        return seen

    alike(run)


def test_gradients_added_up_outside(dev: tensai.Device) -> None:
    def run(wrap: Any) -> list[Any]:
        w, other = Parameter(dev.ones(2)), Parameter(dev.ones(2))
        optimizer = SGD([w, other], lr=0.1, momentum=0.9)

        def update(x: Any) -> None:
            optimizer.step()
            optimizer.zero_grad()

        step, seen = wrap(update), []
        for number in range(CALLS):
            for _ in range(2):
                (w * float(number)).sum().backward()
            step(dev.ones(2))
            seen += [w.tolist(), other.tolist(), optimizer.steps]
        return seen

    alike(run)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda w: SGD(w, lr=0.1),
    "momentum": lambda w: SGD(w, lr=0.1, momentum=0.9),
    "Adam": lambda w: Adam(w, lr=0.1),
    "AdamW": lambda w: AdamW(w, lr=0.1, schedule=lambda step: 0.9**step),
}


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_program_of_an_optimizers_first_step(dev: tensai.Device, name: str, before: int) -> None:
    """What an optimizer remembers begins as zeros once, and not in every replay."""

    def run(replayed: bool) -> list[Any]:
        w, late = Parameter(dev.ones(2)), Parameter(dev.full((2, 1), 3))
        optimizer = OPTIMIZERS[name]([w, late])
        x = dev.upload(np.float32([1, 2]))

        def step(both: bool = True) -> None:
            optimizer.zero_grad()
            loss = (w * 2 - x).square().sum()
            (loss + late.square().sum() if both else loss).backward()
            optimizer.step()

        for _ in range(before):
            step(False)
        if replayed:
            with dev.record() as program:
                step()
        seen = []
        for number in range(CALLS):
            if not replayed:
                step()
            elif number:
                program.replay()
            state = optimizer.state_dict()
            seen += [w.tolist(), late.tolist(), *(state[key].tolist() for key in sorted(state))]
        return seen

    for mine, other in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(np.array(mine), np.array(other), rtol=1e-6)


TAKEN: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda x, w: x * w,
    "data": lambda x, w: x * w.data,
    "detach": lambda x, w: x * w.detach(),
    "reshape": lambda x, w: x * w.reshape(2),
    "reshape of data": lambda x, w: x * w.data.reshape(2),
    "copy": lambda x, w: x * w.detach().copy(),
    "made": lambda x, w: (x + 1, w.detach()),
    "another parameter": lambda x, w: x * Parameter(w.data),
}


@pytest.mark.parametrize("change", ["moved", "freed", "replaced"])
@pytest.mark.parametrize("name", TAKEN)
def test_a_parameter_whose_memory_is_another(
    dev: tensai.Device, cpu: tensai.Device, name: str, change: str
) -> None:
    other = cpu if dev is not cpu else tensai.open("cpu")

    def run(wrap: Any) -> list[Any]:
        w = Parameter(dev.ones(2))
        step = wrap(lambda x: TAKEN[name](x, w))
        seen: list[Any] = []
        for number in range(3 * CALLS):
            if number % CALLS == 4 and change == "moved":
                w.to_(other)
                with no_grad():
                    w.scale_(2.0)
                w.to_(dev)
            if number == 4 and change == "freed":
                w.free()
            if number % CALLS == 4 and change == "replaced":
                w.data = dev.full(2, float(number))
            try:
                made = step(dev.full(2, float(number)))
                seen += [one.tolist() for one in (made if isinstance(made, tuple) else (made,))]
            except tensai.TensorFreedError:
                seen.append(-1)
        return seen

    alike(run)


@pytest.mark.parametrize("way", ["used", "backward", "without gradients", "reshaped"])
def test_variables_from_before_the_call(dev: tensai.Device, way: str) -> None:
    def run(wrap: Any) -> list[Any]:
        w = Parameter(dev.ones(2))
        held: list[Any] = []

        def body(x: Any) -> Any:
            if way == "backward":
                held[-1].backward()
                return x
            if way == "without gradients":
                with no_grad():
                    return x * held[-1]
            loss = ((held[-1].reshape(1) if way == "reshaped" else held[-1]) * x).sum()
            loss.backward()
            return loss

        step, seen = wrap(body), []
        for number in range(CALLS):
            w.grad = None
            held.append((w * float(number)).sum())
            seen.append(np.sum(step(dev.full(1, 2.0)).tolist()))
            seen.append([] if w.grad is None else w.grad.tolist())
        return seen

    alike(run)


class Config:
    scale = 1.0


class Size(enum.Enum):
    SMALL = 2.0


def test_a_learning_rate_or_a_state_that_a_step_sets(dev: tensai.Device, tmp_path: Path) -> None:
    def run(way: str, wrap: Any) -> list[Any]:
        w = Parameter(dev.ones(2))
        optimizer = SGD([w], lr=0.1, momentum=0.9)
        state = optimizer.state_dict()
        file = tmp_path / "saved.safetensors"
        tensai.save(file, {"w": w}, optimizer)

        def body(x: Any, lr: float) -> None:
            if way == "lr":
                optimizer.lr = lr
            elif way == "state":
                optimizer.load_state_dict(state)
            else:
                tensai.load(file, {"w": w}, optimizer if way == "both" else None)
            optimizer.zero_grad()
            (x * w).sum().backward()
            optimizer.step()

        step, seen = wrap(body), []
        for number in range(2 * CALLS):
            step(dev.full(2, float(number)), 0.1 if number % 2 else 0.01)
            seen += [w.tolist(), optimizer.steps, optimizer.state_dict()["0.velocity"].tolist()]
        return seen

    for way in ("lr", "state", "file", "both"):
        alike(functools.partial(run, way))


def test_arguments_that_may_change_unseen(dev: tensai.Device) -> None:
    """An object, alone or in a tuple: the function runs as it is; what stays as it is is a key."""
    config = Config()
    makers: dict[str, tuple[Callable[[Any], Any], bool]] = {
        "object": (lambda given: given.scale, False),
        "in a tuple": (lambda given: given[0].scale, False),
        "function": (lambda given: given(), False),
        "numbers": (lambda given: given[0] + given[1][0], True),
        "enum": (lambda given: given.value, True),
        "dtype": (lambda given: 2.0 if given == np.float32 else 3.0, True),
        "type": (lambda given: 2.0 if given == np.float32 else 3.0, True),
        "scalar": (float, True),
        "text": (len, True),
    }
    values: dict[str, Any] = {
        "object": config,
        "in a tuple": (config, 1),
        "function": lambda: config.scale,
        "numbers": (1, (2.0, None)),
        "enum": Size.SMALL,
        "dtype": np.dtype(np.float32),
        "type": np.float32,
        "scalar": np.float32(3),
        "text": "text",
    }
    for name, (read, replayed) in makers.items():
        calls: list[None] = []

        @recorded
        def step(x: Any, given: Any, read: Any = read, calls: Any = calls) -> Any:
            calls.append(None)
            return x * read(given)

        for number in range(CALLS):
            config.scale = float(number)
            made = float(step(dev.full(1, 2.0), values[name]))
            assert made == 2 * read(values[name]), name
        assert len(calls) == (2 if replayed else CALLS), name
