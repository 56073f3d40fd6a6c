// x / sqrt(mean(x^2) + eps) * weight + residual over rows; a workgroup a row. Each part can be left
// out, and the rows that come out may be wider, with zeros after them.
#include math
#include workgroup

struct Params {
    rows: u32,
    length: u32,
    width: u32,  // of the rows that come out
    flags: u32,  // 1: normalize, 2: there is a residual
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
    var scale = 1.0;
    if ((params.flags & 1u) != 0u) {
        var squares = 0.0;
        for (var k = lane; k < params.length; k += 256u) {
            squares = fma(x[base + k], x[base + k], squares);
        }
        let mean = workgroup_sum(squares, lane) / f32(params.length);
        scale = 1.0 / sqrt(mean + params.eps);
    }
    for (var k = lane; k < params.width; k += 256u) {
        var value = 0.0;
        if (k < params.length) {
            value = x[base + k] * scale;
            if ((params.flags & 1u) != 0u) {
                value *= weight[k];
            }
            if ((params.flags & 2u) != 0u) {
                value += residual[base + k];
            }
        }
        out[row * params.width + k] = value;
    }
}
