// A step of stochastic gradient descent with momentum in place.

struct Params {
    size: u32,
    nesterov: u32,
    momentum: f32,
    decay: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(2) var<storage, read_write> velocity: array<f32>;
@group(0) @binding(3) var<storage, read> lr: array<f32>;

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
    let slope = fma(params.decay, x[index], grad[index]);
    let speed = fma(params.momentum, velocity[index], slope);
    velocity[index] = speed;
    let ahead = select(speed, fma(params.momentum, speed, slope), params.nesterov != 0u);
    x[index] = fma(-lr[0], ahead, x[index]);
}
