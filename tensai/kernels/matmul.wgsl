// Batched a @ b. A workgroup computes a {{BM}} x {{BN}} tile of one product in steps of {{BK}}
// along k, a thread {{TM}} x {{TN}} elements of it, held in named variables: arrays indexed in a loop
// end up in memory.
#include matmul_params

@group(0) @binding(0) var<storage, read> a: array<{{A_ELEMENT}}>;
@group(0) @binding(1) var<storage, read> b: array<{{B_ELEMENT}}>;
@group(0) @binding(2) var<storage, read_write> out: array<{{OUT_ELEMENT}}>;

// Both tiles lie with k outermost, four rows or columns to a vector. A's rows are padded by one
// vector, so that the writes that transpose it spread over the banks.
var<workgroup> tile_a: array<vec4<{{T}}>, {{A_VECTORS}}>;
var<workgroup> tile_b: array<vec4<{{T}}>, {{B_VECTORS}}>;

// Four neighbouring elements from `start` on of a row of `length`, 0 beyond it.
fn load_a(base: u32, row: u32, rows: u32, start: u32, length: u32) -> vec4<{{T}}> {
    if (row >= rows || start >= length) {
        return vec4<{{T}}>();
    }
    let at = base + row * length + start;
#if VECTOR_A
    return a[at / 4u];
#else
    var value = vec4<{{T}}>(a[at], 0, 0, 0);
    if (start + 1u < length) { value.y = a[at + 1u]; }
    if (start + 2u < length) { value.z = a[at + 2u]; }
    if (start + 3u < length) { value.w = a[at + 3u]; }
    return value;
#endif
}

fn load_b(base: u32, row: u32, rows: u32, start: u32, length: u32) -> vec4<{{T}}> {
    if (row >= rows || start >= length) {
        return vec4<{{T}}>();
    }
    let at = base + row * length + start;
#if VECTOR_B
    return b[at / 4u];
#else
    var value = vec4<{{T}}>(b[at], 0, 0, 0);
    if (start + 1u < length) { value.y = b[at + 1u]; }
    if (start + 2u < length) { value.z = b[at + 2u]; }
    if (start + 3u < length) { value.w = b[at + 3u]; }
    return value;
#endif
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
    let batch = number / tiles;
    if (batch >= params.batches) {
        return;
    }
    let first_row = (number % tiles / params.tiles_n) * {{BM}}u;
    let first_column = (number % params.tiles_n) * {{BN}}u;

    let offsets = batch_offsets(batch);

    let thread_row = lane / {{THREADS_N}}u;
    let thread_column = lane % {{THREADS_N}}u;
{{DECLARE}}
{{PLACES}}
{{LOAD_FIRST}}
    for (var first_k = 0u; first_k < params.k; first_k += {{BK}}u) {
{{KEEP}}
        workgroupBarrier();
        // On their way while this step computes; beyond the edge they are 0.
        let following = first_k + {{BK}}u;
{{LOAD_NEXT}}
        for (var k = 0u; k < {{BK}}u; k++) {
{{MULTIPLY}}
        }
        workgroupBarrier();
    }
{{STORE}}
}
