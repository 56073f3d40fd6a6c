// The place of the largest element of rows, each cut into `chunks`, a team of lanes a chunk: the
// first NaN if there is one (marking: -1), else the first of the largest. The first of two runs
// leaves pairs of a key, which is larger for what wins, and a place; the second run reads them.
#include team

struct Params {
    outputs: u32,  // rows * chunks
    length: u32,  // of a row, in elements
    units: u32,
    chunks: u32,
    chunk: u32,  // units in each chunk but the last
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<{{UNIT}}>;
@group(0) @binding(1) var<storage, read_write> out: array<{{OUT}}>;

fn joined(a: vec2<u32>, b: vec2<u32>, way: u32) -> vec2<u32> {
    let wins = b.x > a.x || (b.x == a.x && b.y < a.y);
    return select(a, b, wins);
}

#if PARTS
#else
// Larger for what is larger; 0 for the smallest integer or -infinity.
fn keys_of(value: {{UNIT}}) -> {{KEYS}} {
#if FLOAT
    let bits = bitcast<{{KEYS}}>(value);
    let negative = bitcast<{{KEYS}}>(bitcast<{{SIGNED_KEYS}}>(value) >> {{KEYS}}(31u));
    // The subtraction takes -infinity to 0 and NaN of either sign past infinity: to one key.
    let ordered = (bits ^ (negative | {{KEYS}}(0x80000000u))) - {{KEYS}}(0x007fffffu);
    let number = min(ordered, {{KEYS}}(0xff000002u));
    // -0 equals 0.
    return select(number, {{KEYS}}(0x7f800001u), number == {{KEYS}}(0x7f800000u));
#else
#if SIGNED
    return bitcast<{{KEYS}}>(value) ^ {{KEYS}}(0x80000000u);
#else
    return value;
#endif
#endif
}
#endif

#include team_begin
    let index = (group.y * groups.x + group.x) * {{ROWS}}u + lane / {{TEAM}}u;
    // Teams past the last output repeat it and store nothing.
    let wanted = min(index, params.outputs - 1u);
    let row = wanted / params.chunks * params.units;
    let start = wanted % params.chunks * params.chunk;
    let end = min(start + params.chunk, params.units);
    var unit = start + lane % {{TEAM}}u;
#if PARTS
    var best = vec2<u32>(0u, 0xffffffffu);
    for (; unit < end; unit += {{TEAM}}u) {
        best = joined(best, x[row + unit], 0u);
    }
#else
    // The best of each component so far, and its unit. Where no key is larger than 0, the first.
    var keys = {{KEYS}}(0u);
    var units = {{KEYS}}(unit);
    // Four loads on their way at a time; the last unit may not be whole.
    for (; unit + {{TEAM_3}}u + 1u < end; unit += {{TEAM_4}}u) {
        let a = x[row + unit];
        let b = x[row + unit + {{TEAM}}u];
        let c = x[row + unit + {{TEAM_2}}u];
        let d = x[row + unit + {{TEAM_3}}u];
        let keys_a = keys_of(a);
        units = select(units, {{KEYS}}(unit), keys_a > keys);
        keys = max(keys, keys_a);
        let keys_b = keys_of(b);
        units = select(units, {{KEYS}}(unit + {{TEAM}}u), keys_b > keys);
        keys = max(keys, keys_b);
        let keys_c = keys_of(c);
        units = select(units, {{KEYS}}(unit + {{TEAM_2}}u), keys_c > keys);
        keys = max(keys, keys_c);
        let keys_d = keys_of(d);
        units = select(units, {{KEYS}}(unit + {{TEAM_3}}u), keys_d > keys);
        keys = max(keys, keys_d);
    }
    for (; unit < end; unit += {{TEAM}}u) {
        var own = keys_of(x[row + unit]);
#if VECTOR
        let at = vec4<u32>(unit * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
        own = select(vec4<u32>(), own, at < vec4<u32>(params.length));
#endif
        units = select(units, {{KEYS}}(unit), own > keys);
        keys = max(keys, own);
    }
#if VECTOR
    // Places past the row's end have key 0 and lose to any within.
    let places = units * 4u + vec4<u32>(0u, 1u, 2u, 3u);
    let left = joined(vec2<u32>(keys.x, places.x), vec2<u32>(keys.y, places.y), 0u);
    let right = joined(vec2<u32>(keys.z, places.z), vec2<u32>(keys.w, places.w), 0u);
    var best = joined(left, right, 0u);
#else
    var best = vec2<u32>(keys, units);
#endif
#endif
    best = team_joined(best, 0u, lane, subgroup_size);
    if (lane % {{TEAM}}u == 0u && index < params.outputs) {
#if LAST
#if MARKING
        // The key of NaN, which is above that of infinity.
        out[index] = select(i32(best.y), -1, best.x == 0xff000002u);
#else
        out[index] = i32(best.y);
#endif
#else
        out[index] = best;
#endif
    }
}
