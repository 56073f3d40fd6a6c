// (x - mean) / sqrt(variance + eps), times weight plus bias if AFFINE, over rows; a workgroup a row.
#include math
#include workgroup

struct Params {
    rows: u32,
    length: u32,
    eps: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
#if AFFINE
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
#endif

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let base = row * params.length;
    let count = f32(params.length);
    var sum = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        sum += x[base + k];
    }
    let near = workgroup_sum(sum, lane) / count;
    // The mean is rounded, by some drivers more than once: what is left of it is taken off.
    var rest = 0.0;
    var squares = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        let centred = x[base + k] - near;
        rest += centred;
        squares = fma(centred, centred, squares);
    }
    rest = workgroup_sum(rest, lane) / count;
    let variance = max(workgroup_sum(squares, lane) / count - rest * rest, 0.0);
    let scale = 1.0 / sqrt(variance + params.eps);
    for (var k = lane; k < params.length; k += 256u) {
        let normal = ((x[base + k] - near) - rest) * scale;
#if AFFINE
        out[base + k] = fma(normal, weight[k], bias[k]);
#else
        out[base + k] = normal;
#endif
    }
}
