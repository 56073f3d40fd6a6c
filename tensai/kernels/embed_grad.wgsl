// Rows of a gradient added up by index, in the order of the indices; a workgroup a row of the table
// and 256 of its columns, so that nothing is added twice at a time.

struct Params {
    count: u32,  // indices
    dim: u32,
    rows: u32,
    parts: u32,  // workgroups a row
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> indices: array<{{INDEX}}>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

var<workgroup> some: array<u32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    if (number >= params.rows * params.parts) {
        return;
    }
    let row = number / params.parts;
    let column = number % params.parts * 256u + lane;
    let inside = column < params.dim;
    var sum = 0.0;
    for (var start = 0u; start < params.count; start += 256u) {
        let length = min(256u, params.count - start);
        workgroupBarrier();  // the last ones may still be read
        if (lane < length) {
            some[lane] = u32(indices[start + lane]);
        }
        workgroupBarrier();
        for (var i = 0u; i < length; i++) {
            if (some[i] == row && inside) {
                sum += grad[(start + i) * params.dim + column];
            }
        }
    }
    if (inside) {
        out[row * params.dim + column] = sum;
    }
}
