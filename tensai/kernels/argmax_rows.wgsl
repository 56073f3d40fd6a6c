// The place of the largest element of rows, each cut into `chunks`, a team of lanes a chunk: the
// first NaN if there is one, else the first of the largest. The first of two runs leaves pairs of a
// key, which is larger for what wins, and a place; the second run reads them.
#include math
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
fn later(best: vec2<u32>, part: vec2<u32>, unit: u32) -> vec2<u32> {
    return joined(best, part, 0u);
}
#else
// Keys keep 0 for "none yet": the smallest integer shares it, but then has the smaller place.
fn key(value: {{T}}) -> u32 {
#if FLOAT
    let bits = bitcast<u32>(value);
    let ordered = select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
    let number = select(ordered, 0x80000000u, (bits << 1u) == 0u);
    return select(number, 0xffffffffu, is_nan(value));
#else
#if SIGNED
    return bitcast<u32>(value) ^ 0x80000000u;
#else
    return value;
#endif
#endif
}

fn better(best: vec2<u32>, value: {{T}}, place: u32) -> vec2<u32> {
    return joined(best, vec2<u32>(key(value), place), 0u);
}

#if VECTOR
fn later(best: vec2<u32>, a: {{UNIT}}, unit: u32) -> vec2<u32> {
    let at = unit * 4u;
    var result = better(best, a.x, at);
    if (at + 1u < params.length) { result = better(result, a.y, at + 1u); }
    if (at + 2u < params.length) { result = better(result, a.z, at + 2u); }
    if (at + 3u < params.length) { result = better(result, a.w, at + 3u); }
    return result;
}
#else
fn later(best: vec2<u32>, a: {{UNIT}}, unit: u32) -> vec2<u32> {
    return better(best, a, unit);
}
#endif
#endif

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
#if SUBGROUP
    @builtin(subgroup_size) subgroup_size: u32,
#endif
) {
#if SUBGROUP
#else
    let subgroup_size = 1u;
#endif
    let index = (group.y * groups.x + group.x) * {{ROWS}}u + lane / {{TEAM}}u;
    // Teams past the last output repeat it and store nothing.
    let wanted = min(index, params.outputs - 1u);
    let row = wanted / params.chunks * params.units;
    let start = wanted % params.chunks * params.chunk;
    let end = min(start + params.chunk, params.units);
    var best = vec2<u32>(0u, 0xffffffffu);
    var unit = start + lane % {{TEAM}}u;
    // Four loads on their way at a time.
    for (; unit + {{TEAM_3}}u < end; unit += {{TEAM_4}}u) {
        let a = x[row + unit];
        let b = x[row + unit + {{TEAM}}u];
        let c = x[row + unit + {{TEAM_2}}u];
        let d = x[row + unit + {{TEAM_3}}u];
        best = later(best, a, unit);
        best = later(best, b, unit + {{TEAM}}u);
        best = later(best, c, unit + {{TEAM_2}}u);
        best = later(best, d, unit + {{TEAM_3}}u);
    }
    for (; unit < end; unit += {{TEAM}}u) {
        best = later(best, x[row + unit], unit);
    }
    best = team_joined(best, 0u, lane, subgroup_size);
    if (lane % {{TEAM}}u == 0u && index < params.outputs) {
#if LAST
        out[index] = i32(best.y);
#else
        out[index] = best;
#endif
    }
}
