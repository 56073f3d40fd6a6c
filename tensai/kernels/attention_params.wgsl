// Parameters of the attention kernels, and which positions queries see.
#include math

struct Params {
    queries: u32,
    kv_rows: u32,  // rows of k and v
    heads: u32,
    kv_heads: u32,
    dim: u32,  // of a head
    batches: u32,
    causal: u32,
    window: u32,  // positions that a query sees, 0 for all
    scale: f32,
    softcap: f32,  // 0 for none
    length_signed: u32,  // whether the length is an i32
    mask_kind: u32,  // 0 none, 1 bool, 2 added to the scores
    mask_batch: u32,  // strides of the mask
    mask_head: u32,
    mask_query: u32,
    mask_position: u32,
    splits: u32,  // parts that the positions are split into, and how many each has at least
    least: u32,
}
var<params> params: Params;

// A position that a query does not see scores minus infinity; any other score is at least this.
const LOWEST: f32 = -3.4028234e38;

// How many rows of k and v count, from the tensor that says so.
fn valid_rows(word: u32) -> u32 {
    if (params.length_signed != 0u && word >= 0x80000000u) {
        return 0u;
    }
    return min(word, params.kv_rows);
}

// The positions, from the first up to but without the last, that any of the queries sees.
fn seen_by(first: u32, count: u32, valid: u32) -> vec2<u32> {
    let shift = i32(valid) - i32(params.queries);
    var start = 0u;
    var end = valid;
    if (params.causal != 0u) {
        end = u32(clamp(i32(first + count) + shift, 0, i32(end)));
    }
    if (params.window != 0u) {
        start = u32(max(i32(first) + shift + 1 - i32(params.window), 0));
    }
    return vec2<u32>(min(start, end), end);
}
