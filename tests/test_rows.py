"""Kernels that share rows out among teams of lanes: every length finds one that has been probed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from compare import same

import tensai
from tensai.operation import OPERATIONS, Operation, Spec
from tensai.selfcheck import probe_arguments

f32, i32 = np.dtype(np.float32), np.dtype(np.int32)

LENGTHS = (1, 3, 4, 31, 32, 33, 100, 128, 255, 500, 512, 1024, 2047, 2048, 4095, 4096, 5000, 8191)
LENGTHS += (16_384, 20_000, 32_768, 40_000, 50_257, 128_256, 1_000_003, 1 << 22)


def sources(
    gpu: tensai.Device, operation: Operation, arguments: dict[str, Any]
) -> dict[str, set[str]]:
    """The source of every step, by kernel."""
    bound = operation.signature.bind(**arguments)
    bound.apply_defaults()
    found = {}
    for kernel in operation.kernels:
        _, job = operation.job(dict(bound.arguments))
        job.device = gpu
        if kernel.needs <= gpu.features and kernel.fits(job):
            kernel.plan(job)
            found[kernel.name] = {step.source for step in job.steps}
    return found


def check_probed(gpu: tensai.Device, operation: Operation, calls: list[dict[str, Any]]) -> None:
    """Every source that the calls could use is a probe's as well."""
    known: dict[str, set[str]] = {}
    for probe in operation.probes():
        for name, used in sources(gpu, operation, probe_arguments(operation, probe)).items():
            known.setdefault(name, set()).update(used)
    for call in calls:
        for name, used in sources(gpu, operation, call).items():
            assert used <= known[name], (name, call)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "argmax"])
def test_reductions_are_probed(gpu: tensai.Device, name: str) -> None:
    shapes = itertools.product((1, 2, 3, 100, 3000, 70_000), LENGTHS)
    calls = [
        {"x": Spec(shape, dtype), "axis": axis}
        for shape in shapes
        for axis in (0, 1)
        for dtype in ((f32,) if name == "mean" else (f32, i32))
    ]
    check_probed(gpu, OPERATIONS[name], calls)


@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "layer_norm_xhat", "layer_norm", "rms_norm"]
)
def test_normalizations_are_probed(gpu: tensai.Device, name: str) -> None:
    rows = {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}.get(name, ())
    calls = [
        {"x": Spec((3, length), f32), **dict.fromkeys(rows, Spec((length,), f32))}
        for length in LENGTHS
    ]
    if name == "rms_norm":
        calls += [{**call, "residual": call["x"]} for call in calls]
    check_probed(gpu, OPERATIONS[name], calls)


def test_skinny_products_are_probed(gpu: tensai.Device) -> None:
    calls = []
    for few, n, k, ta, tb, swapped, batch in itertools.product(
        (1, 2, 3, 8),
        (1, 3, 65, 1000, 14_336),
        (1, 4, 4096, 4097, 300_000),
        *[(False, True)] * 3,
        ((), (2,)),
    ):
        m, columns = (n, few) if swapped else (few, n)
        a = Spec((*batch, *((k, m) if ta else (m, k))), f32)
        b = Spec((columns, k) if tb else (k, columns), f32)
        calls.append({"a": a, "b": b, "transpose_a": ta, "transpose_b": tb})
    operation = OPERATIONS["matmul"]
    skinny = [kernel for kernel in operation.kernels if kernel.name.startswith("skinny")]
    whole, operation.kernels = operation.kernels, tuple(skinny)
    try:
        check_probed(gpu, operation, calls)
    finally:
        operation.kernels = whole


@pytest.mark.parametrize("length", [1, 5, 28, 36, 131, 516, 2052, 4097, 8204, 33_000])
def test_masked_rows_and_nan_of_every_team(gpu: tensai.Device, length: int) -> None:
    x = np.random.default_rng(4).normal(0, 3, (37, length)).astype(np.float32)
    x[5] = -np.inf
    x[36, length // 2] = np.nan
    got = gpu.upload(x).softmax().download()
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = np.exp(wide - wide.max(-1, keepdims=True))
        expected /= expected.sum(-1, keepdims=True)
    expected[5] = 0
    same(got, expected, 1e-6)
    assert np.isnan(got[36]).all()
    assert gpu.upload(x).argmax(1).tolist() == [*np.argmax(x, 1)]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 1, 50), (3, 50, 40)),
        ((5, 1, 50), (3, 1, 50, 40)),
        ((2, 3, 40, 52), (2, 3, 52, 1)),
        ((1, 52), (7, 52, 9)),
        ((2, 1, 4, 52), (3, 52, 5)),
        ((1, 40_000), (40_000, 3)),
        ((7, 4100), (4100, 1)),
    ],
)
def test_skinny_products_in_batches(
    dev: tensai.Device, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in (a, b))
    expected = x.astype(np.float64) @ y.astype(np.float64)
    same(dev.upload(x) @ dev.upload(y), expected, 1e-6 * a[-1] ** 0.5)
