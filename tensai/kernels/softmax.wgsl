// softmax or log_softmax over the middle axis of x seen as (outer, length, inner); a workgroup a row.
#include math
#include workgroup

struct Params {
    rows: u32,  // outer * inner
    length: u32,
    inner: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

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
    let base = (row / params.inner) * params.length * params.inner + row % params.inner;
    var largest = -infinity();
    for (var k = lane; k < params.length; k += 256u) {
        largest = max_nan(largest, x[base + k * params.inner]);
    }
    largest = workgroup_max(largest, lane);
    // A row of nothing but -inf has no largest element to subtract.
    let shift = select(largest, 0.0, largest == -infinity());
    var sum = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        sum += exp_f32(x[base + k * params.inner] - shift);
    }
    sum = workgroup_sum(sum, lane);
    sum = select(sum, 1.0, sum == 0.0);
    for (var k = lane; k < params.length; k += 256u) {
        let at = base + k * params.inner;
#if LOG
        out[at] = x[at] - shift - log_f32(sum);
#else
        out[at] = exp_f32(x[at] - shift) / sum;
#endif
    }
}
