"""Allocations that fail: once, and for good."""

from __future__ import annotations

from collections.abc import Callable

# Tensors of up to 32 MiB. The library cuts buffers from larger blocks: `failing(times, after)`
# fills those, so that the next tensor needs memory of the driver, then lets allocations fail.
START = """if True:
    COUNT = 8 << 20
    filling = []
    def failing(times, after=0):
        fault("fault_allocate_times", -1)
        fault("fault_allocate_after", 0)
        for size in (32 << 20, 8 << 20, 4 << 20):
            while True:
                try:
                    filling.append(dev.native.create_buffer(size))
                except tensai.OutOfDeviceMemoryError:
                    break
        fault("fault_allocate_times", times)
        fault("fault_allocate_after", after)
    def well():
        fault("fault_allocate_after", -1)
        fault("fault_allocate_times", 1)
    def sound():
        well()
        assert np.array_equal(small.download(), VALUES)
        assert np.array_equal(large.download(), ONES)
        assert np.array_equal((small @ small).download(), VALUES @ VALUES)
        assert (large + 1).download()[-1] == 2
        dev.synchronize()
    dev = tensai.open()
    VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)
    ONES = np.ones(COUNT, np.float32)
    small, large = dev.upload(VALUES), dev.upload(ONES)
    sound()
    dev.pool.trim()
"""

USES = {
    "upload": "dev.upload(ONES)",
    "empty": "dev.empty((COUNT,))",
    "operation": "large * 3.0",
    "two tensors": "large.astype(np.float16)",
}


def test_one_failure_goes_unnoticed(layer: dict[str, str], silent: Callable[..., str]) -> None:
    for name, use in USES.items():
        code = f"""if True:
            spare = dev.empty((COUNT // 8,))
            del spare
            assert dev.memory()["pooled"] > 0
            failing(1)
            before = fault("allocations")
            made = {use}
            assert fault("fault_allocate_after") == -1, "nothing was allocated"
            assert fault("allocations") >= before + 2
            assert dev.memory()["pooled"] == 0, "the pool was not emptied"
            sound()
            print("right")
        """
        assert silent(START + code, **layer) == "right\n", name


def test_memory_that_runs_out(layer: dict[str, str], silent: Callable[..., str]) -> None:
    for name, use in USES.items():
        code = f"""if True:
            for _ in range(3):
                dev.pool.trim()
                failing(1000)
                before = fault("allocations")
                raises(tensai.OutOfDeviceMemoryError, lambda: {use}, "out of memory", "Free")
                assert fault("allocations") == before + 2, "it was to be tried twice"
                raises(MemoryError, lambda: {use})
                sound()
            print("right")
        """
        assert silent(START + code, **layer) == "right\n", name


def test_memory_that_runs_out_anywhere(layer: dict[str, str], silent: Callable[..., str]) -> None:
    # The nth allocation and all after it fail, wherever that is: what is there stays.
    code = """if True:
        import itertools
        for number in itertools.count():
            failing(1000, number)
            kept = []
            try:
                with dev.batch():
                    for step in range(3):
                        kept.append(dev.empty((COUNT,)))
                        kept.append(large + step)
            except tensai.OutOfDeviceMemoryError:
                assert len(kept) < 6
            else:
                assert number > 1, "allocations were to fail"
                break
            well()
            for step, tensor in enumerate(kept[1::2]):
                assert (tensor[-3:].download() == 1 + step).all()
            del kept
            dev.pool.trim()
            sound()
            dev.pool.trim()
        print("right")
    """
    assert silent(START + code, **layer) == "right\n"


def test_a_download_without_room(layer: dict[str, str], silent: Callable[..., str]) -> None:
    # Reading back takes memory as well, which is found the same way.
    code = """if True:
        wide = dev.upload(np.ones(20 << 20, np.float32))
        spare = dev.empty((COUNT,))
        del spare
        failing(1)
        assert wide.download().sum() == 20 << 20
        sound()
        print("right")
    """
    assert silent(START + code, **layer) == "right\n"


def test_a_device_that_has_no_room(layer: dict[str, str], silent: Callable[..., str]) -> None:
    code = """if True:
        failing(1000)
        raises(tensai.DeviceNotFoundError, tensai.open, "refused to open a device", "memory")
        sound()
        with tensai.open() as other:
            assert other.upload([1.0]).tolist() == [1.0]
        print("right")
    """
    assert silent(START + code, **layer) == "right\n"
