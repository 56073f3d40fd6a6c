"""The gradient of every operation that has one, against PyTorch and against finite differences.

PyTorch differentiates the same function in float64. The differences are taken of the operation's
own NumPy reference, in float64. A gradient in float32 must be within 1e-5 of the largest element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensai
from tensai.autograd import Parameter, Variable
from tensai.operation import OPERATIONS, Operation

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(0, 1, shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


class Case(NamedTuple):
    """Arguments of an operation by name, in the rule's order, and the same in PyTorch."""

    given: dict[str, Any]
    torch: Callable[..., Any]
    result: int = 0  # which of several outputs has the gradient
    differences: bool = True  # whether the reference computes in float64 and is smooth


def plain(function: Callable[..., Any], *arrays: Any) -> list[Case]:
    names = "x" if len(arrays) == 1 else "ab"
    return [Case(dict(zip(names, arrays, strict=True)), function)]


def both(function: Callable[..., Any], a: Any = normal, b: Any = normal) -> list[Case]:
    """Shapes alike, and either broadcast."""
    shapes = (((4, 3), (4, 3)), ((3,), (4, 3)), ((4, 3), (4, 1)), ((2, 1, 3), (4, 1)), ((), (5,)))
    return [Case({"a": a(*left), "b": b(*right)}, function) for left, right in shapes]


F = torch.nn.functional
INDICES = np.array([[3, 1, 3], [0, 3, 6]], np.int32)
CONDITION = np.array([[True, False, True], [False, True, True]])
X = normal(4, 37)

CASES: dict[str, list[Case]] = {
    "negative": plain(lambda x: -x, normal(7)),
    "abs": plain(torch.abs, normal(7)),
    "square": plain(torch.square, normal(7)),
    "exp": plain(torch.exp, normal(7)),
    "log": plain(torch.log, positive(7)),
    "sqrt": plain(torch.sqrt, positive(7)),
    "rsqrt": plain(torch.rsqrt, positive(7)),
    "relu": plain(torch.relu, normal(70)),
    "tanh": plain(torch.tanh, normal(70) * 4),
    "sigmoid": plain(torch.sigmoid, normal(70) * 4),
    "silu": plain(F.silu, normal(70) * 4),
    "erf": plain(torch.erf, normal(70)),
    "gelu": [
        Case(
            {"x": normal(70) * 3, "approximate": form},
            lambda x, approximate: F.gelu(x, approximate=approximate),
        )
        for form in ("none", "tanh")
    ],
    "add": both(torch.add),
    "subtract": both(torch.subtract),
    "multiply": both(torch.multiply),
    "divide": both(torch.divide, b=positive),
    "power": both(torch.pow, a=positive),
    "maximum": both(torch.maximum),
    "minimum": both(torch.minimum),
    "silu_mul": both(lambda a, b: F.silu(a) * b),
    "where": [
        Case({"condition": CONDITION, "a": normal(2, 3), "b": normal(3)}, torch.where),
        Case({"condition": CONDITION, "a": normal(1, 1), "b": normal(4, 2, 3)}, torch.where),
    ],
    "astype": [Case({"x": normal(7), "dtype": "float32"}, lambda x, dtype: x.clone())],
    "sum": [
        Case(
            {"x": normal(4, 3, 5), "axis": axis, "keepdims": keep},
            lambda x, axis, keepdims: torch.sum(x, dim=axis, keepdim=keepdims),
        )
        for axis, keep in ((None, False), (1, True), ((1, 2), False))
    ],
    "mean": [
        Case(
            {"x": normal(4, 3, 5), "axis": axis, "keepdims": keep},
            lambda x, axis, keepdims: torch.mean(x, dim=axis, keepdim=keepdims),
        )
        for axis, keep in ((None, True), (0, False), ((0, 1), True))
    ],
    "max": [
        Case(
            {"x": x, "axis": axis, "keepdims": False},
            lambda x, axis, keepdims: torch.amax(x, dim=axis),
            differences=smooth,
        )
        for x, axis, smooth in (
            (normal(4, 3), 1, True),
            (normal(4, 3), (0, 1), True),
            (np.float32([[1, 2, 2], [2, 2, 2]]), 1, False),
        )
    ],
    "min": [
        Case(
            {"x": normal(4, 3), "axis": 0, "keepdims": True},
            lambda x, axis, keepdims: torch.amin(x, dim=axis, keepdim=keepdims),
        )
    ],
    "softmax": [
        Case({"x": normal(4, 3, 5), "axis": axis}, lambda x, axis: torch.softmax(x, axis))
        for axis in (-1, 1)
    ],
    "log_softmax": [
        Case({"x": normal(4, 3, 5), "axis": axis}, lambda x, axis: torch.log_softmax(x, axis))
        for axis in (-1, 1)
    ],
    "layer_norm": [
        Case(
            {"x": X, "weight": normal(37), "bias": normal(37), "eps": 1e-5},
            lambda x, weight, bias, eps: F.layer_norm(x, (37,), weight, bias, eps),
        )
    ],
    "layer_norm_xhat": [
        Case({"x": X, "eps": 1e-3}, lambda x, eps: F.layer_norm(x, (37,), eps=eps))
    ],
    "rms_norm": [
        Case(
            {"x": X, "weight": normal(37), "eps": 1e-6, "residual": residual},
            lambda x, weight, eps, residual: (
                F.rms_norm(x, (37,), weight, eps) + (0 if residual is None else residual)
            ),
        )
        for residual in (None, normal(4, 37))
    ],
    "matmul": [
        Case(
            {
                "a": normal(*batch_a, *((5, 4) if ta else (4, 5))),
                "b": normal(*batch_b, *((3, 5) if tb else (5, 3))),
                "transpose_a": ta,
                "transpose_b": tb,
            },
            lambda a, b, transpose_a, transpose_b: torch.matmul(
                a.mT if transpose_a else a, b.mT if transpose_b else b
            ),
        )
        for ta in (False, True)
        for tb in (False, True)
        for batch_a, batch_b in (((), ()), ((2,), (2,)), ((3, 1), (2,)), ((2,), ()))
    ],
    "strided_copy": [
        Case(
            {"x": normal(4, 6), "shape": shape, "strides": strides, "offset": offset},
            lambda x, shape, strides, offset: torch.as_strided(
                x.flip(0, 1) if strides[0] < 0 else x, shape, [abs(s) for s in strides], offset
            ),
        )
        # Transposed, some of each row, repeated.
        for shape, strides, offset in (
            ((6, 4), (1, 6), 0),
            ((2, 3), (12, 2), 7),
            ((5, 4, 3), (0, 6, 1), 2),
        )
    ],
    "embed": [
        Case(
            {"table": normal(7, 5), "indices": INDICES},
            lambda table, indices: F.embedding(indices.long(), table),
        )
    ],
    "put_": [
        Case(
            {"x": normal(4, 6), "part": normal(4, 2), "axis": 1, "start": 3},
            lambda x, part, axis, start: torch.cat([x[:, :start], part, x[:, start + 2 :]], axis),
        )
    ],
    "cross_entropy_rows": [
        Case(
            {"logits": normal(6, 9), "labels": np.array([0, 8, 3, 3, 1, 7], np.int32)},
            lambda logits, labels: F.cross_entropy(logits, labels.long(), reduction="none"),
        )
    ],
}


