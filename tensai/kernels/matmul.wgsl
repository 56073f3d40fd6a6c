// Batched a @ b. A workgroup computes a {{BM}} x {{BN}} tile of one product, or of a part of its k, in
// steps of {{BK}} along k, a thread {{TM}} x {{TN}} elements of it, held in named variables: arrays
// indexed in a loop end up in memory.
#include matmul_params

@group(0) @binding(0) var<storage, read> a: array<{{A_ELEMENT}}>;
@group(0) @binding(1) var<storage, read> b: array<{{B_ELEMENT}}>;
@group(0) @binding(2) var<storage, read_write> out: array<{{OUT_ELEMENT}}>;

// Both tiles lie with k outermost, four rows or columns to a vector. A's rows are padded by one
// vector, so that the writes that transpose it spread over the banks.
var<workgroup> tile_a: array<vec4<{{T}}>, {{A_VECTORS}}>;
var<workgroup> tile_b: array<vec4<{{T}}>, {{B_VECTORS}}>;
#if SLICED
var<workgroup> sums: array<vec4<{{T}}>, {{SUMS}}>;
#endif

// How many elements of a vector that starts `at` lie before `end`, four for all of them.
fn left(at: u32, end: u32) -> u32 {
    return select(0u, min(end - at, 4u), at < end);
}

// Four neighbouring elements, all of which there are.
fn load_a(at: u32) -> vec4<{{T}}> {
#if VECTOR_A
    return a[at / 4u];
#else
    return vec4<{{T}}>(a[at], a[at + 1u], a[at + 2u], a[at + 3u]);
#endif
}

fn load_b(at: u32) -> vec4<{{T}}> {
#if VECTOR_B
    return b[at / 4u];
#else
    return vec4<{{T}}>(b[at], b[at + 1u], b[at + 2u], b[at + 3u]);
#endif
}

// The first `count` of four elements, then 0.
fn load_some_a(at: u32, count: u32) -> vec4<{{T}}> {
    if (count >= 4u) {
        return load_a(at);
    }
    var value = vec4<{{T}}>();
#if VECTOR_A
#else
    if (count > 0u) { value.x = a[at]; }
    if (count > 1u) { value.y = a[at + 1u]; }
    if (count > 2u) { value.z = a[at + 2u]; }
#endif
    return value;
}

fn load_some_b(at: u32, count: u32) -> vec4<{{T}}> {
    if (count >= 4u) {
        return load_b(at);
    }
    var value = vec4<{{T}}>();
#if VECTOR_B
#else
    if (count > 0u) { value.x = b[at]; }
    if (count > 1u) { value.y = b[at + 1u]; }
    if (count > 2u) { value.z = b[at + 2u]; }
#endif
    return value;
}

fn store(base: u32, row: u32, column: u32, value: vec4<{{T}}>) {
    if (row >= params.m || column >= params.n) {
        return;
    }
    let at = base + row * params.n + column;
#if VECTOR_OUT
    out[at / 4u] = value;
#else
    out[at] = value.x;
    if (column + 1u < params.n) { out[at + 1u] = value.y; }
    if (column + 2u < params.n) { out[at + 2u] = value.z; }
    if (column + 3u < params.n) { out[at + 3u] = value.w; }
#endif
}

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    let tiles = params.tiles_m * params.tiles_n;
    let product = number / tiles;
    let batch = product % params.batches;
    let begin = product / params.batches * params.depth;
    if (begin >= params.k) {
        return;
    }
    let end = min(begin + params.depth, params.k);
    let tile = number % tiles;
    let first_row = (tile / params.tiles_n) * {{BM}}u;
    let first_column = (tile % params.tiles_n) * {{BN}}u;
    let offsets = batch_offsets(batch);

{{PLACE}}
{{DECLARE}}
{{PLACES}}
{{DECLARE_NEXT}}
    var following = begin;
{{LOAD_EDGE}}
#if SLICED
    let slice = lane / {{THREADS}}u;
    let at_a = slice * {{SLICE_A}}u + thread_row;
    let at_b = slice * {{SLICE_B}}u + thread_column;
#else
    let at_a = thread_row;
    let at_b = thread_column;
#endif
    for (var first_k = begin; first_k < end; first_k += {{BK}}u) {
{{KEEP}}
        workgroupBarrier();
        // On their way while this step computes.
        following = first_k + {{BK}}u;
        if (following + {{BK}}u <= params.k) {
{{LOAD_FULL}}
        } else {
{{LOAD_EDGE}}
        }
{{MULTIPLY}}
        workgroupBarrier();
    }
#if SLICED
    for (var other = 1u; other < {{SLICES}}u; other++) {
{{JOIN}}
    }
    if (slice > 0u) {
        return;
    }
#endif
    let base_out = product * params.m * params.n;
{{STORE}}
}
