// One expression over operands of the same shape, or of one element; four elements a thread.
#include math

struct Params {
    vectors: u32,
    step_a: u32,  // 1, or 0 for an operand of one element
    step_b: u32,
    step_c: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> a: array<vec4<{{A_WORD}}>>;
#if B
@group(0) @binding(1) var<storage, read> b: array<vec4<{{B_WORD}}>>;
#endif
#if C
@group(0) @binding(2) var<storage, read> c: array<vec4<{{C_WORD}}>>;
#endif
@group(0) @binding({{OUT_BINDING}}) var<storage, read_write> out: array<vec4<{{OUT_WORD}}>>;

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
    if (index >= params.vectors) {
        return;
    }
#if B
    var va = a[index * params.step_a];
    va = select(va, vec4<{{A_WORD}}>(va.x), params.step_a == 0u);
    var vb = b[index * params.step_b];
    vb = select(vb, vec4<{{B_WORD}}>(vb.x), params.step_b == 0u);
#else
    let va = a[index];
#endif
#if C
    var vc = c[index * params.step_c];
    vc = select(vc, vec4<{{C_WORD}}>(vc.x), params.step_c == 0u);
#endif
    out[index] = vec4<{{OUT_WORD}}>(
        {{OUT_WORD}}(apply({{X}})),
        {{OUT_WORD}}(apply({{Y}})),
        {{OUT_WORD}}(apply({{Z}})),
        {{OUT_WORD}}(apply({{W}})),
    );
}
