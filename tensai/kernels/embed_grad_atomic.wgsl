// Elements of a gradient added to rows of a table by index. WGSL has no atomic floats: the sum's bits
// are exchanged if nobody changed them meanwhile.

struct Params {
    size: u32,
    dim: u32,
    rows: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> indices: array<{{INDEX}}>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<atomic<u32>>;

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
    let row = u32(indices[at / params.dim]);
    if (row >= params.rows) {
        return;
    }
    let place = row * params.dim + at % params.dim;
    var before = atomicLoad(&out[place]);
    loop {
        let after = bitcast<u32>(bitcast<f32>(before) + grad[at]);
        let result = atomicCompareExchangeWeak(&out[place], before, after);
        if (result.exchanged) {
            break;
        }
        before = result.old_value;
    }
}