def test_every_gradient_has_a_case() -> None:
    known = {name for name, made in OPERATIONS.items() if made.gradients}
    assert known - {"attention"} == set(CASES)  # attention has a file of its own


def tracked(operation: Operation, case: Case) -> list[str]:
    """The tensors of a case that have a gradient."""
    with_one = {name for gradient in operation.gradients for name in gradient.inputs}
    return [name for name in case.given if name in with_one and case.given[name] is not None]


def ours(dev: tensai.Device, name: str, case: Case, only: set[str]) -> tuple[Any, dict[str, Any]]:
    """The result, and the gradients of its sum weighted with fixed weights."""
    values = {}
    for key, value in case.given.items():
        if isinstance(value, np.ndarray) or (
            np.isscalar(value) and key in OPERATIONS[name].tensors
        ):
            value = dev.upload(value)
        values[key] = Parameter(value) if key in only else value
    if name == "put_":  # which changes its tensor: not the parameter itself
        values["x"] = values["x"] * 1.0
    made = OPERATIONS[name](**values)
    result = made[case.result] if isinstance(made, tuple) else made
    assert isinstance(result, Variable)
    (result * weights(result.shape)).sum().backward()
    found = {key: values[key].grad for key in only if key != "x" or name != "put_"}
    for key, grad in found.items():
        assert grad is not None and grad.shape == np.shape(case.given[key])
    return result.download(), {key: grad.download() for key, grad in found.items()}


def weights(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    size = math.prod(shape)
    return (np.cos(np.arange(size) * 1.7) + 0.3).reshape(shape).astype(np.float32)


def theirs(case: Case, names: list[str]) -> tuple[Any, dict[str, Any]]:
    values = {}
    for key, value in case.given.items():
        if isinstance(value, np.ndarray):
            value = torch.tensor(value.astype(np.float64) if value.dtype.kind == "f" else value)
            value.requires_grad_(key in names)
        values[key] = value
    result = case.torch(*values.values())
    (result * torch.tensor(weights(tuple(result.shape)))).sum().backward()
    return result.detach().numpy(), {name: values[name].grad.numpy() for name in names}


def close(got: Any, expected: Any) -> None:
    scale = max(np.abs(expected).max(initial=0), 1e-30)
    assert np.abs(got - expected).max(initial=0) <= 1e-5 * scale


EVERY = [(name, number) for name, cases in CASES.items() for number in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), EVERY)
def test_against_pytorch(dev: tensai.Device, name: str, number: int) -> None:
    case = CASES[name][number]
    names = tracked(OPERATIONS[name], case)
    expected, expected_grads = theirs(case, names)
    result, grads = ours(dev, name, case, set(names))
    close(result, expected)
    for key, grad in grads.items():
        close(grad, expected_grads[key])
    if len(names) > 1:  # each alone: what is not needed is not computed
        for key in set(names) & set(grads):
            close(ours(dev, name, case, {key})[1][key], expected_grads[key])


