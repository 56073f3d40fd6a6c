// float16, two to a word, to and from float32; rounded to nearest, ties to even, by their bits,
// since WGSL leaves the rounding of pack2x16float and denormals to the driver.

struct Params {
    words: u32,  // of the packed side
}
var<params> params: Params;

#if PACK
@group(0) @binding(0) var<storage, read> a: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

fn converted(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return sign | 0x7e00u | ((magnitude >> 13u) & 0x1ffu);
    }
    if (magnitude >= 0x477ff000u) {  // 65520 and above
        return sign | 0x7c00u;
    }
    if (magnitude < 0x33000001u) {  // at most half of the smallest
        return sign;
    }
    var drop = 13u;
    var value = magnitude - 0x38000000u;  // the exponent's bias from 127 to 15
    if (magnitude < 0x38800000u) {  // below 2^-14: no implied one
        drop = 126u - (magnitude >> 23u);
        value = (magnitude & 0x7fffffu) | 0x800000u;
    }
    let kept = value >> drop;
    let rest = value & ((1u << drop) - 1u);
    let half = 1u << (drop - 1u);
    let up = rest > half || (rest == half && (kept & 1u) == 1u);
    return sign | (kept + select(0u, 1u, up));
}
#else
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<vec2<f32>>;

fn converted(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let exponent = (h >> 10u) & 31u;
    let fraction = h & 0x3ffu;
    if (exponent == 31u) {
        return bitcast<f32>(sign | 0x7f800000u | (fraction << 13u));
    }
    if (exponent == 0u) {
        let magnitude = f32(fraction) * 5.9604644775390625e-8;  // 2^-24
        return bitcast<f32>(sign | bitcast<u32>(magnitude));
    }
    return bitcast<f32>(sign | ((exponent + 112u) << 23u) | (fraction << 13u));
}
#endif

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + lane;
    if (index >= params.words) {
        return;
    }
#if PACK
    let pair = a[index];
    out[index] = converted(pair.x) | (converted(pair.y) << 16u);
#else
    let word = a[index];
    out[index] = vec2<f32>(converted(word & 0xffffu), converted(word >> 16u));
#endif
}
