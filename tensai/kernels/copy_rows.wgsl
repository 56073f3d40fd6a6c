// Rows of a source to rows start, start + 1, ... of x, in place; those past its end are left out.

struct Params {
    size: u32,  // of the source
    width: u32,  // of a row
    capacity: u32,  // rows of x
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read> start: array<i32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + lane;
    if (index >= params.size) {
        return;
    }
    // A negative place is a huge one when read as u32.
    let first = u32(start[0]);
    let row = first + index / params.width;
    if (first < params.capacity && row < params.capacity) {
        x[row * params.width + index % params.width] = source[index];
    }
}
