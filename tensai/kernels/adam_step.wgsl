// A step of Adam or AdamW in place.
#include math

struct Params {
    size: u32,
    decoupled: u32,
    keep_m: f32,  // 1 - beta1
    keep_v: f32,
    beta1: f32,
    beta2: f32,
    log_beta1: f32,
    log_beta2: f32,
    eps: f32,
    decay: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read> lr: array<f32>;
@group(0) @binding(5) var<storage, read> step: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + lane;
    if (index >= params.size) {
        return;
    }
    let before = x[index];
    var slope = grad[index];
    var kept = before;
    if (params.decoupled != 0u) {
        kept = fma(-lr[0] * params.decay, before, before);
    } else {
        slope = fma(params.decay, before, slope);
    }
    // Not v + (1 - beta2) (slope^2 - v): of a small new moment, v's rounding would be all.
    let first = fma(params.keep_m, slope, params.beta1 * m[index]);
    let second = fma(params.keep_v * slope, slope, params.beta2 * v[index]);
    m[index] = first;
    v[index] = second;
    // 1 - beta^step, of which 1 - exp would lose the digits at the first steps.
    let root = sqrt(second / one_minus_exp(step[0] * params.log_beta2)) + params.eps;
    x[index] = kept - lr[0] / one_minus_exp(step[0] * params.log_beta1) * (first / root);
}
