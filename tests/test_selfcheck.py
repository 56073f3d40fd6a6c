"""The self-check, with kernels that are really broken: the answer stays right, from NumPy."""

from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compare import same

import tensai
from tensai import selfcheck
from tensai.operation import OPERATIONS, Job, Kernel, Operation, Probe, Result, Spec, pack
from tensai.ops import attending

f32 = np.dtype(np.float32)

# A sum by one workgroup. With SPACE "private" each invocation has `partial` to itself, so that
# only the first one's share comes out: 16 of 4096.
SUM = """
struct Params { length: u32 }
var<params> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
var<{{SPACE}}> partial: array<f32, {{ROOM}}>;
@compute @workgroup_size({{LANES}})
fn main(@builtin(local_invocation_index) lane: u32) {
    var total = 0.0;
    for (var k = lane; k < {{LENGTH}}; k += 256u) {
        total += x[k];
    }
    partial[lane] = total;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) {
        if (lane < width) {
            partial[lane] += partial[lane + width];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        var result = partial[0];
        {{LAST}}
        out[0] = result;
    }
}
"""
RIGHT = {
    "SPACE": "workgroup",
    "ROOM": "256",
    "LANES": "256",
    "LENGTH": "params.length",
    "LAST": "",
}
NOT_A_NUMBER = "var bits = 0x7fc00000u; result = bitcast<f32>(bits);"
BROKEN = {
    "private memory": ({"SPACE": "private"}, "gave 16.0 where 4096.0 was expected"),
    "reads back 0": ({"LAST": "result = 0.0;"}, "gave 0.0 where 4096.0 was expected"),
    "one workgroup": ({"LENGTH": "min(params.length, 256u)"}, "gave 256.0 where 4096.0 was"),
    "not a number": ({"LAST": NOT_A_NUMBER}, "gave nan where 4096.0 was expected"),
    "does not compile": ({"LAST": "result = nonsense;"}, "nonsense"),
    "refused pipeline": ({"LANES": "65536"}, "refused"),
    "too much memory": ({"ROOM": "30000000"}, "refused"),
}
numbers = itertools.count()


def kernel(name: str, **values: str) -> Kernel:
    def plan(job: Job) -> None:
        operands = [*job.inputs, *job.outputs]
        job.step(SUM, {**RIGHT, **values}, operands, pack(job.inputs[0].size), 1)

    return Kernel(name, plan)


def rule(x: Spec) -> Result:
    return Result((Spec((), f32),), (f32,))


def summing(*kernels: Kernel, probes: Callable[[], Any] | None = None) -> Operation:
    """An operation of its own name that sums up by one of these kernels."""
    return Operation(
        rule,
        kernels,
        lambda x: np.sum(x, dtype=np.float64),
        probes or (lambda: [Probe((np.ones(4096, f32),)), Probe((np.arange(71, dtype=f32),))]),
        name=f"sum_{next(numbers)}",
    )


@pytest.fixture
def device(gpu: tensai.Device) -> Iterator[Any]:
    """A device without any verdict yet."""
    with tensai.open() as opened:
        yield opened


@pytest.fixture
def cache(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, for devices that keep verdicts."""
    monkeypatch.setenv("TENSAI_WGPU_LIB", str(gpu.library.path))
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TENSAI_SELF_CHECK", "first-use")
    return tmp_path


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations whose probes ran, one entry for each."""
    ran: list[str] = []
    original = selfcheck.SelfCheck._run

    def run(self: Any, operation: Operation, *rest: Any) -> str:
        ran.append(operation.name)
        return original(self, operation, *rest)

    monkeypatch.setattr(selfcheck.SelfCheck, "_run", run)
    return ran


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "runs on the CPU instead" in r.getMessage()]


# Broken kernels ---------------------------------------------------------------------------------


