// From a product of q and k to a score, for the kernels of attention itself.
#include attention_masking

@group(0) @binding(3) var<storage, read> length: array<u32>;
@group(0) @binding(4) var<storage, read> mask: array<u32>;  // bits of its elements

fn finish_score(
    score: f32, batch: u32, head: u32, query: u32, position: u32, valid: u32
) -> f32 {
    return masked(capped(score), batch, head, query, position, valid);
}
