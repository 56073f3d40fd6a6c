// Gradients of layer_norm (CENTRED) and rms_norm over rows; a workgroup a row. `part` is what the
// weight's gradient is the sum of over the rows.
#include math
#include workgroup

struct Params {
    rows: u32,
    length: u32,
    eps: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read_write> part: array<f32>;

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
    var mean = 0.0;
#if CENTRED
    for (var k = lane; k < params.length; k += 256u) {
        mean += x[base + k];
    }
    mean = workgroup_sum(mean, lane) / count;
#endif
    var squares = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        let centred = x[base + k] - mean;
        squares = fma(centred, centred, squares);
    }
    let scale = 1.0 / sqrt(workgroup_sum(squares, lane) / count + params.eps);
    var shift = 0.0;
    var slope = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        let weighted = grad[base + k] * weight[k];
        shift += weighted;
        slope = fma(weighted, (x[base + k] - mean) * scale, slope);
    }
#if CENTRED
    shift = workgroup_sum(shift, lane) / count;
#else
    shift = 0.0;
#endif
    slope = workgroup_sum(slope, lane) / count;
    for (var k = lane; k < params.length; k += 256u) {
        let normal = (x[base + k] - mean) * scale;
        out[base + k] = scale * (grad[base + k] * weight[k] - shift - normal * slope);
        part[base + k] = grad[base + k] * normal;
    }
}
