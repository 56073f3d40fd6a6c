// Elements of a packed matrix, by output row; its layouts are described in tensai/formats.py.
//
// A kernel unpacks a unit at a time, {{QUADS}} times four elements: eight quads are two halves, which
// lie apart in some kinds. An element is code * scale - minimum, with a scale and a minimum for
// each half. The kernel's params have `vectors` (vec4s of codes in a row of the matrix), `groups`
// (scales, or sets of them, in a row) and `group` (elements that share a scale, in q8 and q4).

@group(0) @binding(0) var<storage, read> codes: array<vec4<u32>>;
#if INTEGERS
@group(0) @binding(1) var<storage, read> scales: array<{{SCALES}}>;
#endif

struct Unit {
{{FIELDS}}
}

// Of the two halves of a unit.
struct Factors {
    scale: vec2<f32>,
    minimum: vec2<f32>,
}

struct Packed {
    unit: Unit,
#if SCALED
    factors: Factors,
#endif
}

#if CONTIGUOUS
// The quad of a row that a unit begins with, and how much further its second half lies.
const SECOND_HALF = 4u;

fn first_quad(unit: u32) -> u32 {
    return unit * {{QUADS}}u;
}
#endif

// float16 to float32 by its bits: drivers may lose denormals.
fn half_bits(bits: u32) -> f32 {
    let magnitude = bits & 0x7fffu;
    let normal = (magnitude << 13u) + 0x38000000u;  // the exponent's bias from 15 to 127
    let special = normal + select(0u, 0x38000000u, magnitude >= 0x7c00u);
    let small = bitcast<u32>(f32(magnitude) * 5.9604644775390625e-8);  // 2^-24
    let value = select(special, small, magnitude < 0x400u);
    return bitcast<f32>(value | ((bits & 0x8000u) << 16u));
}

#if INTEGERS
#include packed_integers
#else
#include packed_floats
#endif
