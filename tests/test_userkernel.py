"""A user's own WGSL: what `dev.run` takes, and what it refuses before it could do harm.

After every error the device still works, and tensors made earlier keep their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compare import numbers, same

import tensai
from tensai import (
    DeviceMismatchError,
    DTypeError,
    KernelError,
    LimitExceededError,
    ShapeError,
    TensorFreedError,
)

pytestmark = pytest.mark.usefixtures("still_works")

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32

DOUBLE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&x)) { y[id.x] = x[id.x] * 2.0; }
}
"""
SCALE = """
struct Params { factor: f32, offset: i32, count: u32 }
PARAMS
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < p.count) { y[id.x] = x[id.x] * p.factor + f32(p.offset); }
}
"""


def test_run(gpu: tensai.Device) -> None:
    x = numbers((100,))
    (y,) = gpu.run(DOUBLE, inputs=[gpu.upload(x)], outputs=[(100,)], workgroups=2)
    same(y, x * f32(2))
    (y,) = gpu.run(DOUBLE, [x], [((10, 10), f32)], (2, 1, 1))
    same(y, (x * f32(2)).reshape(10, 10))
    mine = gpu.zeros(100)
    assert gpu.run(DOUBLE, [x.tolist()], [mine], (2,)) == [mine]
    same(mine + 1, x * f32(2) + 1, 1e-7, each=True)
    # Recorded work before it is done before it, also in a batch.
    with gpu.batch():
        a = gpu.upload(x) + 1
        (y,) = gpu.run(DOUBLE, [a], [100], 2)
        b = y + 1
    same(b, (x + f32(1)) * f32(2) + f32(1))


@pytest.mark.parametrize(
    "params",
    [
        (1.5, -3, 100),
        [np.float32(1.5), np.int32(-3), np.uint32(100)],
        np.array([(1.5, -3, 100)], dtype=[("a", "<f4"), ("b", "<i4"), ("c", "<u4")]).tobytes(),
        bytearray(np.array([1.5], f32).tobytes() + np.array([-3, 100], i32).tobytes()),
        np.array([(1.5, -3, 100)], dtype=[("a", "<f4"), ("b", "<i4"), ("c", "<u4")]),
    ],
    ids=["tuple", "list", "bytes", "bytearray", "array"],
)
@pytest.mark.parametrize(
    "declared", ["var<params> p: Params;", "@group(0) @binding(2) var<uniform> p: Params;"]
)
def test_run_with_params(gpu: tensai.Device, params: Any, declared: str) -> None:
    x = numbers((100,))
    (y,) = gpu.run(SCALE.replace("PARAMS", declared), [x], [100], 2, params=params)
    same(y, x * f32(1.5) - f32(3), 1e-6)


@pytest.mark.parametrize(
    "declared", ["var<params> p: Params;", "@group(0) @binding(2) var<uniform> p: Params;"]
)
def test_run_with_too_few_params(gpu: tensai.Device, declared: str) -> None:
    wgsl = SCALE.replace("struct Params {", "struct Params { more: array<vec4<f32>, 4>,")
    wgsl = wgsl.replace("p.factor", "p.more[3].w")
    with pytest.raises(KernelError):
        gpu.run(wgsl.replace("PARAMS", declared), [numbers((4,))], [4], 1, params=(1.0,))


def test_run_sees_a_tensor_of_its_own_length(gpu: tensai.Device) -> None:
    # Memory is handed out in rounded sizes; a kernel must not see the rest.
    wgsl = """
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read> h: array<u32>;
    @group(0) @binding(2) var<storage, read> b: array<u32>;
    @group(0) @binding(3) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(1) fn main() {
        y[0] = arrayLength(&x); y[1] = arrayLength(&h); y[2] = arrayLength(&b);
        y[3] = arrayLength(&y); y[4] = h[0]; y[5] = b[1];
    }
    """
    halves, bools = numbers((7,), f16), np.array([False, True, True])
    (y,) = gpu.run(wgsl, [numbers((100,)), halves, bools], [((9,), u32)], 1)
    # float16 is packed two to a word, bool takes a word.
    assert y.tolist()[:6] == [100, 4, 3, 9, int(halves[:2].view(u32)[0]), 1]


