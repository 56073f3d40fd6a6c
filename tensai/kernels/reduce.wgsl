// A reduction over the middle axis of x seen as (outer, length, inner). The axis is cut into
// `chunks`; out is (outer, chunks, inner), so a second run over it finishes a long reduction.
#include math

struct Params {
    outputs: u32,  // outer * chunks * inner
    length: u32,
    inner: u32,
    chunks: u32,
    chunk: u32,  // elements of the axis in each chunk but the last
    divisor: f32,  // of the result: 1, or the count for a mean
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<{{T}}>;
@group(0) @binding(1) var<storage, read_write> out: array<{{T}}>;

fn combine(a: {{T}}, b: {{T}}) -> {{T}} {
    return {{COMBINE}};
}

fn finished(total: {{T}}) -> {{T}} {
#if MEAN
    return total / params.divisor;
#else
    return total;
#endif
}

// One thread an output: neighbouring threads read neighbouring elements of `inner`.
@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (group.y * groups.x + group.x) * {{LANES}}u + lane;
    if (index >= params.outputs) {
        return;
    }
    let column = index % params.inner;
    let row = index / params.inner;
    let start = (row % params.chunks) * params.chunk;
    let end = min(start + params.chunk, params.length);
    var at = ((row / params.chunks) * params.length + start) * params.inner + column;
    var total = x[at];
    for (var k = start + 1u; k < end; k++) {
        at += params.inner;
        total = combine(total, x[at]);
    }
    out[index] = finished(total);
}
