"""What a recorded function is given, changes and returns: as when it is not recorded."""

from __future__ import annotations

import collections
import dataclasses
import enum
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from small_runs import Run, batches, same

import tensai
from tensai.autograd import (
    Parameter,
    cross_entropy,
    is_grad_enabled,
    no_grad,
    recorded,
)
from tensai.optim import SGD

pytestmark = pytest.mark.usefixtures("still_works")
CALLS = 5


class Named(NamedTuple):
    loss: Any
    more: Any


@dataclasses.dataclass
class Held:
    loss: Any


class Kind(enum.Enum):
    TRAINING = 1


def test_training_and_evaluation_are_recorded_apart(dev: tensai.Device) -> None:
    for first in (False, True):
        w = Parameter(dev.ones(3))
        optimizer = SGD([w], lr=0.1)

        @recorded
        def run(x: Any, w: Any = w, optimizer: Any = optimizer) -> Any:
            loss = (x * w).sum()
            if is_grad_enabled():
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return loss

        expected = 1.0
        for training in (first, not first, first, not first):
            for _ in range(3):
                if training:
                    run(dev.ones(3))
                    expected -= 0.1
                else:
                    with no_grad():
                        assert float(run(dev.ones(3))) == pytest.approx(3 * expected, rel=1e-5)
                assert w.tolist() == pytest.approx([expected] * 3, rel=1e-5)


RESULTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], bool]] = {
    "a named tuple": (lambda y: Named(y, [y]), lambda made: made.more[0], True),
    "one in a list": (lambda y: [Named(y, {"a": y})], lambda made: made[0].more["a"], True),
    "None beside it": (lambda y: (None, y), lambda made: made[1], True),
    "a dataclass": (Held, lambda made: made.loss, False),
    "one in a tuple": (lambda y: (y, Held(y)), lambda made: made[1].loss, False),
    "an ordered dict": (lambda y: collections.OrderedDict(a=y), lambda made: made["a"], False),
    "a generator": (lambda y: (one for one in (y,)), next, False),
    "a function": (lambda y: lambda: y, lambda made: made(), False),
    "a number": (lambda y: (y, 3), lambda made: made[0], False),
    "an enum": (lambda y: {"kind": Kind.TRAINING, "y": y}, lambda made: made["y"], False),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(dev: tensai.Device, name: str) -> None:
    """What cannot be followed into a result has the function run as it is."""
    make, tensor, replayed = RESULTS[name]
    calls: list[Any] = []

    @recorded
    def step(x: Any) -> Any:
        calls.append(None)
        return make(x * 2)

    made = [step(dev.full(1, number)) for number in range(CALLS)]
    assert {type(one) for one in made} == {type(make(dev.zeros(1)))}
    assert [float(tensor(one)) for one in made] == [0, 2, 4, 6, 8]
    assert len(calls) == (2 if replayed else CALLS)


def test_results_are_copies_in_every_call(dev: tensai.Device) -> None:
    w = Parameter(dev.zeros(2))

    @recorded
    def step(x: Any) -> Any:
        with no_grad():
            w.add_(x)
        return w, x

    x = dev.ones(2)
    made = [step(x) for _ in range(CALLS)]
    w.data.scale_(100)
    assert [one.tolist()[0] for one, _ in made] == [1, 2, 3, 4, 5]
    assert {type(one) for pair in made for one in pair} == {tensai.Tensor}
    made[-1][1].scale_(3)
    assert x.tolist() == [1, 1]


def test_functions_that_begin_later_are_refused() -> None:
    def generator(x: Any) -> Any:
        yield x

    async def coroutine(x: Any) -> Any:
        return x

    async def both(x: Any) -> Any:
        yield x

    for function in (generator, coroutine, both):
        with pytest.raises(TypeError, match="decorate the functions that it calls"):
            recorded(function)


@pytest.mark.parametrize("way", ["always", "at times", "freed", "seen otherwise", "twice", "kept"])
def test_arguments_that_change_in_place(dev: tensai.Device, way: str) -> None:
    def run(wrap: Any) -> Any:
        calls = [0]
        kept = dev.zeros((2, 2))

        def step(x: Any, y: Any) -> Any:
            calls[0] += 1
            before = x.sum()
            if way in ("always", "twice") or (way == "at times" and calls[0] > 1):
                x.add_(1)
            elif way == "freed" and calls[0] > 1:
                return before, x.free()
            elif way == "seen otherwise":
                x.reshape(4).scale_(2)
            elif way == "kept":
                kept.add_(1)
            return before, x.sum() + y.sum()

        step = wrap(step)
        seen = []
        for number in range(CALLS):
            x = kept if way == "kept" and number > 2 else dev.full((2, 2), number)
            y = x if way == "twice" else dev.ones((2, 2))
            made = [None if one is None else float(one) for one in step(x, y)]
            seen.append((made, None if "freed" in repr(x) else x.tolist()))
        return seen

    assert run(recorded) == run(lambda step: step)


ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "take": lambda x, i: x.take(i, 0),
    "of the second axis": lambda x, i: x.take(i.reshape(1, 2), 1),
    "embed": lambda x, i: x.device.embed(x, i),
    "embed_grad": lambda x, i: x.device.embed_grad(i, x[:2], 3),
    "cross_entropy": lambda x, i: cross_entropy(x[:2], i),
    "in a backward pass": lambda x, i: (
        loss := cross_entropy((p := Parameter(x))[:2] * 2, i),
        loss.backward(),
        p.grad,
        setattr(p, "grad", None),
    )[:3:2],
    "in another recorded": recorded(lambda x, i: x.take(i, 0)),
}
GIVEN = [[0, 1], [2, 1], [1, 1], [2, 0], [0, 3], [1, -1], [-3, 2], [-4, 0], [0, 1]]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8])
def test_arrays_of_indices_are_checked_in_every_call(
    dev: tensai.Device, name: str, dtype: Any
) -> None:
    """As those that are given to the operations themselves; and without an error in between."""
    x = dev.upload(np.arange(9.0).reshape(3, 3))
    calls: list[Any] = []

    @recorded
    def step(x: Any, i: Any) -> Any:
        calls.append(type(i))
        return ARRAYS[name](x, i)

    good = 0
    for given in GIVEN:
        indices = np.array(given).astype(dtype)  # -1 is 255
        try:
            expected = ARRAYS[name](x, indices)
        except IndexError as error:
            with pytest.raises(IndexError) as raised:
                step(x, indices)
            assert str(raised.value) == str(error)
        else:
            good += 1
            got = step(x, indices)
            for one, other in zip(listed(got), listed(expected), strict=True):
                np.testing.assert_allclose(one.download(), other.download(), rtol=1e-5)
    assert good >= 5
    assert calls == [tensai.Tensor] * 2


