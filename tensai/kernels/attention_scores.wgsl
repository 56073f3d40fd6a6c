// From a product of q and k to a score: softcap, mask, and what a query does not see.
#include attention_params

@group(0) @binding(3) var<storage, read> length: array<u32>;
@group(0) @binding(4) var<storage, read> mask: array<u32>;  // bits of its elements

fn finish_score(
    score: f32, batch: u32, head: u32, query: u32, position: u32, valid: u32
) -> f32 {
    let last = i32(query) + i32(valid) - i32(params.queries);
    let ahead = params.causal != 0u && i32(position) > last;
    let behind = params.window != 0u && i32(position) + i32(params.window) <= last;
    if (query >= params.queries || position >= valid || ahead || behind) {
        return -infinity();
    }
    var result = score;
    if (params.softcap != 0.0) {
        result = params.softcap * tanh_f32(score / params.softcap);
    }
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