def test_run_of_an_in_place_kernel(gpu: tensai.Device) -> None:
    wgsl = """
    @group(0) @binding(0) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        y[id.x] = y[id.x] + id.x;
    }
    """
    t = gpu.full((5,), 10, dtype=u32)
    for _ in range(2):
        gpu.run(wgsl, outputs=[t], workgroups=5)
    same(t, np.array([10, 12, 14, 16, 18], u32))


@pytest.mark.parametrize(
    ("wgsl", "said"),
    [
        ("", "bindings"),
        ("fn main() {", "bindings"),
        (DOUBLE[:-3], "expected"),
        (DOUBLE.replace("* 2.0", "* nonsense"), "nonsense"),
        (DOUBLE.replace("fn main", "fn other"), "main"),
        (DOUBLE.replace("* 2.0", "* 2i"), ""),
        (DOUBLE.replace("@compute @workgroup_size(64)", ""), "main"),
        (DOUBLE.replace("workgroup_size(64)", "workgroup_size(100000)"), ""),
        (DOUBLE.replace("workgroup_size(64)", "workgroup_size(0)"), ""),
        (DOUBLE.replace("array<f32>", "array<nothing>"), "nothing"),
        (DOUBLE.replace("@group(0) @binding(0)", "@group(1) @binding(0)"), "group"),
        (DOUBLE.replace("@binding(1)", "@binding(0)"), "binding"),
        (DOUBLE.replace("@binding(1)", "@binding(2)"), "binding"),
        (DOUBLE.replace("read_write", "read"), ""),
        ("\0", ""),
        ("текст", ""),
    ],
)
def test_run_of_wrong_kernels(gpu: tensai.Device, wgsl: str, said: str) -> None:
    with pytest.raises(KernelError) as caught:
        gpu.run(wgsl, [numbers((4,))], [(4,)], 1)
    assert said in str(caught.value)


def test_run_with_too_much_workgroup_memory(gpu: tensai.Device) -> None:
    most = gpu.limits["maxComputeWorkgroupStorageSize"]
    wgsl = DOUBLE.replace("@compute", f"var<workgroup> w: array<f32, {most // 4 + 1}>;\n@compute")
    wgsl = wgsl.replace("* 2.0", "* w[id.x]")
    with pytest.raises((KernelError, LimitExceededError), match=r"[Ww]orkgroup"):
        gpu.run(wgsl, [numbers((4,))], [(4,)], 1)


