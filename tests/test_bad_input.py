"""Input that cannot work: an error of the named type, before the driver sees anything of it.

After every error the device still works, and tensors made earlier keep their values.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compare import numbers, same

import tensai
from tensai import (
    DeviceMismatchError,
    DTypeError,
    KernelError,
    LimitExceededError,
    ShapeError,
    TensorFreedError,
)

pytestmark = pytest.mark.usefixtures("still_works")

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32


def test_error_types() -> None:
    for error, base in (
        (ShapeError, ValueError),
        (DTypeError, TypeError),
        (LimitExceededError, ValueError),
        (KernelError, RuntimeError),
        (tensai.DeviceLostError, RuntimeError),
        (tensai.OutOfDeviceMemoryError, MemoryError),
        (TensorFreedError, Exception),
        (DeviceMismatchError, Exception),
    ):
        assert issubclass(error, base)
        assert issubclass(error, tensai.TensaiError)


# Shapes and dtypes ------------------------------------------------------------------------------

Use = Callable[[tensai.Device, Callable[..., Any]], Any]

WRONG_SHAPES: dict[str, Use] = {
    "add": lambda dev, t: t(3, 4) + t(4, 3),
    "add an array": lambda dev, t: t(3, 4) + np.ones(3),
    "compare": lambda dev, t: t(2) < t(3),
    "broadcast 0 with 2": lambda dev, t: t(0, 3) + t(2, 3),
    "where": lambda dev, t: dev.where(t(2) > 0, t(3), t(3)),
    "matmul": lambda dev, t: t(3, 4) @ t(3, 4),
    "matmul vectors": lambda dev, t: t(3) @ t(4),
    "matmul vector and matrix": lambda dev, t: t(3) @ t(4, 3),
    "matmul matrix and vector": lambda dev, t: t(3, 4) @ t(3),
    "matmul with 0 axes": lambda dev, t: t(3, 4) @ t(),
    "matmul with a number": lambda dev, t: t(3, 4) @ 2.0,
    "matmul batches": lambda dev, t: t(2, 3, 4) @ t(3, 4, 5),
    "matmul one matrix": lambda dev, t: t(2, 3, 4) @ t(3, 5),
    "matmul_t": lambda dev, t: t(3, 4).matmul_t(t(4, 3)),
    "matmul_t vectors": lambda dev, t: t(3).matmul_t(t(3)),
    "matmul_tn": lambda dev, t: t(3, 4).matmul_tn(t(4, 3)),
    "dev.matmul": lambda dev, t: dev.matmul(np.ones((2, 3)), np.ones((2, 3))),
    "softmax axis": lambda dev, t: t(3, 4).softmax(2),
    "softmax of 0 axes": lambda dev, t: t().softmax(),
    "log_softmax axis": lambda dev, t: t(3, 4).log_softmax(-3),
    "softmax float axis": lambda dev, t: t(3, 4).softmax(1.0),
    "layer_norm weight": lambda dev, t: t(3, 4).layer_norm(t(3), t(4)),
    "layer_norm bias": lambda dev, t: t(3, 4).layer_norm(t(4), t(1, 4)),
    "layer_norm 0 axes": lambda dev, t: t().layer_norm(t(1), t(1)),
    "sum axis": lambda dev, t: t(3, 4).sum(2),
    "sum axes twice": lambda dev, t: t(3, 4).sum((0, 0)),
    "sum axes twice from both ends": lambda dev, t: t(3, 4).sum((1, -1)),
    "sum float axis": lambda dev, t: t(3, 4).sum(0.5),
    "mean axis": lambda dev, t: t(3, 4).mean((0, 5)),
    "max of nothing": lambda dev, t: t(0).max(),
    "min over an empty axis": lambda dev, t: t(3, 0).min(1),
    "argmax of nothing": lambda dev, t: t(2, 0).argmax(),
    "argmax over two axes": lambda dev, t: t(3, 4).argmax((0, 1)),
    "reshape": lambda dev, t: t(3, 4).reshape(5, 2),
    "permute": lambda dev, t: t(3, 4).permute(0),
    "broadcast_to": lambda dev, t: t(3, 4).broadcast_to((3, 5)),
    "embed": lambda dev, t: dev.embed(t(3), [0]),
    "attention axes": lambda dev, t: t(4).attention(t(4), t(4)),
    "attention batches": lambda dev, t: t(2, 3, 4).attention(t(3, 5, 4), t(3, 5, 4)),
    "attention ranks": lambda dev, t: t(2, 3, 4).attention(t(5, 4), t(5, 4)),
    "attention k and v": lambda dev, t: t(3, 4).attention(t(5, 4), t(6, 4)),
    "attention head sizes": lambda dev, t: t(3, 8).attention(t(5, 6), t(5, 6), heads=2),
    "attention heads": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), heads=3),
    "attention no heads": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), heads=0),
    "attention kv_heads": lambda dev, t: t(3, 8).attention(t(5, 6), t(5, 6), heads=4, kv_heads=3),
    "attention wide heads": lambda dev, t: t(3, 257).attention(t(5, 257), t(5, 257)),
    "attention kv_length": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), kv_length=6),
    "attention kv_length < 0": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), kv_length=-1),
    "attention window": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), window=0),
    "attention float heads": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), heads=2.0),
    "attention bool kv_heads": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), kv_heads=True),
    "attention float kv_length": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), kv_length=2.5),
    "attention float window": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), window=2.0),
    "strided_copy beyond": lambda dev, t: tensai.ops.strided_copy(t(9), (3,), (4,), 1),
    "strided_copy before": lambda dev, t: tensai.ops.strided_copy(t(9), (3,), (-4,), 7),
    "strided_copy of nothing": lambda dev, t: tensai.ops.strided_copy(t(0), (1,), (0,), 0),
    "attention mask": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), mask=t(3, 4)),
    "attention mask axes": lambda dev, t: t(3, 8).attention(t(5, 8), t(5, 8), mask=t(*[1] * 5)),
    "zeros": lambda dev, t: dev.zeros((-1,)),
    "empty": lambda dev, t: dev.empty((2, 2.5)),
    "item": lambda dev, t: t(2).item(),
    "float": lambda dev, t: float(t(0)),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_wrong_shapes(dev: tensai.Device, name: str) -> None:
    with pytest.raises(ShapeError) as caught:
        WRONG_SHAPES[name](dev, lambda *shape: dev.zeros(shape))
    assert len(str(caught.value)) > 20  # says what was given


WRONG_DTYPES: dict[str, Use] = {
    "int32 with uint32": lambda dev, t: t(i32) + t(u32),
    "compare int32 with uint32": lambda dev, t: t(i32) == t(u32),
    "where of both": lambda dev, t: dev.where(True, t(i32), t(u32)),
    "subtract bools": lambda dev, t: t(bool) - t(bool),
    "negative of bool": lambda dev, t: -t(bool),
    "bitwise and of floats": lambda dev, t: t(f32) & t(f32),
    "invert of floats": lambda dev, t: ~t(f32),
    "softmax of integers": lambda dev, t: t(i32).softmax(),
    "log_softmax of bools": lambda dev, t: t(bool).log_softmax(),
    "layer_norm of integers": lambda dev, t: t(i32).layer_norm(t(f32), t(f32)),
    "layer_norm by integers": lambda dev, t: t(f32).layer_norm(t(i32), t(f32)),
    "attention of integers": lambda dev, t: t(i32)[None].attention(t(i32)[None], t(i32)[None]),
    "attention with an integer mask": lambda dev, t: t(f32)[None].attention(
        t(f32)[None], t(f32)[None], mask=t(i32)[0]
    ),
    "embed by floats": lambda dev, t: dev.embed(t(f32)[None], t(f32)),
    "embed by a list of floats": lambda dev, t: dev.embed(t(f32)[None], [0.5]),
    "embed by bools": lambda dev, t: dev.embed(t(f32)[None], t(bool)),
    "embed of bools": lambda dev, t: dev.embed(t(bool)[None], t(i32)),
    "astype float64": lambda dev, t: t(f32).astype(np.float64),
    "astype a dtype": lambda dev, t: t(f32).astype(np.dtype(np.float64)),
    "astype int64": lambda dev, t: t(f32).astype(np.dtype(np.int64)),
    "astype nonsense": lambda dev, t: t(f32).astype("nonsense"),
    "zeros complex": lambda dev, t: dev.zeros(3, dtype=np.complex64),
    "empty int64": lambda dev, t: dev.empty(3, dtype=np.int64),
    "add None": lambda dev, t: t(f32) + None,
    "add a string": lambda dev, t: t(f32) + "1",
    "add a complex number": lambda dev, t: t(f32) + 1j,
    "add an object": lambda dev, t: t(f32) + object(),
    "an operation without a tensor": lambda dev, t: tensai.ops.exp(1.0),
}


@pytest.mark.parametrize("name", WRONG_DTYPES)
def test_wrong_dtypes(dev: tensai.Device, name: str) -> None:
    with pytest.raises(DTypeError):
        WRONG_DTYPES[name](dev, lambda dtype: dev.zeros(4, dtype=dtype))


def test_tensors_as_attributes(dev: tensai.Device) -> None:
    # Attributes are part of a plan, tensors are not: refused, or right every time.
    t = dev.upload(numbers((4, 6)))
    for value in (0, 1):
        expected = numbers((4, 6)).astype(np.float64).sum(axis=value)
        try:
            got = t.sum(dev.upload(value))
        except (TypeError, tensai.TensaiError):
            continue
        same(got, expected, 1e-6, what=value)
    for value in (0.0, 100.0):
        expected = t.attention(t, t, scale=value)  # kept, so that its memory is not used again
        try:
            got = t.attention(t, t, scale=dev.upload(value))
        except (TypeError, tensai.TensaiError):
            continue
        same(got, expected.download(), 1e-6, what=value)


def test_attributes_that_are_no_numbers(dev: tensai.Device) -> None:
    """Of every operation that takes one, and of what calls them."""
    t, row = dev.ones((2, 4)), dev.ones(4)
    moments = (t.copy(), t.copy())
    adam = {"lr": 0.1, "beta1": 0.9, "beta2": 0.9, "eps": 1e-8, "step": 1, "weight_decay": 0.0}

    def step(name: str) -> Any:
        return lambda value: t.adam_step_(t * 2, *moments, **{**adam, name: value})

    uses: dict[str, Any] = {
        **{f"adam {name}": step(name) for name in adam},
        "softcap": lambda value: t.attention(t, t, softcap=value),
        "scale": lambda value: t.attention(t, t, scale=value),
        "gradient": lambda value: t.attention_grad(t, t, t, softcap=value),
        "layer_norm": lambda value: t.layer_norm(row, row, eps=value),
        "layer_norm_xhat": lambda value: t.layer_norm_xhat(value),
        "layer_norm_grad": lambda value: t.layer_norm_grad(t, row, value),
        "rms_norm": lambda value: t.rms_norm(row, eps=value),
        "rms_norm_grad": lambda value: t.rms_norm_grad(t, row, eps=value),
        "sample temperature": lambda value: tensai.ops.sample(t, temperature=value),
        "sample top_p": lambda value: tensai.ops.sample(t, top_p=value),
    }
    for name, use in uses.items():
        for value in ("1", [1.0], 1j):
            with pytest.raises(DTypeError, match="expected a number for"):
                use(value)
                pytest.fail(name)
    assert t.rms_norm(row, eps=np.float32(1e-6)).shape == t.shape


def test_operands_of_functions(dev: tensai.Device) -> None:
    x = numbers((3, 4))
    t = dev.upload(x)
    same(tensai.ops.maximum(0, t), np.maximum(x, 0))
    same(tensai.ops.subtract(x[0], t), x[0] - x)
    same(tensai.ops.add(a=t, b=t), x + x)
    same(tensai.ops.add(b=1, a=t), x + f32(1))
    same(t.add(b=t), x + x)
    same(tensai.ops.where(t > 0, t, 0), np.maximum(x, 0))
    same(tensai.ops.sum(t, axis=0), t.sum(0).download())
    same(dev.where(x > 0, x, 0), np.maximum(x, 0))


def test_wrong_calls(dev: tensai.Device) -> None:
    t = dev.ones((2, 2))
    for use in (
        lambda: t.softmax(axes=1),
        lambda: t.sum(0, True, 3),
        lambda: t.add(),
        lambda: t.attention(t),
        lambda: tensai.ops.add(),
        lambda: dev.zeros(),
    ):
        with pytest.raises(TypeError):
            use()
    with pytest.raises(AttributeError, match="nonsense"):
        tensai.ops.nonsense  # noqa: B018
    with pytest.raises(AttributeError):
        t.nonsense  # noqa: B018


# What an upload refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        np.array([1 + 2j]),
        np.array([object()]),
        np.array([None]),
        np.array(["a", "b"]),
        np.array([b"a"]),
        np.array([datetime.datetime(2020, 1, 1)], dtype="datetime64[s]"),
        np.array([1], dtype="timedelta64[s]"),
        np.zeros(2, dtype=[("x", f32), ("y", f32)]),
        [[1.0, 2.0], [3.0]],
        [[1, 2], 3],
        None,
        "text",
        {"a": 1},
        object(),
    ],
    ids=lambda data: type(data).__name__ if not isinstance(data, np.ndarray) else str(data.dtype),
)
def test_uploads_that_are_no_numbers(dev: tensai.Device, data: Any) -> None:
    for dtype in (None, f32, bool):
        with pytest.raises(DTypeError):
            dev.upload(data, dtype=dtype)


def test_upload_of_long_double(dev: tensai.Device) -> None:
    if np.dtype(np.longdouble) != np.dtype(np.float64):
        with pytest.raises(DTypeError):
            dev.upload(np.ones(3, np.longdouble))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2**31, None),
        (-(2**31) - 1, None),
        (2**63 - 1, None),
        (2**63, None),  # which NumPy takes for uint64
        (np.array([0, 2**40]), None),
        (np.array([[2**32]], np.uint64), None),
        (np.array([2**32 - 1], u32), i32),
        (np.array([-1], i32), u32),
        (np.array([-1]), u32),
        (2**32, u32),
        (np.array([2**31], ">i8"), None),
    ],
)
def test_integers_that_do_not_fit(dev: tensai.Device, value: Any, dtype: Any) -> None:
    with pytest.raises(OverflowError):
        dev.upload(value, dtype=dtype)
    # float32 takes them.
    same(dev.upload(value, dtype=f32), np.asarray(value).astype(f32))


def test_integers_that_just_fit(dev: tensai.Device) -> None:
    same(dev.upload([2**31 - 1, -(2**31)]), np.array([2**31 - 1, -(2**31)], i32))
    same(dev.upload([2**32 - 1], dtype=u32), np.array([2**32 - 1], u32))
    same(dev.upload(np.array([2**32 - 1], np.uint64)), np.array([2**32 - 1], u32))
    same(dev.upload(2**24 + 1), np.array(2**24 + 1, i32))
    with pytest.raises(OverflowError):
        dev.upload([1], dtype=i32) * 2**31
    with pytest.raises(OverflowError):
        dev.full((3,), 2**31, dtype=i32)


# Freed tensors, other devices, limits -----------------------------------------------------------


def test_freed_tensors(dev: tensai.Device) -> None:
    live = dev.ones((2, 2))
    freed = dev.ones((2, 2))
    (live + freed).download()  # so that the plan is known already
    freed.free()
    for use in (
        freed.download,
        lambda: freed + live,
        lambda: live + freed,
        lambda: live @ freed,
        lambda: freed.softmax(),
        lambda: freed.reshape(4),
        lambda: freed[0],
        lambda: freed.T,
        lambda: freed.copy(),
        lambda: freed.astype(f16),
        lambda: freed.astype(f32),
        lambda: freed.tolist(),
        lambda: freed.sum(),
        lambda: dev.where(freed, live, live),
        lambda: dev.embed(freed, [0]),
        lambda: dev.upload(freed),
        lambda: np.asarray(freed),
        lambda: live.attention(live, live, mask=freed),
    ):
        with pytest.raises(TensorFreedError, match=r"\(2, 2\)"):
            use()


def test_tensors_of_other_devices(dev: tensai.Device) -> None:
    with tensai.open("cpu") as other:
        mine, foreign = dev.ones((2, 2)), other.ones((2, 2))
        (mine + mine).download()
        for use in (
            lambda: mine + foreign,
            lambda: foreign + mine,
            lambda: mine == foreign,
            lambda: mine @ foreign,
            lambda: mine.matmul_t(foreign),
            lambda: mine.maximum(foreign),
            lambda: mine.attention(foreign, mine),
            lambda: mine.attention(mine, mine, mask=foreign),
            lambda: mine.layer_norm(foreign[0], foreign[0]),
            lambda: dev.where(mine, mine, foreign),
            lambda: dev.where(foreign, mine, mine),
            lambda: dev.embed(foreign, dev.upload([0])),
        ):
            with pytest.raises(DeviceMismatchError):
                use()
        same(dev.upload(foreign) + mine, np.full((2, 2), 2, f32))


def test_tensors_beyond_the_limits(gpu: tensai.Device) -> None:
    most = gpu.limits["maxStorageBufferBindingSize"]
    with pytest.raises(LimitExceededError, match=f"{most + 4:,}"):
        gpu.empty(most // 4 + 1)
    for shape in ((2**20, 2**20), (2**40,), (2**62, 2**62), (2**31, 2)):
        with pytest.raises(LimitExceededError, match="split"):
            gpu.empty(shape)
        with pytest.raises(LimitExceededError):
            gpu.zeros(shape)
    with pytest.raises(LimitExceededError):
        gpu.empty(most // 2 + 2, dtype=f16)
    with pytest.raises(LimitExceededError):
        gpu.empty(most // 4 + 1, dtype=bool)
    side = int(most**0.5)
    with pytest.raises(LimitExceededError):
        gpu.ones((side, 1)) + gpu.ones((1, side))
    with pytest.raises(LimitExceededError):
        gpu.ones((side, 1)) @ gpu.ones((1, side))
    with pytest.raises(LimitExceededError):
        gpu.ones((1, 1)).broadcast_to((2**20, 2**20))
    with pytest.raises(LimitExceededError), gpu.batch():
        gpu.ones((side, 1)) * gpu.ones((1, side))


def test_the_largest_tensor(gpu: tensai.Device) -> None:
    # Exactly the limit, which a rounded-up size must not overstep.
    most = min(gpu.limits["maxStorageBufferBindingSize"], 128 << 20)
    with gpu.empty(most // 4, dtype=i32) as t:
        t[-1:].download()
        part = t[: 1 << 10] * 0 + 7
        same(part, np.full(1 << 10, 7, i32))
    assert gpu.memory()["in_use"] < most
