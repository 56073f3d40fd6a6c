// Parameters of the matmul kernels, and where the matrices of a batch begin.

struct Params {
    m: u32,
    n: u32,
    k: u32,
    tiles_m: u32,
    tiles_n: u32,
    batches: u32,
    rank: u32,  // batch axes, innermost first
    depth: u32,  // of the part of k that a workgroup takes
    shape: array<vec4<u32>, 2>,
    stride_a: array<vec4<u32>, 2>,
    stride_b: array<vec4<u32>, 2>,
}
var<params> params: Params;

// The offsets of a's and b's matrices, in elements.
fn batch_offsets(batch: u32) -> vec2<u32> {
    var offsets = vec2<u32>();
    var rest = batch;
    for (var axis = 0u; axis < params.rank; axis++) {
        let length = params.shape[axis >> 2u][axis & 3u];
        let coordinate = rest % length;
        rest = rest / length;
        offsets.x += coordinate * params.stride_a[axis >> 2u][axis & 3u];
        offsets.y += coordinate * params.stride_b[axis >> 2u][axis & 3u];
    }
    return offsets;
}
