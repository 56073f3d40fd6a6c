"""Tensors that remember where they came from, and the parameters that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DeviceMismatchError, DTypeError, GradientError, ShapeError
from ..operation import Gradient, Operation, Spec
from ..program import recorded_here, recording
from ..tensor import Tensor
from .tape import Node, Saved, mode, no_grad, walk_back

VIEW = Gradient.table({"x": lambda grad, x_shape: grad.reshape(x_shape)})


class Variable(Tensor):
    """A tensor computed from parameters, with a part in their gradients.

    `data` is the tensor itself, without that part.
    """

    __slots__ = ("_data", "node", "place")

    def __init__(self, data: Tensor, node: Node | None, place: int = 0) -> None:
        super().__init__(data.device, data.storage, data.spec)
        self._data = data
        self.node = node
        self.place = place

    @property
    def data(self) -> Tensor:
        """The tensor itself, without the part in gradients."""
        if recording:
            self._seen()
        return self._data

    @data.setter
    def data(self, value: Tensor) -> None:
        self._data = value

    @property
    def storage(self) -> Any:
        """Where the elements lie; TensorFreedError after free()."""
        if recording:
            self._seen()
        return super().storage

    def _seen(self) -> None:
        """Note what the programs that are being recorded take for granted of this."""
        for program in recorded_here():
            if self.node is None:
                program.assume(self, lambda: (self._storage, self._data._storage))
            elif self.node.number < program.began:
                program.fixed("it uses a variable from before the call")

    def __repr__(self) -> str:
        made = "" if self.node is None else f", from {self.node.name}"
        return f"<variable {self.shape} {self.dtype} on {self.device.name}{made}>"

    def called(self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation that this is an argument of, and record it."""
        return _call(operation, args, kwargs)

    def seen_as(self, spec: Spec) -> Tensor:
        made = self.data.seen_as(spec)
        if not mode.enabled:
            return made
        viewed: Tensor = _record("reshape", VIEW, {"x": self}, made)
        return viewed

    def detach(self) -> Tensor:
        """The same elements, without a part in any gradient; shares memory."""
        return self.data

    def free(self) -> None:
        """Give the memory back, once no backward pass needs it any more."""
        super().free()
        self.data = Tensor(self.device, None, self.spec)

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add to each parameter's `.grad` the derivative of this by it.

        For a tensor of one element; another needs the `gradient` (of its shape) of what it went
        into. What was kept for it is freed on the way, unless retain_graph. Raises ShapeError,
        and GradientError when the graph was freed already, or a tensor that it needs was changed
        in place since.
        """
        self._seen()
        with no_grad():
            if gradient is None:
                if self.size != 1:
                    raise ShapeError(
                        f"[backward] expected a tensor of one element, but this has shape "
                        f"{self.shape}; take its sum() or mean(), or say its gradient"
                    )
                seed = self.device.constant(1.0, self.dtype).reshape(self.shape)
            else:
                seed = self.device.operand(gradient, self.data).detach()
                if seed.shape != self.shape:
                    raise ShapeError(
                        f"[backward] expected a gradient of shape {self.shape}, not {seed.shape}"
                    )
            taken = {id(seed.storage)}

            def deposit(parameter: Any, grad: Tensor) -> None:
                # Two parameters may be given the same tensor, and each may change its own.
                own = grad.copy() if id(grad.storage) in taken else grad
                taken.add(id(own.storage))
                parameter.add_grad(own)

            if self.node is None:
                deposit(self, seed)
            else:
                walk_back(self.node, self.place, seed, retain_graph, deposit)


class Parameter(Variable):
    """A tensor to be learned. float32 or float16.

    Shares the memory of the tensor that it is made of. `.grad` is None, or a tensor of its shape
    that backward() adds to. It changes in place inside no_grad(), which optimizers do for you.
    """

    __slots__ = ("_grad", "_grad_program")

    def __init__(self, data: Tensor) -> None:
        if not isinstance(data, Tensor):
            raise DTypeError(
                f"a Parameter is made of a tensor (device.upload(array)), not of a "
                f"{type(data).__name__}"
            )
        if data.dtype.kind != "f":
            raise DTypeError(f"a Parameter is made of float32 or float16, not of {data.dtype}")
        super().__init__(data.detach(), None)
        self._grad: Tensor | None = None
        self._grad_program: Any = None

    def __repr__(self) -> str:
        return f"<parameter {self.shape} {self.dtype} on {self.device.name}>"

    def __copy__(self) -> Parameter:
        return Parameter(self.data.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return self.__copy__()

    @property
    def grad(self) -> Tensor | None:
        """What backward() has added up."""
        if recording:
            for program in recorded_here():
                if program.device is not self.device:
                    program.fixed("it uses a gradient on another device")
                elif self in program.graded:
                    continue  # its own
                elif self._grad is None:
                    program.ungraded.add(self)
                else:
                    program.fixed("it uses a gradient from before the call")
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise DTypeError(f"a gradient is a tensor or None, not a {type(value).__name__}")
            if value.shape != self.shape:
                raise ShapeError(f"a gradient has its parameter's shape {self.shape}")
            if value.dtype != self.dtype:
                raise DTypeError(f"a gradient has its parameter's dtype {self.dtype}")
            if value.device is not self.device:
                raise DeviceMismatchError(
                    f"a gradient lies on its parameter's device, which is {self.device.name} now, "
                    f"not on {value.device.name}"
                )
            value = value.detach()
        program = self.device.program
        if program is not None:
            program.graded.setdefault(self, False)
        self._grad = value
        self._grad_program = program

    def add_grad(self, grad: Tensor) -> None:
        """Add to what is there."""
        with self.device.lock:  # other threads may walk back to it as well
            program, before = self.device.program, self._grad
            if program is not None and before is None:
                program.graded.setdefault(self, True)
            elif program is not None and program is not self._grad_program:
                program.fixed("it added to a gradient from before; set it to None inside the step")
            self.grad = grad if before is None else before + grad

    def to_(self, device: Any) -> Parameter:
        """Move to another device, with the gradient; returns self."""
        if device is not self.device:
            if self._storage is None:
                raise GradientError("a freed parameter cannot move")
            grad = self._grad
            self.data = device.upload(self.data.download())
            self.device, self._storage = device, self.data.storage
            self._grad = None if grad is None else device.upload(grad.download())
            self._grad_program = None
        return self


def _call(operation: Operation, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """An operation of which some tensors are variables."""
    given = {**dict(zip(operation.signature.parameters, args, strict=False)), **kwargs}
    tracked = {name: value for name, value in given.items() if isinstance(value, Variable)}
    plain = [value.data if isinstance(value, Variable) else value for value in args]
    named = {
        name: value.data if isinstance(value, Variable) else value for name, value in kwargs.items()
    }
    if not mode.enabled:
        made = operation(*plain, **named)
        return _as_given(operation, given, made) if operation.writes else made
    unknown = sorted(set(tracked) - operation.differentiable)
    if operation.writes and unknown:
        raise GradientError(
            f"{operation.name} would change a tensor in place where gradients are recorded; do it "
            "inside no_grad(), or use the operation that makes a new tensor"
        )
    made = operation(*plain, **named)
    outputs = made if isinstance(made, tuple) else (made,)
    if all(output.dtype.kind != "f" for output in outputs):
        return made
    if unknown:
        raise GradientError(
            f"{operation.name} has no gradient for {', '.join(unknown)}; use detach() or no_grad() "
            "where none is needed"
        )
    return _record(operation.name, operation.gradients, {**operation.defaults, **given}, made)


def _as_given(operation: Operation, given: Mapping[str, Any], made: Any) -> Any:
    """What an operation in place returned, as the tensors that the caller knows."""
    written = [given[name] for name in operation.writes]
    if isinstance(made, tuple) or len(written) != 1:
        return made
    return written[0]


def _record(name: str, gradients: Sequence[Gradient], given: Mapping[str, Any], made: Any) -> Any:
    """The results of a call as variables, with a node that keeps what its gradients want."""
    edges = {
        key: (value if value.node is None else value.node, value.place, value.spec)
        for key, value in given.items()
        if isinstance(value, Variable)
    }
    needed = [one for one in gradients if any(key in edges for key in one.inputs)]
    outputs = made if isinstance(made, tuple) else (made,)
    saved: dict[str, Any] = {}
    for gradient in needed:
        for want in gradient.wants:
            if want == "grad" or want in saved:
                continue
            if want == "out":
                kept = tuple(Saved(output) for output in outputs)
                saved[want] = kept if isinstance(made, tuple) else kept[0]
            elif want.endswith("_shape"):
                saved[want] = np.shape(given[want[: -len("_shape")]])
            else:
                value = given[want]
                if isinstance(value, Tensor):
                    saved[want] = Saved(value.data if isinstance(value, Variable) else value)
                else:
                    saved[want] = value
    node = Node(name, needed, edges, saved, len(outputs))
    variables = tuple(Variable(output, node, place) for place, output in enumerate(outputs))
    return variables if isinstance(made, tuple) else variables[0]
