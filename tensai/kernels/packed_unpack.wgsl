// Elements of a packed matrix: rows by index, or all of them transposed. A thread a unit.
#include math

struct Params {
    count: u32,  // units to unpack
    units: u32,  // in a row of the matrix
    k: u32,
    rows: u32,  // of the matrix
    vectors: u32,
    groups: u32,
    group: u32,
}
var<params> params: Params;

#include packed_format

#if EMBED
@group(0) @binding(2) var<storage, read> indices: array<u32>;  // as their bits: a negative one is huge
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
#endif

// Where element `element` of what is number `i` of the rows goes.
fn put(i: u32, element: u32, value: f32) {
    if (element < params.k) {
#if EMBED
        out[i * params.k + element] = value;
#else
        out[element * params.rows + i] = value;
#endif
    }
}

fn put_four(i: u32, quad: u32, value: vec4<f32>) {
    put(i, quad * 4u, value.x);
    put(i, quad * 4u + 1u, value.y);
    put(i, quad * 4u + 2u, value.z);
    put(i, quad * 4u + 3u, value.w);
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (group.y * groups.x + group.x) * 64u + lane;
    if (at >= params.count) {
        return;
    }
#if EMBED
    let i = at / params.units;
    let unit = at % params.units;
    var w = unpacked(min(indices[i], params.rows - 1u), unit);
    if (indices[i] >= params.rows) {
        let nothing = vec4<f32>(not_a_number());
        w = Unit({{NOTHING}});
    }
#else
    // Neighbouring threads write neighbouring elements.
    let i = at % params.rows;
    let unit = at / params.rows;
    let w = unpacked(i, unit);
#endif
    let first = first_quad(unit);
{{PUT}}
}
