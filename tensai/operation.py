"""An operation, described once: its rule, its kernels, its NumPy reference, its probes.

`@operation(...)` decorates the rule, a function over `Spec`s (shape and dtype of each tensor) and
plain attributes, which says what comes out or raises ShapeError or DTypeError. Its name,
signature and docstring become the operation's. Calling the operation with tensors plans it for
their device once per combination of shapes, dtypes and attributes, and runs the plan.
"""

from __future__ import annotations

import functools
import inspect
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from . import kernels as wgsl
from . import rules
from .dtypes import DType, device_bytes
from .errors import DeviceMismatchError, DTypeError
from .tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

MAX_GROUPS = 65_535  # workgroups a dimension, on every device that WebGPU reaches


class Spec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True)
class Result:
    """What a rule answers.

    `outputs`: the new tensors that the kernels and the reference produce. `cast`: the dtype that
    each input is converted to first. `finish`: the dtype that the outputs are converted to last.
    `facts`: what the rule found out on the way and kernels want to know.
    """

    outputs: tuple[Spec, ...]
    cast: tuple[DType, ...]
    finish: DType | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Operand(NamedTuple):
    """A tensor as a kernel's steps see it: which slot it lies in, its shape and dtype."""

    slot: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return Spec(self.shape, self.dtype).size


class Step(NamedTuple):
    """One dispatch: a filled-in source, buffers by slot, workgroups, parameters."""

    label: str
    source: str
    slots: tuple[int, ...]
    groups: tuple[int, int, int]
    params: bytes


