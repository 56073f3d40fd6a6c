// A few rows of x times a packed matrix. A workgroup computes {{ROWS}} sums for each row of x, its lanes
// side by side along k; four rows of x share what is unpacked. Normalizing takes no step of its
// own: the sums are divided in the end.
#include packed_params
#include packed_format
#include packed_input

const LANES = {{LANES}}u;
const ROWS = {{ROWS}}u;

// The sums and the squares of x, of each lane or of each subgroup.
var<workgroup> partial: array<{{T}}, {{PARTIALS}}>;
var<workgroup> totals: array<{{T}}, {{TOTALS}}>;

// A sum that is `value` for row `j` of x and 0 for others, and the sum of row `j`.
#if FOUR
fn only(j: u32, value: f32) -> vec4<f32> {
    return select(vec4<f32>(), vec4<f32>(value), vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(j));
}

fn sum_of(total: vec4<f32>, j: u32) -> f32 {
    return total[j];
}
#else
fn only(j: u32, value: f32) -> f32 {
    return value;
}

fn sum_of(total: f32, j: u32) -> f32 {
    return total;
}
#endif

fn norm_input(unit: u32) -> Unit {
    let first = first_quad(unit);
    return Unit(
{{NORM_QUADS}}
    );
}

fn times(a: Unit, b: Unit) -> Unit {
    return Unit(
{{TIMES_QUADS}}
    );
}

fn squared(a: Unit) -> f32 {
    return {{SQUARES}};
}

// The row of the matrix for sum `i` of workgroup `number`: with a gate, pairs of rows that belong
// together.
fn matrix_row(number: u32, i: u32) -> u32 {
    if (params.gate == 0u) {
        return min(number * ROWS + i, params.rows - 1u);
    }
    let column = min(number * (ROWS / 2u) + (i >> 1u), params.columns - 1u);
    return column + (i & 1u) * params.columns;
}

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
#if SUBGROUP
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
#endif
) {
    let each = select(ROWS, ROWS / 2u, params.gate != 0u);
    let across = (params.columns + each - 1u) / each;
    let index = group.y * groups.x + group.x;
    let first_row = index / across * {{M}}u;
    let number = index % across;
    if (first_row >= params.m) {
        return;
    }
    let count = min(params.m - first_row, {{M}}u);
    let normalized = (params.flags & 4u) != 0u;
    var squares = {{T}}();
{{DECLARE}}
    for (var unit = lane; unit < params.units; unit += LANES) {
{{UNPACK}}
#if FOUR
        for (var j = 0u; j < count; j++) {
#else
        {
            let j = 0u;
#endif
            var part = input(first_row + j, unit);
            if (normalized) {
                squares += only(j, squared(part));
                part = times(part, norm_input(unit));
            }
            let halves = half_sums(part);
{{MULTIPLY}}
        }
    }
#if SUBGROUP
{{ADD_SUBGROUP}}
    if (subgroup_lane == 0u) {
{{STORE_SUBGROUP}}
    }
    workgroupBarrier();
    if (lane < {{TOTALS}}u) {
        var total = partial[lane * LANES];
        for (var other = 1u; other < subgroups; other++) {
            total += partial[lane * LANES + other];
        }
        totals[lane] = total;
    }
#else
{{STORE_LANE}}
    workgroupBarrier();
    for (var width = LANES / 2u; width > 0u; width /= 2u) {
        for (var i = lane; i < {{TOTALS}}u * width; i += LANES) {
            let at = i / width * LANES + i % width;
            partial[at] += partial[at + width];
        }
        workgroupBarrier();
    }
    if (lane < {{TOTALS}}u) {
        totals[lane] = partial[lane * LANES];
    }
#endif
    workgroupBarrier();
    let j = lane / each;
    let i = lane % each;
    let column = number * each + i;
    if (j >= count || column >= params.columns) {
        return;
    }
    var scale = 1.0;
    if (normalized) {
        scale = 1.0 / sqrt(sum_of(totals[ROWS], j) / f32(params.k) + params.eps);
    }
    let at = select(i, 2u * i, params.gate != 0u);
    let second = sum_of(totals[min(at + 1u, ROWS - 1u)], j);
    finish(first_row + j, column, sum_of(totals[at], j) * scale, second * scale);
}
