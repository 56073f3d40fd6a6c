// From a product of q and k to a score: softcap, mask, and what a query does not see. A kernel that
// includes this declares `mask`, the bits of its elements.
#include attention_params

fn capped(score: f32) -> f32 {
    if (params.softcap != 0.0) {
        return params.softcap * tanh_f32(score / params.softcap);
    }
    return score;
}

// A capped score with the mask added; minus infinity where the query does not see the position.
fn masked(score: f32, batch: u32, head: u32, query: u32, position: u32, valid: u32) -> f32 {
    let last = i32(query) + i32(valid) - i32(params.queries);
    let ahead = params.causal != 0u && i32(position) > last;
    let behind = params.window != 0u && i32(position) + i32(params.window) <= last;
    if (query >= params.queries || position >= valid || ahead || behind) {
        return -infinity();
    }
    var result = score;
    if (params.mask_kind != 0u) {
        let word = mask[
            batch * params.mask_batch + head * params.mask_head + query * params.mask_query
                + position * params.mask_position
        ];
        if (params.mask_kind == 2u) {
            result += bitcast<f32>(word);
        } else if (word == 0u) {
            result = -infinity();
        }
    }
    return result;
}
