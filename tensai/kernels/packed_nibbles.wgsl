// q4, Q4_0 and Q4_1: the first half of a unit in the low nibbles of four words, the second in the high.

#if Q4_1
const CODE_OFFSET = 0;

fn numbers(word: u32) -> vec4<f32> {
    return unsigned_bytes(word);
}

fn factors(row: u32, unit: u32) -> Factors {
    let both = scales[row * params.groups + unit];
    return Factors(
        vec2<f32>(scale_half(both & 0xffffu)), vec2<f32>(-scale_half(both >> 16u))
    );
}
#else
const CODE_OFFSET = 8;

fn numbers(word: u32) -> vec4<f32> {
    return less_8(word);
}
#endif

fn unit_words(row: u32, unit: u32) -> Words {
    let words = codes[row * params.vectors + unit];
    let nibbles = vec4<u32>(0x0f0f0f0fu);
    return Words(words & nibbles, (words >> vec4<u32>(4u)) & nibbles);
}
