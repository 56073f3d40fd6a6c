"""The compute floor by itself: wgpu_native_py's handles, on the generation that is asked for."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wgpu_native_py as wgpu
from wgpu_native_py.declarations import ffi_for
from wgpu_native_py.pipeline import bindings, workgroup_bytes

SCALE = """
struct Params { count: u32, factor: f32 }
var<params> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params.count) { out[id.x] = x[id.x] * params.factor; }
}
"""


@pytest.fixture(scope="module")
def instance() -> wgpu.Instance:
    return wgpu.Instance(wgpu.load())


@pytest.fixture(scope="module")
def device(instance: wgpu.Instance) -> Iterator[wgpu.Device]:
    opened = instance.adapters()[0].open()
    yield opened
    opened.close()


def read(device: wgpu.Device, buffer: wgpu.Buffer, dtype: Any, count: int) -> np.ndarray:
    """The first elements of a buffer."""
    target = np.empty(count, dtype)
    staging = device.create_buffer(target.nbytes + -target.nbytes % 4, "read")
    encoder = wgpu.CommandEncoder(device)
    encoder.copy(buffer, staging, staging.size)
    encoder.submit()
    staging.read_into(target.view(np.uint8).data, target.nbytes)
    return target


def upload(device: wgpu.Device, array: np.ndarray) -> wgpu.Buffer:
    buffer = device.create_buffer(array.nbytes)
    device.queue.write(buffer, array)
    return buffer


def test_library_and_adapter(instance: wgpu.Instance) -> None:
    library = instance.library
    assert library.api == (os.environ.get("TENSAI_WGPU_API") or "v29")
    assert library.version.startswith(library.api[1:])
    assert wgpu.load() is library
    adapter = instance.adapters()[0]
    assert adapter.info.backend in ("Vulkan", "Metal", "D3D12")
    assert adapter.limits["maxComputeWorkgroupsPerDimension"] >= 65_535


@pytest.mark.parametrize("checked", [True, False])
def test_dispatch_with_parameters(device: wgpu.Device, checked: bool) -> None:
    pipeline = device.create_pipeline(SCALE, params_size=8, checked=checked)
    x = np.arange(100, dtype=np.float32)
    source, target = upload(device, x), device.create_buffer(400)
    encoder = wgpu.CommandEncoder(device)
    encoder.dispatch(pipeline.dispatch((2, 1, 1), struct.pack("<If", 100, 3.0)), [source, target])
    encoder.submit()
    assert (read(device, target, np.float32, 100) == 3 * x).all()


def test_large_parameters(device: wgpu.Device) -> None:
    wgsl = """
    struct Params { rows: array<vec4<u32>, 64> }
    var<params> params: Params;
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64)
    fn main(@builtin(local_invocation_index) i: u32) { out[i] = params.rows[i][i & 3u]; }
    """
    pipeline = device.create_pipeline(wgsl, params_size=1024)
    words = np.arange(256, dtype=np.uint32)
    target = device.create_buffer(256)
    encoder = wgpu.CommandEncoder(device)
    encoder.dispatch(pipeline.dispatch((1, 1, 1), words.tobytes()), [target])
    encoder.submit()
    i = np.arange(64)
    assert (read(device, target, np.uint32, 64) == i * 4 + (i & 3)).all()


def test_several_dispatches_keep_their_order(device: wgpu.Device) -> None:
    double = device.create_pipeline(SCALE, params_size=8).dispatch(
        (1, 1, 1), struct.pack("<If", 4, 2.0)
    )
    a, b = upload(device, np.ones(4, np.float32)), device.create_buffer(16)
    encoder = wgpu.CommandEncoder(device)
    for _ in range(10):
        encoder.dispatch(double, [a, b])
        encoder.dispatch(double, [b, a])
    encoder.submit()
    assert (read(device, a, np.float32, 4) == 2.0**20).all()


def test_writes_of_every_size(device: wgpu.Device) -> None:
    for size in (1, 2, 3, 4, 5, wgpu.LARGE, wgpu.LARGE + 3):
        data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
        buffer = device.create_buffer(size + -size % 4)
        device.queue.write(buffer, data)
        assert (read(device, buffer, np.uint8, size) == data).all()


def test_copy_from_an_offset_and_clear(device: wgpu.Device) -> None:
    buffer = upload(device, np.arange(64, dtype=np.uint32))
    part = device.create_buffer(32)
    encoder = wgpu.CommandEncoder(device)
    encoder.copy(buffer, part, 32, 128)
    encoder.clear(buffer)
    encoder.submit()
    assert (read(device, part, np.uint32, 8) == np.arange(32, 40)).all()
    assert not read(device, buffer, np.uint32, 64).any()
    encoder = wgpu.CommandEncoder(device)
    for size, start in ((0, 0), (3, 0), (36, 0), (32, 2), (32, 256)):
        with pytest.raises(wgpu.ValidationError, match="cannot copy"):
            encoder.copy(buffer, part, size, start)


def test_timestamps(device: wgpu.Device) -> None:
    queries = wgpu.QuerySet(device)
    x = device.create_buffer(1 << 20)
    y = device.create_buffer(1 << 20)
    dispatch = device.create_pipeline(SCALE, params_size=8).dispatch(
        (4096, 1, 1), struct.pack("<If", 1 << 18, 1.0)
    )
    encoder = wgpu.CommandEncoder(device)
    encoder.begin_timed(queries)
    encoder.dispatch(dispatch, [x, y])
    encoder.resolve(queries)
    encoder.submit()
    begin, end = read(device, queries.buffer, np.uint64, 2)
    elapsed = float(end - begin) * device.queue.timestamp_period()
    assert 0 < elapsed < 10e9  # nanoseconds


def test_error_scope(device: wgpu.Device) -> None:
    with device.error_scope() as caught:
        pass
    assert caught == []
    c, ffi = device.library.c, device.library.ffi
    with device.error_scope() as caught:
        # A buffer with MapRead and Storage usage is refused.
        descriptor = ffi.new("WGPUBufferDescriptor *")
        descriptor.size = 16
        descriptor.usage = c.WGPUBufferUsage_MapRead | c.WGPUBufferUsage_Storage
        c.wgpuBufferRelease(c.wgpuDeviceCreateBuffer(device.handle, descriptor))
    assert len(caught) == 1
    assert "MAP_READ" in caught[0] or "MapRead" in caught[0]
    assert device.errors == []
    with pytest.raises(ValueError, match="out-of-memory"), device.error_scope("nonsense"):
        pass


@pytest.mark.parametrize(
    ("wgsl", "message"),
    [
        ("fn main( {", "expected identifier"),
        ("@compute @workgroup_size(1) fn other() {}", "main"),
        ("@compute @workgroup_size(4096) fn main() {}", "4096"),
        ("@group(1) @binding(0) var<storage> x: array<f32>;", "@group\\(0\\)"),
        (
            "@group(0) @binding(0) var<storage> x: array<f32>;"
            "@group(0) @binding(0) var<storage> y: array<f32>;",
            "share a binding",
        ),
    ],
)
def test_wrong_kernels_are_refused(device: wgpu.Device, wgsl: str, message: str) -> None:
    with pytest.raises(wgpu.KernelError, match=message):
        device.create_pipeline(wgsl)
    assert device.errors == []


def test_workgroup_memory_beyond_the_limit(device: wgpu.Device) -> None:
    # The library reports nothing here, and the driver may do anything.
    count = device.limits["maxComputeWorkgroupStorageSize"] // 4
    wgsl = """
    const SIZE = {size}u;
    var<workgroup> tile: array<f32, SIZE>;
    @group(0) @binding(0) var<storage, read_write> out: array<f32>;
    @compute @workgroup_size(1) fn main() {{ tile[0] = 1.0; out[0] = tile[0]; }}
    """
    device.create_pipeline(wgsl.format(size=count))
    with pytest.raises(wgpu.LimitExceededError, match="workgroup memory"):
        device.create_pipeline(wgsl.format(size=count + 1))


def test_workgroup_bytes() -> None:
    assert workgroup_bytes("var<workgroup> a: array<vec4<f32>, 10>; var<workgroup> b: u32;") == 164
    assert workgroup_bytes("var<workgroup> a: array<array<f32, 3>, 0x10u>;") == 192
    assert workgroup_bytes("const N: u32 = 7; var<workgroup> a: array<vec2f, N>;") == 56
    assert workgroup_bytes("var<workgroup> a: array<Unknown, 4>; // var<workgroup> b: f32;") == 0


def test_bindings() -> None:
    wgsl = """
    @group(0) @binding(2) var<storage, read_write> c: array<f32>;
    @binding(0) @group(0)
    var<storage> a: array<f32>;
    @group( 0 ) @binding( 1u ) var < uniform > b: vec4<f32>;
    // @group(0) @binding(3) var<storage> commented: array<f32>;
    /* @group(0) @binding(4) var<storage> out: array<f32>; */
    """
    assert bindings(wgsl) == [(0, "read"), (1, "uniform"), (2, "read_write")]


def test_limits_are_checked_before_the_driver(device: wgpu.Device) -> None:
    pipeline = device.create_pipeline(SCALE, params_size=8)
    for counts in ((65_536, 1, 1), (0, 1, 1), (1, -1, 1)):
        with pytest.raises(wgpu.LimitExceededError, match="workgroups"):
            pipeline.dispatch(counts, bytes(8))
    with pytest.raises(wgpu.KernelError, match="8 bytes"):
        pipeline.dispatch((1, 1, 1), bytes(4))
    with pytest.raises(wgpu.LimitExceededError, match="Split"):
        device.create_buffer(
            device.limits["maxBufferSize"] + 4 - device.limits["maxBufferSize"] % 4
        )
    for size in (0, 6, -4):
        with pytest.raises(wgpu.ValidationError, match="multiple of 4"):
            device.create_buffer(size)


def test_a_limit_that_an_adapter_does_not_have_is_not_the_default(device: wgpu.Device) -> None:
    binding = device.library.binding
    target = binding.ffi.new("WGPULimits *")
    undefined = dict.fromkeys(device.limits, 2**64 - 1)
    undefined |= {"maxComputeWorkgroupsPerDimension": 2**32 - 1, "maxComputeWorkgroupSizeX": 1024}
    binding.fill_limits(target, undefined)
    filled = binding.read_limits(target)
    assert filled["maxBufferSize"] == 2**64 - 2
    assert filled["maxComputeWorkgroupsPerDimension"] == 2**32 - 2
    assert filled["maxComputeWorkgroupSizeX"] == 1024


def test_a_device_has_the_limits_of_its_adapter(device: wgpu.Device) -> None:
    for name, value in device.adapter.limits.items():
        unlimited = value in (2**32 - 1, 2**64 - 1)
        assert device.limits[name] == value - unlimited, name


def test_refused_work_is_not_submitted(device: wgpu.Device) -> None:
    # One buffer both read and written by a dispatch: known only when the encoder is finished.
    dispatch = device.create_pipeline(SCALE, params_size=8).dispatch((1, 1, 1), bytes(8))
    buffer = device.create_buffer(16)
    encoder = wgpu.CommandEncoder(device)
    encoder.dispatch(dispatch, [buffer, buffer])
    with pytest.raises(wgpu.ValidationError):
        encoder.submit()
    assert (read(device, upload(device, np.ones(4, np.float32)), np.float32, 4) == 1).all()


def test_nothing_native_is_left(instance: wgpu.Instance) -> None:
    before = instance.report()
    for _ in range(3):
        opened = instance.adapters()[0].open()
        source, target = upload(opened, np.ones(4, np.float32)), opened.create_buffer(16)
        dispatch = opened.create_pipeline(SCALE, params_size=8).dispatch(
            (1, 1, 1), struct.pack("<If", 4, 2.0)
        )
        encoder = wgpu.CommandEncoder(opened)
        for _ in range(20):
            encoder.dispatch(dispatch, [source, target])
        encoder.submit()
        assert (read(opened, target, np.float32, 4) == 2).all()
        opened.close()
        del opened, source, target, dispatch, encoder
    gc.collect()
    after = instance.report()
    grown = {name: (before.get(name, 0), n) for name, n in after.items() if n > before.get(name, 0)}
    # v22 itself keeps 20 bytes for each submitted command buffer.
    assert not grown.keys() - ({"commandBuffers"} if instance.library.api == "v22" else set()), (
        grown
    )


def test_kept_bind_groups_do_not_keep_memory(device: wgpu.Device, instance: wgpu.Instance) -> None:
    dispatch = device.create_pipeline(SCALE, params_size=8).dispatch(
        (1, 1, 1), struct.pack("<If", 4, 2.0)
    )
    target = device.create_buffer(16)
    device.poll(wait=True)
    before = instance.report()
    for _ in range(100):
        encoder = wgpu.CommandEncoder(device)
        encoder.dispatch(dispatch, [device.create_buffer(16), target])
        encoder.submit()
    device.poll(wait=True)
    after = instance.report()
    assert after["buffers"] <= before["buffers"] + 1
    assert after["bindGroups"] <= before.get("bindGroups", 0) + 10


def test_use_after_close(instance: wgpu.Instance) -> None:
    opened = instance.adapters()[0].open()
    opened.close()
    opened.close()
    with pytest.raises(wgpu.DeviceLostError, match="closed"):
        opened.create_buffer(16)
    with pytest.raises(wgpu.DeviceLostError, match="closed"):
        wgpu.CommandEncoder(opened)


def test_exit_with_everything_alive_is_silent() -> None:
    code = (
        "import numpy as np, wgpu_native_py as w\n"
        "device = w.Instance(w.load()).adapters()[0].open()\n"
        "buffer = device.create_buffer(64)\n"
        "encoder = w.CommandEncoder(device)\n"
        "encoder.clear(buffer)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_brackets_beyond_the_parser(device: wgpu.Device) -> None:
    # Some thousands of them end the process in the library's recursive parser.
    wgsl = "@compute @workgroup_size(1) fn main() {{ let x = {}1.0{}; }}"
    device.create_pipeline(wgsl.format("(" * 150, ")" * 150))
    for depth in (250, 5000):
        with pytest.raises(wgpu.KernelError, match="nested"):
            device.create_pipeline(wgsl.format("(" * depth, ")" * depth))
    with pytest.raises(wgpu.KernelError, match="NUL"):
        device.create_pipeline(wgsl.format("", "") + "\0 more")


def test_an_interrupt_inside_a_callback_reaches_the_caller(device: wgpu.Device) -> None:
    binding = device.library.binding
    buffer = upload(device, np.ones(4, np.float32))
    for where in ("poll", "check", "submit"):
        binding.kept.append(KeyboardInterrupt())
        encoder = wgpu.CommandEncoder(device)
        with pytest.raises(KeyboardInterrupt):
            if where == "poll":
                device.poll(wait=True)
            elif where == "check":
                device.check("in a test")
            else:
                encoder.clear(buffer)
                encoder.submit()
        assert binding.kept == []
    assert (read(device, buffer, np.float32, 4) == 1).all()


@pytest.mark.skipif(sys.platform != "linux", reason="cuts an ELF file off")
@pytest.mark.parametrize("left", [0, 40, 64, 100_000, -1])
def test_a_library_that_was_cut_off_is_refused(tmp_path: Path, left: int) -> None:
    whole = wgpu.load().path.read_bytes()
    path = tmp_path / "libwgpu_native.so"
    path.write_bytes(whole[:left])
    # The loader would die of it, so that another process has to try.
    code = "import sys, wgpu_native_py as w\ntry: w.load(library=sys.argv[1])\n"
    code += "except w.LibraryNotFoundError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout
    assert ("cut off" in done.stdout) == (left not in (0, 40))


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "raise ValueError", "ffi = ", "", "\0"])
def test_damaged_declarations_are_parsed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    api = wgpu.load().api
    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path))
    assert ffi_for(api).sizeof("WGPUBufferDescriptor") > 0
    (kept,) = (tmp_path / "declarations").glob("*.py")
    kept.write_text(text)
    assert ffi_for(api).sizeof("WGPUBufferDescriptor") > 0
    assert kept.read_text() != text
