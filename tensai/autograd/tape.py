"""The tape: a node for each call of an operation on variables, walked back by `backward`."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import GradientError
from ..operation import Gradient, Spec
from ..tensor import Tensor

_numbers = itertools.count()


class _Mode(threading.local):
    enabled = True


mode = _Mode()


def tape_number() -> int:
    """Of which nodes that are made from now on have higher ones."""
    return next(_numbers)


def is_grad_enabled() -> bool:
    """Whether operations on variables are recorded in this thread."""
    return mode.enabled


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute without recording: results are plain tensors, and parameters may change in place."""
    before, mode.enabled = mode.enabled, False
    try:
        yield
    finally:
        mode.enabled = before


class Saved:
    """A tensor as it was when an operation used it."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = Tensor(tensor.device, tensor.storage, tensor.spec)
        self.version = tensor.storage.version

    def get(self, operation: str) -> Tensor:
        """The tensor; GradientError if it was changed in place since."""
        if self.tensor.storage.version != self.version:
            raise GradientError(
                f"a tensor of shape {self.tensor.shape} that the gradient of {operation} needs was "
                "changed in place after it was used; change a copy(), or do so after backward()"
            )
        return self.tensor


class Node:
    """A call of an operation: how gradients go from its results to its tensors.

    `edges` says for each tracked tensor where its gradient goes, the node and place among its
    results that it came from or the parameter that it is, and its spec.
    """

    __slots__ = ("count", "edges", "gradients", "name", "number", "saved")

    def __init__(
        self,
        name: str,
        gradients: Sequence[Gradient],
        edges: Mapping[str, tuple[Node | Tensor, int, Spec]],
        saved: dict[str, Any] | None,
        count: int,
    ) -> None:
        self.name = name
        self.number = next(_numbers)
        self.gradients = gradients
        self.edges = edges
        self.saved = saved
        self.count = count

    def back(self, grads: list[Tensor | None]) -> dict[str, Tensor]:
        """The gradients of the tracked tensors from those of the results."""
        if self.saved is None:
            raise GradientError(
                f"backward() came a second time to a graph that is gone (at {self.name}); "
                "use backward(retain_graph=True) the first time, or compute the loss again"
            )
        grad = grads[0] if self.count == 1 else tuple(grads)
        made: dict[str, Tensor] = {}
        for gradient in self.gradients:
            values = [
                grad if name == "grad" else self._value(self.saved[name]) for name in gradient.wants
            ]
            answer = gradient.function(*values)
            results = answer if len(gradient.inputs) > 1 else (answer,)
            for name, result in zip(gradient.inputs, results, strict=True):
                if name in self.edges:
                    made[name] = fitted(result, self.edges[name][2])
        return made

    def _value(self, kept: Any) -> Any:
        if isinstance(kept, Saved):
            return kept.get(self.name)
        if type(kept) is tuple and kept and isinstance(kept[0], Saved):
            return tuple(one.get(self.name) for one in kept)
        return kept

    def release(self) -> None:
        """Let go of what was kept for this node and of the nodes before it."""
        self.saved = None
        self.edges = {}


def fitted(grad: Tensor, spec: Spec) -> Tensor:
    """A gradient as its tensor is: summed over what that was broadcast to, in its dtype."""
    if grad.shape != spec.shape:
        missing = grad.ndim - len(spec.shape)
        axes = tuple(range(missing)) + tuple(
            missing + axis
            for axis, length in enumerate(spec.shape)
            if length == 1 and grad.shape[missing + axis] != 1
        )
        grad = grad.sum(axes).reshape(spec.shape)
    return grad if grad.dtype == spec.dtype else grad.astype(spec.dtype)


def walk_back(
    node: Node,
    place: int,
    gradient: Tensor,
    retain_graph: bool,
    deposit: Callable[[Any, Tensor], None],
) -> None:
    """Walk back from a node's result, the latest node first; `deposit` gets each parameter's."""
    waiting: dict[Node, list[Tensor | None]] = {node: [None] * node.count}
    waiting[node][place] = gradient
    queue = [(-node.number, node)]
    while queue:
        _, node = heapq.heappop(queue)
        grads = waiting.pop(node)
        made = node.back(grads)
        for name, grad in made.items():
            target, place, _ = node.edges[name]
            if not isinstance(target, Node):
                deposit(target, grad)
                continue
            if target not in waiting:
                waiting[target] = [None] * target.count
                heapq.heappush(queue, (-target.number, target))
            before = waiting[target][place]
            waiting[target][place] = grad if before is None else before + grad
        del made, grads  # before the next node takes memory
        if not retain_graph:
            node.release()
