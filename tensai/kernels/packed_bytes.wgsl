// q8 and Q8_0: four int8 a word.

const CODE_OFFSET = 0;

fn numbers(word: u32) -> vec4<f32> {
    return signed_bytes(word);
}

fn unit_words(row: u32, unit: u32) -> Words {
    let at = row * params.vectors + unit * 2u;
    return Words(codes[at], codes[at + 1u]);
}
