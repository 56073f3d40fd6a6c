"""Host time of one recorded dispatch and of small eager operations, against the wgpu package.

    python -m benchmarks.dispatch [--api v22 v29] [--count N] [--json]

Needs `pip install wgpu==0.32.0` for the peer. Four rows a generation:

- dispatch: pipeline, bind group, 16 bytes of parameters and the dispatch itself, recorded into one
  pass; for tensai through wgpu_native_py's encoder, as every operation does it.
- add: c = a + b of two resident tensors of 1000 elements, its result never read, all in one
  batch; for wgpu-py the same work: a buffer for the result, a bind group, and the dispatch.
- add, submitted: the same outside a batch, where tensai submits every 64 operations, and so does
  the peer. On a software adapter the work itself then competes for the processor.
- replay: a recorded program in one batch, additions and multiplications in turn, each of two other
  tensors than the last. The peer records pipeline, a kept bind group and the dispatch, its
  parameters once.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensai
import wgpu_native_py as native
from benchmarks.measure import alternate, per_call, show

COUNT = 1000
ROUNDS = 15
TENSORS = 4  # that a replayed program alternates between

WGSL = """
struct Params {{ size: u32, a: u32, b: u32, c: u32 }}
{params}
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x < params.size) {{ out[id.x] = x[id.x] + y[id.x]; }}
}}
"""
PARAMS = struct.pack("<4I", 250, 1, 1, 0)


def tensai_runs(api: str, count: int) -> dict[str, Callable[[], float]]:
    """The rows through tensai on one generation."""
    dev: Any = tensai.open(api=api)
    device = dev.native
    source = WGSL.format(params="var<params> params: Params;")
    pipeline = device.create_pipeline(source, params_size=len(PARAMS), checked=False)
    dispatch = pipeline.dispatch((1, 1, 1), PARAMS)
    buffers = [device.create_buffer(4096) for _ in range(3)]
    a = dev.upload(np.ones(1000, np.float32))
    b = dev.upload(np.ones(1000, np.float32))
    assert ((a + b).download() == 2).all()

    def record() -> float:
        encoder = native.CommandEncoder(device)
        encoder.dispatch(dispatch, buffers)
        figure = per_call(lambda: encoder.dispatch(dispatch, buffers), count)
        encoder.submit()
        dev.synchronize()
        return figure

    def add() -> float:
        with dev.batch():
            figure = per_call(lambda: a + b, count)
        dev.synchronize()
        return figure

    def eager() -> float:
        figure = per_call(lambda: a + b, count)
        dev.synchronize()
        return figure

    many = [dev.upload(np.full(1000, number, np.float32)) for number in range(TENSORS)]
    with dev.record() as program:
        made = []
        for i in range(count):
            x, y = many[i % TENSORS], many[(i + 1) % TENSORS]
            made.append(x * y if i % 2 else x + y)
    program.replay()
    for i in range(TENSORS):
        x, y = i, (i + 1) % TENSORS
        assert (made[i].download() == (x * y if i % 2 else x + y)).all()

    def replay() -> float:
        with dev.batch():
            figure = per_call(program.replay, 1) / count
        dev.synchronize()
        return figure

    return {
        f"{api} dispatch": record,
        f"{api} add": add,
        f"{api} add, submitted": eager,
        f"{api} replay": replay,
    }


def peer_runs(count: int) -> dict[str, Callable[[], float]]:
    """The same work through the wgpu package."""
    import wgpu

    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    device = adapter.request_device_sync(
        required_features=["immediates"], required_limits={"max-immediate-size": 16}
    )
    kinds = [wgpu.BufferBindingType.read_only_storage] * 2 + [wgpu.BufferBindingType.storage]
    layout = device.create_bind_group_layout(
        entries=[
            {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for i, kind in enumerate(kinds)
        ]
    )
    pipeline_layout = device.create_pipeline_layout(bind_group_layouts=[layout], immediate_size=16)
    code = WGSL.format(params="var<immediate> params: Params;")
    pipeline, other = (
        device.create_compute_pipeline(
            layout=pipeline_layout,
            compute={"module": device.create_shader_module(code=text), "entry_point": "main"},
        )
        for text in (code, code.replace("x[id.x] + y", "x[id.x] * y"))
    )
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    buffers = [device.create_buffer(size=4096, usage=usage) for _ in range(3)]

    def bind(chosen: list[Any]) -> Any:
        return device.create_bind_group(
            layout=layout,
            entries=[
                {"binding": i, "resource": {"buffer": buffer, "offset": 0, "size": 4096}}
                for i, buffer in enumerate(chosen)
            ],
        )

    group = bind(buffers)
    data = memoryview(PARAMS)

    def one(compute: Any, group: Any) -> None:
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.set_immediates(0, data, 0, 16)
        compute.dispatch_workgroups(1)

    def record(body: Callable[[Any], Any]) -> float:
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        figure = per_call(lambda: body(compute), count)
        compute.end()
        device.queue.submit([encoder.finish()])
        device.queue.read_buffer(buffers[2], 0, 16)  # waits
        return figure

    def add(compute: Any) -> None:
        result = device.create_buffer(size=4096, usage=usage)
        one(compute, bind([buffers[0], buffers[1], result]))

    def eager() -> float:
        start = time.perf_counter()
        for _ in range(0, count, 64):
            encoder = device.create_command_encoder()
            compute = encoder.begin_compute_pass()
            for _ in range(64):
                add(compute)
            compute.end()
            device.queue.submit([encoder.finish()])
        figure = (time.perf_counter() - start) / (-(-count // 64) * 64) * 1e6
        device.queue.read_buffer(buffers[2], 0, 16)
        return figure

    groups = [
        bind([many[i % TENSORS], many[(i + 1) % TENSORS], buffers[2]])
        for many in [[device.create_buffer(size=4096, usage=usage) for _ in range(TENSORS)]]
        for i in range(TENSORS)
    ]

    def replay() -> float:
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        start = time.perf_counter()
        compute.set_pipeline(pipeline)
        compute.set_immediates(0, data, 0, 16)
        for i in range(count):
            compute.set_pipeline(other if i % 2 else pipeline)
            compute.set_bind_group(0, groups[i % TENSORS])
            compute.dispatch_workgroups(1)
        figure = (time.perf_counter() - start) / count * 1e6
        compute.end()
        device.queue.submit([encoder.finish()])
        device.queue.read_buffer(buffers[2], 0, 16)
        return figure

    return {
        "peer replay": replay,
        "peer dispatch": lambda: record(lambda compute: one(compute, group)),
        "peer add": lambda: record(add),
        "peer add, submitted": eager,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--api", choices=("v22", "v29"), nargs="+", default=["v29", "v22"])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = peer_runs(options.count)
    for api in options.api:
        runs |= tensai_runs(api, options.count)
    medians = alternate(runs, ROUNDS)
    rows = []
    for api in options.api:
        for work in ("dispatch", "add", "add, submitted", "replay"):
            ours, theirs = medians[f"{api} {work}"], medians[f"peer {work}"]
            rows.append((f"{work}, {api}", ours, theirs, ours / theirs))
    show("Host time, us", ("work", "tensai", "wgpu 0.32", "time ratio"), rows, options.json)


if __name__ == "__main__":
    main()
