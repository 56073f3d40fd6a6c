"""The tape: what accumulates, is freed, is refused. Values are PyTorch's, or plain sums."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tensai
from tensai.autograd import (
    Parameter,
    Variable,
    cross_entropy,
    is_grad_enabled,
    mse_loss,
    no_grad,
)
from tensai.errors import (
    DeviceMismatchError,
    DTypeError,
    GradientError,
    NaNError,
    ShapeError,
    TensorFreedError,
)

pytestmark = pytest.mark.usefixtures("still_works")


def parameter(dev: tensai.Device, *values: float) -> Parameter:
    return Parameter(dev.upload(np.array(values, np.float32)))


def grad(parameter: Parameter) -> list[float]:
    assert parameter.grad is not None
    found: list[float] = parameter.grad.tolist()
    return found


def test_gradients_accumulate_until_they_are_set_to_none(dev: tensai.Device) -> None:
    w = parameter(dev, 1, 2)
    assert w.grad is None
    (w * 3).sum().backward()
    (w * w).sum().backward()
    assert grad(w) == [5, 7]
    w.grad = None
    w.sum().backward()
    assert grad(w) == [1, 1]


def test_a_tensor_used_twice_gets_the_sum(dev: tensai.Device) -> None:
    w = parameter(dev, 1, 2)
    y = w * w
    (y * y + y).sum().backward()  # w^4 + w^2
    assert grad(w) == [4 * 1 + 2 * 1, 4 * 8 + 2 * 2]


def test_two_parameters_never_share_a_gradient(dev: tensai.Device) -> None:
    a, b = parameter(dev, 1, 2), parameter(dev, 3, 4)
    (a + b).backward(dev.upload(np.float32([1, 1])))
    assert a.grad is not None
    a.grad.scale_(5)
    assert grad(b) == [1, 1]


def test_a_given_gradient_stays_as_it_was(dev: tensai.Device) -> None:
    seed = dev.upload(np.float32([1, 2]))
    a = parameter(dev, 1, 2)
    a.backward(seed)
    assert a.grad is not None
    a.grad.scale_(5)
    assert seed.tolist() == [1, 2]


def test_backward_needs_one_element_or_a_gradient(dev: tensai.Device) -> None:
    w = parameter(dev, 1, 2)
    with pytest.raises(ShapeError, match="one element"):
        (w * 2).backward()
    with pytest.raises(ShapeError, match="gradient of shape"):
        (w * 2).backward(dev.ones(3))
    (w * 2).backward(np.float32([1, 10]))
    assert grad(w) == [2, 20]


def test_a_second_backward_is_refused_unless_the_graph_is_kept(dev: tensai.Device) -> None:
    w = parameter(dev, 2)
    y = (w * w).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert grad(w) == [8]
    with pytest.raises(GradientError, match="second time"):
        y.backward()
    # Also where only a part of it is gone.
    middle = w * w
    middle.sum().backward()
    with pytest.raises(GradientError, match="second time"):
        (middle * 2).sum().backward()


def test_changing_what_a_gradient_needs_is_refused(dev: tensai.Device) -> None:
    w, x = parameter(dev, 2, 3), dev.upload(np.float32([5, 7]))
    y = (w * x).sum()
    x.add_(1)
    with pytest.raises(GradientError, match="in place"):
        y.backward()
    # Through memory that it shares as well, and by an optimizer's step.
    y = (w * w).sum()
    with no_grad():
        w.reshape(2, 1).scale_(2)
    with pytest.raises(GradientError, match="in place"):
        y.backward()
    # A sum needs no elements.
    y = (w + x).sum()
    x.add_(1)
    y.backward()


def test_changing_a_tracked_tensor_is_refused(dev: tensai.Device) -> None:
    w, x = parameter(dev, 2, 3), dev.upload(np.float32([5, 7]))
    changes: list[Callable[[], Any]] = [
        lambda: w.add_(1),
        lambda: (w * 2).scale_(2),
        lambda: x.add_(w),
    ]
    for change in changes:
        with pytest.raises(GradientError, match="no_grad"):
            change()
    with no_grad():
        assert w.add_(1) is w
    assert w.tolist() == [3, 4]
    assert x.tolist() == [5, 7]


def test_no_grad(dev: tensai.Device) -> None:
    w = parameter(dev, 2)
    with no_grad():
        assert not is_grad_enabled()
        assert type(w * 2) is tensai.Tensor
        assert type(w.reshape(1, 1)) is tensai.Tensor
        seen = []
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
        assert seen == [True]  # each thread for itself
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert isinstance(w * 2, Variable)


def test_what_has_no_gradient(dev: tensai.Device) -> None:
    w = parameter(dev, 2.5, -1)
    assert type(w > 0) is tensai.Tensor  # bools and integers have none, and need none
    assert type(w.argmax()) is tensai.Tensor
    assert type(w.astype(np.int32)) is tensai.Tensor
    assert type(w.detach()) is tensai.Tensor
    assert type(w.detach() * 2) is tensai.Tensor
    with pytest.raises(GradientError, match="floor_divide has no gradient for a"):
        w // 2
    assert (w.detach() // 2).tolist() == [1, -1]


def test_on_either_side_and_from_the_host(dev: tensai.Device) -> None:
    w = parameter(dev, 2, 3)
    x = dev.upload(np.float32([5, 7]))
    ((x * w) + (w * x) + (np.float32([1, 1]) * w) + 2 * w - w / 2 + (1 - w)).sum().backward()
    assert grad(w) == [10 + 1 + 2 - 0.5 - 1, 14 + 1 + 2 - 0.5 - 1]


def test_float16(dev: tensai.Device) -> None:
    w = Parameter(dev.upload(np.float16([1, 2, 3])))
    x = Parameter(dev.upload(np.float32([1, 2, 3])))
    (w * x).sum().backward()
    assert w.grad is not None and w.grad.dtype == np.float16
    assert grad(w) == [1, 2, 3]
    assert x.grad is not None and x.grad.dtype == np.float32
    half = x.astype(np.float16)
    (half * 2).sum().backward()
    assert grad(x) == [3, 4, 5]


def test_empty_and_scalar_tensors(dev: tensai.Device) -> None:
    empty = Parameter(dev.zeros((0, 3)))
    (empty * 2).sum().backward()
    assert empty.grad is not None and empty.grad.shape == (0, 3)
    for shape in ((2, 0), (0, 2), (0,), (2, 0, 3), (0, 0)):
        p, q = Parameter(dev.zeros(shape)), Parameter(dev.zeros(shape))
        loss = dev.concat([p, q], -1).sum() + q.take(np.zeros((2, 1), int)[: shape[0]], 0).sum()
        if len(shape) == 2:
            loss = loss + dev.embed(p, np.zeros(shape[0], int)).sum()
        loss.backward()
        for parameter in (p, q):
            assert parameter.grad is not None and parameter.grad.shape == shape
    p, q = Parameter(dev.zeros((0, 3))), Parameter(dev.ones((2, 3)))
    (dev.concat([p, q, dev.zeros((0, 3)), p]) * 2).sum().backward()
    assert p.grad is not None and p.grad.shape == (0, 3)
    assert q.grad is not None and q.grad.tolist() == [[2] * 3] * 2
    assert dev.embed_grad([0, 2], dev.zeros((2, 0)), 3).shape == (3, 0)
    single = Parameter(dev.upload(np.float32(3)))
    (single * single).backward()
    assert single.grad is not None and float(single.grad) == 6


def test_parameters_are_checked(dev: tensai.Device, cpu: tensai.Device) -> None:
    with pytest.raises(DTypeError, match="made of a tensor"):
        Parameter(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="float32 or float16"):
        Parameter(dev.zeros(3, np.int32))
    w = parameter(dev, 1, 2)
    with pytest.raises(ShapeError, match="shape"):
        w.grad = dev.ones(3)
    with pytest.raises(DTypeError, match="tensor or None"):
        w.grad = np.ones(2)  # type: ignore[assignment]
    with tensai.open("cpu") as other, pytest.raises(DeviceMismatchError):
        w @ other.ones(2)


def test_freed(dev: tensai.Device) -> None:
    w = parameter(dev, 1, 2)
    y = w * w
    z = (y * y).sum()
    y.free()  # the tape holds what it needs
    z.backward()
    assert grad(w) == [4, 32]
    with pytest.raises(TensorFreedError):
        y * 2
    with pytest.raises(TensorFreedError):
        y.download()


def test_intermediates_are_freed_on_the_way_back(
    dev: tensai.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a backward pass holds falls as it goes; nothing is left after it."""
    w = Parameter(dev.ones((256, 256)))
    size = w.nbytes
    gc.collect()
    dev.synchronize()
    before = dev.memory()["in_use"]
    y: Any = w
    for _ in range(20):
        y = y.tanh() * 1.01
    loss = y.sum()
    del y
    held = dev.memory()["in_use"] - before
    assert held >= 18 * size
    seen: list[int] = []
    look = [lambda *done: seen.append(dev.memory()["in_use"] - before)]
    monkeypatch.setattr("tensai.operation.watchers", look)
    loss.backward()
    monkeypatch.undo()
    assert dev.memory()["in_use"] - before <= 2 * size + 4096  # the gradient, and rounding up
    assert max(seen) <= held + 4 * size
    assert seen[len(seen) // 2] <= held / 2 + 4 * size


def test_a_long_chain_is_no_recursion(cpu: tensai.Device) -> None:
    w = Parameter(cpu.ones(1))
    y: Any = w
    for _ in range(20_000):
        y = y * 1.0
    y.sum().backward()
    assert grad(w) == [1]
    y = w
    for _ in range(20_000):
        y = y + 1.0
    del y  # a graph that nobody walks back must go as well


def test_moving_to_another_device(gpu: tensai.Device, cpu: tensai.Device) -> None:
    w = parameter(gpu, 1, 2)
    (w * w).sum().backward()
    assert w.to_(cpu) is w
    assert w.device is cpu and w.grad is not None and w.grad.device is cpu
    (w * w).sum().backward()
    assert grad(w) == [4, 8]
    w.to_(gpu)
    (w * w).sum().backward()
    assert grad(w) == [6, 12]


def test_copies_of_parameters_are_parameters(dev: tensai.Device) -> None:
    w = parameter(dev, 1, 2)
    for made in (copy.copy(w), copy.deepcopy(w), copy.deepcopy([w])[0]):
        assert type(made) is Parameter
        made.sum().backward()
        assert w.grad is None
        with no_grad():
            made.add_(1)
    assert w.tolist() == [1, 2]


def test_losses(dev: tensai.Device) -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(0, 3, (2, 5, 7)).astype(np.float32), rng.integers(0, 7, (2, 5))
    w = Parameter(dev.upload(logits))
    loss = cross_entropy(w, labels)
    loss.backward()
    p = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(p.reshape(-1, 7), torch.tensor(labels).reshape(-1))
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), abs=1e-6)
    assert w.grad is not None and p.grad is not None
    np.testing.assert_allclose(w.grad.download(), p.grad.numpy(), atol=1e-7)
    # Scores far apart stay finite.
    far = cross_entropy(dev.upload(np.float32([[1e4, -1e4, 0]])), [1])
    assert float(far) == 20000
    assert float(mse_loss(w, logits + 2)) == pytest.approx(4, abs=1e-5)
    # Integers and bools as float32: they wrap nowhere.
    for first, second, expected in (
        (np.array([100_000, 0], np.int32), np.array([0, 0], np.int32), 5e9),
        (np.array([1, 5], np.uint32), np.array([3, 5], np.uint32), 2),
        (np.array([1, 5], np.int32), np.array([3.5, 5], np.float32), 3.125),
        (np.array([1.5, 5], np.float32), np.array([1 << 30, 5], np.int32), 2.0**59),
        (np.array([True, False]), np.array([False, False]), 0.5),
    ):
        assert float(mse_loss(dev.upload(first), second)) == pytest.approx(expected, rel=1e-5)


