// Attention with an online softmax (Milakov and Gimelshein, 2018; Dao et al., 2022): scores are
// never stored. One workgroup computes {{BQ}} queries of one head, over tiles of {{BK}} positions.
#include math

struct Params {
    queries: u32,
    kv_rows: u32,  // rows of k and v
    kv_valid: u32,  // of them, those that count
    heads: u32,
    kv_heads: u32,
    dim: u32,  // of a head, at most {{DIM}}
    causal: u32,
    window: u32,  // positions that a query sees, 0 for all
    scale: f32,
    mask_batch: u32,  // strides of the mask
    mask_head: u32,
    mask_query: u32,
    mask_position: u32,
    batches: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
#if MASK
@group(0) @binding(3) var<storage, read> mask: array<{{MASK_WORD}}>;
#endif
@group(0) @binding({{OUT_BINDING}}) var<storage, read_write> out: array<f32>;

// A position that a query does not see scores minus infinity; any other score is at least this.
const LOWEST: f32 = -3.4028234e38;

// Rows of four-element vectors; a head's last vector is filled up with zeros.
var<workgroup> query: array<vec4<f32>, {{BQ_VECTORS}}>;
var<workgroup> total: array<vec4<f32>, {{BQ_VECTORS}}>;
var<workgroup> tile: array<vec4<f32>, {{BK_VECTORS}}>;
var<workgroup> weights: array<f32, {{BQ_BK}}>;
var<workgroup> row_max: array<f32, {{BQ}}>;
var<workgroup> row_sum: array<f32, {{BQ}}>;
var<workgroup> row_scale: array<f32, {{BQ}}>;

fn sees(query_index: u32, position: u32) -> bool {
    if (query_index >= params.queries || position >= params.kv_valid) {
        return false;
    }
    let last = i32(query_index) + i32(params.kv_valid) - i32(params.queries);
    if (params.causal != 0u && i32(position) > last) {
        return false;
    }
    return params.window == 0u || i32(position) + i32(params.window) > last;
}

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

    // The positions that any query of this block sees.
    var start = 0u;
    var end = params.kv_valid;
    let shift = i32(params.kv_valid) - i32(params.queries);
    if (params.causal != 0u) {
        end = u32(clamp(i32(first) + {{BQ}} + shift, 0, i32(end)));
    }
    if (params.window != 0u) {
        start = u32(max(i32(first) + shift + 1 - i32(params.window), 0));
    }
    for (var base = start; base < end; base += {{BK}}u) {
        let count = min({{BK}}u, end - base);
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
            if (column < count && sees(first + row, base + column)) {
                var products = vec4<f32>();
                for (var d = 0u; d < vectors; d++) {
                    products = fma(query[row * vectors + d], tile[column * vectors + d], products);
                }
                score = products.x + products.y + products.z + products.w;
#if MASK
                let at = batch * params.mask_batch + head * params.mask_head
                    + (first + row) * params.mask_query + (base + column) * params.mask_position;
#if MASK_BOOL
                score = select(-infinity(), score, mask[at] != 0u);
#else
                score += mask[at];
#endif
#endif
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
