// Rows of a table at indices; a row of NaN (0 for integers) where an index is out of range.
#include math

struct Params {
    size: u32,
    dim: u32,
    rows: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> table: array<{{T}}>;
@group(0) @binding(1) var<storage, read> indices: array<{{INDEX}}>;
@group(0) @binding(2) var<storage, read_write> out: array<{{T}}>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (group.y * groups.x + group.x) * 256u + lane;
    if (at >= params.size) {
        return;
    }
    // A negative index is a huge one when read as u32.
    let index = u32(indices[at / params.dim]);
    if (index >= params.rows) {
#if FLOAT
        out[at] = not_a_number();
#else
        out[at] = {{T}}(0);
#endif
        return;
    }
    out[at] = table[index * params.dim + at % params.dim];
}
