// A row of x, rounded to int8, times a packed matrix. Each workgroup rounds the row for itself, which
// costs less than a dispatch would; so there are only as many as a device runs at once, and each goes on
// to further pairs of sums, a pair for each of its subgroups at a time. Normalizing is a factor on the
// sums, found on the way.
#include packed_params
#include packed_format
#include int8_round

const LANES = {{LANES}}u;

// Of each half of a block: its codes, and its scale and that times the sum of the codes.
var<workgroup> x_codes: array<vec4<u32>, {{HALVES}}>;
var<workgroup> x_factors: array<vec2<f32>, {{HALVES}}>;
var<workgroup> partial: array<f32, {{LANES}}>;

// A unit of a row of the matrix, on its way.
struct Loaded {
    words: Words,
    factors: Factors,
}

fn load(row: u32, unit: u32) -> Loaded {
    return Loaded(unit_words(row, unit), factors(row, unit));
}

// The rows of the matrix for pair `pair` of sums: with a gate, rows that belong together.
fn rows_of(pair: u32) -> vec2<u32> {
    if (params.gate == 0u) {
        return min(vec2<u32>(2u * pair, 2u * pair + 1u), vec2<u32>(params.rows - 1u));
    }
    let row = min(pair, params.columns - 1u);
    return vec2<u32>(row, row + params.columns);
}

fn product_of(
    loaded: Loaded, a: vec4<u32>, b: vec4<u32>, s: vec2<f32>, t: vec2<f32>
) -> f32 {
    let w = loaded.words;
    let f = loaded.factors;
    let offset = f32(CODE_OFFSET);
#if WHOLE
    let sum = f32(dot16(w.low, a) + dot16(w.high, b)) * s.x;
    return f.scale.x * (sum - offset * (s.y + t.y));
#else
    let low = f32(dot16(w.low, a)) * s.x - offset * s.y;
    let high = f32(dot16(w.high, b)) * t.x - offset * t.y;
    return f.scale.x * low + f.scale.y * high - (f.minimum.x * s.y + f.minimum.y * t.y);
#endif
}

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
#if SUBGROUP
    @builtin(subgroup_size) team_size: u32,
    @builtin(subgroup_invocation_id) member: u32,
    @builtin(subgroup_id) team: u32,
    @builtin(num_subgroups) teams: u32,
