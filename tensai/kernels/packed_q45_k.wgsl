// Q4_K and Q5_K: a block of 256 has four chunks of two parts of 32, the low and the high nibbles of
// the same 32 bytes. A unit is half of each part of a chunk.

const SECOND_HALF = 8u;

fn first_quad(unit: u32) -> u32 {
    return (unit >> 1u) * 16u + (unit & 1u) * 4u;
}

const CODE_OFFSET = 0;

fn numbers(word: u32) -> vec4<f32> {
    return unsigned_bytes(word);
}

fn unit_words(row: u32, unit: u32) -> Words {
#if HIGH_BITS
    let block = row * params.vectors + (unit >> 3u) * 10u;
#else
    let block = row * params.vectors + (unit >> 3u) * 8u;
#endif
    let words = codes[block + (unit & 7u)];
    var low = words & vec4<u32>(0x0f0f0f0fu);
    var high = (words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
#if HIGH_BITS
    // Bit p of a byte there belongs to part p.
    let bits = codes[block + 8u + (unit & 1u)] >> vec4<u32>(unit & 6u);
    low |= (bits & vec4<u32>(0x01010101u)) << vec4<u32>(4u);
    high |= (bits & vec4<u32>(0x02020202u)) << vec4<u32>(3u);
#endif
    return Words(low, high);
}

// Eight scales and minima of six bits: those of parts 0 to 3 in the low bits of y and z, of parts
// 4 to 7 in the nibbles of w and the high bits of y and z.
fn factors(row: u32, unit: u32) -> Factors {
    let words = scales[row * params.groups + (unit >> 3u)];
    let late = (unit & 4u) != 0u;
    let late_scales = (words.w & 0x0f0f0f0fu) | ((words.y >> 2u) & 0x30303030u);
    let late_minima = ((words.w >> 4u) & 0x0f0f0f0fu) | ((words.z >> 2u) & 0x30303030u);
    let shift = (unit & 2u) * 8u;
    let two_scales = select(words.y & 0x3f3f3f3fu, late_scales, late) >> shift;
    let two_minima = select(words.z & 0x3f3f3f3fu, late_minima, late) >> shift;
    return Factors(
        scale_half(words.x & 0xffffu) * unsigned_bytes(two_scales).xy,
        scale_half(words.x >> 16u) * unsigned_bytes(two_minima).xy,
    );
}
