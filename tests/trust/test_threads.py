"""Many threads on one device and on several; processes that are forked or spawned."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensai

Silent = Callable[..., str]

# `in_threads(work, count)`: work(number) in each of so many, switching as often as Python can; a
# thread that is not done in time is a deadlock.
START = """if True:
    import faulthandler, threading
    sys.setswitchinterval(1e-6)
    TIMES = 20
    def in_threads(work, count=8):
        failed, gate = [], threading.Barrier(count)
        def run(number):
            try:
                gate.wait()
                work(number)
            except BaseException as error:
                failed.append(error)
        threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            if thread.is_alive():
                faulthandler.dump_traceback()
                os._exit(9)
        if failed:
            raise failed[0]
    def compute(device, number, step):
        rng = np.random.default_rng(1000 * number + step)
        x = rng.integers(-4, 5, (9 + number, 16 + step)).astype(np.float32)
        t = device.upload(x)
        assert np.array_equal((t @ t.T).download(), x @ x.T), (number, step)
        with device.batch():
            total = ((t + number) * 2).sum()
        assert total.item() == ((x + number) * 2).sum(), (number, step)
"""

TIMES_LONG = 400

WORK = {
    "one device": """
dev = tensai.open()
def work(number):
    for step in range(TIMES):
        compute(dev, number, step % 40)
in_threads(work)
dev.synchronize()
""",
    "several devices": """
devices = [tensai.open() for _ in range(3)] + [tensai.open("cpu")]
def work(number):
    for step in range(TIMES):
        compute(devices[(number + step) % 4], number, step % 40)
in_threads(work)
""",
    "a device of its own for each": """
def work(number):
    for step in range(max(TIMES // 10, 2)):
        with tensai.open() as device:
            compute(device, number, step % 40)
in_threads(work, 4)
""",
    "errors": """
dev = tensai.open()
kept = dev.upload(np.ones((4, 4), np.float32))
kept.download()
def work(number):
    # Every other thread makes errors, each its own; nobody else ever sees one.
    for step in range(TIMES):
        if number % 2 == 0:
            compute(dev, number, step % 40)
        elif number == 1:
            raises(tensai.ShapeError, lambda: kept + dev.ones((3,)), "(4, 4)")
        elif number == 3:
            raises(tensai.LimitExceededError, lambda: dev.empty((1 << 40,)))
        elif number == 5:
            raises(tensai.KernelError, lambda: dev.run("fn main( {"))
        else:
            t = dev.upload([1.0])
            t.free()
            raises(tensai.TensorFreedError, lambda: t + 1)
in_threads(work)
assert kept.sum().item() == 16
""",
    "closing while others compute": """
for turn in range(max(TIMES // 5, 3)):
    dev = tensai.open()
    a = dev.upload(np.ones((32, 32), np.float32))
    started = threading.Semaphore(0)
    def work(number):
        if number == 0:
            for _ in range(3):
                started.acquire()
            dev.close()
            return
        try:
            while True:
                assert (a @ a).download()[0, 0] == 32
                started.release()
        except tensai.DeviceLostError as error:
            assert "closed" in str(error)
    in_threads(work, 4)
""",
    "tensors that go from thread to thread": """
import queue
dev = tensai.open()
line = queue.Queue(16)
def work(number):
    if number % 2 == 0:
        for step in range(TIMES):
            line.put((step, dev.upload(np.full(300, step, np.float32)) + 1))
    else:
        for _ in range(TIMES):
            step, t = line.get(timeout=100)
            assert (t.download() == step + 1).all()
            t.free()
in_threads(work)
""",
    "programs": """
dev = tensai.open()
a = dev.upload(np.eye(16, dtype=np.float32))
programs = []
for number in range(4):
    with dev.record() as program:
        result = a * (number + 1)
    programs.append((program, result))
def work(number):
    program, result = programs[number % 4]
    for step in range(TIMES):
        program.replay()
        assert result.download()[0, 0] == number % 4 + 1
        compute(dev, number, step % 40)
in_threads(work)
""",
}


@pytest.mark.parametrize("name", WORK)
def test_threads(silent: Silent, full: bool, name: str) -> None:
    start = START.replace("TIMES = 20", f"TIMES = {TIMES_LONG}") if full else START
    assert (
        silent(start + WORK[name] + "\nprint('right')", timeout=3000 if full else 300) == "right\n"
    )


def test_memory_that_runs_out_in_one_thread(layer: dict[str, str], silent: Silent) -> None:
    code = """
dev = tensai.open()
small = dev.upload(np.ones((8, 8), np.float32))
(small @ small).download(), small.sum().item()
ready = threading.Event()
def work(number):
    if number == 0:
        kept = []
        try:
            while len(kept) < 64:
                kept.append(dev.empty((8 << 20,)))
        except tensai.OutOfDeviceMemoryError:
            ready.set()
            return
        raise AssertionError("it was to run out")
    while not ready.is_set():
        try:
            assert (small @ small).download()[0, 0] == 8
        except tensai.OutOfDeviceMemoryError as error:
            pass  # its own: it may need memory as well
fault("fault_allocate_times", -1)
fault("fault_allocate_after", 2)
in_threads(work, 4)
fault("fault_allocate_after", -1)
assert (small @ small).download()[0, 0] == 8
print("right")
"""
    assert silent(START + code, **layer) == "right\n"


def _spawned(number: int, sent: Any) -> None:
    with tensai.open() as device:
        t = device.upload(np.arange(5, dtype=np.float32))
        sent.put((number, (t * number).tolist()))


def test_spawned_processes(gpu: tensai.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # While the parent has a device open and in use. The children find this module by its name.
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    context = multiprocessing.get_context("spawn")
    sent = context.Queue()
    children = [context.Process(target=_spawned, args=(n, sent)) for n in range(3)]
    for process in children:
        process.start()
    got = dict(sent.get(timeout=200) for _ in children)
    for process in children:
        process.join(200)
        assert process.exitcode == 0
    assert got == {n: [float(i * n) for i in range(5)] for n in range(3)}
    assert (gpu.upload([1.0]) + 1).tolist() == [2.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_worker_is_told(silent: Silent) -> None:
    code = """if True:
        import multiprocessing, pickle
        dev = tensai.open()
        a = dev.upload(np.arange(4.0))
        (a + 1).download()
        def work(_):
            try:
                (a + 1).download()
            except tensai.DeviceLostError as error:
                return str(error)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for text in pool.map(work, range(6)):
                assert "fork" in text and "spawn" in text, text
        # A tensor cannot be sent to a process by mistake either.
        try:
            pickle.dumps(a)
        except TypeError as error:
            assert "download" in str(error), error
        assert (a + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
        print("right")
    """
    assert silent(code) == "right\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_fork_while_threads_compute(silent: Silent) -> None:
    code = """
import time
dev = tensai.open()
a = dev.upload(np.ones((64, 64), np.float32))
(a @ a).download()
stop = False
def work():
    while not stop:
        (a @ a).download()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for turn in range(10):
    time.sleep(0.01)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            (a + 1).download()
        except tensai.DeviceLostError as error:
            os._exit(0 if "fork" in str(error) else 7)
        os._exit(8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
stop = True
for thread in threads:
    thread.join(60)
assert (a @ a).download()[0, 0] == 64
print("right")
"""
    assert silent(START + code) == "right\n"
