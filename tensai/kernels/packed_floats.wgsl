// Units of F16, BF16 and F32: what one vec4 of words holds.

#if F32
fn packed(row: u32, unit: u32) -> Packed {
    return Packed(Unit(bitcast<vec4<f32>>(codes[row * params.vectors + unit])));
}
#else
fn two(word: u32) -> vec2<f32> {
#if BF16
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
#else
#if FAST_HALVES
    return unpack2x16float(word);
#else
    return vec2<f32>(half_bits(word & 0xffffu), half_bits(word >> 16u));
#endif
#endif
}

fn packed(row: u32, unit: u32) -> Packed {
    let words = codes[row * params.vectors + unit];
    return Packed(
        Unit(vec4<f32>(two(words.x), two(words.y)), vec4<f32>(two(words.z), two(words.w)))
    );
}
#endif

fn unpacked(row: u32, unit: u32) -> Unit {
    return packed(row, unit).unit;
}

fn half_sums(x: Unit) -> vec2<f32> {
    return vec2<f32>();
}

fn product(w: Packed, x: Unit, sums: vec2<f32>) -> f32 {
#if F32
    return dot(w.unit.q0, x.q0);
#else
    return dot(w.unit.q0, x.q0) + dot(w.unit.q1, x.q1);
#endif
}
