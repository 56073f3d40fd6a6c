// Q6_K: a block of 256 has two halves of four parts of 32. Parts 0 and 1 are the low nibbles of 64
// bytes, 2 and 3 the high ones, each with two more bits from elsewhere. A unit is the same half of
// parts 0 and 2, or of 1 and 3.

const SECOND_HALF = 16u;

fn first_quad(unit: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u;
}

const CODE_OFFSET = 32;

fn numbers(word: u32) -> vec4<f32> {
    return less_32(word);
}

fn unit_words(row: u32, unit: u32) -> Words {
    let block = row * params.vectors + (unit >> 3u) * 13u;
    let words = codes[block + (unit & 7u)];
    let bits = codes[block + 8u + ((unit >> 1u) & 2u) + (unit & 1u)] >> vec4<u32>(unit & 2u);
    let two_bits = vec4<u32>(0x30303030u);
    let low = (words & vec4<u32>(0x0f0f0f0fu)) | ((bits << vec4<u32>(4u)) & two_bits);
    let high = ((words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)) | (bits & two_bits);
    return Words(low, high);
}

// A scale for 16 elements, in the last vec4 of a block.
fn factors(row: u32, unit: u32) -> Factors {
    let at = row * params.groups + (unit >> 3u);
    let d = scale_half((scales[at >> 1u] >> ((at & 1u) * 16u)) & 0xffffu);
    let all = codes[row * params.vectors + (unit >> 3u) * 13u + 12u];
    let two = select(all.xy, all.zw, (unit & 4u) != 0u) >> vec2<u32>((unit & 3u) * 8u);
    return Factors(d * vec2<f32>(signed_bytes(two.x).x, signed_bytes(two.y).x), vec2<f32>());
}
