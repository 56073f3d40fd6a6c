"""Work that ends anyhow: by an exception, in a reference cycle, with its process.

Where the layer of faults can be loaded, the driver's count of devices says what was left over.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Silent = Callable[..., str]

START = """if True:
    VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)
    dev = tensai.open()
    a = dev.upload(VALUES)
    (a + 1).download(), (a @ a).download()
    class Stop(Exception):
        pass
    def sound():
        assert np.array_equal((a @ a).download(), VALUES @ VALUES)
        with dev.batch():
            b = a + 1
        assert np.array_equal(b.download(), VALUES + 1)
        with dev.record() as program:
            c = a * 2
        program.replay()
        assert np.array_equal(c.download(), VALUES * 2)
        del b, c, program
        gc.collect()
        dev.synchronize()
        memory = dev.memory()
        report = dev.native.adapter.instance.report()
        report.pop("commandBuffers")  # wgpu-native 22 keeps a record of each
        assert report.pop("bindGroups") <= 64  # some of the latest are kept
        return memory["in_use"], report
"""

STOPS = {
    "in batch()": """
with dev.batch():
    b = a + 1
    c = b @ a
    raise Stop
""",
    "in batch() in batch()": """
with dev.batch():
    b = a + 1
    with dev.batch():
        c = b @ a
        raise Stop
""",
    "in record()": """
with dev.record() as program:
    b = a + 1
    c = b @ a
    raise Stop
""",
    "in batch() in record()": """
with dev.record() as program:
    with dev.batch():
        b = a + 1
        raise Stop
""",
    "in record() in batch()": """
with dev.batch():
    with dev.record() as program:
        b = a + 1
        raise Stop
""",
    "in a generator that is left": """
def steps():
    with dev.batch():
        for i in range(3):
            yield a + i
for b in steps():
    break
del b
raise Stop
""",
    "by a wrong operation": """
with dev.batch():
    b = a + 1
    try:
        b + dev.ones((3,))
    except tensai.ShapeError:
        raise Stop from None
""",
    "by the array that is uploaded": """
class Bad:
    def __array__(self, *arguments, **options):
        raise Stop
with dev.batch():
    b = a + 1
    dev.upload(Bad())
""",
}


@pytest.mark.parametrize("name", STOPS)
def test_an_exception(silent: Silent, name: str) -> None:
    code = "def work():\n" + "\n".join("    " + line for line in STOPS[name].splitlines())
    code += """
before = None
for turn in range(20):
    raises(Stop, work)
    now = sound()
    if turn == 1:
        before = now
assert now == before, (before, now)
print("right")
"""
    assert silent(START + code) == "right\n"


# Each leaves devices, tensors and programs for the end of the process, which says nothing.
ENDS = {
    "live tensors": "b = a + 1; c = (b @ a).softmax()",
    "tensors of many devices": "more = [tensai.open() for _ in range(4)];"
    " kept = [d.upload(VALUES) + 1 for d in more]",
    "a live program": "manager = dev.record(); program = manager.__enter__(); b = a + 1;"
    " manager.__exit__(None, None, None); program.replay()",
    "inside a batch": "manager = dev.batch(); manager.__enter__(); b = a + 1",
    "inside a recording": "manager = dev.record(); manager.__enter__(); b = a + 1",
    "cycles": "box = [a + 2, dev]; box.append(box); gc.disable()",
    "in the module's own names": "tensai.kept = a + 1; sys.kept = (dev, a * 2)",
    "a destructor that computes": """
class Late:
    def __del__(self):
        try:
            (self.tensor + 1).download()
        except Exception:  # the collector may have come to the tensor or its device first
            pass
late = Late()
late.tensor = a
""",
    "atexit": """
import atexit
@atexit.register
def last():
    assert (a + 1).download()[0, 0] == 1
    dev.close()
""",
    "daemon threads": """