def fold(groups: int) -> tuple[int, int, int]:
    """Workgroup counts over two dimensions for a kernel that is written for one.

    The kernel takes `workgroup.y * groups.x + workgroup.x` as its number and leaves when that is
    beyond its work.
    """
    if groups <= MAX_GROUPS:
        return max(groups, 1), 1, 1
    rows = -(-groups // MAX_GROUPS)
    return -(-groups // rows), rows, 1


def fold_early(groups: int) -> tuple[int, int, int]:
    """As `fold` does for many, with some beyond the work: what a self-check tries as well."""
    columns = groups // 3 + 1
    return columns, 3 + (columns == 3), 1  # not a square, which would hide swapped axes


def pack(*values: Any) -> bytes:
    """Parameters as a kernel's struct has them: ints as u32 or i32, floats as f32, in order."""
    flat: list[bytes] = []
    for value in values:
        if isinstance(value, (tuple, list)):
            flat.append(pack(*value))
        elif isinstance(value, float):
            flat.append(struct.pack("<f", value))
        else:
            flat.append(struct.pack("<I", value & 0xFFFF_FFFF))
    return b"".join(flat)


class Job:
    """What a kernel's `plan` function fills with steps for one combination of shapes."""

    def __init__(
        self,
        operation: Operation,
        inputs: Sequence[Spec],
        result: Result,
        arguments: dict[str, Any],
    ) -> None:
        self.operation = operation
        self.inputs = [
            Operand(slot, spec.shape, dtype)
            for slot, (spec, dtype) in enumerate(zip(inputs, result.cast, strict=True))
        ]
        first = len(self.inputs)
        self.outputs = [
            Operand(first + index, spec.shape, spec.dtype)
            for index, spec in enumerate(result.outputs)
        ]
        self.facts = result.facts
        self.arguments = arguments
        self.scratch: list[int] = []  # bytes of each
        self.loops = 0  # iterations that one invocation makes at most, over all its loops
        self.device: Any = None  # whose limits and features a kernel may look at
        self.fold: Callable[[int], tuple[int, int, int]] = fold
        self.steps: list[Step] = []

    def temporary(self, size: int, dtype: DType) -> Operand:
        """Room for an intermediate result of `size` elements."""
        self.scratch.append(device_bytes(size, dtype))
        slot = len(self.inputs) + len(self.outputs) + len(self.scratch) - 1
        return Operand(slot, (size,), dtype)

    def step(
        self,
        kernel: str,
        values: dict[str, Any],
        operands: Sequence[Operand],
        params: bytes,
        groups: int | tuple[int, int, int],
        loops: int = 0,
    ) -> None:
        """Record one dispatch of kernel file `kernel` with template `values`.

        `loops` is how many iterations an invocation makes at most, over all loops whose length
        depends on the shapes: some drivers cut an invocation off after some tens of thousands.
        """
        self.loops = max(self.loops, loops)
        self.steps.append(
            Step(
                f"{self.operation.name}/{kernel}",
                _source(kernel, tuple(sorted(values.items()))),
                tuple(operand.slot for operand in operands),
                self.fold(groups) if isinstance(groups, int) else groups,
                params,
            )
        )


@functools.lru_cache(maxsize=1024)
def _source(kernel: str, values: tuple[tuple[str, Any], ...]) -> str:
    if "\n" in kernel:  # a whole template instead of the name of one
        return wgsl.fill(kernel, dict(values))
    return wgsl.source(kernel, **dict(values))


@dataclass(frozen=True)
class Kernel:
    """One way to compute an operation on a device.

    `plan` fills a Job with steps. `needs` are device features. `fits` may refuse a job that the
    kernel is not written for; `worth` may say that another one is faster, and then this one is
    used only where none of the others is right. Of those worth using, the one of least `cost`
    comes first, an estimate in seconds.
    """

    name: str
    plan: Callable[[Job], None]
    needs: frozenset[str] = frozenset()
    fits: Callable[[Job], bool] = lambda job: True
    worth: Callable[[Job], bool] = lambda job: True
    cost: Callable[[Job], float] = lambda job: 0.0


@dataclass(frozen=True)
class Probe:
    """A known input for an operation, and how near the kernel must come to the reference.

    `tolerance` is relative to the largest finite element of the reference, or with a `floor` to
    each element, where what is smaller than the floor may be lost; 0 means exactly equal. An
    input of None is an optional tensor that is left out.
    """

    inputs: tuple[np.ndarray[Any, Any] | None, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    floor: float | None = None


class Gradient(NamedTuple):
    """How the gradients of some of an operation's tensors follow from that of its result.

    `function` names in its parameters what it wants kept until the backward pass: `grad` (of the
    result), `out` (the result), a tensor or attribute of the rule, or NAME_shape, which keeps no
    elements. It answers in `inputs`' order; what a tensor was broadcast over is summed for it.
    """

    inputs: tuple[str, ...]
    function: Callable[..., Any]
    wants: tuple[str, ...]

    @classmethod
    def table(cls, functions: Mapping[Any, Callable[..., Any]]) -> tuple[Gradient, ...]:
        """From {tensor: function, (tensor, tensor, ...): function}."""
        return tuple(
            cls(
                (names,) if isinstance(names, str) else names,
                function,
                tuple(inspect.signature(function).parameters),
            )
            for names, function in functions.items()
        )


OPERATIONS: dict[str, Operation] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}  # what tensai.ops offers: operations and compositions
watchers: list[Callable[[Operation, Sequence[Tensor], Any], None]] = []  # the last sees every call


class Operation:
    """A registered operation; call it with tensors."""

    def __init__(
        self,
        rule: Callable[..., Result],
        kernels: Sequence[Kernel],
        reference: Callable[..., Any],
        probes: Callable[[], Sequence[Probe]],
        name: str,
        writes: Sequence[str] = (),
        gradients: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> None:
        functools.update_wrapper(self, rule)
        self.name = name or rule.__name__
        self.rule = rule
        self.kernels = tuple(kernels)
        self.reference = reference
        self.probes = functools.cache(lambda: tuple(probes()))
        self.signature = inspect.signature(rule)
        self.tensors = tuple(
            name
            for name, parameter in self.signature.parameters.items()
            if str(parameter.annotation).startswith("Spec")
        )
        self.defaults = {
            name: parameter.default
            for name, parameter in self.signature.parameters.items()
            if parameter.default is not parameter.empty
        }
        self.writes = tuple(writes)
        self.gradients = Gradient.table(gradients or {})
        self.differentiable = frozenset(
            name for gradient in self.gradients for name in gradient.inputs
        )

    def __repr__(self) -> str:
        return f"<operation {self.name}{self.signature}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # So that an operation set on Tensor becomes a method, as a function does.
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs: list[Tensor] = []
        # What a plan depends on: shapes and dtypes in place of tensors, attributes as they are.
        key: list[Any] = [self.name]
        for value in args:
            if type(value) is Tensor:
                inputs.append(value)
                key.append(value.spec)
            elif isinstance(value, Tensor):
                return value.called(self, args, kwargs)
            else:
                key.append(value)
        if kwargs:
            for value in kwargs.values():
                if type(value) is Tensor:
                    return self(*self._bind(args, kwargs).args)
                if isinstance(value, Tensor):
                    return value.called(self, args, kwargs)
            key.extend(kwargs.items())
        if not inputs:
            raise DTypeError(
                f"[{self.name}] expected a tensor first, not {type(args[0]).__name__}"
                if args
                else f"[{self.name}] expected a tensor"
            )
        device = inputs[0].device
        try:
            plan = device.plans.get(tuple(key))
        except TypeError:  # a list or an array among the attributes
            plan = None
        if plan is None:
            plan, inputs = self._plan(device, key, args, kwargs)
        for value in inputs:
            if value.device is not device:
                raise DeviceMismatchError(
                    f"[{self.name}] expected tensors of one device, but got them of two, "
                    f"{device.name} and {value.device.name}; "
                    "move one with device.upload(tensor.download())"
                )
        made = plan.run(inputs)
        for place in plan.written:
            inputs[place].storage.version += 1
        if watchers:
            watchers[-1](self, inputs, made)
        return made

    def _plan(
        self, device: Any, key: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[Tensor]]:
        """The plan for a call that has none under its key yet, and the call's tensors."""
        given = self._bind(args, kwargs).arguments
        like = next(value for value in given.values() if type(value) is Tensor)
        inputs: list[Tensor] = []
        arguments: dict[str, Any] = {}
        as_given = True  # no number or array had to become a tensor, no list a tuple
        for name, value in given.items():
            if name not in self.tensors:
                if type(value) is Tensor:
                    raise DTypeError(f"[{self.name}] {name} is a plain value, not a tensor")
                arguments[name] = _plain(value)
                kind = str(self.signature.parameters[name].annotation)
                if kind == "float" or (kind == "float | None" and value is not None):
                    rules.number(self.name, name, value)
                as_given = as_given and arguments[name] is value
            elif value is None:
                arguments[name] = None
            else:
                tensor = device.operand(value, like)
                as_given = as_given and tensor is value
                inputs.append(tensor)
                arguments[name] = tensor.spec
        plain_key = (self.name, *arguments.items())
        plan = device.plans.get(plain_key)
        if plan is None:
            plan = device.plan(self, arguments)
            device.remember(plain_key, plan)
        if as_given:
            device.remember(tuple(key), plan)
        return plan, inputs

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"[{self.name}] {error}") from None
        bound.apply_defaults()
        return bound

    def job(self, arguments: dict[str, Any]) -> tuple[Result, Job]:
        """Apply the rule to specs and attributes."""
        specs = [arguments[name] for name in self.tensors if arguments[name] is not None]
        result = self.rule(**arguments)
        plain = {name: value for name, value in arguments.items() if name not in self.tensors}
        return result, Job(self, specs, result, plain)

    def written(self, arguments: dict[str, Any]) -> tuple[int, ...]:
        """Which of the call's tensors are written in place, as places among its inputs."""
        given = [name for name in self.tensors if arguments[name] is not None]
        return tuple(given.index(name) for name in self.writes)

    def compute(
        self, arguments: dict[str, Any], result: Result, arrays: Sequence[np.ndarray[Any, Any]]
    ) -> tuple[np.ndarray[Any, Any], ...]:
        """The reference's outputs for host arrays of the dtypes that `result.cast` says.

        What it writes in place follows the new tensors.
        """
        remaining = iter(arrays)
        filled = {
            name: next(remaining) if name in self.tensors and value is not None else value
            for name, value in arguments.items()
        }
        with np.errstate(all="ignore"):
            computed = self.reference(*filled.values())
        outputs = computed if isinstance(computed, tuple) else (computed,)
        replaced = [arrays[place] for place in self.written(arguments)]
        specs = [*result.outputs, *(Spec(array.shape, array.dtype) for array in replaced)]
        return tuple(
            np.ascontiguousarray(np.asarray(output), dtype=spec.dtype).reshape(spec.shape)
            for output, spec in zip(outputs, specs, strict=True)
        )


def _plain(value: Any) -> Any:
    """An attribute in a form that can be part of a plan's key."""
    if isinstance(value, list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    return value


def operation(
    *,
    kernels: Sequence[Kernel],
    reference: Callable[..., Any],
    probes: Callable[[], Sequence[Probe]],
    method: bool = True,
    name: str = "",
    writes: Sequence[str] = (),
    gradients: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[[Callable[..., Result]], Operation]:
    """Register the decorated rule as an operation (see the module's first lines).

    `method=False` keeps it off Tensor, for operations that only others call; `name` replaces the
    rule's own. `writes` names the tensors that it changes in place: kernels find them among
    `job.inputs`, to be bound once, as read_write; the reference returns their new elements after
    its new tensors. Without new tensors the operation returns what it wrote. `gradients` says how
    to differentiate it (see Gradient); without them it ends a tape.
    """

    def register(rule: Callable[..., Result]) -> Operation:
        made = Operation(rule, kernels, reference, probes, name, writes, gradients)
        OPERATIONS[made.name] = made
        FUNCTIONS[made.name] = made
        if method:
            setattr(Tensor, made.name, made)
        return made

    return register


def composition(function: F) -> F:
    """Register a function of tensors that calls operations: in tensai.ops and on Tensor.

    It may take the name of an operation that it is the front of.
    """
    FUNCTIONS[function.__name__] = function
    setattr(Tensor, function.__name__, function)
    return function
