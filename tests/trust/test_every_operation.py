"""Every registered operation, from its own probes: other shapes, dtypes and values; stray writes.

Nothing here names an operation: one that is registered tomorrow is covered.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from compare import SMALLEST_NORMAL
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tensai
import tensai.ops
from tensai.operation import OPERATIONS, Operation, Probe, fold, fold_early
from tensai.selfcheck import difference, probe_arguments

Array = np.ndarray[Any, Any]

FULL = os.environ.get("TENSAI_TRUST") == "full"
LENGTHS = (0, 1, 2, 3, 7, 31, 64, 127, 256, 257)
LARGEST = 200_000  # elements of an input
SPECIAL = np.array([-0.0, 1e-40, 0.0, np.nan, np.inf, -np.inf], np.float32)


@pytest.fixture(scope="module", params=["trusted", "checked"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A device whose modules a compiler trusts, then one where it adds its checks."""
    with _opened(request.param) as opened:
        yield opened


def _opened(how: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSAI_SHADER_CHECKS", str(int(how == "checked")))
        patch.setenv("TENSAI_SELF_CHECK", "always")
        return tensai.open()


# Nothing outside ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Any, Any]]:
    """A device of trusted modules and one of checked ones."""
    with _opened("trusted") as trusted, _opened("checked") as checked:
        yield trusted, checked


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_outside_is_touched(devices: tuple[Any, Any], name: str) -> None:
    """Every kernel on every probe, with canaries: words behind each buffer's elements.

    Reading them would spoil the result, since they are NaN or no index. Checked modules, which
    cannot reach them by mistake, must leave the same bits in every buffer.
    """
    operation = OPERATIONS[name]
    ran = 0
    for kernel in operation.kernels:
        for number, probe in enumerate(_some(operation.probes())):
            for folded in (fold, fold_early):
                left = [_run(device, operation, kernel, probe, folded) for device in devices]
                if left[0] is None:
                    assert left[1] is None
                    continue
                ran += 1
                for one, other in zip(*left, strict=True):
                    same = (one == other) | (_is_nan(one) & _is_nan(other))
                    assert same.all(), (kernel.name, number)
    assert ran


def _is_nan(words: Array) -> Array:
    """Where these are no numbers as float32; compilers are free to choose another NaN's bits."""
    return np.asarray((words & 0x7FFFFFFF) > 0x7F800000)


def _some(probes: Sequence[Probe]) -> Sequence[Probe]:
    """All of them where tests may be long; else one of five of operations that have many."""
    return probes if FULL or len(probes) < 24 else probes[::5]


def _run(device: Any, operation: Operation, kernel: Any, probe: Probe, folded: Any) -> Any:
    """What the buffers of a probe hold afterwards, results and scratch, without their tails."""
    job = device.checks._job(operation, kernel, probe_arguments(operation, probe), folded)
    if job is None:
        return None
    taken: list[tuple[Any, int, int]] = []
    original = device._guarded

    def guarded(nbytes: int, word: int) -> Any:
        storage = original(nbytes, word)
        taken.append((storage, nbytes, word))
        return storage

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_guarded", guarded)
        assert device.checks._run(operation, probe, job) == ""
    left = []
    for storage, nbytes, word in taken:
        words = np.empty(storage.buffer.size // 4, np.uint32)
        device._read(storage.buffer, words)
        end = -(-nbytes // 16) * 4  # whole vectors of 16 bytes may be written
        assert words.size - end >= 4
        assert (words[end:] == word).all(), (operation.name, kernel.name)
        left.append(words[: nbytes // 4])
    return left


def test_a_stray_write_is_seen(devices: tuple[Any, Any]) -> None:
    # What the test above relies on: a kernel that goes one vector too far is told.
    operation = OPERATIONS["negative"]
    (kernel,) = operation.kernels
    probe = operation.probes()[0]
    for device in devices:
        job = device.checks._job(operation, kernel, probe_arguments(operation, probe), fold_early)
        assert device.checks._run(operation, probe, job) == ""
        (step,) = job.steps
        wrong = step.source.replace("index >= params.vectors", "index > params.vectors")
        assert wrong != step.source
        job.steps = [step._replace(source=wrong)]
        assert "wrote 0 bytes beyond its result" in device.checks._run(operation, probe, job)


# Other shapes, dtypes and values -----------------------------------------------------------------


@st.composite
def variations(draw: Any, operation: Operation) -> tuple[dict[str, Any], Probe] | None:
    """A probe's arguments with other lengths, where the probe has equal ones equal; or None."""
    probe = draw(st.sampled_from(operation.probes()))
    given = [array for array in probe.inputs if array is not None]
    known = sorted({length for array in given for length in array.shape if length > 1})
    # Few at a time: most rules want lengths that go together.
    changed = draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
    lengths = {length: draw(st.sampled_from(LENGTHS)) for length in changed}
    narrow = draw(st.booleans()) and draw(st.booleans())
    special = draw(st.sampled_from([0, 0, 1, 2, 3, 6]))
    inputs: list[Array | None] = []
    for array in probe.inputs:
        if array is None:
            inputs.append(None)
            continue
        shape = tuple(lengths.get(length, length) for length in array.shape)
        if math.prod(shape) > LARGEST:
            return None
        made = np.resize(array.reshape(-1), shape)  # the same values in the same order, repeated
        if array.dtype == np.float32 and made.size:
            seed = draw(st.integers(0, 99))
            at = np.random.default_rng(seed).integers(0, made.size, 3)
            if special:
                made.reshape(-1)[at] = SPECIAL[:special][at % special]
            if narrow:
                with np.errstate(over="ignore"):
                    made = made.astype(np.float16)
        inputs.append(made)
    return Probe(tuple(inputs), probe.arguments, probe.tolerance, probe.floor)


@pytest.mark.parametrize("name", OPERATIONS)
def test_against_numpy(device: Any, name: str) -> None:
    operation = OPERATIONS[name]

    @settings(
        max_examples=200 if FULL else 12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # whatever fails is small enough
        suppress_health_check=list(HealthCheck),
    )
    @given(probe=variations(operation))
    def compare(probe: Probe | None) -> None:
        if probe is not None:
            _compare(device, operation, probe)

    compare()


def _compare(device: Any, operation: Operation, probe: Probe) -> None:
    arguments = probe_arguments(operation, probe)
    given = [array for array in probe.inputs if array is not None]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result, _ = operation.job(arguments)
        except (tensai.ShapeError, tensai.DTypeError, ValueError):
            return  # lengths that don't go together
        if sum(spec.size for spec in result.outputs) > LARGEST:
            return
        arrays = [array.astype(kind) for array, kind in zip(given, result.cast, strict=True)]
        exact = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
        try:
            expected = operation.compute(arguments, result, exact)
        except (ValueError, IndexError):
            return  # nor do these, which the functions before internal operations refuse
        # What is nothing in float32 and very little in float64 may be multiplied by infinity.
        rounded = operation.compute(arguments, result, [array.copy() for array in arrays])
    remaining = iter(given)
    filled = {
        name: device.upload(next(remaining).copy())
        if name in operation.tensors and value is not None
        else value
        for name, value in arguments.items()
    }
    tensors = [filled[name] for name in operation.tensors if filled[name] is not None]
    made = operation(**filled)
    outputs = made if isinstance(made, tuple) else (made,)
    outputs = outputs[: len(result.outputs)]
    outputs += tuple(tensors[place] for place in operation.written(arguments))
    for output, right, other in zip(outputs, expected, rounded, strict=True):
        got = output.download()
        assert got.shape == right.shape
        with np.errstate(all="ignore"):
            right = right.astype(got.dtype)
        narrow = got.dtype == np.float16
        tolerance = max(probe.tolerance * 4, 2e-3 if narrow else 0)
        wrong = ""
        for reference in (right, other):
            wrong = difference(*_comparable(got, reference, given), tolerance, floor=probe.floor)
            if not wrong:
                break
        shapes = [array.shape for array in given]
        assert not wrong, (operation.name, shapes, probe.arguments, wrong)


def _comparable(got: Array, right: Array, given: Sequence[Array]) -> tuple[Array, Array]:
    """Both without what devices may do in one way or another to very small numbers."""
    right = right.astype(got.dtype)
    if got.dtype != np.float32:
        return got, right
    got, right = (np.where(np.abs(x) < SMALLEST_NORMAL, np.float32(0), x) for x in (got, right))
    if any(np.isinf(array).any() for array in given if array.dtype.kind == "f"):
        # What a denormal number times infinity is, is NaN where it was taken for 0.
        got = np.where(np.isnan(got) & np.isinf(right), right, got)
    return got, right