def listed(result: Any) -> Any:
    return result if isinstance(result, tuple) else (result,)


def test_a_long_axis_and_small_integers(dev: tensai.Device) -> None:
    x = dev.upload(np.arange(300.0))
    assert x.take(np.array([-1, 5], np.int8)).tolist() == [299, 5]
    assert x.take(np.array([255], np.uint8)).tolist() == [255]


def test_an_array_is_a_tensor_in_every_call(dev: tensai.Device) -> None:
    """By place or by name; a branch on its elements is taken as they are."""
    w = dev.ones(2)

    @recorded
    def step(x: Any, y: Any, scale: Any = None) -> Any:
        assert type(y) is tensai.Tensor
        assert scale is None or type(scale) is tensai.Tensor
        return x * y if bool(y[0] > 2) else x - y

    for number in range(6):
        value = np.full(2, number, np.float64)
        expected = [number if number > 2 else 1 - number] * 2
        assert step(w, value).tolist() == expected
        assert step(w, y=value, scale=value).tolist() == expected
        assert step(Parameter(w), value).tolist() == expected


def test_recorded_functions_in_others(dev: tensai.Device) -> None:
    for before in (0, 1):
        for training in (False, True):
            plain, kept = Run(dev), Run(dev)
            inner = recorded(kept.step if training else (lambda x, y: x * 2))

            @recorded
            def outer(x: Any, labels: Any, inner: Any = inner, before: Any = before) -> Any:
                return inner(x + 0 if before else x, labels).sum() * 3

            for x, labels in batches(dev, CALLS):
                made = float(outer(x, labels))
                loss = float(plain.step(x, labels)) if training else float((x * 2).sum())
                assert made == pytest.approx(3 * loss, rel=1e-6)
            if training:
                same(plain, kept)
    step = recorded(lambda x: x * 2)
    x = dev.ones(2)
    step(x)
    with dev.record() as program:
        y = step(x)
    x.add_(1)
    program.replay()
    assert y.tolist() == [4, 4]


@pytest.mark.parametrize("way", ["in place", "computed", "downloaded", "uploaded", "recorded"])
def test_work_on_another_device_counts_as_the_hosts(
    dev: tensai.Device, cpu: tensai.Device, way: str
) -> None:
    with tensai.open("cpu") as other:
        total, shown = other.zeros(1), []
        program = None
        if way == "recorded":
            with other.record() as program:
                total.add_(1)

        @recorded
        def step(x: Any) -> Any:
            shown.append(None)
            if way == "uploaded":
                other.upload(1.0)
            elif program is not None:
                program.replay()
            elif way == "in place":
                total.add_(1.0)
            elif way == "computed":
                x = x + 0.0
                total * 2
            else:
                return x * total.item()
            return x.sum()

        for _ in range(CALLS):
            step(dev.ones(3))
        assert len(shown) == CALLS
        assert total.tolist() == [{"in place": CALLS, "recorded": CALLS + 1}.get(way, 0)]


def test_work_of_other_threads_on_their_devices_does_not_count(dev: tensai.Device) -> None:
    calls, stop = [], threading.Event()

    @recorded
    def step(x: Any) -> Any:
        calls.append(None)
        worked.clear()
        assert worked.wait(20)
        return x * 2

    worked = threading.Event()
    with tensai.open("cpu") as other:

        def work() -> None:
            while not stop.is_set():
                _ = other.ones(1) + 1
                worked.set()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for number in range(CALLS):
                assert float(step(dev.full(1, number))) == 2 * number
        finally:
            stop.set()
            thread.join()
    assert len(calls) == 2


def test_gradients_and_results_that_are_freed(dev: tensai.Device) -> None:
    w = Parameter(dev.upload(np.float32([1, 2])))
    calls: list[Any] = []

    @recorded
    def step(x: Any) -> Any:
        calls.append(None)
        w.grad = None
        loss = (x * w * w).sum()
        loss.backward()
        return loss

    for number in range(6):
        loss = step(dev.full(2, number))
        assert float(loss) == 5 * number
        assert w.grad is not None
        assert w.grad.tolist() == [2 * number, 4 * number]
        w.grad.free()
        loss.free()
        if number % 2:
            w.grad = None
    assert len(calls) == 2
