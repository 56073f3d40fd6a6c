// Up to {{COUNT}} vectors x times one matrix: parameters, and what both layouts of the matrix share.

struct Params {
    count: u32,  // vectors
    n: u32,  // results of each: rows or columns of the matrix
    k: u32,
    groups: u32,  // of rows or columns, a workgroup each
    splits: u32,  // of k, a workgroup each
    chunk: u32,  // units of k in each split but the last
    batches: u32,
    batch_w: u32,  // from one matrix to the next, 0 where they share one; in units
    batch_x: u32,
    step_row: u32,  // from one result to the next, and from a vector's to the next vector's
    step_vector: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> w: array<{{W}}>;
@group(0) @binding(1) var<storage, read> x: array<{{X}}>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// Results of split parts lie one after the other.
fn store(split: u32, batch: u32, row: u32, vector: u32, value: f32) {
    if (row < params.n && vector < params.count) {
        let base = (split * params.batches + batch) * params.count * params.n;
        out[base + row * params.step_row + vector * params.step_vector] = value;
    }
}