def test_bad_labels(dev: tensai.Device) -> None:
    scores = dev.zeros((2, 3))
    for labels in ([0, 3], [-1, 0]):
        with pytest.raises(IndexError, match="out of range for 3 classes"):
            cross_entropy(scores, labels)
    with pytest.raises(DTypeError, match="integer labels"):
        cross_entropy(scores, [0.5, 1])
    with pytest.raises(ShapeError, match="labels of shape"):
        cross_entropy(scores, [0, 1, 2])
    for loss in (cross_entropy, mse_loss):
        with pytest.raises(DTypeError, match="as a tensor"):
            loss(np.zeros((2, 3)), [0, 1])  # type: ignore[arg-type]
    assert np.isnan(float(cross_entropy(dev.zeros((0, 5)), [])))
    with pytest.raises(ShapeError, match="target of shape"):
        mse_loss(scores, np.zeros(3))
    on_device = dev.upload(np.array([0, 3], np.int32))
    assert np.isnan(float(cross_entropy(scores, on_device)))


def test_nan_check_names_the_first_operation(dev: tensai.Device) -> None:
    w = parameter(dev, -1, 4)
    with tensai.debug.nan_check():
        assert (w * w).sqrt().sum().item() == 5
        with pytest.raises(NaNError, match="^sqrt made NaN"):
            (w.sqrt() + 1).sum()
        y = dev.upload(np.float32([np.nan, 1])) * 2  # given, not made
        assert np.isnan(y.download()[0])
    zero = parameter(dev, 0.0)
    loss = (zero * zero).sqrt().sum()
    with pytest.raises(NaNError, match="made NaN"), tensai.debug.nan_check():
        loss.backward()  # 0 / 0
    assert np.isnan((w.sqrt() + 1).sum().item())  # no longer watched


