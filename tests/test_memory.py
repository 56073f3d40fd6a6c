"""Memory and lifetime: the pool, the account, threads, closing, forking, uploads and downloads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from compare import numbers, same, wide

import tensai
import tensai.device
from tensai import gpu_plan

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32


@pytest.fixture(params=["gpu", "cpu"])
def fresh(request: pytest.FixtureRequest) -> Iterator[tensai.Device]:
    """A device of the test's own, whose account starts at 0."""
    with tensai.open("cpu" if request.param == "cpu" else None) as device:
        yield device


@pytest.fixture
def fresh_gpu() -> Iterator[Any]:
    with tensai.open() as device:
        yield device


def run(code: str, **environment: str) -> str:
    """The output of a Python process, which must end well and silently."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


# The account and the pool -----------------------------------------------------------------------


def test_memory_returns_to_the_start(fresh: tensai.Device) -> None:
    assert fresh.memory() == {"in_use": 0, "pooled": 0, "peak": 0}
    a = fresh.upload(numbers((100, 1000)))
    assert 400_000 <= fresh.memory()["in_use"] < 460_000
    b = a + a
    c = (a @ b.T).softmax()
    c.download()
    assert fresh.memory()["peak"] >= 3 * 400_000
    d = c.reshape(-1)
    before = fresh.memory()["in_use"]
    del c  # its memory is d's as well
    assert fresh.memory()["in_use"] == before
    del a, b, d
    assert fresh.memory()["in_use"] == 0
    assert fresh.memory()["peak"] >= 3 * 400_000


def test_temporaries_come_back(fresh: tensai.Device) -> None:
    x = fresh.upload(numbers((64, 256)))
    weight = fresh.upload(numbers((256,)))

    def work() -> None:
        y = ((x * 2.5 + x).gelu().softmax().layer_norm(weight, weight)[:, ::2]).sum(0)
        y.astype(f16).download()
        (x == x).download()
        x.reshape(-1).sum()  # takes two passes and a temporary

    work()  # numbers become tensors that are kept
    before = fresh.memory()["in_use"]
    for _ in range(20):
        work()
    assert fresh.memory()["in_use"] == before


def test_memory_is_used_again(fresh_gpu: Any) -> None:
    for _ in range(5):
        t = fresh_gpu.upload(numbers((1 << 18,)))
        (t + t).download()
        del t
    figures = fresh_gpu.memory()
    # Two tensors of 1 MiB at a time, and one more while the last one is still being read.
    assert figures["in_use"] + figures["pooled"] <= 4 << 20
    assert figures["peak"] <= 4 << 20


def test_free_and_with(fresh: tensai.Device) -> None:
    x = numbers((50, 100))
    with fresh.upload(x) as t:
        y = t + 1
    before = fresh.memory()["in_use"]
    with pytest.raises(tensai.TensorFreedError, match=r"\(50, 100\)"):
        t.download()
    same(y, wide(x) + 1, 1e-7, each=True)
    y.free()
    y.free()  # a second time changes nothing
    assert fresh.memory()["in_use"] < before
    assert (y.shape, y.dtype) == ((50, 100), f32)
    assert "freed" in repr(y)


def test_reshape_shares_memory(fresh: tensai.Device) -> None:
    x = numbers((8, 6))
    t = fresh.upload(x)
    before = fresh.memory()["in_use"]
    others = [t.reshape(-1), t.reshape(6, 8), t.reshape(1, 8, 6).permute(1, 0, 2)]
    assert fresh.memory()["in_use"] == before
    t.free()
    for other in others:
        same(other, x.reshape(other.shape))


def test_a_device_goes_with_its_last_reference() -> None:
    device = tensai.open()
    t = device.upload([1.0, 2.0]) * 2
    same(t, [2.0, 4.0])
    gone = weakref.ref(device)
    del device
    same(t + 1, [3.0, 5.0])
    del t
    gc.collect()
    assert gone() is None


def test_tensors_in_reference_cycles() -> None:
    # The collector finalizes tensor and buffer together; the buffer must not be used again then.
    code = """if True:
        import gc
        import numpy as np, tensai
        dev = tensai.open()
        gc.disable()
        class Node: pass
        for size in (10, 1000, 100_000):
            for _ in range(4):
                node = Node()
                node.me, node.tensor = node, dev.upload(np.ones(size))
                node.other = node.tensor + 1
                del node
            gc.collect()
            fresh = [dev.upload(np.full(size, i)) for i in range(8)]
            sums = [(t + 1) for t in fresh]
            for i, t in enumerate(sums):
                assert (t.download() == i + 1).all()
        print("right")
    """
    assert run(code) == "right\n"


# Work that is recorded and not yet submitted ----------------------------------------------------


def test_uploads_into_recycled_memory(dev: tensai.Device) -> None:
    # A host write overtakes recorded work, so it must not land in memory that this work reads.
    x = numbers((1000,))
    results = []
    with dev.batch():
        for number in range(20):
            t = dev.upload(x + f32(number))
            results.append(t * 2)
            del t
    for number, result in enumerate(results):
        same(result, (x + f32(number)) * f32(2))


def test_uploads_beside_pending_work(dev: tensai.Device) -> None:
    x = numbers((1000,))
    a = dev.upload(x)
    b = a + 1  # recorded only
    a.free()
    c = dev.upload(np.zeros(1000, f32))
    d = dev.upload(np.full(1000, 7, f32))
    same(b, x + f32(1))
    same(c, np.zeros(1000, f32))
    same(d, np.full(1000, 7, f32))


def test_results_into_recycled_memory(dev: tensai.Device) -> None:
    x = numbers((1000,))
    with dev.batch():
        t = dev.upload(x)
        for _ in range(100):
            t = t + 1  # each frees what it read
    same(t, x.astype(np.float64) + 100, 1e-5)


def test_downloads_inside_a_batch(dev: tensai.Device) -> None:
    x = numbers((300,))
    with dev.batch():
        a = dev.upload(x) + 1
        same(a, x + f32(1))
        with dev.batch():
            b = a * 2
        c = b.sum()
    same(b, (x + f32(1)) * f32(2))
    assert c.item() == pytest.approx(b.download().sum(dtype=np.float64), rel=1e-6)
    with pytest.raises(ZeroDivisionError), dev.batch():
        d = a + 1
        raise ZeroDivisionError
    same(d, (x + f32(1)) + f32(1))


def test_long_chains(dev: tensai.Device) -> None:
    t = dev.zeros((5,))
    for _ in range(1000):
        t = t + 1
    same(t, np.full(5, 1000, f32))
    dev.synchronize()


# Threads ----------------------------------------------------------------------------------------


def in_threads(count: int, work: Any) -> None:
    """Run work(number) in threads at once; the first exception is raised here."""
    failures: list[BaseException] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that they meet in the middle of everything

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    if failures:
        raise failures[0]


def test_threads_share_a_device(fresh: tensai.Device) -> None:
    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for step in range(15):
            x = rng.integers(-5, 6, (20 + number, 30 + step)).astype(f32)
            t = fresh.upload(x)
            same(t @ t.T, wide(x) @ wide(x).T)
            with fresh.batch():
                total = ((t + number) * 2).sum()
            assert total.item() == ((x + number) * 2).sum()

    in_threads(4, work)


def test_threads_fill_the_plans(fresh: tensai.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensai.device, "PLANS_KEPT", 8)

    def work(number: int) -> None:
        for size in range(1, 150):
            assert (fresh.upload(np.ones(size, f32)) + number).download()[-1] == 1 + number

    in_threads(4, work)


def test_one_thread_frees_what_another_made(fresh: tensai.Device) -> None:
    made: list[Any] = []

    def work(number: int) -> None:
        for step in range(100):
            if number % 2:
                made.append(fresh.upload(np.full(256, step, f32)) + 1)
            elif made:
                t = made.pop()
                assert len(set(t.tolist())) == 1
                t.free()

    in_threads(4, work)
    for t in made:
        assert len(set(t.tolist())) == 1


# Uploads and downloads --------------------------------------------------------------------------


def test_uploads_of_many_kinds(dev: tensai.Device) -> None:
    x = np.arange(24).reshape(4, 6)
    same(dev.upload(x.tolist()), x)
    same(dev.upload(tuple(map(tuple, x.tolist()))), x)
    same(dev.upload([[1, 2.5], [3, 4]]), [[1, 2.5], [3, 4]])
    same(dev.upload(3), np.array(3, i32))
    same(dev.upload(True), np.array(True))
    same(dev.upload([]), np.zeros(0, f32))
    same(dev.upload(range(5)), np.arange(5))
    for kind in (">f4", ">f8", ">i4", ">i8", ">u2", ">f2"):
        native = x.astype(np.dtype(kind).newbyteorder("="))
        same(dev.upload(x.astype(kind)), native.astype(u32) if kind == ">u2" else native)
    for kind in (np.int8, np.int16, np.int64):
        same(dev.upload(x.astype(kind)), x.astype(i32))
    for kind in (np.uint8, np.uint16, np.uint64):
        same(dev.upload(x.astype(kind)), x.astype(u32))
    floats = x.astype(f32)
    for view in (
        floats.T,
        floats[::2, ::-1],
        np.asfortranarray(floats),
        floats[:, 1:2],
        floats[3:1],
    ):
        same(dev.upload(view), view)
    same(dev.upload(np.broadcast_to(floats[0], (5, 6))), np.broadcast_to(floats[0], (5, 6)))
    floats.flags.writeable = False
    same(dev.upload(floats), floats)
    same(dev.upload(memoryview(np.arange(3, dtype=f32))), np.arange(3, dtype=f32))
    same(dev.upload(dev.upload(floats)), floats)
    same(dev.upload(x, dtype=f16), x.astype(f16))
    same(dev.upload(x, dtype="float32"), floats)
    same(dev.upload([1.7, -1.7], dtype=i32), np.array([1, -1], i32))
    saturated = dev.upload([np.nan, 3e9, -np.inf, 2.0**31], dtype=i32)
    same(saturated, np.array([0, 2**31 - 1, -(2**31), 2**31 - 1], i32))
    same(dev.upload([-1.5, 1e10, 7.9], dtype=u32), np.array([0, 2**32 - 1, 7], u32))
    same(dev.upload([0, 3], dtype=bool), [False, True])
    same(dev.upload([1e300, -1e300, 1e-300]), [np.inf, -np.inf, 0.0])
    same(dev.upload(np.float64(0.1)), np.array(0.1, f32))


def test_an_upload_is_a_copy(dev: tensai.Device) -> None:
    x = numbers((10,))
    t = dev.upload(x)
    kept = x.copy()
    x[:] = 0
    same(t, kept)
    got = t.download()
    got[:] = 1
    same(t, kept)


def test_odd_sizes_of_every_dtype(dev: tensai.Device) -> None:
    for kind in (f32, f16, i32, u32, np.bool_):
        for size in (1, 2, 3, 5, 255, 257, 1023, 4097):
            x = numbers((size,), kind)
            t = dev.upload(x)
            same(t, x)
            same(t.copy(), x)
            same(t[::-1], x[::-1])
            same(t.reshape(1, size).T, x.reshape(1, size).T)


def test_download_into_an_array(dev: tensai.Device) -> None:
    for kind in (f32, f16, i32, u32, np.bool_):
        for shape in ((), (3,), (5, 7), (0, 2)):
            x = numbers(shape, kind)
            out = np.ones(shape, kind)
            assert dev.upload(x).download(out=out) is out
            same(out, x)
    t = dev.upload(numbers((4, 6)))
    for wrong, error in (
        (np.empty((6, 4), f32), tensai.ShapeError),
        (np.empty(24, f32), tensai.ShapeError),
        (np.empty((4, 6), np.float64), tensai.DTypeError),
        (np.empty((4, 6), i32), tensai.DTypeError),
        (np.empty((6, 4), f32).T, tensai.DTypeError),
        (np.broadcast_to(f32(0), (4, 6)), tensai.DTypeError),
    ):
        with pytest.raises(error, match="download"):
            t.download(out=wrong)
    many = np.zeros((3, 4, 6), f32)
    t.download(out=many[1])
    same(many[1], t.download())
    assert not many[[0, 2]].any()


def test_large_tensors_in_pieces(fresh_gpu: Any) -> None:
    # More than is written or read back at a time, and not a multiple of it.
    x = np.arange((70 << 18) + 3, dtype=i32)
    t = fresh_gpu.upload(x)
    assert np.array_equal(t.download(), x)
    assert (t + 1).max().item() == x[-1] + 1


def test_a_large_free_buffer_gives_way_to_small_ones(fresh_gpu: Any) -> None:
    pool = fresh_gpu.pool
    fresh_gpu.upload(np.zeros(1 << 18, f32)).free()
    pool.collect()
    pool.keep = pool.pooled  # full
    fresh_gpu.upload(np.zeros(1 << 10, f32)).free()
    made = fresh_gpu.native.create_buffer
    fresh_gpu.native.create_buffer = lambda *_: pytest.fail("a buffer was created anew")
    fresh_gpu.upload(np.zeros(1 << 10, f32)).free()
    fresh_gpu.native.create_buffer = made
    pool.collect()
    assert 0 < pool.pooled <= pool.keep


def test_work_is_submitted_on_the_way(fresh_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_plan, "SUBMIT_AFTER", 3)
    total = fresh_gpu.upload(np.zeros(5, f32))
    for step in range(20):  # a host write must overtake nothing that was recorded
        total = total + fresh_gpu.upload(np.full(5, step, f32)) * 2
        turn = fresh_gpu.pool.turn
    assert turn > 10
    assert total.tolist() == [380.0] * 5
    with fresh_gpu.batch():
        for _ in range(9):
            total = total + total * 0
        assert fresh_gpu.pool.turn <= turn + 1  # nothing but the download's
    assert total.tolist() == [380.0] * 5


# Several devices, closing, forking --------------------------------------------------------------


def test_two_devices_at_once() -> None:
    x = numbers((40, 30))
    with tensai.open() as one, tensai.open() as other, tensai.open("cpu") as host:
        tensors = [device.upload(x) for device in (one, other, host)]
        for _ in range(3):
            tensors = [t + 1 for t in tensors]
        for t in tensors:
            same(t, wide(x) + 3, 1e-6, each=True)
        one.close()
        same(tensors[1] * 2, (wide(x) + 3) * 2, 1e-6, each=True)


def test_use_after_close(fresh: tensai.Device) -> None:
    t = fresh.upload(numbers((4, 4)))
    pending = t + 1
    fresh.close()
    fresh.close()
    for use in (
        lambda: t.download(),
        lambda: pending.download(),
        lambda: t + 1,
        lambda: t + t,
        lambda: t.softmax(),
        lambda: t @ t,
        lambda: t[1:],
        lambda: t.sum(),
        lambda: float(t.reshape(-1)[0]),
        lambda: fresh.upload([1.0]),
        lambda: fresh.empty((3,)),
        lambda: fresh.zeros((3,)),
        lambda: fresh.embed(t, [0]),
        lambda: fresh.matmul([[1.0]], [[1.0]]),
        fresh.synchronize,
    ):
        with pytest.raises(tensai.DeviceLostError, match="closed"):
            use()
    with fresh.batch():
        pass
    t.free()
    assert isinstance(fresh.memory(), dict)
    assert "tensai device" in repr(fresh)


def test_closing_with_work_pending(fresh_gpu: Any) -> None:
    with fresh_gpu.batch():
        t = fresh_gpu.upload(numbers((100,)))
        for _ in range(10):
            t = t + 1
        fresh_gpu.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("held", ["nothing", "the lock"])
def test_a_forked_child_is_told(held: str) -> None:
    code = f"""if True:
        import os, sys, threading, time
        import numpy as np, tensai
        dev = tensai.open()
        t = dev.upload(np.arange(4.0))
        pending = t + 1
        if {held == "the lock"}:
            def hold():
                with dev.lock:
                    time.sleep(3)
            threading.Thread(target=hold, daemon=True).start()
            time.sleep(0.2)
        child = os.fork()
        if child == 0:
            for use in (t.download, lambda: t + 1, pending.sum, lambda: dev.upload([1.0])):
                try:
                    use()
                except tensai.DeviceLostError as error:
                    assert "fork" in str(error), error
                else:
                    os._exit(7)
            del t, pending
            if dev.info.software:  # hardware drivers do not promise as much
                with tensai.open() as fresh:
                    assert (fresh.upload([1.0, 2.0]) + 1).tolist() == [2.0, 3.0]
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        print(pending.tolist())
    """
    assert run(code) == "[1.0, 2.0, 3.0, 4.0]\n"


def test_exit_with_work_pending_is_silent() -> None:
    code = """if True:
        import numpy as np, tensai
        dev = tensai.open()
        t = dev.upload(np.ones((50, 50)))
        kept = [t @ t for _ in range(30)]
        whole = dev.batch()
        whole.__enter__()
        kept.append(t + 1)
    """
    assert run(code) == ""
