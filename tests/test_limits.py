"""Where drivers stop short without a word: long loops; and Ctrl-C while a result is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from compare import same

import tensai
from tensai.dtypes import i32
from tensai.operation import OPERATIONS, Spec
from tensai.selfcheck import SURE_LOOPS

f32 = np.dtype(np.float32)

# Shapes at which a lane's loops come to about 65,000 iterations, which llvmpipe ends at, and twice
# as many: below, the kernel must be right, and above, whoever computes.
LONG: dict[str, Callable[[int], tuple[list[tuple[int, ...]], dict[str, object]]]] = {
    "dot": lambda n: ([(1, n), (n, 1)], {}),
    "direct": lambda n: ([(8, n), (n, 8)], {}),
    "transposed": lambda n: ([(3, n), (5, n)], {"transpose_b": True}),
    "wide": lambda n: ([(40, n), (70, n)], {"transpose_b": True}),
}


@pytest.mark.fallback_expected
@pytest.mark.parametrize("name", LONG)
def test_products_of_every_length(gpu: tensai.Device, name: str) -> None:
    for n in (30_000, 43_000, 47_000, 60_000, 65_000, 66_000, 131_000):
        shapes, arguments = LONG[name](n)
        rng = np.random.default_rng(n)
        a, b = (rng.integers(-2, 3, shape).astype(f32) for shape in shapes)
        got = OPERATIONS["matmul"](gpu.upload(a), gpu.upload(b), **arguments)
        wide = b.astype(np.float64)
        same(got, a @ (wide.T if arguments else wide), 1e-7, what=n)


@pytest.mark.fallback_expected
def test_attention_over_every_length(gpu: tensai.Device) -> None:
    for rows in (5_000, 9_000, 17_000, 40_000):
        v = np.zeros((1, rows, 4), f32)
        v[:, -500:] = 1
        q, k = np.zeros((1, 1, 4), f32), np.zeros((1, rows, 4), f32)
        got = gpu.upload(q).attention(gpu.upload(k), gpu.upload(v))
        same(got, np.full((1, 1, 4), 500 / rows), 1e-5, what=rows)


@pytest.mark.fallback_expected
def test_rows_of_every_length(gpu: tensai.Device) -> None:
    for n in (3_000_000, 6_000_000, 17_000_000):
        x = np.zeros(n, f32)
        x[-5] = 20
        t = gpu.upload(x)
        assert t.argmax().item() == n - 5
        assert t.sum().item() == t.max().item() == 20
        expected = np.exp(20.0) / (n - 1 + np.exp(20.0))
        assert abs(t.softmax()[-5].item() - expected) < 1e-5


# No loop over a shape, or one cut into as many pieces as keep loops short.
SHORT = {
    "argmax_subgroup",
    "argmax_tree",
    "attention_split_1",
    "attention_split_4",
    "attention_split_8",
    "embed_grad_atomic",
    "sum_subgroup",
    "sum_tree",
}


def test_estimates_cover_what_is_found(gpu: tensai.Device) -> None:
    # Every kernel that loops over a shape says so, or its long rows would be cut off.
    attending = [Spec((1, 4), f32), Spec((200_000, 4), f32), Spec((200_000, 4), f32)]
    rows = {
        "sum": [Spec((300, 20_000_000), f32)],
        "argmax": [Spec((20_000_000,), f32)],
        "softmax": [Spec((20_000_000,), f32)],
        "layer_norm": [Spec((20_000_000,), f32)] * 3,
        "matmul": [Spec((1, 200_000_000), f32), Spec((200_000_000, 1), f32)],
        "attention": [*attending, Spec((), i32)],
        "attention_grad": [*attending, attending[0], Spec((), i32)],
        "softmax_grad": [Spec((20_000_000,), f32)] * 2,
        "layer_norm_grad": [Spec((20_000_000,), f32)] * 3,
        "rms_norm": [Spec((20_000_000,), f32)] * 2,
        "rms_norm_grad": [Spec((20_000_000,), f32)] * 3,
        "cross_entropy_rows": [Spec((1, 20_000_000), f32), Spec((1,), i32)],
        "embed_grad": [Spec((200_000,), i32), Spec((200_000, 4), f32)],
    }
    for name, specs in rows.items():
        operation = OPERATIONS[name]
        named = dict(zip(operation.tensors, specs, strict=False))
        if name == "embed_grad":
            named["rows"] = 7
        bound = operation.signature.bind(**named)
        bound.apply_defaults()
        if name == "sum":
            bound.arguments["axis"] = 1
        for kernel in operation.kernels:
            _, job = operation.job(dict(bound.arguments))
            job.device = gpu
            if kernel.needs <= gpu.features and kernel.fits(job):
                kernel.plan(job)
                assert (job.loops > SURE_LOOPS) != (kernel.name in SHORT), (name, kernel.name)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of this kind are POSIX's")
def test_an_interrupted_download() -> None:
    code = """if True:
        import os, signal, threading
        import numpy as np, tensai
        dev = tensai.open()
        a = dev.upload(np.full((700, 700), 1 / 700, np.float32))
        for _ in range(3):
            y = a
            for _ in range(12):
                y = y @ a
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                y.download()
                while True:  # it was too quick
                    pass
            except KeyboardInterrupt:
                pass
        print(abs((a @ a).download() * 700 - 1).max() < 1e-4)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