SMOOTH = [(name, number) for name, number in EVERY if CASES[name][number].differences]


@pytest.mark.parametrize(("name", "number"), SMOOTH)
def test_against_finite_differences(cpu: tensai.Device, name: str, number: int) -> None:
    case, operation = CASES[name][number], OPERATIONS[name]
    names = tracked(operation, case)
    _, grads = ours(cpu, name, case, set(names))
    wide = {
        key: value.astype(np.float64)
        if isinstance(value, np.ndarray) and value.dtype == np.float32
        else value
        for key, value in case.given.items()
    }
    if name == "astype":
        wide["dtype"] = "float64"
    ordered = [wide.get(key, operation.defaults.get(key)) for key in operation.signature.parameters]

    def total() -> float:
        made = operation.reference(*ordered)
        result = np.asarray(made[case.result] if isinstance(made, tuple) else made)
        return float((result * weights(result.shape)).sum())

    for key, grad in grads.items():
        array = wide[key]
        expected = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            middle = array[place]
            array[place] = middle + 1e-6
            above = total()
            array[place] = middle - 1e-6
            expected[place] = (above - total()) / 2e-6
            array[place] = middle
        assert np.abs(grad - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1), key


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_broadcasting_of_any_shapes(gpu: tensai.Device, data: Any) -> None:
    """Gradients have their tensors' shapes; the values are PyTorch's."""
    full = data.draw(st.lists(st.integers(0, 4), max_size=4))
    shapes = []
    for _ in range(2):
        own = [1 if data.draw(st.booleans()) else length for length in full]
        shapes.append(tuple(own[data.draw(st.integers(0, len(own))) :]))
    rng = np.random.default_rng(1)
    a, b = (rng.normal(0, 1, shape).astype(np.float32) for shape in shapes)
    x, y = Parameter(gpu.upload(a)), Parameter(gpu.upload(b))
    ((x * y + x) / 3).sum().backward()
    p, q = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (a, b))
    ((p * q + p) / 3).sum().backward()
    for mine, other in ((x, p), (y, q)):
        assert mine.grad is not None and other.grad is not None
        assert mine.grad.shape == mine.shape
        close(mine.grad.download(), other.grad.numpy())


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_indexing_and_moving(gpu: tensai.Device, data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=3)))
    index: list[Any] = []
    for length in shape:
        if data.draw(st.booleans()):
            index.append(data.draw(st.integers(-length, length - 1)))
        else:
            start, stop = (data.draw(st.integers(0, length)) for _ in range(2))
            index.append(slice(start, stop, data.draw(st.sampled_from([1, 2, 3]))))
    order = data.draw(st.permutations(range(len(shape))))
    array = np.random.default_rng(2).normal(0, 1, shape).astype(np.float32)
    x = Parameter(gpu.upload(array))
    p = torch.tensor(array, requires_grad=True)
    for tensor in (x, p):
        moved = tensor.permute(*order)
        own = tuple(index[axis] for axis in order)
        (moved[own] * 2).sum().backward()
    assert x.grad is not None and p.grad is not None
    close(x.grad.download(), p.grad.numpy())


def test_compositions(dev: tensai.Device) -> None:
    """concat, take, matmul of vectors, matmul_t, sum_cols, reshape, activate: by what they call."""
    a, b, w = normal(3, 4), normal(2, 4), normal(4)

    def run(x: Any, y: Any, v: Any, kind: Any, lib: Any) -> Any:
        joined = lib.concat([x, y, x], 0) if kind == "ours" else torch.cat([x, y, x], 0)
        if kind == "ours":
            taken = joined.take([0, 7, 7, 2], axis=0)
            return (taken.matmul_t(x) @ (x @ v)).sum() + taken.sum_cols().reshape(2, 2).sum()
        taken = joined[[0, 7, 7, 2]]
        return (taken @ x.mT @ (x @ v)).sum() + taken.sum()

    mine = [Parameter(dev.upload(array)) for array in (a, b, w)]
    other = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (a, b, w)]
    run(*mine, "ours", dev).backward()
    run(*other, "theirs", None).backward()
    for one, two in zip(mine, other, strict=True):
        assert one.grad is not None and two.grad is not None
        close(one.grad.download(), two.grad.numpy())
