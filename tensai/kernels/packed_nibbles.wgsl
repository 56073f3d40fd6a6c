// q4 and Q4_0: the first half of a unit in the low nibbles of four words, the second in the high.

const CODE_OFFSET = 8;

fn numbers(word: u32) -> vec4<f32> {
    return less_8(word);
}

fn unit_words(row: u32, unit: u32) -> Words {
    let words = codes[row * params.vectors + unit];
    let nibbles = vec4<u32>(0x0f0f0f0fu);
    return Words(words & nibbles, (words >> vec4<u32>(4u)) & nibbles);
}