#endif
) {
#if SUBGROUP
#else
    let team_size = 32u;
    let member = lane % 32u;
    let team = lane / 32u;
    let teams = LANES / 32u;
#endif
    let row = group.y;
    let begin = group.x * teams;
    let apart = groups.x * teams;
    let pairs = select((params.columns + 1u) / 2u, params.columns, params.gate != 0u);
#if AHEAD
    var rows = rows_of(begin + team);
    // What is needed first is on its way while the row of x is rounded, and so on: the next unit's
    // words, or the next pair's, while this one's are multiplied.
    var first = load(rows.x, min(member, params.units - 1u));
    var second = load(rows.y, min(member, params.units - 1u));
#endif
    let normalized = (params.flags & 4u) != 0u;
    var squares = 0.0;
#if SUBGROUP
    // Four lanes a block.
    for (var part = lane; part < params.width / 2u; part += LANES) {
        let at = row * params.width + part * 2u;
        var x0 = x[at];
        var x1 = x[at + 1u];
        if (normalized) {
            squares += dot(x0, x0) + dot(x1, x1);
            x0 *= norm[part * 2u];
            x1 *= norm[part * 2u + 1u];
        }
        var bits = largest_of(max(magnitude(x0), magnitude(x1)));
        bits = max(bits, subgroupShuffleXor(bits, 1u));
        bits = max(bits, subgroupShuffleXor(bits, 2u));
        let found = scale_and_inverse(bits);
        let c0 = codes_of(x0, found.y);
        let c1 = codes_of(x1, found.y);
        var sum = sum_of(c0 + c1);
        sum += subgroupShuffleXor(sum, 1u);
        x_codes[part / 2u][(part & 1u) * 2u] = pack4xI8(c0);
        x_codes[part / 2u][(part & 1u) * 2u + 1u] = pack4xI8(c1);
        if ((part & 1u) == 0u) {
            x_factors[part / 2u] = vec2<f32>(found.x, found.x * f32(sum));
        }
    }
#else
    for (var block = lane; block < params.width / 8u; block += LANES) {
        let at = row * params.width + block * 8u;
        var x0 = x[at];
        var x1 = x[at + 1u];
        var x2 = x[at + 2u];
        var x3 = x[at + 3u];
        var x4 = x[at + 4u];
        var x5 = x[at + 5u];
        var x6 = x[at + 6u];
        var x7 = x[at + 7u];
        if (normalized) {
            squares += dot(x0, x0) + dot(x1, x1) + dot(x2, x2) + dot(x3, x3);
            squares += dot(x4, x4) + dot(x5, x5) + dot(x6, x6) + dot(x7, x7);
            x0 *= norm[block * 8u];
            x1 *= norm[block * 8u + 1u];
            x2 *= norm[block * 8u + 2u];
            x3 *= norm[block * 8u + 3u];
            x4 *= norm[block * 8u + 4u];
            x5 *= norm[block * 8u + 5u];
            x6 *= norm[block * 8u + 6u];
            x7 *= norm[block * 8u + 7u];
        }
        let b = rounded(x0, x1, x2, x3, x4, x5, x6, x7);
        x_codes[block * 2u] = b.low;
        x_codes[block * 2u + 1u] = b.high;
        x_factors[block * 2u] = vec2<f32>(b.scale, b.low_sum);
        x_factors[block * 2u + 1u] = vec2<f32>(b.scale, b.high_sum);
    }
#endif
#if SUBGROUP
    squares = subgroupAdd(squares);
    if (member == 0u) {
        partial[team] = squares;
    }
    workgroupBarrier();
    var scale = 1.0;
    if (normalized) {
        squares = 0.0;
        for (var other = 0u; other < teams; other++) {
            squares += partial[other];
        }
        scale = 1.0 / sqrt(squares / f32(params.k) + params.eps);
    }
#else
    partial[lane] = squares;
    workgroupBarrier();
    for (var width = LANES / 2u; width > 0u; width /= 2u) {
        if (lane < width) {
            partial[lane] += partial[lane + width];
        }
        workgroupBarrier();
    }
    let scale = select(1.0, 1.0 / sqrt(partial[0] / f32(params.k) + params.eps), normalized);
    workgroupBarrier();
#endif
    // Every team makes as many rounds, so that all meet at the barriers there may be.
    for (var base = begin; base < pairs; base += apart) {
        let pair = base + team;
        let column = select(pair, 2u * pair, params.gate == 0u);
        let busy = pair < pairs;
        var sum = 0.0;
        var other_sum = 0.0;
#if AHEAD
#else
        let rows = rows_of(pair);
#endif
        if (busy) {
            for (var unit = member; unit < params.units; unit += team_size) {
#if AHEAD
                let here = first;
                let other = second;
                let next_unit = unit + team_size;
                if (next_unit < params.units) {
                    first = load(rows.x, next_unit);
                    second = load(rows.y, next_unit);
                } else if (pair + apart < pairs) {
                    rows = rows_of(pair + apart);
                    first = load(rows.x, member);
                    second = load(rows.y, member);
                }
#else
                let here = load(rows.x, unit);
                let other = load(rows.y, unit);
#endif
                let at = first_quad(unit) / 4u;
                let next = at + SECOND_HALF / 4u;
                let a = x_codes[at];
                let b = x_codes[next];
                let s = x_factors[at];
                let t = x_factors[next];
                sum += product_of(here, a, b, s, t);
                other_sum += product_of(other, a, b, s, t);
            }
        }
#if SUBGROUP
        sum = subgroupAdd(sum) * scale;
        other_sum = subgroupAdd(other_sum) * scale;
#else
        partial[lane] = sum;
        workgroupBarrier();
        for (var width = 16u; width > 0u; width /= 2u) {
            if (member < width) {
                partial[lane] += partial[lane + width];
            }
            workgroupBarrier();
        }
        sum = partial[team * 32u] * scale;
        workgroupBarrier();
        partial[lane] = other_sum;
        workgroupBarrier();
        for (var width = 16u; width > 0u; width /= 2u) {
            if (member < width) {
                partial[lane] += partial[lane + width];
            }
            workgroupBarrier();
        }
        other_sum = partial[team * 32u] * scale;
        workgroupBarrier();
#endif
        if (busy && member < 2u) {
            if (params.gate != 0u) {
                if (member == 0u) {
                    finish(row, column, sum, other_sum);
                }
            } else if (column + member < params.columns) {
                finish(row, column + member, select(sum, other_sum, member == 1u), 0.0);
            }
        }
    }
}
