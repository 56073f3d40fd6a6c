// Rows of x rounded to int8 by blocks of 32; a thread a block.
#include math
#include int8_round

struct Params {
    blocks: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> codes: array<vec4<u32>>;
// Of each block: the scale, and that times the sum of the codes of either half.
@group(0) @binding(2) var<storage, read_write> factors: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = (group.y * groups.x + group.x) * 64u + lane;
    if (block >= params.blocks) {
        return;
    }
    let at = block * 8u;
    let b = rounded(
        x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u]
    );
    codes[block * 2u] = b.low;
    codes[block * 2u + 1u] = b.high;
    factors[block] = vec4<f32>(b.scale, b.low_sum, b.high_sum, 0.0);
}
