// Rows of x in int8 (int8_rows.wgsl) times a packed matrix. A workgroup computes a {{BM}} x {{BN}} tile
// in steps of two units along k, a thread {{TM}} x {{TN}} of it; integers are summed over what shares a
// scale. What the next step reads is on its way while this one is computed.
#include packed_params
#include packed_format
#include packed_tile
#include int8_round

// Words of codes, the {{WORDS}} of a step outermost, four rows to a vector; then the scales of x and
// what offsets and minima are multiplied by, and those of the matrix.
var<workgroup> tile_a: array<vec4<u32>, {{A_VECTORS}}>;
var<workgroup> tile_b: array<vec4<u32>, {{B_VECTORS}}>;
var<workgroup> scale_a: array<vec4<f32>, {{A_FACTORS}}>;
var<workgroup> sum_a: array<vec4<f32>, {{A_FACTORS}}>;
var<workgroup> scale_b: array<vec4<f32>, {{B_FACTORS}}>;
#if MINIMA
var<workgroup> minimum_b: array<vec4<f32>, {{B_FACTORS}}>;
#endif

#if MINIMA
const SUM_FACTOR = 1.0;
#else
const SUM_FACTOR = -f32(CODE_OFFSET);
#endif

// Where the codes of half `i` of 4 in a step lie in a row of x, in vec4s.
fn half_of(step: u32, i: u32) -> u32 {
    let unit = min(step * 2u + i / 2u, params.units - 1u);
    return (first_quad(unit) + (i & 1u) * SECOND_HALF) / 4u;
}

fn load_codes(first_row: u32, step: u32, i: u32) -> vec4<u32> {
    let row = min(first_row + i / 4u, params.m - 1u);
    return bitcast<vec4<u32>>(x[row * params.width / 4u + half_of(step, i & 3u)]);
}

// Scale and sum (or what an offset of the matrix's codes takes off) of half `part` (of a whole unit where both share them); none past the end.
fn load_factors(first_row: u32, step: u32, row: u32, part: u32) -> vec2<f32> {
    let at = min(first_row + row, params.m - 1u) * (params.width / 8u);
#if WHOLE
    let found = norm[at + min(step * 2u + part, params.units - 1u)];
    let factors = vec2<f32>(found.x, found.y + found.z);
    return select(factors, vec2<f32>(), step * 2u + part >= params.units);
#else
    let half = half_of(step, part);
    let found = norm[at + half / 2u];
    let factors = vec2<f32>(found.x, select(found.y, found.z, (half & 1u) == 1u));
    return select(factors, vec2<f32>(), step * 2u + part / 2u >= params.units);
#endif
}

fn put(at: u32, place: u32, words: vec4<u32>) {
    tile_b[at][place] = words.x;
    tile_b[at + {{B_STRIDE}}u][place] = words.y;
    tile_b[at + 2u * {{B_STRIDE}}u][place] = words.z;
    tile_b[at + 3u * {{B_STRIDE}}u][place] = words.w;
}

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
#include packed_tile_begin
    let row_b = lane % {{BN}}u;
    let unit_b = lane / {{BN}}u;
    let matrix_row_b = matrix_row(tile, row_b);
    let steps = (params.units + 1u) / 2u;
{{DECLARE}}
    var words = unit_words(matrix_row_b, min(unit_b, params.units - 1u));
    var factors_b = factors(matrix_row_b, min(unit_b, params.units - 1u));
    var a_0 = load_codes(first_row, 0u, lane);
    var a_1 = load_codes(first_row, 0u, lane + {{LANES}}u);
    var factors_0 = load_factors(first_row, 0u, lane % {{BM}}u, lane / {{BM}}u);
#if WHOLE
#else
    var factors_1 = load_factors(first_row, 0u, lane % {{BM}}u, lane / {{BM}}u + 2u);
#endif
    for (var step = 0u; step < steps; step++) {
        let at_a = (lane & 3u) * {{A_STRIDE}}u * 4u + lane / 16u;
        let place_a = lane / 4u & 3u;
{{PUT_A}}
        scale_a[(lane / {{BM}}u) * {{BM_4}}u + (lane % {{BM}}u) / 4u][lane & 3u] = factors_0.x;
        sum_a[(lane / {{BM}}u) * {{BM_4}}u + (lane % {{BM}}u) / 4u][lane & 3u] =
            factors_0.y * SUM_FACTOR;
        put(unit_b * {{B_STRIDE}}u * 8u + row_b / 4u, row_b & 3u, words.low);
        put(unit_b * {{B_STRIDE}}u * 8u + {{B_STRIDE}}u * 4u + row_b / 4u, row_b & 3u, words.high);
#if WHOLE
        scale_b[unit_b * {{BN_4}}u + row_b / 4u][row_b & 3u] = factors_b.scale.x;
#else
        scale_a[(lane / {{BM}}u + 2u) * {{BM_4}}u + (lane % {{BM}}u) / 4u][lane & 3u] = factors_1.x;
        sum_a[(lane / {{BM}}u + 2u) * {{BM_4}}u + (lane % {{BM}}u) / 4u][lane & 3u] =
            factors_1.y * SUM_FACTOR;
        scale_b[unit_b * 2u * {{BN_4}}u + row_b / 4u][row_b & 3u] = factors_b.scale.x;
        scale_b[(unit_b * 2u + 1u) * {{BN_4}}u + row_b / 4u][row_b & 3u] = factors_b.scale.y;
#if MINIMA
        minimum_b[unit_b * 2u * {{BN_4}}u + row_b / 4u][row_b & 3u] = factors_b.minimum.x;
        minimum_b[(unit_b * 2u + 1u) * {{BN_4}}u + row_b / 4u][row_b & 3u] = factors_b.minimum.y;
#endif
#endif
        workgroupBarrier();
        let next = min(step + 1u, steps - 1u);
        let next_unit = min(next * 2u + unit_b, params.units - 1u);
        words = unit_words(matrix_row_b, next_unit);
        factors_b = factors(matrix_row_b, next_unit);
        a_0 = load_codes(first_row, next, lane);
        a_1 = load_codes(first_row, next, lane + {{LANES}}u);
        factors_0 = load_factors(first_row, next, lane % {{BM}}u, lane / {{BM}}u);
#if WHOLE
#else
        factors_1 = load_factors(first_row, next, lane % {{BM}}u, lane / {{BM}}u + 2u);
#endif
{{MULTIPLY}}
        workgroupBarrier();
    }
#include packed_tile_end
}
