// The gradient of softmax or log_softmax from its result y, over the middle axis of (outer, length,
// inner); a workgroup a row.
#include math
#include workgroup

struct Params {
    rows: u32,  // outer * inner
    length: u32,
    inner: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

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
    var sum = 0.0;
    for (var k = lane; k < params.length; k += 256u) {
        let at = base + k * params.inner;
#if LOG
        sum += grad[at];
#else
        sum = fma(grad[at], y[at], sum);
#endif
    }
    sum = workgroup_sum(sum, lane);
    for (var k = lane; k < params.length; k += 256u) {
        let at = base + k * params.inner;
#if LOG
        out[at] = fma(-exp_f32(y[at]), sum, grad[at]);
#else
        out[at] = y[at] * (grad[at] - sum);
#endif
    }
}
