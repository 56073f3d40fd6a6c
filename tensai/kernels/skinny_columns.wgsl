// Skinny products with a matrix whose columns lie side by side. A workgroup computes {{ACROSS}} units
// of columns, a lane each; {{SLICES}} sets of lanes share k, four of its rows at a time.
#include skinny_params

var<workgroup> parts: array<{{W}}, {{LANES}}>;

// Four neighbouring elements of a vector, 0 beyond its end.
fn four(base: u32, first: u32) -> vec4<f32> {
#if X_VECTOR
    return x[base + first / 4u];
#else
    var value = vec4<f32>(x[base + first], 0.0, 0.0, 0.0);
    if (first + 1u < params.k) { value.y = x[base + first + 1u]; }
    if (first + 2u < params.k) { value.z = x[base + first + 2u]; }
    if (first + 3u < params.k) { value.w = x[base + first + 3u]; }
    return value;
#endif
}

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) all: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * all.x + group.x;
    let column = number % params.groups * {{ACROSS}}u + lane % {{ACROSS}}u;
    let split = number / params.groups % params.splits;
    let batch = number / params.groups / params.splits;
    if (batch >= params.batches) {
        return;
    }
    // Columns and vectors past the end repeat the last ones and are not stored.
    let width = params.n / {{WIDTH}}u;
    let base = batch * params.batch_w + min(column, width - 1u);
    let slice = lane / {{ACROSS}}u;
    let start = split * params.chunk;
    let end = min(start + params.chunk, (params.k + 3u) / 4u);
{{DECLARE}}
    var unit = start + slice;
    for (; unit + {{REACH}}u < end; unit += {{STRIDE}}u) {
{{AHEAD_BODY}}
    }
    for (; unit < end; unit += {{SLICES}}u) {
{{BODY}}
    }
{{JOIN}}
}
