// A part spread over a tensor, zeros between: the reverse of reading it through strides that never
// meet an element twice. Axes by falling stride.

struct Params {
    size: u32,
    rank: u32,
    base: u32,  // the first element that the part reaches
    start: u32,  // which of the part's lies there
    length: array<vec4<u32>, 2>,
    stride: array<vec4<u32>, 2>,
    stride_part: array<vec4<u32>, 2>,  // modulo 2^32, since it may be negative
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> part: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

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
    var rest = index - params.base;
    var at = params.start;
    var inside = index >= params.base;
    for (var axis = 0u; axis < params.rank; axis++) {
        let stride = params.stride[axis >> 2u][axis & 3u];
        let place = rest / stride;
        inside = inside && place < params.length[axis >> 2u][axis & 3u];
        rest -= place * stride;
        at += place * params.stride_part[axis >> 2u][axis & 3u];
    }
    var value = 0.0;
    if (inside && rest == 0u) {
        value = part[at];
    }
    out[index] = value;
}
