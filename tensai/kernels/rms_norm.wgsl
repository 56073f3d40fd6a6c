// x / sqrt(mean(x^2) + eps) * weight + residual over rows; a workgroup a row.
#include math
#include workgroup

struct Params {
    rows: u32,
    length: u32,
    add: u32,  // whether there is a residual
    eps: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> residual: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

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
    var squares = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        squares = fma(x[base + k], x[base + k], squares);
    }
    let mean = workgroup_sum(squares, lane) / f32(params.length);
    let scale = 1.0 / sqrt(mean + params.eps);
    for (var k = lane; k < params.length; k += 256u) {
        var value = x[base + k] * scale * weight[k];
        if (params.add != 0u) {
            value += residual[base + k];
        }
        out[base + k] = value;
    }
}