@pytest.mark.fallback_expected
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_kernel_is_not_used(
    device: Any, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, said = BROKEN[how]
    operation = summing(kernel("broken", **values))
    for size in (1, 256, 257, 4096, 4096, 100_001):
        assert operation(device.upload(np.ones(size, f32))).item() == size
    with device.batch():
        totals = [operation(device.upload(np.ones(size, f32))) for size in (5, 300)]
    assert [total.item() for total in totals] == [5, 300]
    (message,) = warnings_of(caplog)
    assert f"{operation.name} runs on the CPU instead of {device.name}" in message
    assert f"kernel broken of {operation.name}" in message
    assert said in message

    registered = {operation.name: operation, "sum": OPERATIONS["sum"]}
    monkeypatch.setattr(selfcheck, "OPERATIONS", registered)
    verdicts = device.self_check()
    verdict = verdicts.pop(operation.name)
    assert (verdict.operation, verdict.ok, verdict.kernels) == (operation.name, False, ())
    (failure,) = verdict.failures
    assert f"kernel broken of {operation.name}" in failure
    assert said in failure
    # Neither the failure nor the work that follows it spoils anything else.
    assert verdicts["sum"].ok
    assert device.upload(np.ones(4096, f32)).sum().item() == 4096
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("how", BROKEN)
def test_the_next_kernel_is_used_instead(
    device: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    values, said = BROKEN[how]
    operation = summing(kernel("broken", **values), kernel("right"))
    for size in (1, 257, 4096, 100_001):
        assert operation(device.upload(np.ones(size, f32))).item() == size
    assert warnings_of(caplog) == []
    verdict = device.checks.check(operation)
    assert (verdict.ok, verdict.kernels) == (True, ("right",))
    assert said in verdict.failures[0]


def test_the_right_kernel_is_right(device: Any, probed: list[str]) -> None:
    operation = summing(kernel("right"))
    for size in (1, 4096, 99):
        assert operation(device.upload(np.ones(size, f32))).item() == size
    assert probed == [operation.name] * 3  # each probe, and one with its workgroups folded early
    assert device.checks.check(operation).ok


def test_a_kernel_that_writes_nothing(device: Any) -> None:
    # What an earlier kernel left in the same memory must not pass for its result.
    silent = kernel("silent", LAST="if (params.length > 0u) { return; }")
    only = Probe((np.ones(4096, f32),))
    operation = summing(kernel("right"), silent, kernel("right_too"), probes=lambda: [only])
    x = device.upload(np.ones(4096, f32))
    assert operation(x).item() == 4096
    for _ in range(3):
        verdict = device.checks.check(operation)
        assert verdict.kernels == ("right", "right_too")
        assert verdict.failures[0].startswith(f"kernel silent of {operation.name} gave")
        device.checks._verdicts.clear()


@pytest.mark.fallback_expected
def test_a_later_probe_counts(device: Any, caplog: pytest.LogCaptureFixture) -> None:
    # Right up to one workgroup, so that only the second probe shows it.
    probes = [Probe((np.ones(200, f32),)), Probe((np.ones(300, f32),))]
    operation = summing(kernel("short", LENGTH="min(params.length, 256u)"), probes=lambda: probes)
    assert operation(device.upload(np.ones(1000, f32))).item() == 1000
    (message,) = warnings_of(caplog)
    assert "gave 256.0 where 300.0 was expected" in message


@pytest.mark.fallback_expected
def test_a_source_without_a_probe_is_not_used(
    device: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def plan(job: Job) -> None:
        last = "" if job.inputs[0].size < 5000 else "result += 1.0;"
        operands = [*job.inputs, *job.outputs]
        job.step(SUM, {**RIGHT, "LAST": last}, operands, pack(job.inputs[0].size), 1)

    operation = summing(Kernel("two_sources", plan))
    assert operation(device.upload(np.ones(4999, f32))).item() == 4999
    assert warnings_of(caplog) == []
    assert operation(device.upload(np.ones(5000, f32))).item() == 5000
    (message,) = warnings_of(caplog)
    assert "has no probe for this use" in message


@pytest.mark.fallback_expected
def test_a_dispatch_beyond_the_limits(device: Any, caplog: pytest.LogCaptureFixture) -> None:
    def plan(job: Job) -> None:
        operands = [*job.inputs, *job.outputs]
        job.step(SUM, RIGHT, operands, pack(job.inputs[0].size), (1 << 20, 1, 1))

    operation = summing(Kernel("many", plan))
    assert operation(device.upload(np.ones(70, f32))).item() == 70
    (message,) = warnings_of(caplog)
    assert "kernel many" in message
    assert "refused" in message


@pytest.mark.fallback_expected
def test_no_kernel_for_this_device(device: Any, caplog: pytest.LogCaptureFixture) -> None:
    plan = kernel("right").plan
    operation = summing(
        Kernel("exotic", plan, needs=frozenset({"antigravity"})),
        Kernel("picky", plan, fits=lambda job: False),
    )
    assert operation(device.upload(np.ones(70, f32))).item() == 70
    (message,) = warnings_of(caplog)
    assert "no kernel of it fits" in message
    assert not device.checks.check(operation).ok


def test_differences() -> None:
    def differ(got: Any, expected: Any, tolerance: float = 0.0) -> bool:
        return bool(selfcheck.difference(np.array(got), np.array(expected), tolerance))

    assert not differ([1.0, np.nan, np.inf, -np.inf, 0.0], [1.0, np.nan, np.inf, -np.inf, -0.0])
    assert not differ([1.0, 100.00005], [1.0, 100.0], 1e-6)
    assert not differ([], [])
    assert differ([1.0, 100.001], [1.0, 100.0], 1e-6)
    assert differ([np.nan], [1.0], 1.0)
    assert differ([1.0], [np.nan], 1.0)
    assert differ([np.inf], [1.0], 1.0)
    assert differ([1e30], [np.inf], 1.0)
    assert differ([np.inf], [-np.inf], 1.0)
    assert differ([True, False], [True, True])
    assert "gave 3 where 2 was expected, at element 1" in selfcheck.difference(
        np.array([1, 3]), np.array([1, 2]), 0.0
    )


# Beside other work ------------------------------------------------------------------------------


@pytest.mark.fallback_expected
@pytest.mark.parametrize("values", [{}, {"SPACE": "private"}, {"LAST": "result = nonsense;"}])
def test_checks_leave_pending_work_alone(device: Any, values: dict[str, str]) -> None:
    x = np.arange(4096, dtype=f32)
    warm = device.upload(x)
    (warm + warm).download()
    del warm
    with device.batch():
        a = device.upload(x)
        b = a + a
        del a  # its memory is still to be read
        total = summing(kernel("first", **values))(b)
        c = device.upload(x * 0)
        d = b + c
        other = summing(kernel("second", **values))(d)
    same(b, x * 2)
    same(d, x * 2)
    assert total.item() == other.item() == x.sum() * 2


def test_checks_of_every_operation_leave_pending_work_alone(device: Any) -> None:
    x = np.arange(1000, dtype=f32)
    a = device.upload(x)
    b = a + 1
    a.free()
    with device.batch():
        c = b * 2
        assert all(verdict.ok for verdict in device.self_check().values())
        d = c + device.upload(x)
    same(c, (x + 1) * 2)
    same(d, (x + 1) * 2 + x)


# Modes and kept verdicts ------------------------------------------------------------------------


def test_mode_off(cache: Path, monkeypatch: pytest.MonkeyPatch, probed: list[str]) -> None:
    monkeypatch.setenv("TENSAI_SELF_CHECK", "off")
    with tensai.open() as device:
        wrong = summing(kernel("broken", SPACE="private"))
        assert wrong(device.upload(np.ones(4096, f32))).item() == 16
        assert device.upload(np.ones(4096, f32)).sum().item() == 4096
    assert probed == []
    assert not list(cache.rglob("*.json"))


def test_mode_always(cache: Path, monkeypatch: pytest.MonkeyPatch, probed: list[str]) -> None:
    monkeypatch.setenv("TENSAI_SELF_CHECK", "always")
    counts = []
    for _ in range(2):
        with tensai.open() as device:
            for _ in range(3):
                device.upload(np.ones(4096, f32)).sum().item()
        counts.append(len(probed))
    assert counts[0] > 0
    assert counts[1] == 2 * counts[0]  # once a device
    assert not list(cache.rglob("verdicts/*"))


def test_a_wrong_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSAI_SELF_CHECK", "sometimes")
    with pytest.raises(ValueError, match="sometimes"):
        tensai.open()


def test_an_empty_mode_is_the_default(
    cache: Path, monkeypatch: pytest.MonkeyPatch, probed: list[str]
) -> None:
    monkeypatch.setenv("TENSAI_SELF_CHECK", "")
    with tensai.open() as device:
        assert device.upload(np.ones(9, f32)).sum().item() == 9
    assert probed
    assert list(cache.rglob("verdicts/*.json"))


@pytest.mark.fallback_expected
def test_verdicts_are_kept(
    cache: Path, probed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    right = summing(kernel("right"))
    broken = summing(kernel("broken", SPACE="private"))
    mended = summing(kernel("broken", SPACE="private"), kernel("right"))

    def use() -> None:
        with tensai.open() as device:
            x = np.ones(4096, f32)
            for operation in (right, broken, mended):
                assert operation(device.upload(x)).item() == 4096
            assert device.upload(x).sum().item() == 4096

    use()
    assert {"sum", right.name, broken.name, mended.name} <= set(probed)
    assert len(warnings_of(caplog)) == 1
    probed.clear()
    use()
    assert probed == []
    # A verdict that was kept says why as well.
    assert len(warnings_of(caplog)) == 2
    assert "gave 16.0 where 4096.0 was expected" in warnings_of(caplog)[1]


def test_a_second_process_checks_nothing(cache: Path) -> None:
    code = """if True:
        import numpy as np, tensai
        from tensai import selfcheck
        ran = []
        original = selfcheck.SelfCheck._run
        def run(self, operation, *rest):
            ran.append(operation.name)
            return original(self, operation, *rest)
        selfcheck.SelfCheck._run = run
        with tensai.open() as device:
            x = device.upload(np.ones((30, 40)))
            assert (x @ x.T).softmax().argmax().item() == 0
        print(len(ran))
    """

    def run() -> int:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ.copy()
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert run() > 0
    assert run() == 0


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b'{"a": 3}', b"null", "cut", "folder"]
)
def test_damaged_verdicts_are_ignored(cache: Path, damage: Any, probed: list[str]) -> None:
    def use() -> int:
        probed.clear()
        with tensai.open() as device:
            assert device.upload(np.ones(5000, f32)).sum().item() == 5000
        return len(probed)

    first = use()
    assert first > 0
    (kept,) = cache.rglob("verdicts/*.json")
    assert all(isinstance(reason, str) for reason in json.loads(kept.read_text()).values())
    assert use() == 0
    if damage == "folder":
        kept.unlink()
        kept.mkdir()
        (kept / "file").touch()
    else:
        kept.write_bytes(kept.read_bytes()[:-9] if damage == "cut" else damage)
    assert use() == first
    if damage != "folder":
        assert use() == 0
    assert list(cache.rglob("*.tmp")) == []


def test_a_cache_that_cannot_be_written(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(cache / "file" / "below"))
    with caplog.at_level(logging.INFO, "tensai"), tensai.open() as device:
        assert device.upload(np.ones(5000, f32)).sum().item() == 5000
    assert caplog.records == []


# All of it --------------------------------------------------------------------------------------


def test_every_kernel_passes_its_probes(dev: tensai.Device) -> None:
    verdicts = dev.self_check()
    assert verdicts.keys() == OPERATIONS.keys()
    memory = dev.limits["maxComputeWorkgroupStorageSize"] if dev.library is not None else 0
    too_large = {
        f"attention_tiles_{tiles.width}x{tiles.rows}"
        for tiles in attending.TILES
        if tiles.memory > memory
    }
    assert memory < 48 * 1024 or not too_large
    for name, verdict in verdicts.items():
        assert verdict.ok, verdict
        assert verdict.failures == ()
        assert verdict.operation == name
        if dev.library is not None:
            able = {k.name for k in OPERATIONS[name].kernels if k.needs <= dev.features} - too_large
            assert sorted(verdict.kernels) == sorted(able)


def test_every_operation_has_probes() -> None:
    for operation in OPERATIONS.values():
        assert operation.probes(), operation
        assert operation.__doc__, operation


def test_an_asked_for_check_runs_whatever_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    library = tensai.open().library  # found in the usual cache folder
    assert library is not None
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path))
    for mode in ("off", "first-use"):
        monkeypatch.setenv("TENSAI_SELF_CHECK", mode)
        with tensai.open(library=library.path) as device:
            ran: list[Any] = []
            monkeypatch.setattr(device.checks, "_probe", lambda *what: ran.append(what) or "")  # noqa: B023
            for expected in (1, 2):
                device.checks.check(OPERATIONS["exp"])
                assert len(ran) == expected
