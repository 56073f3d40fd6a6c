// Rotary positions (Su et al., 2021) on heads of rows, in place; a thread a pair of elements.
#include turns

struct Params {
    pairs: u32,  // in all
    rows: u32,  // of positions, repeated over a batch
    heads: u32,
    dim: u32,  // of a head
    turning: u32,  // pairs of a head that turn
    neighbours: u32,  // 1: pairs are neighbours, 0: they lie `turning` apart
    each: u32,  // 1: a position for each row, 0: that of the first
    scale: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> positions: array<i32>;
@group(0) @binding(2) var<storage, read> frequencies: array<vec2<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + lane;
    if (index >= params.pairs) {
        return;
    }
    let pair = index % params.turning;
    let head = index / params.turning;  // of all rows
    let row = head / params.heads % params.rows;
    let position = u32(positions[row * params.each]) + row * (1u - params.each);
    let first = head * params.dim + pair * (1u + params.neighbours);
    let second = first + select(params.turning, 1u, params.neighbours == 1u);
    let direction = turned(position, frequencies[pair]) * params.scale;
    let made = rotated(vec2<f32>(x[first], x[second]), direction);
    x[first] = made.x;
    x[second] = made.y;
}
