// Attention of many queries with an online softmax (Milakov and Gimelshein, 2018; Dao et al.,
// 2022). A workgroup computes {{ROWS}} queries of one head over tiles of {{POSITIONS}} positions. Lane (x, y)
// of {{ACROSS}} x {{DOWN}} holds, in named variables, the scores of rows 4 y to 4 y + 3, and every {{ROWS_APART}} rows
// on, at positions 4 x to 4 x + 3, and every {{GROUP}} on, and the result of the same rows at vectors
// x, x + {{ACROSS}}, ...
#include attention_scores

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;

// In turn: two slices of {{SLICE}} vectors of q's and k's rows, turned so that four rows make a vector;
// the weights of {{GROUP}} positions, turned as well, and two slices of {{V_ROWS}} rows of v; and between
// both one number a row and x. Rows are shuffled within these (`turn`), so that lanes that write side
// by side meet different banks. Two slices, since one is written while slow lanes still read the other.
var<workgroup> room: array<vec4<f32>, {{ROOM}}>;
var<workgroup> spoiled: atomic<u32>;  // whether v held anything that is not finite

// e^x for an x that is 0 or less. Where the result is small, so may be the builtin's error.
fn weight_of(x: f32) -> f32 {
    let power = x * 1.44269504;
    let result = select(exp2(power), 0.0, power < -126.0);
    return select(result, x, is_nan(x));
}

fn weights_of(scores: vec4<f32>, largest: f32) -> vec4<f32> {
    let below = scores - largest;
    return vec4<f32>(
        weight_of(below.x), weight_of(below.y), weight_of(below.z), weight_of(below.w)
    );
}

fn highest(a: vec4<f32>) -> f32 {
    return max(max(a.x, a.y), max(a.z, a.w));
}

fn finite(a: vec4<f32>) -> bool {
    return all((bitcast<vec4<u32>>(a) & vec4<u32>(0x7f800000u)) != vec4<u32>(0x7f800000u));
}

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    let head = number % params.heads;
    let batch = number / params.heads % params.batches;
    let block = number / params.heads / params.batches;
    let blocks = (params.queries + {{ROWS}}u - 1u) / {{ROWS}}u;
    if (block >= blocks) {
        return;
    }
    // Later queries see more where the mask is causal, so that they come first.
    let first = (blocks - 1u - block) * {{ROWS}}u;
    let vectors = params.dim / 4u;
    let width = params.heads * vectors;
    let kv_width = params.kv_heads * vectors;
    let kv_head = head / (params.heads / params.kv_heads);
    let q_base = batch * params.queries * width + head * vectors;
    let kv_base = batch * params.kv_rows * kv_width + kv_head * vectors;
    // Neighbours share x, and the next ones y: what they read is fetched once for both.
    let x = (lane >> 1u) % {{ACROSS}}u;
    let y = lane / {{TWO_ACROSS}}u * 2u + (lane & 1u);
    let slice_row = lane / {{SLICE}}u;
    let slice_d = lane % {{SLICE}}u;
    let value_row = lane / {{VECTORS}}u;
    let value_d = min(lane % {{VECTORS}}u, vectors - 1u);

{{DECLARE}}
    if (lane == 0u) {
        atomicStore(&spoiled, 0u);
    }
    let valid = valid_rows(length[0]);
    let seen = seen_by(first, {{ROWS}}u, valid);
    // Positions from here up to there are seen by every row.
    let shift = i32(valid) - i32(params.queries);
    let all_end = select(i32(valid), i32(first) + 1 + shift, params.causal != 0u);
    let all_start = select(
        0, i32(first) + {{ROWS}} + shift - i32(params.window), params.window != 0u
    );
    let plain = params.softcap == 0.0 && params.mask_kind == 0u;
    let hidden = vec4<f32>(-infinity());

    // The next slice is on its way, in registers, while the last one is worked on. Rows and vectors
    // that are not there are replaced by others: their scores are hidden, their results not stored.
    let last = max(seen.y, 1u) - 1u;
{{DECLARE_NEXT}}
{{FETCH_FIRST}}
    for (var base = seen.x; base < seen.y; base += {{POSITIONS}}u) {
{{DECLARE_SCORES}}
        workgroupBarrier();
        var half = 0u;
        for (var start = 0u; start < vectors; start += {{SLICE}}u) {
            if (start + {{SLICE}}u > vectors) {
{{CUT_SLICES}}
            }
{{PUT_SLICES}}
            workgroupBarrier();
            if (start + {{SLICE}}u < vectors) {
{{FETCH_SLICES}}
            } else {
{{FETCH_VALUES}}
            }
            for (var d = 0u; d < {{SLICE}}u; d++) {
{{MULTIPLY_SCORES}}
            }
            half = {{SLICE_ROOM}}u - half;
        }
{{SCALE_SCORES}}
        let edge = i32(base) < all_start || i32(base + {{POSITIONS}}u) > all_end;
        if (!plain) {
            // In memory instead of unrolled: the code is long.
            workgroupBarrier();
{{FINISH_SCORES}}
        } else if (edge) {
{{HIDE_SCORES}}
        }
{{PUT_MAXIMA}}
        workgroupBarrier();
{{WEIGH}}
        let count = min({{POSITIONS}}u, seen.y - base);
        var start = 0u;
        half = 0u;
        for (var part = 0u; part < {{GROUPS}}u; part++) {
            if (start >= count) {
                break;
            }
{{PUT_WEIGHTS}}
            let end = min(start + {{GROUP}}u, count);
            for (; start < end; start += {{V_ROWS}}u) {
{{PUT_VALUES}}
                workgroupBarrier();
                if (start + {{V_ROWS}}u < count) {
{{FETCH_MORE_VALUES}}
                } else {
{{FETCH_NEXT}}
                }
                if (atomicLoad(&spoiled) == 0u) {
                    for (var c = 0u; c < {{V_ROWS}}u; c += 4u) {
{{MULTIPLY}}
                    }
                } else {
                    // What is hidden stays out even where v holds NaN.
                    for (var c = 0u; c < {{V_ROWS}}u; c++) {
{{MULTIPLY_CAREFULLY}}
                    }
                }
                half = {{V_ROOM}}u - half;
            }
        }
    }
    workgroupBarrier();
{{PUT_SUMS}}
    workgroupBarrier();
{{STORE}}
}
