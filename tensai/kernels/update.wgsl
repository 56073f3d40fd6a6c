// a = an expression of a and b, in place; b is read through strides. Axes from the innermost out.

struct Params {
    size: u32,
    rank: u32,
    unused_0: u32,
    unused_1: u32,
    shape: array<vec4<u32>, 2>,
    stride_b: array<vec4<u32>, 2>,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> x: array<{{T}}>;
@group(0) @binding(1) var<storage, read> other: array<{{T}}>;

fn apply(a: {{T}}, b: {{T}}) -> {{T}} {
    return {{EXPRESSION}};
}

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
    var rest = index;
    var at = 0u;
    for (var axis = 0u; axis < params.rank; axis++) {
        let length = params.shape[axis >> 2u][axis & 3u];
        at += (rest % length) * params.stride_b[axis >> 2u][axis & 3u];
        rest = rest / length;
    }
    x[index] = apply(x[index], other[at]);
}
