// One expression over operands read through strides (broadcasting, slices, permutations); one
// element a thread. Axes are listed from the innermost out.
#include math

struct Params {
    size: u32,
    rank: u32,
    offset: u32,  // of operand a
    unused: u32,
    shape: array<vec4<u32>, 2>,
    stride_a: array<vec4<u32>, 2>,  // negative strides wrap around, and so do their products
#if B
    stride_b: array<vec4<u32>, 2>,
#endif
#if C
    stride_c: array<vec4<u32>, 2>,
#endif
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> a: array<{{A_WORD}}>;
#if B
@group(0) @binding(1) var<storage, read> b: array<{{B_WORD}}>;
#endif
#if C
@group(0) @binding(2) var<storage, read> c: array<{{C_WORD}}>;
#endif
@group(0) @binding({{OUT_BINDING}}) var<storage, read_write> out: array<{{OUT_WORD}}>;

fn apply({{PARAMETERS}}) -> {{OUT}} {
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
    var at_a = params.offset;
#if B
    var at_b = 0u;
#endif
#if C
    var at_c = 0u;
#endif
    for (var axis = 0u; axis < params.rank; axis++) {
        let length = params.shape[axis >> 2u][axis & 3u];
        let coordinate = rest % length;
        rest = rest / length;
        at_a += coordinate * params.stride_a[axis >> 2u][axis & 3u];
#if B
        at_b += coordinate * params.stride_b[axis >> 2u][axis & 3u];
#endif
#if C
        at_c += coordinate * params.stride_c[axis >> 2u][axis & 3u];
#endif
    }
    let va = a[at_a];
#if B
    let vb = b[at_b];
#endif
#if C
    let vc = c[at_c];
#endif
    out[index] = {{OUT_WORD}}(apply({{WHOLE}}));
}
