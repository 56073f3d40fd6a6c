// Rows of x as a product with a packed matrix wants them: normalized, x / sqrt(mean(x^2) + eps) * norm,
// if asked for, and padded with zeros. A workgroup a row.
#include math
#include workgroup

struct Params {
    m: u32,
    k: u32,
    width: u32,  // of the rows that come out
    normalize: u32,
    eps: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> norm: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.y * groups.x + group.x;
    if (row >= params.m) {
        return;
    }
    let base = row * params.k;
    var scale = 1.0;
    if (params.normalize != 0u) {
        var squares = 0.0;
        for (var i = lane; i < params.k; i += 256u) {
            squares = fma(x[base + i], x[base + i], squares);
        }
        scale = 1.0 / sqrt(workgroup_sum(squares, lane) / f32(params.k) + params.eps);
    }
    for (var i = lane; i < params.width; i += 256u) {
        var value = 0.0;
        if (i < params.k) {
            value = x[base + i] * scale;
            if (params.normalize != 0u) {
                value *= norm[i];
            }
        }
        out[row * params.width + i] = value;
    }
}
