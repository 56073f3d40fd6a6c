// Batched a @ b without workgroup memory: for software adapters, where caches do that work and
// barriers are dear. A thread computes {{TM}} rows of {{TN}} columns; k and n are multiples of 4.
#include matmul_params

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    let tiles = params.tiles_m * params.tiles_n;
    let batch = number / tiles;
    let row = (number % tiles / params.tiles_n * {{BM}}u) + lane / {{THREADS_N}}u * {{TM}}u;
    let column = (number % params.tiles_n * {{BN}}u) + lane % {{THREADS_N}}u * {{TN}}u;
    if (batch >= params.batches || row >= params.m || column >= params.n) {
        return;
    }
    let offsets = batch_offsets(batch) / 4u;
    let width_a = params.k / 4u;
    let width_b = params.n / 4u;
    // Rows and columns past the end repeat the last ones and are not stored.
{{DECLARE}}
    for (var k = 0u; k < width_a; k++) {
{{MULTIPLY}}
    }
    let base = batch * params.m * width_b;
{{STORE}}
}
