"""tensai.matmul: NumPy's answer, whoever computes it."""

from __future__ import annotations

import contextvars
import json
import logging
import math
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compare import numbers, same
from hypothesis import given, settings
from hypothesis import strategies as st

import tensai
from tensai import accelerator, kept, thresholds
from tensai.errors import ValidationError

f16, f32, f64 = np.float16, np.float32, np.float64
Array = np.ndarray[Any, Any]
MatmulCounter = list[tuple[tuple[int, ...], tuple[int, ...]]]


@pytest.fixture(autouse=True)
def apart(gpu: tensai.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No accelerator before or after, no threshold of this machine's, and no earlier troubles."""
    monkeypatch.setattr(kept, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(accelerator, "_troubles", type(accelerator._troubles)())
    tensai.use_accelerator(None)
    yield
    tensai.use_accelerator(None)


@pytest.fixture
def went(gpu: tensai.Device, monkeypatch: pytest.MonkeyPatch) -> MatmulCounter:
    """The shapes of the products that went to the device."""
    seen: MatmulCounter = []
    real = gpu.matmul

    def matmul(x: Array, y: Array) -> Array:
        seen.append((x.shape, y.shape))
        return real(x, y)

    monkeypatch.setattr(gpu, "matmul", matmul)
    return seen


def tolerance(a: Array, b: Array, dtype: Any) -> float:
    """1e-6 sqrt(k), or float16's rounding of the result."""
    return 1e-6 * math.sqrt(a.shape[-1]) if dtype == f32 else 1e-3


def check(a: Array, b: Array) -> None:
    got = tensai.matmul(a, b)
    expected = np.matmul(a, b)
    assert type(got) is type(expected)
    if expected.dtype.kind == "f" and expected.dtype.itemsize < 8:
        assert got.dtype == expected.dtype
        exact = np.matmul(a.astype(f64), b.astype(f64)).astype(expected.dtype)
        # What cancels is small beside what it was summed from.
        scale = float(np.matmul(abs(a.astype(f64)), abs(b.astype(f64))).max(initial=0.0))
        same(np.asarray(got), exact, tolerance(a, b, expected.dtype), scale=scale)
    else:
        assert np.array_equal(got, expected, equal_nan=True)
        assert got.dtype == expected.dtype


@st.composite
def operands(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes that numpy.matmul takes, 1-D and empty ones included."""
    length = st.integers(0, 9)
    m, k, n = draw(length), draw(length), draw(length)
    batch = draw(st.lists(st.integers(0, 3), max_size=3))
    sides = []
    for _ in range(2):
        kept = [x if draw(st.booleans()) else 1 for x in batch]
        sides.append(tuple(kept[draw(st.integers(0, len(kept))) :]))
    a: tuple[int, ...] = (*sides[0], m, k)
    b: tuple[int, ...] = (*sides[1], k, n)
    if draw(st.integers(0, 5)) == 0:
        a = (k,)
    if draw(st.integers(0, 5)) == 0:
        b = (k,)
    return a, b


DTYPES = ("?", "i1", "u1", "i2", "i4", "u8", "e", "f", ">f4", "d", "F", "g")


@settings(max_examples=80, deadline=None)
@given(operands(), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_every_shape_and_dtype(
    gpu: tensai.Device, shapes: tuple[Any, Any], one: str, other: str
) -> None:
    rng = np.random.default_rng(3)
    a, b = (
        rng.integers(0, 3, shape).astype(dtype)
        for shape, dtype in zip(shapes, (one, other), strict=True)
    )
    with tensai.accelerated(gpu, threshold=0), warnings.catch_warnings():
        warnings.simplefilter("error")
        got, expected = tensai.matmul(a, b), np.matmul(a, b)
    assert type(got) is type(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("dtypes", [(f32, f32), (f16, f16), (f16, f32), (f32, np.int16)])
@pytest.mark.parametrize(
    "shapes",
    [
        ((33, 130), (130, 65)),
        ((130,), (130,)),
        ((3, 17, 40), (40, 21)),
        ((40,), (2, 3, 40, 9)),
        ((2, 1, 3, 1, 2, 5, 8), (3, 1, 2, 1, 8, 4)),
    ],
)
def test_fractions(
    gpu: tensai.Device, went: MatmulCounter, dtypes: tuple[Any, Any], shapes: tuple[Any, Any]
) -> None:
    a, b = (
        numbers(shape, dtype, seed)
        for seed, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    )
    with tensai.accelerated(gpu, threshold=0):
        check(a, b)
    assert went == [shapes]


def test_layouts(gpu: tensai.Device, went: MatmulCounter, tmp_path: Path) -> None:
    a = numbers((40, 60))
    kept = np.memmap(tmp_path / "weights", f32, "w+", shape=(30, 50))
    kept[:] = numbers((30, 50), seed=2)
    with tensai.accelerated(gpu, threshold=0):
        check(a[::2, ::-2], kept)
        check(a.T, np.asfortranarray(a))
        check(np.broadcast_to(a, (3, 40, 60)), a.T)
    assert len(went) == 3


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (numbers((4, 5), f64), numbers((5, 3), f32)),
        (numbers((4, 5), np.int32), numbers((5, 3), np.int32)),
        (numbers((4, 5), np.int32), numbers((5, 3), f32)),
        (numbers((4, 5), f32) * 1j, numbers((5, 3), f32)),
        (numbers((4, 5), f32).astype(object), numbers((5, 3), f32)),
        (np.zeros((4, 5), np.longdouble), np.zeros((5, 3), f32)),
        (np.zeros((4, 0), f32), np.zeros((0, 3), f32)),
        ([[1.0, 2.0]], [[3.0], [4.0]]),
    ],
)
def test_what_stays_with_numpy(gpu: tensai.Device, went: MatmulCounter, a: Any, b: Any) -> None:
    with tensai.accelerated(gpu, threshold=0):
        got, expected = tensai.matmul(a, b), np.matmul(a, b)
    assert got.dtype == expected.dtype
    assert np.array_equal(got, expected)
    assert not went


def test_other_classes_have_their_own_product(gpu: tensai.Device, went: MatmulCounter) -> None:
    masked = np.ma.masked_array(numbers((3, 3)), mask=np.eye(3))
    with tensai.accelerated(gpu, threshold=0):
        assert type(tensai.matmul(masked, masked)) is type(np.matmul(masked, masked))
        with pytest.raises(TypeError):  # as np.matmul says of a tensor
            tensai.matmul(numbers((3, 3)), gpu.zeros((3, 3)))
    assert not went


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros((2, 3), f32), np.zeros((4, 5), f32)),
        (np.zeros((2, 2, 3), f32), np.zeros((3, 3, 5), f32)),
        (np.zeros((), f32), np.zeros((3,), f32)),
        (np.zeros(3, f32), np.zeros(4, f32)),
        (np.zeros((2, 3), "M8[s]"), np.zeros((3, 2), f32)),
        (np.array([["a"]]), np.zeros((1, 1), f32)),
    ],
)
def test_errors_are_numpys(gpu: tensai.Device, a: Array, b: Array) -> None:
    with pytest.raises(Exception) as expected:
        np.matmul(a, b)
    for device in (gpu, None):
        with tensai.accelerated(device, threshold=0), pytest.raises(type(expected.value)) as got:
            tensai.matmul(a, b)
        assert str(got.value) == str(expected.value)


def test_not_a_number_and_infinity(gpu: tensai.Device, went: MatmulCounter) -> None:
    a, b = numbers((37, 50)), numbers((50, 41), seed=2)
    a[3, 4], a[5, 6], a[9, 1], b[7, 8], b[6, 2] = np.nan, np.inf, -np.inf, np.inf, 0
    with tensai.accelerated(gpu, threshold=0), np.errstate(all="ignore"):
        for dtype in (f32, f16):
            x, y = a.astype(dtype), b.astype(dtype)
            same(tensai.matmul(x, y), np.matmul(x, y), 1e-3 if dtype == f16 else 1e-5)
        large = np.full((8, 8), 300, f16)
        same(tensai.matmul(large, large), np.matmul(large, large))  # beyond float16
    assert len(went) == 3


def test_the_threshold_counts_multiply_accumulates(gpu: tensai.Device, went: MatmulCounter) -> None:
    a, b = numbers((2, 3, 4, 5)), numbers((3, 5, 6))
    work = 2 * 3 * 4 * 5 * 6
    for threshold in (work + 1, math.inf, tensai.DEFAULT_ACCELERATOR_THRESHOLD):
        with tensai.accelerated(gpu, threshold=threshold):
            tensai.matmul(a, b)
    assert not went
    for threshold in (work, np.float32(work), np.int64(1), 0):
        with tensai.accelerated(gpu, threshold):
            check(a, b)
    assert len(went) == 4


def test_nesting(gpu: tensai.Device, cpu: tensai.Device) -> None:
    def now() -> Any:
        active = accelerator._here.get(accelerator._everywhere)
        return active and (active.device, active.threshold)

    assert now() is None
    tensai.use_accelerator(gpu, threshold=7)
    with tensai.accelerated(cpu, 5):
        assert now() == (cpu, 5)
        with pytest.raises(KeyError), tensai.accelerated(gpu, 3):
            assert now() == (gpu, 3)
            raise KeyError
        assert now() == (cpu, 5)
        with tensai.accelerated(None):
            assert now() is None
        tensai.use_accelerator(gpu, threshold=9)
        assert now() == (cpu, 5)
    assert now() == (gpu, 9)
    with pytest.raises(ValueError):
        tensai.use_accelerator(gpu, threshold=-1)
    assert now() == (gpu, 9)
    tensai.use_accelerator(None)
    assert now() is None


def test_a_block_is_local_to_its_thread(gpu: tensai.Device, went: MatmulCounter) -> None:
    a = numbers((5, 5))

    def in_thread(run: Any) -> None:
        thread = threading.Thread(target=run, args=(tensai.matmul, a, a))
        thread.start()
        thread.join()

    with tensai.accelerated(gpu, 0):
        in_thread(contextvars.Context().run)
        assert not went
        in_thread(contextvars.copy_context().run)
        assert len(went) == 1
    tensai.use_accelerator(gpu, 0)
    in_thread(contextvars.Context().run)
    assert len(went) == 2


def test_threads(gpu: tensai.Device) -> None:
    tensai.use_accelerator(gpu, threshold=0)

    def product(seed: int) -> None:
        a, b = numbers((seed + 1, 20), seed=seed), numbers((20, 30), seed=seed + 1)
        for _ in range(5):
            check(a, b)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(product, range(24)))


@pytest.mark.parametrize("device", ["cpu", 3, type("Device", (), {"matmul": None})()])
def test_what_is_no_device(device: Any) -> None:
    with pytest.raises(TypeError, match="tensai.open"):
        tensai.use_accelerator(device)
    with pytest.raises(TypeError, match="tensai.open"), tensai.accelerated(device):
        pass


@pytest.mark.parametrize(
    ("threshold", "error"),
    [(-1, ValueError), (math.nan, ValueError), ("4e8", TypeError), (True, TypeError)],
)
def test_what_is_no_threshold(gpu: tensai.Device, threshold: Any, error: Any) -> None:
    for device in (gpu, None):
        with pytest.raises(error, match="multiply-accumulates"):
            tensai.use_accelerator(device, threshold)


ERRORS = [
    tensai.OutOfDeviceMemoryError("no room"),
    tensai.LimitExceededError("too large"),
    tensai.KernelError("refused"),
    tensai.ShapeError("a shape"),
    ValidationError("invalid"),
    RuntimeError("anything"),
    MemoryError(),
]


@pytest.mark.fallback_expected
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("method", ["matmul", "store", "allocate", "fetch", "plan"])
def test_a_device_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Any, method: str
) -> None:
    device = tensai.open("cpu")
    asked = 0

    def fail(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        raise error

    a = numbers((4, 5)), numbers((5, 6))
    if method in ("allocate", "plan"):
        monkeypatch.setattr(device, "plan", fail)
    else:
        monkeypatch.setattr(device, method, fail)
    for _ in range(3):
        with tensai.accelerated(device, 0):
            assert np.array_equal(tensai.matmul(*a), np.matmul(*a))
    assert asked == 3  # it may have been for once
    (warning,) = (x for x in caplog.records if x.levelno >= logging.WARNING)
    assert device.name in warning.getMessage()
    assert (str(error) or "MemoryError") in warning.getMessage()
    monkeypatch.undo()
    with tensai.accelerated(device, 0):
        check(*a)


@pytest.mark.fallback_expected
def test_a_lost_device_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device = tensai.open("cpu")
    asked = []

    def lost(*_: Any) -> Any:
        asked.append(1)
        raise tensai.DeviceLostError("the driver was reset")

    monkeypatch.setattr(device, "matmul", lost)
    a = numbers((4, 5)), numbers((5, 6))
    tensai.use_accelerator(device, 0)
    for _ in range(3):
        assert np.array_equal(tensai.matmul(*a), np.matmul(*a))
    tensai.use_accelerator(device, 0)
    assert np.array_equal(tensai.matmul(*a), np.matmul(*a))
    assert len(asked) == 1
    assert [x.getMessage() for x in caplog.records if x.levelno >= logging.WARNING] == [
        "tensai.matmul runs on the CPU instead of NumPy on the CPU: the driver was reset"
    ]


@pytest.mark.fallback_expected
def test_a_closed_device(caplog: pytest.LogCaptureFixture) -> None:
    a = numbers((4, 5)), numbers((5, 6))
    with tensai.open() as device:
        tensai.use_accelerator(device, 0)
        check(*a)
    for _ in range(3):
        assert np.array_equal(tensai.matmul(*a), np.matmul(*a))
    (warning,) = (x.getMessage() for x in caplog.records if "instead of" in x.getMessage())
    assert "was closed" in warning


@pytest.mark.fallback_expected
def test_a_device_that_another_thread_closes() -> None:
    a, b = numbers((30, 40)), numbers((40, 30), seed=2)
    device = tensai.open()
    tensai.use_accelerator(device, 0)
    begun = threading.Event()

    def multiply(_: int) -> None:
        for _ in range(20):
            check(a, b)
            begun.set()

    with ThreadPoolExecutor(3) as pool:
        done = pool.map(multiply, range(3))
        begun.wait(60)
        device.close()
        list(done)


def test_a_wrong_dtype_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device = tensai.open("cpu")
    monkeypatch.setattr(device, "matmul", lambda x, y: np.matmul(x, y).astype(f64))
    monkeypatch.setattr(accelerator.logger, "level", logging.CRITICAL)
    with tensai.accelerated(device, 0):
        check(numbers((3, 3)), numbers((3, 3)))


@pytest.mark.parametrize("name", accelerator.SIZE_LIMITS)
def test_what_a_device_cannot_bind_stays_here(
    gpu: tensai.Device,
    went: MatmulCounter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    monkeypatch.setitem(gpu.limits, name, 4 * 60)
    with tensai.accelerated(gpu, 0):
        check(numbers((10, 6)), numbers((6, 6)))
        assert len(went) == 1
        check(numbers((61, 1)), numbers((1, 1)))
        check(numbers((1, 2, 1)), numbers((31, 1, 1)))  # only the result is too large
        check(numbers((1, 61), f16), numbers((61, 1), f16))
    assert len(went) == 1
    assert not caplog.records


def test_a_recording_takes_no_product_in(gpu: tensai.Device, went: MatmulCounter) -> None:
    a = numbers((6, 6))
    x = gpu.upload(a)
    with tensai.accelerated(gpu, 0):
        with gpu.record() as program:
            y = x + 1
            check(a, a)
        assert not went
        program.replay()
        with gpu.batch():
            check(a, a)
    assert len(went) == 1
    same(y, a + 1)


def test_the_saved_threshold(gpu: tensai.Device, cpu: tensai.Device, tmp_path: Path) -> None:
    def chosen(device: tensai.Device, *threshold: float) -> float:
        with tensai.accelerated(device, *threshold):
            active = accelerator._here.get()
            assert active is not None
            return active.threshold

    assert chosen(gpu) == 4e8 == tensai.DEFAULT_ACCELERATOR_THRESHOLD
    path = thresholds.save_threshold(gpu, 1.5e6)
    assert chosen(gpu) == 1.5e6
    assert chosen(gpu, 12) == 12
    assert chosen(cpu) == 4e8  # each device has its own
    thresholds.save_threshold(gpu, math.inf)
    assert chosen(gpu) == math.inf
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert list(path.parent.iterdir()) == [path]

    saved = json.loads(path.read_text())
    for damaged in (-1, True, "1e8", None, [], math.nan, 10**400):
        path.write_text(json.dumps({**saved, "threshold": damaged}))
        assert chosen(gpu) == 4e8
    for text in ("", "{", "[]", "3", "[" * 100_000, json.dumps({"threshold": 5.0}), "\xff\xfe"):
        path.write_text(text, encoding="latin1")
        assert chosen(gpu) == 4e8
    path.write_text(
        json.dumps({**saved, "threshold": 77, "device": {**saved["device"], "library": "0"}})
    )
    assert chosen(gpu) == 4e8
    path.unlink()
    path.mkdir()
    assert chosen(gpu) == 4e8
    with pytest.raises(ValueError, match="can't be kept in .*TENSAI_CACHE_DIR"):
        thresholds.save_threshold(gpu, 5.0)
    assert list(path.parent.iterdir()) == [path]


def test_an_accelerator_in_a_process_of_its_own() -> None:
    code = (
        "import sys, tensai, numpy as np\n"
        "a = np.ones((3, 3), 'f')\n"
        "tensai.matmul(a, a)\n"
        "assert 'cffi' not in sys.modules and 'tensai.device' not in sys.modules\n"
        "tensai.use_accelerator(tensai.open(), threshold=0)\n"
        "print(tensai.matmul(a, a).sum())\n"  # and it ends with the accelerator set
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "27.0\n"), done.stderr
