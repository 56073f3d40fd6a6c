// Units of the kinds whose codes are integers: 32 elements.

fn unsigned_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(word));
}

fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word));
}

// Bytes below 64, less 8 or 32: added to 128 less that, none carries into the next.
fn less_8(word: u32) -> vec4<f32> {
    return signed_bytes((word + 0x78787878u) ^ 0x80808080u);
}

fn less_32(word: u32) -> vec4<f32> {
    return signed_bytes((word + 0x60606060u) ^ 0x80808080u);
}

// A unit's codes, four to a word, each with CODE_OFFSET added.
struct Words {
    low: vec4<u32>,  // of its first half
    high: vec4<u32>,
}

// A scale in float16. Some drivers' own conversion loses denormals.
fn scale_half(bits: u32) -> f32 {
#if FAST_HALVES
    return unpack2x16float(bits).x;
#else
    return half_bits(bits);
#endif
}

#if BYTES
#include packed_bytes
#endif
#if NIBBLES
#include packed_nibbles
#endif
#if Q45_K
#include packed_q45_k
#endif
#if Q6_K
#include packed_q6_k
#endif

fn unit_codes(row: u32, unit: u32) -> Unit {
    let w = unit_words(row, unit);
    return Unit(
        numbers(w.low.x),
        numbers(w.low.y),
        numbers(w.low.z),
        numbers(w.low.w),
        numbers(w.high.x),
        numbers(w.high.y),
        numbers(w.high.z),
        numbers(w.high.w),
    );
}

#if GROUPED
fn scale_at(row: u32, element: u32) -> f32 {
    let group = min(element / params.group, params.groups - 1u);
    return bitcast<f32>(scales[row * params.groups + group]);
}

#if SCALED
fn factors(row: u32, unit: u32) -> Factors {
    return Factors(
        vec2<f32>(scale_at(row, unit * 32u), scale_at(row, unit * 32u + 16u)), vec2<f32>()
    );
}
#else
// Groups that do not divide halves: a scale for each element.
fn scales_at(row: u32, element: u32) -> vec4<f32> {
    return vec4<f32>(
        scale_at(row, element),
        scale_at(row, element + 1u),
        scale_at(row, element + 2u),
        scale_at(row, element + 3u),
    );
}

fn packed(row: u32, unit: u32) -> Packed {
    let c = unit_codes(row, unit);
    let first = unit * 32u;
    return Packed(Unit(
{{GROUPED_QUADS}}
    ));
}

fn unpacked(row: u32, unit: u32) -> Unit {
    return packed(row, unit).unit;
}
#endif
#endif
#if HALF_SCALES
fn factors(row: u32, unit: u32) -> Factors {
    let at = row * params.groups + unit;
    let d = scale_half((scales[at >> 1u] >> ((at & 1u) * 16u)) & 0xffffu);
    return Factors(vec2<f32>(d), vec2<f32>());
}
#endif

#if SCALED
fn packed(row: u32, unit: u32) -> Packed {
    return Packed(unit_codes(row, unit), factors(row, unit));
}

fn unpacked(row: u32, unit: u32) -> Unit {
    let c = unit_codes(row, unit);
    let f = factors(row, unit);
    // With a minimum the products are exact: it makes no difference whether they are rounded.
    return Unit(
{{SCALED_QUADS}}
    );
}
#endif

// Of the elements that meet the halves of a unit: what their minima are multiplied by.
fn half_sums(x: Unit) -> vec2<f32> {
#if MINIMA
    let ones = vec4<f32>(1.0);
    return vec2<f32>(dot(x.q0 + x.q1 + x.q2 + x.q3, ones), dot(x.q4 + x.q5 + x.q6 + x.q7, ones));
#else
    return vec2<f32>();
#endif
}

fn product(w: Packed, x: Unit, sums: vec2<f32>) -> f32 {
    let c = w.unit;
    let low = fma(c.q3, x.q3, fma(c.q2, x.q2, fma(c.q1, x.q1, c.q0 * x.q0)));
    let high = fma(c.q7, x.q7, fma(c.q6, x.q6, fma(c.q5, x.q5, c.q4 * x.q4)));
#if SCALED
    let total = fma(low, vec4<f32>(w.factors.scale.x), high * w.factors.scale.y);
#else
    let total = low + high;
#endif
#if MINIMA
    return total.x + total.y + (total.z + total.w) - dot(w.factors.minimum, sums);
#else
    return total.x + total.y + (total.z + total.w);
#endif
}
