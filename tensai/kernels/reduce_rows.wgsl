// A reduction over rows, each cut into `chunks`, a team of lanes a chunk; out is (outer, chunks), so
// that a second run over it finishes a long reduction. Rows are units of one element, or of four
// that lie side by side; then only a single row may end within a unit.
#include math
#include team

struct Params {
    outputs: u32,  // outer * chunks
    length: u32,  // of a row, in elements
    units: u32,
    chunks: u32,
    chunk: u32,  // units in each chunk but the last
    divisor: f32,  // of the result: the count for a mean, or 0
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<{{UNIT}}>;
@group(0) @binding(1) var<storage, read_write> out: array<{{T}}>;

fn combine(a: {{T}}, b: {{T}}) -> {{T}} {
    return {{COMBINE}};
}

fn joined(a: {{T}}, b: {{T}}, way: u32) -> {{T}} {
    return combine(a, b);
}

#if VECTOR
fn both(a: {{UNIT}}, b: {{UNIT}}) -> {{UNIT}} {
    return {{UNIT}}(
        combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w)
    );
}

fn whole(a: {{UNIT}}) -> {{T}} {
    return combine(combine(a.x, a.y), combine(a.z, a.w));
}

// A unit with `rest` in the place of what lies past the row's end.
fn within(a: {{UNIT}}, unit: u32, rest: {{UNIT}}) -> {{UNIT}} {
    let at = vec4<u32>(unit * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(rest, a, at < vec4<u32>(params.length));
}
#else
fn both(a: {{UNIT}}, b: {{UNIT}}) -> {{UNIT}} {
    return combine(a, b);
}

fn whole(a: {{UNIT}}) -> {{T}} {
    return a;
}

fn within(a: {{UNIT}}, unit: u32, rest: {{UNIT}}) -> {{UNIT}} {
    return a;
}
#endif

#include team_begin
    let index = (group.y * groups.x + group.x) * {{ROWS}}u + lane / {{TEAM}}u;
    // Teams past the last output repeat it and store nothing.
    let wanted = min(index, params.outputs - 1u);
    let row = wanted / params.chunks * params.units;
    let start = wanted % params.chunks * params.chunk;
    let end = min(start + params.chunk, params.units);
    let rest = {{UNIT}}({{IDENTITY}});  // what changes no result
    var total_0 = rest;
    var total_1 = rest;
    var total_2 = rest;
    var total_3 = rest;
    var unit = start + lane % {{TEAM}}u;
    // Four loads on their way at a time; the last unit may not be whole.
    for (; unit + {{TEAM_3}}u + 1u < end; unit += {{TEAM_4}}u) {
        let a = x[row + unit];
        let b = x[row + unit + {{TEAM}}u];
        let c = x[row + unit + {{TEAM_2}}u];
        let d = x[row + unit + {{TEAM_3}}u];
        total_0 = both(total_0, a);
        total_1 = both(total_1, b);
        total_2 = both(total_2, c);
        total_3 = both(total_3, d);
    }
    for (; unit < end; unit += {{TEAM}}u) {
        total_0 = both(total_0, within(x[row + unit], unit, rest));
    }
    let own = whole(both(both(total_0, total_1), both(total_2, total_3)));
    let total = team_joined(own, 0u, lane, subgroup_size);
    if (lane % {{TEAM}}u == 0u && index < params.outputs) {
#if FLOAT
        out[index] = select(total, total / params.divisor, params.divisor > 0.0);
#else
        out[index] = total;
#endif
    }
}
