// Many rows of x times a packed matrix. A workgroup computes a {{BM}} x {{BN}} tile in steps of 32
// elements along k, the matrix's unpacked into workgroup memory; a thread {{TM}} x {{TN}} of it.
#include packed_params
#include packed_format
#include packed_tile

// Both tiles lie with k outermost, four rows to a vector, padded by one vector so that the writes
// that transpose them spread over the banks.
var<workgroup> tile_a: array<vec4<f32>, {{A_VECTORS}}>;
var<workgroup> tile_b: array<vec4<f32>, {{B_VECTORS}}>;

// The quad of a row of x that meets quad `i` of 8 in a step.
fn step_quad(step: u32, i: u32) -> u32 {
#if CONTIGUOUS
    return step * 8u + i;
#else
    return first_quad(step) + (i & 3u) + (i >> 2u) * SECOND_HALF;
#endif
}

fn put(k: u32, row: u32, value: vec4<f32>) {
    let at = k * {{B_STRIDE}}u + row / 4u;
    tile_b[at][row & 3u] = value.x;
    tile_b[at + {{B_STRIDE}}u][row & 3u] = value.y;
    tile_b[at + 2u * {{B_STRIDE}}u][row & 3u] = value.z;
    tile_b[at + 3u * {{B_STRIDE}}u][row & 3u] = value.w;
}

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
#include packed_tile_begin
{{DECLARE}}
    for (var step = 0u; step < params.units / {{UNITS}}u; step++) {
        for (var i = lane; i < {{A_LOADS}}u; i += {{LANES}}u) {
            let row = i / 8u;
            let base = min(first_row + row, params.m - 1u) * params.width;
            let value = x[base + step_quad(step, i & 7u)];
            let at = (i & 7u) * 4u * {{A_STRIDE}}u + row / 4u;
            tile_a[at][row & 3u] = value.x;
            tile_a[at + {{A_STRIDE}}u][row & 3u] = value.y;
            tile_a[at + 2u * {{A_STRIDE}}u][row & 3u] = value.z;
            tile_a[at + 3u * {{A_STRIDE}}u][row & 3u] = value.w;
        }
        for (var i = lane; i < {{BN}}u * {{UNITS}}u; i += {{LANES}}u) {
            let row = i % {{BN}}u;
            let part = i / {{BN}}u;
            let w = unpacked(matrix_row(tile, row), step * {{UNITS}}u + part);
{{PUT}}
        }
        workgroupBarrier();
        let at_a = thread_row;
        let at_b = thread_column;
        for (var k = 0u; k < {{BK}}u; k++) {
{{MULTIPLY}}
        }
        workgroupBarrier();
    }
#include packed_tile_end
}