import threading, time
def work():
    while True:
        (a @ a).download()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""",
    "a closed device": "b = a + 1; dev.close()",
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("how", ["", "with dev.batch(): a * 2; sys.exit(0)"])
def test_the_end_of_a_process(silent: Silent, name: str, how: str) -> None:
    if name == "a closed device" and "batch" in how:
        pytest.skip("nothing is batched on it")
    code = f"{ENDS[name]}\nprint('end', flush=True)\n{how.replace(': ', ':' + chr(10) + '    ')}"
    assert silent(START + code) == "end\n"


def test_sys_exit_in_a_callback(child: Callable[..., object]) -> None:
    # Exits from where Python calls back: a signal, an iterator, a sort key, a thread, a logger.
    signals = """
import signal, time
def stop(*_):
    sys.exit(3)
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.2)
while True:
    with dev.batch():
        b = (a @ a)
    b.download()
"""
    iterator = """
class Bad:
    def __array__(self, *arguments, **options):
        sys.exit(3)
with dev.batch():
    b = a + 1
    dev.upload(Bad())
"""
    recorded = """
with dev.record() as program:
    b = a + 1
    sorted([1, 2], key=lambda _: sys.exit(3))
"""
    for code in (signals, iterator, recorded):
        done = child(START + code)
        said = [line for line in done.stderr.splitlines() if "no GPU was found" not in line]
        assert (done.returncode, said) == (3, []), done.stderr[-3000:]


def test_sys_exit_in_a_thread(silent: Silent) -> None:
    code = """
import threading
def work():
    with dev.batch():
        b = a + 1
        sys.exit(3)
thread = threading.Thread(target=work)
thread.start()
thread.join()
sound()
print("right")
"""
    assert silent(START + code) == "right\n"


CYCLES = """
class Node:
    pass
def cycle():
    node = Node()
    node.me = node
    node.device = tensai.open()
    node.tensor = node.device.upload(VALUES)
    node.pending = node.tensor @ node.tensor
    with node.device.record() as node.program:
        node.result = node.pending + 1
    node.late = node.result * 2
gc.disable()
for _ in range(5):
    cycle()
gc.collect()
del a, dev
gc.collect()
assert fault("devices_open") == 0, fault("devices_open")
print("right")
"""


LATE = """
# The collector finalizes the members of a cycle in any order, so their destructors may find some
# that are gone: an error then, never a crash or a wrong result.
seen = []
class Late:
    def __del__(self):
        try:
            got = USE
        except Exception as error:
            seen.append(type(error).__name__)
        else:
            seen.append(bool((got == VALUES * 2).all()))
def cycle(turn):
    OPEN
    early, late = Late(), Late()
    x = device.upload(VALUES)
    with device.record() as program:
        result = x + x
    parts = dict(device=device, tensor=x, sum=x + x, program=program, result=result)
    for node in (early, late) if turn % 2 else (late, early):
        node.__dict__.update(parts, other=(early, late, parts))
    for _ in range(turn % 5):
        device.upload(np.zeros((8, 8), np.float32))
gc.disable()
for turn in range(20):
    cycle(turn)
    others = [dev.upload(np.zeros((8, 8), np.float32)) for _ in range(4)]
    gc.collect()
    others += [a * 0 for _ in range(8)]
    assert not any(t.download().any() for t in others)
assert len(seen) == 40 and False not in seen, seen
assert np.array_equal((a @ a).download(), VALUES @ VALUES)
print("right")
"""
LATE_USES = {
    "an operation": "(self.tensor + self.tensor).download()",
    "a download": "self.sum.download()",
    "a replay": "(self.program.replay(), self.result.download())[1]",
    "a batch": "self.device.matmul(VALUES, 2 * np.eye(8, dtype=np.float32)).download()",
}


@pytest.mark.parametrize("opened", ["device = dev", "device = tensai.open()"])
@pytest.mark.parametrize("name", LATE_USES)
def test_destructors_that_come_late(silent: Silent, name: str, opened: str) -> None:
    code = LATE.replace("USE", LATE_USES[name]).replace("OPEN", opened)
    assert silent(START + code) == "right\n"


def test_a_device_in_a_reference_cycle(layer: dict[str, str], silent: Silent) -> None:
    assert silent(START + CYCLES, **layer) == "right\n"