def test_nan_check_in_several_threads(dev: tensai.Device) -> None:
    caught: list[int] = []

    def clean() -> None:
        for _ in range(40):
            with tensai.debug.nan_check():
                dev.ones(3) + 1

    def spoiled() -> None:
        for number in range(40):
            try:
                with tensai.debug.nan_check():
                    dev.full(3, -1.0).log()
            except NaNError:
                caught.append(number)

    threads = [threading.Thread(target=work) for work in (clean, clean, spoiled)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == list(range(40))


def test_threads_that_share_a_parameter(dev: tensai.Device) -> None:
    w = parameter(dev, 1, 1)

    def work() -> None:
        for _ in range(20):
            (w * 1.0).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert grad(w) == [120, 120]


def test_special_powers(dev: tensai.Device) -> None:
    x = parameter(dev, 0, 2, -1)
    (x**0).sum().backward()
    assert grad(x) == [0, 0, 0]
    x.grad = None
    (x**1 + x**2).sum().backward()
    assert grad(x) == [1, 5, -1]


VALUES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0)


@pytest.mark.parametrize("name", ["maximum", "minimum", "power"])
def test_gradients_at_special_values(dev: tensai.Device, name: str) -> None:
    """Every pair of NaN, infinities, zeros, and numbers of either sign: PyTorch's."""
    a, b = (array.reshape(-1).astype(np.float32) for array in np.meshgrid(VALUES, VALUES))
    x, y = Parameter(dev.upload(a)), Parameter(dev.upload(b))
    getattr(x, name)(y).sum().backward()
    p, q = (torch.tensor(array, requires_grad=True) for array in (a, b))
    {"power": torch.pow}.get(name, getattr(torch, name, None))(p, q).sum().backward()
    for mine, other in ((x, p), (y, q)):
        assert mine.grad is not None
        assert other.grad is not None
        for *pair, got, expected in zip(a, b, mine.grad.tolist(), other.grad.tolist(), strict=True):
            assert got == pytest.approx(expected, rel=1e-5, nan_ok=True), pair