def test_run_with_wrong_arguments(gpu: tensai.Device) -> None:
    t, other = gpu.upload(numbers((4,))), gpu.zeros(4)
    declared = SCALE.replace("PARAMS", "var<params> p: Params;")
    uniform = SCALE.replace("PARAMS", "@group(0) @binding(2) var<uniform> p: Params;")
    most = gpu.limits["maxComputeWorkgroupsPerDimension"]
    cases: list[tuple[Any, Callable[[], Any]]] = [
        (KernelError, lambda: gpu.run(DOUBLE, [t], [], 1)),
        (KernelError, lambda: gpu.run(DOUBLE, [], [other], 1)),
        (KernelError, lambda: gpu.run(DOUBLE, [t, t], [other], 1)),
        (KernelError, lambda: gpu.run(DOUBLE, [t], [t], 1)),
        (KernelError, lambda: gpu.run(DOUBLE, [t], [t.reshape(2, 2)], 1)),
        (KernelError, lambda: gpu.run(DOUBLE, [t], [other], 1, params=(1.0,))),
        (KernelError, lambda: gpu.run(declared, [t], [other], 1)),
        (KernelError, lambda: gpu.run(uniform, [t], [other], 1)),
        (LimitExceededError, lambda: gpu.run(DOUBLE, [t], [other], most + 1)),
        (LimitExceededError, lambda: gpu.run(DOUBLE, [t], [other], (1, 1, most + 1))),
        (LimitExceededError, lambda: gpu.run(DOUBLE, [t], [other], 0)),
        (LimitExceededError, lambda: gpu.run(DOUBLE, [t], [other], -1)),
        (LimitExceededError, lambda: gpu.run(DOUBLE, [t], [other], (1, 1, 1, 1))),
        (LimitExceededError, lambda: gpu.run(DOUBLE, [t], [other], ())),
        (TypeError, lambda: gpu.run(DOUBLE, [t], [other], 1.5)),
        (TypeError, lambda: gpu.run(DOUBLE, [t], [other], "1")),
        (DTypeError, lambda: gpu.run(declared, [t], [other], 1, params=np.ones(3))),
        (TypeError, lambda: gpu.run(declared, [t], [other], 1, params="123456789012")),
        (TypeError, lambda: gpu.run(declared, [t], [other], 1, params=(1.0, None, 3))),
        (OverflowError, lambda: gpu.run(declared, [t], [other], 1, params=(1.0, 2**32, 3))),
        (TypeError, lambda: gpu.run(42, [t], [other], 1)),
        (DTypeError, lambda: gpu.run(DOUBLE, [t], [((4,), np.float64)], 1)),
        (ShapeError, lambda: gpu.run(DOUBLE, [t], [(-4,)], 1)),
        (DTypeError, lambda: gpu.run(DOUBLE, [object()], [other], 1)),
    ]
    with tensai.open("cpu") as host:
        foreign = host.zeros(4)
        cases.append((DeviceMismatchError, lambda: gpu.run(DOUBLE, [foreign], [other], 1)))
        cases.append((DeviceMismatchError, lambda: gpu.run(DOUBLE, [t], [foreign], 1)))
        freed = gpu.zeros(4)
        freed.free()
        cases.append((TensorFreedError, lambda: gpu.run(DOUBLE, [freed], [other], 1)))
        cases.append((TensorFreedError, lambda: gpu.run(DOUBLE, [t], [freed], 1)))
        for number, (error, use) in enumerate(cases):
            with pytest.raises(error):
                use()
                pytest.fail(f"case {number} was taken")
            same(t, numbers((4,)), what=number)
            same(other, np.zeros(4, f32), what=number)


def test_run_with_one_output_twice(gpu: tensai.Device) -> None:
    wgsl = """
    @group(0) @binding(0) var<storage, read_write> a: array<f32>;
    @group(0) @binding(1) var<storage, read_write> b: array<f32>;
    @compute @workgroup_size(1) fn main() { a[0] = 1.0; b[1] = 2.0; }
    """
    t = gpu.zeros(2)
    # WebGPU lets two writable bindings of a dispatch share memory: right, or refused.
    try:
        gpu.run(wgsl, outputs=[t, t])
    except KernelError:
        same(t, np.zeros(2, f32))
    else:
        same(t, np.array([1, 2], f32))


def test_run_with_more_buffers_than_a_device_has(gpu: tensai.Device) -> None:
    count = gpu.limits["maxStorageBuffersPerShaderStage"] + 1
    if count > 200:
        count = 200
    lines = [
        f"@group(0) @binding({i}) var<storage, read> b{i}: array<f32>;" for i in range(count - 1)
    ]
    total = " + ".join(f"b{i}[0]" for i in range(count - 1))
    wgsl = (
        "\n".join(lines)
        + f"""
    @group(0) @binding({count - 1}) var<storage, read_write> out: array<f32>;
    @compute @workgroup_size(1) fn main() {{ out[0] = {total}; }}
    """
    )
    inputs = [gpu.ones(1) for _ in range(count - 1)]
    if count <= gpu.limits["maxStorageBuffersPerShaderStage"]:
        (out,) = gpu.run(wgsl, inputs, [1])
        same(out, np.array([count - 1], f32))
    else:
        with pytest.raises((LimitExceededError, KernelError), match="buffers"):
            gpu.run(wgsl, inputs, [1])


def test_run_out_of_bounds(gpu: tensai.Device) -> None:
    # A user's kernel keeps the library's bounds checks: it can neither crash nor reach others.
    wgsl = """
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let i = id.x * 4000000u;
        y[i] = x[i + 123456789u] + 1.0;
    }
    """
    gpu.run(wgsl, [numbers((4,))], [(4,)], 16)
    gpu.synchronize()


def test_run_on_the_cpu(cpu: tensai.Device) -> None:
    with pytest.raises(KernelError, match="WGSL"):
        cpu.run(DOUBLE, [numbers((4,))], [(4,)], 1)
