// A part of the middle axis of x, seen as (outer, length, inner), replaced in place.

struct Params {
    size: u32,  // of the part
    run: u32,  // elements of the part that lie together: its length times inner
    row: u32,  // of x that belong to one of outer: length times inner
    offset: u32,  // of the part in such a row
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<storage, read> part: array<u32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + lane;
    if (index < params.size) {
        x[index / params.run * params.row + params.offset + index % params.run] = part[index];
    }
}