def test_threads_with_graphs_of_their_own(dev: tensai.Device) -> None:
    results: list[list[float]] = [[] for _ in range(4)]

    def work(place: int) -> None:
        w = parameter(dev, place, 1)
        for _ in range(20):
            w.grad = None
            (w * w * w).sum().backward()
        results[place] = grad(w)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[3 * place**2, 3] for place in range(4)]


def test_attention(dev: tensai.Device) -> None:
    """Through the tape: grouped heads, causal, float16 keys; PyTorch in float64 says the values."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(0, 1, (2, 9, width)).astype(np.float32) for width in (16, 8, 8))
    mine = [Parameter(dev.upload(array)) for array in (q, k.astype(np.float16), v)]
    weight = rng.normal(0, 1, q.shape).astype(np.float32)
    y = (mine[0] * 1.0).attention(mine[1], mine[2] * 2, heads=4, kv_heads=2, causal=True)
    (y * weight).sum().backward()
    other = [
        torch.tensor(array.astype(np.float64), requires_grad=True)
        for array in (q, k.astype(np.float16), v)
    ]
    parts = [one.reshape(2, 9, -1, 4).transpose(1, 2) for one in (other[0], other[1], other[2] * 2)]
    made = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True)
    (made.transpose(1, 2).reshape(2, 9, 16) * torch.tensor(weight)).sum().backward()
    for one, two, tolerance in zip(mine, other, (1e-5, 2e-3, 1e-5), strict=True):
        assert one.grad is not None and two.grad is not None and one.grad.dtype == one.dtype
        scale = float(two.grad.abs().max())
        assert np.abs(one.grad.download() - two.grad.numpy()).max() <= tolerance * scale
    mask = Parameter(dev.zeros((9, 9)))
    with pytest.raises(GradientError, match="attention has no gradient for mask"):
        mine[0].attention(mine[0], mine[0], heads=2, mask=mask)
