// Sines and cosines of angles in turns. Frequencies are fractions of a turn for each position, 64
// bits as (high, low); a position times one, modulo a turn, is integer arithmetic and exact.

// The high word of a * b.
fn multiply_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu);
    let second = (a & 0xffffu) * (b >> 16u);
    let middle = (low >> 16u) + (first & 0xffffu) + (second & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u) + (middle >> 16u);
}

// (cosine, sine) of `position` times a frequency.
fn turned(position: u32, frequency: vec2<u32>) -> vec2<f32> {
    let turns = position * frequency.x + multiply_high(position, frequency.y);
    // The nearest quarter of a turn, and how far from it, at most an eighth: Taylor series there.
    let quarter = (turns + 0x20000000u) >> 30u;
    let rest = bitcast<i32>(turns - (quarter << 30u));
    let a = f32(rest) * 1.4629180792671596e-9;  // 2 pi / 2^32
    let z = a * a;
    let s = a + a * z * (-0.16666667 + z * (0.0083333333 + z * (-1.9841270e-4 + z * 2.7557319e-6)));
    let c = 1.0 + z * (-0.5 + z * (0.041666667 + z * (-0.0013888889 + z * 2.4801587e-5)));
    let swapped = select(vec2<f32>(c, s), vec2<f32>(-s, c), (quarter & 1u) == 1u);
    return select(swapped, -swapped, (quarter & 2u) == 2u);
}

// A pair of elements turned by an angle.
fn rotated(pair: vec2<f32>, direction: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(
        pair.x * direction.x - pair.y * direction.y, pair.x * direction.y + pair.y * direction.x
    );
}
