"""What a device gives at most: bytes moved by a copy kernel, float32 operations by one of fused
multiply-adds. Other benchmarks show them beside their figures.

    python -m benchmarks.peak [--api v22|v29] [--json]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensai
from benchmarks.measure import Table, parser, show

COPY = """
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first = group.x * 1024u + lane;
    let a = x[first];
    let b = x[first + 256u];
    let c = x[first + 512u];
    let d = x[first + 768u];
    out[first] = a;
    out[first + 256u] = b;
    out[first + 512u] = c;
    out[first + 768u] = d;
}
"""
LANES = 8  # vectors of four that a thread works on: as many chains as hide the latency
ROUNDS = 16
# x * half + one goes to 2 and stays there, whatever x began as.
FMA = """
struct Params {{ loops: u32, half: f32, one: f32 }}
var<params> params: Params;
@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let half = vec4<f32>(params.half);
    let one = vec4<f32>(params.one);
    {start}
    for (var i = 0u; i < params.loops; i++) {{
        {body}
    }}
    out[id.x] = {total};
}}
"""


def fma_source() -> str:
    names = [f"x{number}" for number in range(LANES)]
    return FMA.format(
        start="\n    ".join(
            f"var {name} = vec4<f32>(f32(id.x % 7u) + {number}.0);"
            for number, name in enumerate(names)
        ),
        body="\n        ".join(f"{name} = fma({name}, half, one);" for name in names * ROUNDS),
        total=" + ".join(names),
    )


def best(dev: Any, work: Callable[[], Any]) -> float:
    """Seconds of the fastest run of recorded work, on a warm device."""
    with dev.record() as program:
        work()
    dev.synchronize()
    times = []
    end = time.perf_counter() + (0.1 if dev.info.software else 1.0)  # cards idle at a low clock
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        for _ in range(8):
            program.replay()
        dev.synchronize()
        times.append((time.perf_counter() - start) / 8)
    return min(times)


def bandwidth(dev: Any) -> float:
    """Bytes a second, read and written, of a copy within the device."""
    nbytes = (4 << 20) if dev.info.software else (512 << 20)
    data = np.arange(nbytes // 4, dtype=np.float32)
    source, target = dev.upload(data), dev.empty(data.shape)
    seconds = best(
        dev, lambda: dev.run(COPY, [source], [target], workgroups=data.size // 4 // 1024)
    )
    if not np.array_equal(target.download(), data):
        raise SystemExit("the copy kernel's result is wrong")
    return 2 * nbytes / seconds


def arithmetic(dev: Any) -> float:
    """Float32 operations a second, a fused multiply-add being two."""
    groups, loops = (16, 16) if dev.info.software else (4096, 256)
    target = dev.empty((groups * 256, 4))
    source = fma_source()
    seconds = best(
        dev,
        lambda: dev.run(source, [], [target], workgroups=groups, params=(loops, 0.5, 1.0)),
    )
    if not (target.download() == 2 * LANES).all():
        raise SystemExit("the kernel of multiply-adds is wrong")
    return groups * 256 * loops * ROUNDS * LANES * 4 * 2 / seconds


def table(dev: Any) -> Table:
    rows: list[tuple[Any, ...]] = [
        ("copy, GB/s read and written", bandwidth(dev) / 1e9),
        ("multiply-adds, f32 TFLOP/s", arithmetic(dev) / 1e12),
    ]
    return Table(f"Peaks of {dev.name}", ("what", "figure"), rows)


def main() -> None:
    options = parser(__doc__).parse_args()
    show(*table(tensai.open(api=options.api)), options.json)


if __name__ == "__main__":
    main()
