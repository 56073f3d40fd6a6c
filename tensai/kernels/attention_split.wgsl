// Attention of few queries over many positions (Dao et al., "Flash-decoding", 2023). The positions
// are split over workgroups; one of them computes {{ROWS}} rows, which are the queries of all heads that
// share a head of k and v, so that k and v are read once for these. With more than one part it
// writes sums of v, weighted relative to the part's largest score, and then for each row that score
// and the sum of the weights; attention_combine puts the parts together.
#include attention_scores
#include attention_parts

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;

var<workgroup> query: array<vec4<f32>, {{QUERY}}>;  // rows of 64 vectors
var<workgroup> parts: array<vec4<f32>, {{ROOM}}>;  // what lanes add up for each other
var<workgroup> weights: array<f32, {{WEIGHTS}}>;  // rows of {{CHUNK}}
var<workgroup> maxima: array<vec4<f32>, {{LANES_4}}>;
var<workgroup> sums: array<vec4<f32>, {{LANES_4}}>;
var<workgroup> row_max: array<f32, {{ROWS}}>;
var<workgroup> row_sum: array<f32, {{ROWS}}>;

@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    let shared_by = params.heads / params.kv_heads;
    let rows = shared_by * params.queries;
    let blocks = (rows + {{ROWS}}u - 1u) / {{ROWS}}u;
    let block = number % blocks;
    let part = number / blocks % params.splits;
    let kv_head = number / blocks / params.splits % params.kv_heads;
    let batch = number / blocks / params.splits / params.kv_heads;
    if (batch >= params.batches) {
        return;
    }
    let valid = valid_rows(length[0]);
    let seen = part_of(part, valid);
    if (seen.x >= seen.y && params.splits > 1u) {
        return;
    }
    let count = seen.y - seen.x;
    let vectors = params.dim / 4u;
    let width = params.heads * vectors;
    let kv_width = params.kv_heads * vectors;
    let kv_base = (batch * params.kv_rows + seen.x) * kv_width + kv_head * vectors;
    let first = block * {{ROWS}}u;

    // Zeros up to a multiple of the 16 vectors that the loop below takes at a time.
    let padded = (vectors + 15u) / 16u * 16u;
    for (var i = lane; i < {{ROWS}}u * padded; i += {{LANES}}u) {
        let row = first + i / padded;
        let d = i % padded;
        var value = vec4<f32>();
        if (row < rows && d < vectors) {
            let head = kv_head * shared_by + row % shared_by;
            value = q[(batch * params.queries + row / shared_by) * width + head * vectors + d];
        }
        query[i / padded * 64u + d] = value * params.scale;
    }
    workgroupBarrier();

    // Scores, 64 positions at a time. Four lanes share {{EACH}} of them.
    let share = lane % 4u;
    let slot = lane / 4u;
    for (var base = 0u; base < count; base += 64u) {
{{DECLARE}}
        for (var start = 0u; start < vectors; start += 16u) {
{{MULTIPLY_SCORES}}
        }
{{PUT_PARTS}}
        workgroupBarrier();
        for (var i = lane; i < {{ROWS}}u * 64u; i += {{LANES}}u) {
            let row = first + i / 64u;
            let position = base + i % 64u;
            var score = -infinity();
            if (row < rows && position < count) {
                let head = kv_head * shared_by + row % shared_by;
                score = parts[i].x + parts[i].y + parts[i].z + parts[i].w;
                score = finish_score(
                    score, batch, head, row / shared_by, seen.x + position, valid
                );
            }
            weights[i / 64u * {{CHUNK}}u + position] = score;
        }
        workgroupBarrier();
    }

    // Weights; {{SHARE}} lanes share a row.
    let row = lane / {{SHARE}}u;
    var largest = LOWEST;
    for (var c = lane % {{SHARE}}u; c < count; c += {{SHARE}}u) {
        largest = max(largest, weights[row * {{CHUNK}}u + c]);
    }
    maxima[lane / 4u][lane % 4u] = largest;
    workgroupBarrier();
    for (var i = 0u; i < {{SHARE_4}}u; i++) {
        let four = maxima[row * {{SHARE_4}}u + i];
        largest = max(largest, max(max(four.x, four.y), max(four.z, four.w)));
    }
    var sum = 0.0;
    for (var c = lane % {{SHARE}}u; c < count; c += {{SHARE}}u) {
        let weight = exp_f32(weights[row * {{CHUNK}}u + c] - largest);
        weights[row * {{CHUNK}}u + c] = weight;
        sum += weight;
    }
    sums[lane / 4u][lane % 4u] = sum;
    workgroupBarrier();
    if (lane % {{SHARE}}u == 0u) {
        var total = vec4<f32>();
        for (var i = 0u; i < {{SHARE_4}}u; i++) {
            total += sums[row * {{SHARE_4}}u + i];
        }
        row_max[row] = largest;
        row_sum[row] = total.x + total.y + total.z + total.w;
    }

    // Sums of v's rows. A lane takes one vector of every `together`th row.
    let together = {{LANES}}u / vectors;
    let column = lane % vectors;
    let line = lane / vectors;
{{DECLARE_TOTALS}}
    if (line < together) {
        for (var c = line; c < count; c += together * 8u) {
{{MULTIPLY}}
        }
    }
    let all_rows = params.batches * params.queries * params.heads;
    for (var round = 0u; round < {{ROUNDS}}u; round++) {
        workgroupBarrier();
{{PUT_TOTALS}}
        workgroupBarrier();
        for (var i = lane; i < {{HALF}}u * vectors; i += {{LANES}}u) {
            let local = round * {{HALF}}u + i / vectors;
            let d = i % vectors;
            let row = first + local;
            if (row < rows) {
                var total = vec4<f32>();
                for (var l = 0u; l < together; l++) {
                    total += parts[i / vectors * {{LANES}}u + l * vectors + d];
                }
                let place = (batch * params.queries + row / shared_by) * params.heads
                    + kv_head * shared_by + row % shared_by;
                let sum = row_sum[local];
                if (params.splits == 1u) {
                    out[place * vectors + d] = select(total / sum, vec4<f32>(), sum == 0.0);
                } else {
                    out[(part * all_rows + place) * vectors + d] = total;
                    if (d == 0u) {
                        out[params.splits * all_rows * vectors + part * all_rows + place] =
                            vec4<f32>(row_max[local], sum, 0.0, 0.0);
                    }
                }
            }
        }
    }
}
