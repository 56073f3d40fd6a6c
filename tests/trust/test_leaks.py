"""What is made and dropped again and again takes no more memory, handles or files than at first.

Resident memory is the operating system's figure, read after malloc was told to give back what it
keeps, so it may move by a little; native objects are the library's own count, and descriptors the
system's: these two may not move at all. But wgpu-native 22 keeps a small record of every command
buffer, also of those that were submitted and released (`commandBuffers` in its report).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

Silent = Callable[..., str]

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory and descriptors are read from /proc"
)

# `steady(work, times, spare)`: after a tenth of them to warm up, the work leaves all as it was.
MEASURE = """if True:
    trim = ctypes.CDLL(None).malloc_trim
    def resident():
        gc.collect()
        trim(0)
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    def descriptors():
        return len(os.listdir("/proc/self/fd"))
    def steady(work, times, spare, native=dict):
        for _ in range(max(times // 10, 5)):
            work()
        before = resident(), descriptors(), native()
        for _ in range(times):
            work()
        after = resident(), descriptors(), native()
        grown = after[0] - before[0]
        print(f"{times:,} times: {before[0]:,} bytes resident, {grown:+,} after")
        records = [counts.pop("commandBuffers", 0) for counts in (before[2], after[2])]
        records = records[1] - records[0]
        if records:
            assert os.environ.get("TENSAI_WGPU_API") == "v22", records
            print(f"{records:,} records of command buffers")
            spare += 128 * records
        assert after[1:] == before[1:], (before, after)
        assert grown <= spare, f"{grown:,} bytes"
"""
SPARE = 4 << 20

CYCLES = """
dev = tensai.open()
VALUES = np.arange(100, dtype=np.float32)
def native():
    dev.synchronize()
    return dev.native.adapter.instance.report()
"""

# How much is made by one of the cycles, and how often it is done in the short run and the full one.
WORK = {
    "upload, operation, free": (
        """
def work():
    x = dev.upload(VALUES)
    y = x + x
    x.free()
    y.free()
""",
        20_000,
        1_000_000,
    ),
    "upload, operation, download": (
        """
def work():
    assert (dev.upload(VALUES) * 2).download()[-1] == 198
""",
        2_000,
        100_000,
    ),
    "record, replay, drop": (
        """
x = dev.upload(VALUES)
def work():
    with dev.record() as program:
        y = x * 2
    program.replay()
    assert y.download()[-1] == 198
""",
        300,
        20_000,
    ),
    "an own kernel": (
        """
number = 0
def work():
    global number
    number += 1
    source = "@group(0) @binding(0) var<storage, read_write> o: array<f32>;" \\
        "@compute @workgroup_size(1) fn main() { o[0] = f32(" + str(number % 7) + "); }"
    assert dev.run(source, outputs=[((1,), np.float32)])[0].item() == number % 7
""",
        200,
        5_000,
    ),
    "errors": (
        """
a, b = dev.upload(VALUES), dev.upload(VALUES[:7])
def work():
    raises(tensai.ShapeError, lambda: a + b)
    raises(tensai.LimitExceededError, lambda: dev.empty((1 << 40,)))
    raises(tensai.KernelError, lambda: dev.run("fn main( {"))
""",
        500,
        20_000,
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_cycles(silent: Silent, full: bool, name: str) -> None:
    work, short, long = WORK[name]
    times = long if full else short
    code = f"{CYCLES}{work}\nsteady(work, {times}, {SPARE}, native)"
    print(silent(MEASURE + code, timeout=7000))


OPEN = """if True:
    kept = tensai.open()
    def native():
        return kept.native.adapter.instance.report()
    def work():
        dev = tensai.open()
        x = dev.upload(np.ones(1000, np.float32))
        assert (x + x).download()[-1] == 2
        (x * 3)
        HOW
"""


@pytest.mark.parametrize("how", ["dev.close()", "pass", "dev.me = dev", "dev.batch().__enter__()"])
def test_devices_that_come_and_go(silent: Silent, full: bool, how: str) -> None:
    times = 1000 if full else 30
    code = OPEN.replace("HOW", how) + f"\nsteady(work, {times}, {SPARE}, native)"
    print(silent(MEASURE + code, timeout=7000))


def test_layer_counts_devices(layer: dict[str, str], silent: Silent) -> None:
    # The driver's own count, which no account of the library can hide.
    code = """if True:
        def open_and_drop(close):
            dev = tensai.open()
            x = dev.upload([1.0, 2.0])
            kept = [dev, x, x + 1]
            kept.append(kept)
            if close:
                dev.close()
        for turn in range(10):
            open_and_drop(turn % 2)
        gc.collect()
        assert fault("devices_open") == 0, fault("devices_open")
        print("right")
    """
    assert silent(code, **layer) == "right\n"
