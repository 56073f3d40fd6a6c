"""A device that is lost: every use says so, and a new one works in the same process.

wgpu-native 22 ends the process in the first call that finds out, whichever it is. 29 does so only
where the submit itself is refused: every look before it is one that survives.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

API = os.environ.get("TENSAI_WGPU_API") or "v29"

START = """if True:
    import threading
    VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)
    dev, other = tensai.open(), tensai.open()
    a, b = dev.upload(VALUES), other.upload(VALUES)
    with dev.record() as program:
        product = a @ a
    (a + 1).download(), product.download(), (b @ b).download()
    pending = a * 3
"""

# After the loss was seen by whatever `first` is.
AFTER = """if True:
    def batch():
        with dev.batch():
            a + 1
    def record():
        with dev.record():
            a + 1
    raises(tensai.DeviceLostError, first, "is lost", "tensai.open()")
    for use in (
        pending.download, pending.tolist, product.download, program.replay, dev.synchronize,
        dev.self_check, batch, record, lambda: a + 1, lambda: a @ a, lambda: a[1:],
        lambda: dev.upload([1.0]), lambda: dev.upload(np.ones(5 << 20)), lambda: dev.empty(3),
        lambda: dev.zeros(3), a.download, lambda: dev.matmul(VALUES, VALUES),
        lambda: dev.run("@compute @workgroup_size(1) fn main() {}"),
    ):
        raises(tensai.DeviceLostError, use, "is lost", "tensai.open()")
    # Others are not harmed, and a new one works at once.
    assert np.array_equal((b @ b).download(), VALUES @ VALUES)
    with tensai.open() as fresh:
        x = fresh.upload(VALUES)
        assert np.array_equal((x @ x).download(), VALUES @ VALUES)
    dev.close()
    dev.close()
    del a, pending, product, program, x
    gc.collect()
    assert np.array_equal((b + b).download(), VALUES * 2)
    print("right")
"""

FIRST = {
    "a download": "first = lambda: pending.download()",
    "a wait": "first = lambda: (dev.submit(), dev.synchronize())",
    "another thread": """
found = []
def work():
    try:
        pending.download()
    except tensai.DeviceLostError as error:
        found.append(error)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert found, "the thread that waited was to be told"
first = lambda: a.download()
""",
    "a replay": """
def first():
    program.replay()
    product.download()
""",
}


@pytest.mark.skipif(API == "v22", reason="wgpu-native 22 ends the process")
@pytest.mark.parametrize("name", FIRST)
def test_a_card_that_hangs(layer: dict[str, str], silent: Callable[..., str], name: str) -> None:
    hang = 'fault("fault_hang_after", 0)\n' + FIRST[name] + "\n"
    assert silent(START + hang + AFTER, **layer) == "right\n"


@pytest.mark.skipif(API == "v22", reason="wgpu-native 22 ends the process")
def test_an_allocation_that_finds_out(layer: dict[str, str], silent: Callable[..., str]) -> None:
    lose = 'fault("fault_lose_after", 0)\nfirst = lambda: dev.empty((20 << 20,))\n'
    assert silent(START + lose + AFTER, **layer) == "right\n"


@pytest.mark.skipif(API == "v22", reason="wgpu-native 22 ends the process")
def test_devices_lost_again_and_again(layer: dict[str, str], silent: Callable[..., str]) -> None:
    code = """if True:
        for turn in range(10):
            dev = tensai.open()
            a = dev.upload([1.0, 2.0])
            assert (a + 1).tolist() == [2.0, 3.0]
            fault("fault_hang_after", turn % 3)
            def work():
                for _ in range(5):
                    (a + 1).download()
            raises(tensai.DeviceLostError, work)
            if turn % 2:
                dev.close()
        print("right")
    """
    assert silent(code, **layer) == "right\n"


@pytest.mark.xfail(strict=True, reason="wgpuQueueSubmit ends the process itself, in both")
def test_a_submit_that_is_refused(layer: dict[str, str], child: Callable[..., Any]) -> None:
    code = 'fault("fault_submit_after", 0)\nfirst = lambda: pending.download()\n'
    done = child(START + code + AFTER, RUST_BACKTRACE="0", **layer)
    assert done.returncode == 0


@pytest.mark.skipif(API == "v29", reason="test_a_card_that_hangs is the same, and passes")
@pytest.mark.xfail(strict=True, reason="wgpuDevicePoll of wgpu-native 22 ends the process")
def test_a_card_that_hangs_under_v22(layer: dict[str, str], child: Callable[..., Any]) -> None:
    code = 'fault("fault_hang_after", 0)\nfirst = lambda: pending.download()\n'
    done = child(START + code + AFTER, RUST_BACKTRACE="0", **layer)
    assert done.returncode == 0
