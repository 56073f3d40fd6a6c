// Attention with an online softmax (Milakov and Gimelshein, 2018; Dao et al., 2022): scores are
// never stored. One workgroup computes {{BQ}} queries of one head, over tiles of {{BK}} positions.
#include attention_scores

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

// Rows of four-element vectors; a head's last vector is filled up with zeros.
var<workgroup> query: array<vec4<f32>, {{BQ_VECTORS}}>;
var<workgroup> total: array<vec4<f32>, {{BQ_VECTORS}}>;
var<workgroup> tile: array<vec4<f32>, {{BK_VECTORS}}>;
var<workgroup> weights: array<f32, {{BQ_BK}}>;
var<workgroup> row_max: array<f32, {{BQ}}>;
var<workgroup> row_sum: array<f32, {{BQ}}>;
var<workgroup> row_scale: array<f32, {{BQ}}>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = (params.queries + {{BQ}}u - 1u) / {{BQ}}u;
    let number = group.y * groups.x + group.x;
    let first = (number % blocks) * {{BQ}}u;
    let head = (number / blocks) % params.heads;
    let batch = number / blocks / params.heads;
    if (batch >= params.batches) {
        return;
    }
    let dim = params.dim;
    let width = params.heads * dim;
    let kv_width = params.kv_heads * dim;
    let kv_head = head / (params.heads / params.kv_heads);
    let q_base = batch * params.queries * width + head * dim;
    let kv_base = batch * params.kv_rows * kv_width + kv_head * dim;

    let vectors = (dim + 3u) / 4u;
    for (var i = lane; i < {{BQ}}u * vectors; i += 64u) {
        let row = first + i / vectors;
        let d = i % vectors * 4u;
        var value = vec4<f32>();
        if (row < params.queries) {
            let at = q_base + row * width + d;
            value.x = q[at];
            if (d + 1u < dim) { value.y = q[at + 1u]; }
            if (d + 2u < dim) { value.z = q[at + 2u]; }
            if (d + 3u < dim) { value.w = q[at + 3u]; }
        }
        query[i] = value * params.scale;
        total[i] = vec4<f32>();
    }
    if (lane < {{BQ}}u) {
        row_max[lane] = LOWEST;
        row_sum[lane] = 0.0;
    }

    let valid = valid_rows(length[0]);
    let seen = seen_by(first, {{BQ}}u, valid);
    for (var base = seen.x; base < seen.y; base += {{BK}}u) {
        let count = min({{BK}}u, seen.y - base);
        workgroupBarrier();
        for (var i = lane; i < count * vectors; i += 64u) {
            let d = i % vectors * 4u;
            let at = kv_base + (base + i / vectors) * kv_width + d;
            var value = vec4<f32>(k[at], 0.0, 0.0, 0.0);
            if (d + 1u < dim) { value.y = k[at + 1u]; }
            if (d + 2u < dim) { value.z = k[at + 2u]; }
            if (d + 3u < dim) { value.w = k[at + 3u]; }
            tile[i] = value;
        }
        workgroupBarrier();
        for (var i = lane; i < {{BQ}}u * {{BK}}u; i += 64u) {
            let row = i / {{BK}}u;
            let column = i % {{BK}}u;
            var score = -infinity();
            if (column < count) {
                var products = vec4<f32>();
                for (var d = 0u; d < vectors; d++) {
                    products = fma(query[row * vectors + d], tile[column * vectors + d], products);
                }
                score = products.x + products.y + products.z + products.w;
                score = finish_score(score, batch, head, first + row, base + column, valid);
            }
            weights[i] = score;
        }
        workgroupBarrier();
        if (lane < {{BQ}}u) {
            let before = row_max[lane];
            var largest = before;
            for (var c = 0u; c < count; c++) {
                let score = weights[lane * {{BK}}u + c];
                if (score > largest) {
                    largest = score;
                }
            }
            let scale = exp_f32(before - largest);
            var sum = row_sum[lane] * scale;
            for (var c = 0u; c < count; c++) {
                let score = weights[lane * {{BK}}u + c];
                var weight = 0.0;
                if (!(score < LOWEST)) {
                    weight = exp_f32(score - largest);
                }
                weights[lane * {{BK}}u + c] = weight;
                sum += weight;
            }
            row_max[lane] = largest;
            row_sum[lane] = sum;
            row_scale[lane] = scale;
        }
        for (var i = lane; i < count * vectors; i += 64u) {
            let d = i % vectors * 4u;
            let at = kv_base + (base + i / vectors) * kv_width + d;
            var value = vec4<f32>(v[at], 0.0, 0.0, 0.0);
            if (d + 1u < dim) { value.y = v[at + 1u]; }
            if (d + 2u < dim) { value.z = v[at + 2u]; }
            if (d + 3u < dim) { value.w = v[at + 3u]; }
            tile[i] = value;
        }
        workgroupBarrier();
        for (var i = lane; i < {{BQ}}u * vectors; i += 64u) {
            let row = i / vectors;
            var sum = total[i] * row_scale[row];
            for (var c = 0u; c < count; c++) {
                let weight = weights[row * {{BK}}u + c];
                // What is hidden stays out even where v holds NaN.
                if (weight != 0.0) {
                    sum = fma(vec4<f32>(weight), tile[c * vectors + i % vectors], sum);
                }
            }
            total[i] = sum;
        }
    }
    workgroupBarrier();
    for (var i = lane; i < {{BQ}}u * vectors; i += 64u) {
        let row = i / vectors;
        let d = i % vectors * 4u;
        if (first + row < params.queries) {
            let sum = row_sum[row];
            let value = select(total[i] / sum, vec4<f32>(), sum == 0.0);
            let at = q_base + (first + row) * width + d;
            out[at] = value.x;
            if (d + 1u < dim) { out[at + 1u] = value.y; }
            if (d + 2u < dim) { out[at + 2u] = value.z; }
            if (d + 3u < dim) { out[at + 3u] = value.w; }
        }
    }
}
