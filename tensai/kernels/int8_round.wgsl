// Blocks of 32 elements rounded to int8, with a scale.

#if PACKED_DOT
fn dot4(a: u32, b: u32) -> i32 {
    return dot4I8Packed(a, b);
}
#else
fn dot4(a: u32, b: u32) -> i32 {
    let products = unpack4xI8(a) * unpack4xI8(b);
    return products.x + products.y + products.z + products.w;
}
#endif

fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w);
}

fn largest_of(m: vec4<u32>) -> u32 {
    return max(max(m.x, m.y), max(m.z, m.w));
}

fn sum_of(codes: vec4<i32>) -> i32 {
    return codes.x + codes.y + codes.z + codes.w;
}

// What codes of a block are multiples of, and what elements are multiplied by to find them, for the
// bits of the block's largest magnitude.
fn scale_and_inverse(bits: u32) -> vec2<f32> {
    let largest = bitcast<f32>(bits);
    if (bits >= 0x7f800000u) {
        return vec2<f32>(not_a_number(), 0.0);
    }
    // Below, the inverse overflows.
    return vec2<f32>(largest / 127.0, select(127.0 / largest, 0.0, largest < 1e-36));
}

struct Block {
    low: vec4<u32>,  // the codes, four to a word
    high: vec4<u32>,
    scale: f32,
    low_sum: f32,  // scale times the sum of the codes of each half
    high_sum: f32,
}

fn magnitude(x: vec4<f32>) -> vec4<u32> {
    return bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
}

fn codes_of(x: vec4<f32>, inverse: f32) -> vec4<i32> {
    let scaled = x * inverse;
    // Toward zero after half a step away from it.
    return vec4<i32>(scaled + select(vec4<f32>(-0.5), vec4<f32>(0.5), scaled >= vec4<f32>()));
}

fn rounded(
    x0: vec4<f32>, x1: vec4<f32>, x2: vec4<f32>, x3: vec4<f32>,
    x4: vec4<f32>, x5: vec4<f32>, x6: vec4<f32>, x7: vec4<f32>,
) -> Block {
    // As integers, magnitudes keep their order, and NaN is the largest of all.
    let m0 = max(max(magnitude(x0), magnitude(x1)), max(magnitude(x2), magnitude(x3)));
    let m1 = max(max(magnitude(x4), magnitude(x5)), max(magnitude(x6), magnitude(x7)));
    let found = scale_and_inverse(largest_of(max(m0, m1)));
    let scale = found.x;
    let inverse = found.y;
    let c0 = codes_of(x0, inverse);
    let c1 = codes_of(x1, inverse);
    let c2 = codes_of(x2, inverse);
    let c3 = codes_of(x3, inverse);
    let c4 = codes_of(x4, inverse);
    let c5 = codes_of(x5, inverse);
    let c6 = codes_of(x6, inverse);
    let c7 = codes_of(x7, inverse);
    return Block(
        vec4<u32>(pack4xI8(c0), pack4xI8(c1), pack4xI8(c2), pack4xI8(c3)),
        vec4<u32>(pack4xI8(c4), pack4xI8(c5), pack4xI8(c6), pack4xI8(c7)),
        scale,
        scale * f32(sum_of(c0 + c1 + c2 + c3)),
        scale * f32(sum_of(c4 + c5 + c6 + c7)),
    );
}
