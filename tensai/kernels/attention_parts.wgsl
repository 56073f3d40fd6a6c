// Which positions a part of a split attention takes.
#include attention_params

// How many each part takes of `count` positions: equally many, but not too few.
fn part_length(count: u32) -> u32 {
    return max((count + params.splits - 1u) / params.splits, params.least);
}

fn part_of(part: u32, valid: u32) -> vec2<u32> {
    let seen = seen_by(0u, params.queries, valid);
    let each = part_length(seen.y - seen.x);
    return min(seen.x + vec2<u32>(part * each, (part + 1u) * each), vec2<u32>(seen.y));
}
