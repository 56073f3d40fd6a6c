"""Optimizers: what changes parameters by their gradients, in place on their device.

    optimizer = AdamW([w1, w2], lr=1e-3)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

What they remember (moments, the number of steps) lies on the device of the parameters and moves
with them; `tensai.save` and `tensai.load` keep it. The learning rate is `lr`, times what `schedule`
says for the number of steps before: `SGD(parameters, lr=0.1, schedule=lambda step: 0.99**step)`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from . import ops
from .autograd import Parameter, no_grad
from .dtypes import f32
from .errors import DeviceMismatchError, DTypeError, ShapeError
from .program import once
from .tensor import Tensor

Schedule = Callable[[int], float]


class Optimizer(ABC):
    """What all optimizers share: parameters, the learning rate, and the state of each parameter."""

    slots: tuple[str, ...] = ()  # tensors of each parameter's shape, zeros at first

    def __init__(
        self, parameters: Iterable[Parameter], lr: float, schedule: Schedule | None = None
    ) -> None:
        self.parameters = list(parameters)
        if not self.parameters:
            raise ValueError("an optimizer needs at least one parameter")
        for parameter in self.parameters:
            if not isinstance(parameter, Parameter):
                raise DTypeError(
                    f"an optimizer takes Parameters, not a {type(parameter).__name__}; make one of "
                    "a tensor with Parameter(tensor)"
                )
            if parameter.dtype != f32:
                raise DTypeError(f"an optimizer takes float32 parameters, not {parameter.dtype}")
        if len({id(parameter.storage) for parameter in self.parameters}) < len(self.parameters):
            raise ValueError("an optimizer was given the same parameter, or memory, twice")
        if schedule is not None and not callable(schedule):
            raise TypeError(f"schedule is a function of the step's number, not {schedule!r}")
        self.lr = lr
        self.schedule = schedule
        self.steps = 0
        self._missed = [0] * len(self.parameters)  # steps in which each had no gradient
        self._state: list[dict[str, Tensor]] = [{} for _ in self.parameters]
        # Of those that have a state and missed steps: the number of their own steps.
        self._counts: dict[int, Tensor] = {}
        # On each device: the learning rate, and the number of the step for all others.
        self._shared: dict[Any, tuple[Tensor, Tensor]] = {}
        self._rate: float | None = None  # that the devices have

    @property
    def lr(self) -> float:
        """The learning rate, before the schedule; may be set between steps."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = _at_least("lr", value, 0.0)
        once("a learning rate was set while it was recorded")

    def _numbers(self) -> tuple[Any, ...]:
        """The plain numbers of an update, which a recorded step takes for granted."""
        return ()

    @abstractmethod
    def _update(
        self,
        parameter: Parameter,
        grad: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> None:
        """Change one parameter and its state."""

    def zero_grad(self) -> None:
        """Set every gradient to None."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        with no_grad():
            grads: list[Any] = [parameter.grad for parameter in self.parameters]
            given = [place for place, grad in enumerate(grads) if grad is not None]
            without = [place for place, grad in enumerate(grads) if grad is None]
            for device in dict.fromkeys(parameter.device for parameter in self.parameters):
                self._on(device)
            for place in given:
                self._own(place)
            self._tick(without)
            recording = next(
                (p.device.program for p in self.parameters if p.device.program is not None), None
            )
            if recording is not None:
                recording.call(lambda: self._tick(without))
                recording.assume((self, *given), lambda: (self._numbers(), self._late(given)))
            for _, step in self._shared.values():
                step.add_(1.0)
            for place in given:
                parameter = self.parameters[place]
                lr, step = self._shared[parameter.device]
                if self._missed[place]:
                    step = self._counts[place].add_(1.0)
                self._update(parameter, grads[place], self._state[place], lr, step)

    def _late(self, places: list[int]) -> list[bool]:
        """Which of these parameters count their own steps."""
        return [self._missed[place] > 0 for place in places]

    def _tick(self, without: list[int]) -> None:
        """What the host does for a step, also for one that is replayed."""
        factor = 1.0
        if self.schedule is not None:
            factor = _at_least("what the schedule gives", self.schedule(self.steps), 0.0)
        rate = self.lr * factor
        if rate != self._rate:
            for device, (lr, _) in self._shared.items():
                device.overwrite(lr.storage, np.array(rate, np.float32))
            self._rate = rate
        self.steps += 1
        for place in without:
            self._missed[place] += 1
            if self._missed[place] == 1 and self._state[place]:
                self._count(place)

    def _count(self, place: int) -> None:
        """Say on the device how many steps a parameter had itself."""
        device, held = self.parameters[place].device, self._counts.get(place)
        count = np.array(self.steps - self._missed[place], np.float32)
        if held is not None and held.device is device:
            device.overwrite(held.storage, count)  # a recorded step works on it
        else:
            self._counts[place] = device.upload(count)

    def _on(self, device: Any) -> None:
        """Have the shared numbers on a device."""
        if device not in self._shared:
            self._shared[device] = (
                device.upload(np.float32(0)),
                device.upload(np.float32(self.steps)),
            )
            self._rate = None

    def _own(self, place: int) -> dict[str, Tensor]:
        """A parameter's state, on the device where the parameter is now, with its count."""
        parameter, state = self.parameters[place], self._state[place]
        for name in self.slots:
            held = state.get(name)
            if held is None:
                state[name] = _zeros(parameter)
            elif held.device is not parameter.device:
                state[name] = parameter.device.upload(held.download())
        held = self._counts.get(place)
        if self._missed[place] and (held is None or held.device is not parameter.device):
            self._count(place)
        return state

    def state_dict(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is remembered, as host arrays: "step", and for each parameter "PLACE.SLOT".

        "PLACE.step" counts the steps in which that parameter had a gradient.
        """
        made: dict[str, np.ndarray[Any, Any]] = {"step": np.array(self.steps, np.int64)}
        for place, state in enumerate(self._state):
            for name, tensor in state.items():
                made[f"{place}.{name}"] = tensor.download()
            if state:
                made[f"{place}.step"] = np.array(self.steps - self._missed[place], np.int64)
        return made

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what state_dict() gave. Raises ValueError where it does not fit, unchanged."""
        given = {str(name): np.asarray(value) for name, value in dict(state).items()}
        if "step" not in given:
            raise ValueError("an optimizer's state has a step; this is not one")
        steps = _count("step", given.pop("step"))
        places = range(len(self.parameters))
        known = {f"{place}.{name}" for place in places for name in (*self.slots, "step")}
        if set(given) - known:
            raise ValueError(
                f"{type(self).__name__} of {len(self.parameters)} parameters has no place for "
                f"{', '.join(sorted(set(given) - known)[:5])}; is it another optimizer's state?"
            )
        missed = [steps] * len(self.parameters)
        for place, parameter in enumerate(self.parameters):
            names = [name for name in (*self.slots, "step") if f"{place}.{name}" in given]
            if not names:
                continue
            if len(names) <= len(self.slots):
                raise ValueError(f"the state of parameter {place} is incomplete")
            missed[place] = steps - _count(f"{place}.step", given[f"{place}.step"])
            for name in self.slots:
                array = given[f"{place}.{name}"]
                if array.shape != parameter.shape or array.dtype != parameter.dtype:
                    raise ShapeError(
                        f"the state {place}.{name} is {array.dtype} {array.shape}, but its "
                        f"parameter is {parameter.dtype} {parameter.shape}"
                    )
        if any(count < 0 for count in missed):
            raise ValueError("a parameter's steps are more than the optimizer's")
        once("an optimizer's state was loaded while it was recorded")
        # Into the memory that is there: a recorded step works on it.
        for place, parameter in enumerate(self.parameters):
            if not self._state[place] and f"{place}.step" not in given:
                continue
            for name, held in self._own(place).items():
                array = given.get(f"{place}.{name}", np.zeros(parameter.shape, np.float32))
                held.device.overwrite(held.storage, np.ascontiguousarray(array))
        for device, (_, step) in self._shared.items():
            device.overwrite(step.storage, np.array(steps, np.float32))
        self.steps, self._missed = steps, missed
        for place in places:
            if self._state[place] and missed[place]:
                self._count(place)


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum, as torch.optim.SGD.

    velocity = momentum velocity + grad + weight_decay x; x -= lr velocity, or with nesterov
    x -= lr (grad + weight_decay x + momentum velocity).
    """

    slots = ("velocity",)

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(parameters, lr, schedule)
        self.momentum = _at_least("momentum", momentum, 0.0)
        self.weight_decay = _at_least("weight_decay", weight_decay, 0.0)
        self.nesterov = bool(nesterov)
        if nesterov and not momentum:
            raise ValueError("nesterov needs a momentum above 0")

    def _numbers(self) -> tuple[Any, ...]:
        return self.momentum, self.weight_decay, self.nesterov

    def _update(
        self,
        parameter: Parameter,
        grad: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> None:
        ops.sgd_update_(parameter, grad, state["velocity"], lr, *self._numbers())


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014) as torch.optim.Adam: weight_decay is added to the gradient."""

    slots = ("m", "v")
    decoupled = False

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(parameters, lr, schedule)
        try:
            beta1, beta2 = betas
        except (TypeError, ValueError):
            raise ValueError(f"betas are two numbers, but got {betas!r}") from None
        self.betas = (_number("betas", beta1), _number("betas", beta2))
        if any(not 0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas lie from 0 to below 1, but got {betas}")
        self.eps = _at_least("eps", eps, 0.0)
        self.weight_decay = _at_least("weight_decay", weight_decay, 0.0)

    def _numbers(self) -> tuple[Any, ...]:
        return *self.betas, self.eps, self.weight_decay, self.decoupled

    def _update(
        self,
        parameter: Parameter,
        grad: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> None:
        beta1, beta2, eps, *decay = self._numbers()
        ops.adam_step_(parameter, grad, state["m"], state["v"], lr, beta1, beta2, eps, step, *decay)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017), as torch.optim.AdamW."""

    decoupled = True

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay, schedule)


def clip_grad_norm_(parameters: Iterable[Parameter] | Parameter, max_norm: float) -> Tensor:
    """Scale gradients so that their norm, over all of them, is at most max_norm; returns the norm.

    As torch.nn.utils.clip_grad_norm_, in place and without a download. The parameters lie on one
    device. With a max_norm of infinity it only says the norm.
    """
    limit = _number("max_norm", max_norm)
    if not limit >= 0:
        raise ValueError(f"expected max_norm from 0 up, but got {max_norm!r}")
    given: Any = [parameters] if isinstance(parameters, Parameter) else list(parameters)
    for parameter in given:
        if not isinstance(parameter, Parameter):
            raise DTypeError(f"clip_grad_norm_ takes Parameters, not a {type(parameter).__name__}")
    grads = [parameter.grad for parameter in given if parameter.grad is not None]
    if not grads:
        raise ValueError("no parameter has a gradient; call backward() first")
    if any(grad.device is not grads[0].device for grad in grads):
        raise DeviceMismatchError("clip_grad_norm_ takes the parameters of one device at a time")
    total = grads[0].device.constant(0.0, f32)
    for grad in grads:
        total = total + grad.astype(f32).square().sum()
    norm: Tensor = total.sqrt()
    if limit < math.inf:
        factor = (limit / (norm + 1e-6)).minimum(1.0)
        for grad in grads:
            grad.scale_(factor)
    return norm


def _zeros(parameter: Parameter) -> Tensor:
    device = parameter.device
    if device.program is None:
        return device.zeros(parameter.shape)
    return device.upload(np.zeros(parameter.shape, np.float32))  # once, not in every replay


def _number(name: str, value: float) -> float:
    try:  # what float() takes, a tensor of one element too, but for what is no number
        if not isinstance(value, (bool, np.bool_, str, bytes)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"expected a number for {name}, but got {value!r}")


def _at_least(name: str, value: float, least: float) -> float:
    number = _number(name, value)
    if not least <= number < math.inf:
        raise ValueError(f"expected {name} from {least:g} up, but got {value!r}")
    return number


def _count(name: str, value: np.ndarray[Any, Any]) -> int:
    """A number of steps from a state: from 0 to 2^24, up to which float32 counts."""
    if value.size != 1 or value.dtype.kind not in "iu" or not 0 <= value.item() <= 1 << 24:
        raise ValueError(f"expected {name} as a whole number from 0 to 2^24, but got {value}")
    return int(value.item())
