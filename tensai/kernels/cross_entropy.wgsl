// The cross entropy of each row of scores with its label, and its gradient; a workgroup a row.
#include math
#include workgroup

struct Params {
    rows: u32,
    length: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> labels: array<{{INDEX}}>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;
@group(0) @binding(3) var<storage, read_write> slopes: array<f32>;

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
    var largest = -infinity();
    for (var k = lane; k < params.length; k += 256u) {
        largest = max_nan(largest, x[base + k]);
    }
    largest = workgroup_max(largest, lane);
    var sum = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        sum += exp_f32(x[base + k] - largest);
    }
    sum = workgroup_sum(sum, lane);
    // A negative label is a huge one when read as u32.
    let label = u32(labels[row]);
    let valid = label < params.length;
    if (lane == 0u) {
        var loss = not_a_number();
        if (valid) {
            loss = log_f32(sum) - (x[base + label] - largest);
        }
        losses[row] = loss;
    }
    for (var k = lane; k < params.length; k += 256u) {
        let slope = exp_f32(x[base + k] - largest) / sum - select(0.0, 1.0, k == label);
        slopes[base + k] = select(not_a_number(), slope, valid);
    }
}
