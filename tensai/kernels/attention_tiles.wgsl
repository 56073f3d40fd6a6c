// Attention of many queries with an online softmax (Milakov and Gimelshein, 2018; Dao et al.,
// 2022). A workgroup computes {{ROWS}} queries of one head over tiles of 64 positions. Lane (x, y) of
// 16 x {{DOWN}} holds, in named variables, the scores of rows y, y + {{DOWN}}, ... at positions x, x + 16,
// x + 32, x + 48, and the result of the same rows at vectors x, x + 16, ...
#include attention_scores

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;

// In turn: slices of {{SLICE}} vectors of q's and k's rows, k's padded by one against bank conflicts;
// one number a row and x; rows of v.
var<workgroup> room: array<vec4<f32>, {{ROOM}}>;
var<workgroup> weights: array<vec4<f32>, {{WEIGHTS}}>;  // 16 vectors a row
var<workgroup> row_max: array<f32, {{ROWS}}>;
var<workgroup> row_scale: array<f32, {{ROWS}}>;
var<workgroup> spoiled: atomic<u32>;  // whether v held anything that is not finite

fn weights_of(scores: vec4<f32>, largest: f32) -> vec4<f32> {
    let below = scores - largest;
    return vec4<f32>(
        exp_f32(below.x), exp_f32(below.y), exp_f32(below.z), exp_f32(below.w)
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
    let x = lane % 16u;
    let y = lane / 16u;
    let slice_row = lane / {{SLICE}}u;
    let slice_d = lane % {{SLICE}}u;
    let value_row = lane / {{VECTORS}}u;
    let value_d = min(lane % {{VECTORS}}u, vectors - 1u);

{{DECLARE}}
    if (lane < {{ROWS}}u) {
        row_max[lane] = LOWEST;
    }
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

    // The next slice is on its way, in registers, while the last one is worked on. Rows and vectors
    // that are not there are replaced by others: their scores are hidden, their results not stored.
    let last = max(seen.y, 1u) - 1u;
{{DECLARE_NEXT}}
{{FETCH_FIRST}}
    for (var base = seen.x; base < seen.y; base += 64u) {
{{DECLARE_SCORES}}
        for (var start = 0u; start < vectors; start += {{SLICE}}u) {
            workgroupBarrier();
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
        }
{{SCALE_SCORES}}
        if (!plain || i32(base) < all_start || i32(base + 64u) > all_end) {
            // In memory instead of unrolled: the code is long, and most tiles do without it.
{{PUT_SCORES}}
            for (var n = 0u; n < {{EACH}}u * 4u; n++) {
                let row = y + n / 4u * {{DOWN}}u;
                let column = x + n % 4u * 16u;
                let at = row * 16u + column / 4u;
                weights[at][column & 3u] = finish_score(
                    weights[at][column & 3u], batch, head, first + row, base + column, valid
                );
            }
{{GET_SCORES}}
        }
        workgroupBarrier();
{{PUT_MAXIMA}}
        workgroupBarrier();
        if (lane < {{ROWS}}u) {
            let before = row_max[lane];
            let tile = max(
                max(highest(room[lane * 4u]), highest(room[lane * 4u + 1u])),
                max(highest(room[lane * 4u + 2u]), highest(room[lane * 4u + 3u])),
            );
            let largest = max(before, tile);
            row_max[lane] = largest;
            row_scale[lane] = exp_f32(before - largest);
        }
        workgroupBarrier();
{{WEIGH}}
        let count = min(64u, seen.y - base);
        for (var start = 0u; start < count; start += {{V_ROWS}}u) {
            workgroupBarrier();
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
        }
    }
    workgroupBarrier();
{{PUT_SUMS}}
    workgroupBarrier();
{{STORE}}
}
