"""Drivers that are not conformant, or lack what others have: found, and right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

API = os.environ.get("TENSAI_WGPU_API") or "v29"
TESTS = Path(__file__).parent.parent


def suite(names: list[str], **environment: str) -> str:
    """The last line of a run of tests on a faulty driver, all of which must pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        timeout=3000 if os.environ.get("TENSAI_TRUST") == "full" else 300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout.splitlines()[-1]


# The smoke set, and what is added to it when the tests may take long.
SMOKE = ["tests/test_operations.py", "-k", "gpu"]
REDUCTIONS = ["tests/test_reductions.py", "-k", "gpu and not many"]
LONG = [f"tests/test_{name}.py" for name in ("operations", "reductions", "products", "properties")]


HIDDEN = """if True:
    import logging
    logging.disable()
    assert tensai.adapters() == []
    raises(tensai.DeviceNotFoundError, tensai.open, "not conformant", "TENSAI_WGPU_API=v29")
    with tensai.open(fallback="cpu") as dev:
        assert dev.info.backend == "CPU"
    print("hidden")
"""
FOUND = """if True:
    assert len(tensai.adapters()) == 1
    with tensai.open() as dev:
        assert (dev.upload([1.0, 2.0]) + 1).tolist() == [2.0, 3.0]
    print("found")
"""


def test_an_adapter_that_is_not_conformant(
    layer: dict[str, str], silent: Callable[..., str], full: bool
) -> None:
    if API == "v22":
        assert silent(HIDDEN, FAULTS="conformance", **layer) == "hidden\n"
        return
    assert silent(FOUND, FAULTS="conformance", **layer) == "found\n"
    assert "passed" in suite(LONG if full else SMOKE, FAULTS="conformance", **layer)


@pytest.mark.parametrize("missing", ["subgroups", "f16"])
def test_a_driver_that_lacks_a_feature(
    layer: dict[str, str], silent: Callable[..., str], full: bool, missing: str
) -> None:
    code = """if True:
        with tensai.open() as dev:
            print(sorted(dev.features))
    """
    feature = {"subgroups": "subgroup", "f16": "shader-f16"}[missing]
    if API == "v29":
        assert f"'{feature}'" in silent(code, **layer)
    assert f"'{feature}'" not in silent(code, FAULTS=missing, **layer)
    short = REDUCTIONS if missing == "subgroups" else SMOKE
    assert "passed" in suite(LONG if full else short, FAULTS=missing, **layer)


def test_tiny_limits(layer: dict[str, str], silent: Callable[..., str]) -> None:
    code = """if True:
        import logging; logging.disable()
        dev = tensai.open()
        cpu = tensai.open("cpu")
        limits = dev.limits
        assert limits["maxStorageBuffersPerShaderStage"] == 4, limits
        assert limits["maxComputeInvocationsPerWorkgroup"] == 128, limits
        assert limits["maxStorageBufferBindingSize"] == 1 << 20, limits
        rng = np.random.default_rng(1)
        x, w = rng.normal(size=(70, 130)), rng.normal(size=(130, 90))
        def work(device):
            a, b = device.upload(x), device.upload(w)
            ones = device.ones((130,))
            q = a.reshape(1, 70, 130)
            yield a @ b
            yield (a * 2 - 1).gelu()
            yield a.softmax()
            yield a.sum(0)
            yield a.argmax(1)
            yield a.layer_norm(ones, ones)
            yield from a.layer_norm_grad(a, ones)
            yield q.attention(q, q, heads=2, causal=True)
            yield from q.attention_grad(q, q, q, heads=2)
            yield device.embed(b, [3, 1, 129])
            yield a[::2, 5:].T
            yield a.astype(np.float16)
            yield a @ device.upload_q8(w)
        for number, (got, right) in enumerate(zip(work(dev), work(cpu), strict=True)):
            got, right = got.download(), right.download()
            assert np.allclose(got, right, rtol=1e-3, atol=1e-3), number
        # Beyond what it binds, the way out is said, and nothing else is harmed.
        raises(tensai.LimitExceededError, lambda: dev.empty((300_000,)), "1,048,576", "split")
        assert dev.upload(np.ones(250_000, np.float32)).sum().item() == 250_000
        print("right")
    """
    assert silent(code, FAULTS="limits", **layer) == "right\n"
    assert "passed" in suite(SMOKE, FAULTS="limits", TENSAI_TEST_FALLBACKS="1", **layer)
