// The gradient of attention (Dao, "FlashAttention-2", 2023, appendix B), with scores computed again
// tile by tile. {{WHAT}}
//
// A workgroup of 16 x 8 lanes has 32 rows of one head, "mine": {{MINE}} and {{MY_GRAD}}. It goes over
// the rows of {{THEIRS}} and {{THEIR_GRAD}} 64 at a time. Lane (x, y) holds, in named variables, what
// belongs to my rows y, y + 8, y + 16, y + 24 and theirs x, x + 16, x + 32, x + 48.
#include attention_masking

@group(0) @binding(0) var<storage, read> q: array<{{T}}>;
@group(0) @binding(1) var<storage, read> k: array<{{T}}>;
@group(0) @binding(2) var<storage, read> v: array<{{T}}>;
@group(0) @binding(3) var<storage, read> grad: array<{{T}}>;
@group(0) @binding(4) var<storage, read> mask: array<u32>;
// Of each batch, head and query, as bits of floats: its largest score, 1 / the sum of its weights
// relative to that (0 if it sees nothing), the sum of its result times grad; the rows that count.
#if STATISTICS
@group(0) @binding(5) var<storage, read> length: array<u32>;
@group(0) @binding(6) var<storage, read_write> statistics: array<vec4<u32>>;
#else
@group(0) @binding(5) var<storage, read> statistics: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> out: array<{{T}}>;
#endif

// In turn: slices of four vectors of my rows and theirs, theirs padded by one against bank
// conflicts; rows of theirs.
var<workgroup> room: array<vec4<f32>, 448>;
var<workgroup> weights: array<vec4<f32>, 512>;  // 16 vectors for each of my rows
#if STATISTICS

fn weights_of(scores: vec4<f32>, largest: f32) -> vec4<f32> {
    let below = scores - largest;
    return vec4<f32>(
        exp_f32(below.x), exp_f32(below.y), exp_f32(below.z), exp_f32(below.w)
    );
}

fn highest(a: vec4<f32>) -> f32 {
    return max(max(a.x, a.y), max(a.z, a.w));
}
#else
// Of the queries, be they mine or theirs.
var<workgroup> largest: array<f32, 64>;
var<workgroup> inverse: array<f32, 64>;
var<workgroup> delta: array<f32, 64>;
var<workgroup> spoiled: atomic<u32>;  // whether a row of theirs held anything that is not finite

fn finite(a: vec4<f32>) -> bool {
    return all((bitcast<vec4<u32>>(a) & vec4<u32>(0x7f800000u)) != vec4<u32>(0x7f800000u));
}

fn keep_statistics(lane: u32, row: vec4<u32>) {
    largest[lane] = bitcast<f32>(row.x);
    inverse[lane] = bitcast<f32>(row.y);
    delta[lane] = bitcast<f32>(row.z);
}

fn store(base: u32, d: u32, value: vec4<f32>) {
    if (d * 4u >= params.dim) {
        return;
    }
    let at = base + d * 4u;
#if VECTORS
    out[at / 4u] = value;
#else
    let left = params.dim - d * 4u;
    out[at] = value.x;
    if (left > 1u) { out[at + 1u] = value.y; }
    if (left > 2u) { out[at + 2u] = value.z; }
    if (left > 3u) { out[at + 3u] = value.w; }
#endif
}
#endif

#if BY_POSITION
// The queries, from the first up to but without the last, that see any of the positions.
fn seeing(first: u32, count: u32, valid: u32) -> vec2<u32> {
    let shift = i32(valid) - i32(params.queries);
    let last = i32(min(first + count, valid)) - 1;
    var start = 0;
    var end = i32(params.queries);
    if (params.causal != 0u) {
        start = clamp(i32(first) - shift, 0, end);
    }
    if (params.window != 0u) {
        end = clamp(last - shift + i32(params.window), 0, end);
    }
    if (first >= valid) {
        end = 0;
    }
    return vec2<u32>(u32(min(start, end)), u32(end));
}

#endif
{{FUNCTIONS}}

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let shared_by = params.heads / params.kv_heads;
    let number = group.y * groups.x + group.x;
#if BY_QUERY
    let my_heads = params.heads;
    let my_count = params.queries;
#else
    let my_heads = params.kv_heads;
    let my_count = params.kv_rows;
#endif
    let my_head = number % my_heads;
    let batch = number / my_heads % params.batches;
    let first = number / my_heads / params.batches * 32u;
    if (first >= my_count) {
        return;
    }
    let x = lane % 16u;
    let y = lane / 16u;
    let vectors = (params.dim + 3u) / 4u;
    let my_width = my_heads * params.dim;
    let mine = batch * my_count * my_width + my_head * params.dim;
#if STATISTICS
    let valid = valid_rows(length[0]);
#else
    let valid = statistics[0].w;
    if (lane == 0u) {
        atomicStore(&spoiled, 0u);
    }
#endif
#if BY_QUERY
    let my_rows = params.queries;
    let first_head = my_head;
    let last_head = my_head;
    let seen = seen_by(first, 32u, valid);
    let their_width = params.kv_heads * params.dim;
    let theirs = batch * params.kv_rows * their_width + my_head / shared_by * params.dim;
#else
    let my_rows = valid;
    let first_head = my_head * shared_by;
    let last_head = first_head + shared_by - 1u;
    let seen = seeing(first, 32u, valid);
    let their_width = params.heads * params.dim;
#endif

{{DECLARE}}
#if GRADIENT
#if BY_QUERY
    if (lane < 32u) {
        let row = min(first + lane, params.queries - 1u);
        let at = (batch * params.heads + my_head) * params.queries + row;
        keep_statistics(lane, statistics[at]);
    }
    workgroupBarrier();
{{MY_DELTAS}}
#endif
#endif
    for (var head = first_head; head <= last_head; head++) {
#if BY_POSITION
        let theirs = batch * params.queries * their_width + head * params.dim;
#endif
        for (var base = seen.x; base < seen.y; base += 64u) {
            let count = min(64u, seen.y - base);
{{DECLARE_SCORES}}
{{SCORES}}
#if BY_POSITION
            if (lane < 64u) {
                let row = min(base + lane, params.queries - 1u);
                let at = (batch * params.heads + head) * params.queries + row;
                keep_statistics(lane, statistics[at]);
            }
            workgroupBarrier();
#endif
            // Weights of the softmax, in memory instead of unrolled: the code is long.
{{PUT_SCORES}}
            for (var n = 0u; n < 16u; n++) {
                let row = y + n / 4u * 8u;
                let column = x + n % 4u * 16u;
                let at = row * 16u + column / 4u;
                let score = capped(weights[at][column & 3u]);
#if BY_QUERY
                let query = row;
                let result = masked(score, batch, head, first + row, base + column, valid);
#else
                let query = column;
                let result = masked(score, batch, head, base + column, first + row, valid);
#endif
#if STATISTICS
                weights[at][column & 3u] = result;
#else
                var weight = 0.0;
                if (!(result < LOWEST)) {
                    weight = exp_f32(result - largest[query]) * inverse[query];
#if GRADS
                    if (params.softcap != 0.0) {  // times its derivative
                        let slope = score / params.softcap;
                        weight *= fma(-slope, slope, 1.0);
                    }
#endif
                }
                weights[at][column & 3u] = weight;
#endif
            }
#if GRADS
            // The gradient of the weights.
{{DECLARE_PRODUCTS}}
{{GRADS}}
#endif
#if STATISTICS
{{COLLECT}}
#else
#if GRADS
#if BY_POSITION
            let deltas = vec4<f32>(delta[x], delta[x + 16u], delta[x + 32u], delta[x + 48u]);
#endif
{{WEIGH}}
#endif
            for (var start = 0u; start < count; start += {{ROWS}}u) {
                workgroupBarrier();
{{PUT_ROWS}}
                workgroupBarrier();
                if (atomicLoad(&spoiled) == 0u) {
                    for (var c = 0u; c < {{ROWS}}u; c += 4u) {
{{MULTIPLY}}
                    }
                } else {
                    // What is hidden stays out even where a row holds NaN.
                    for (var c = 0u; c < {{ROWS}}u; c++) {
{{MULTIPLY_CAREFULLY}}
                    }
                }
            }
#endif
        }
    }
#if STATISTICS
    workgroupBarrier();
{{PUT_COLLECTED}}
    workgroupBarrier();
    if (lane < 32u && first + lane < params.queries) {
        var most = LOWEST;
        for (var i = 0u; i < 16u; i++) {
            most = max(most, weights[lane * 16u + i].x);
        }
        var sums = vec2<f32>();
        for (var i = 0u; i < 16u; i++) {
            let part = weights[lane * 16u + i];
            sums += part.yz * exp_f32(part.x - most);
        }
        let result = select(vec2<f32>(1.0, sums.y) / sums.x, vec2<f32>(), sums.x == 0.0);
        let at = (batch * params.heads + my_head) * params.queries + first + lane;
        statistics[at] = vec4<u32>(
            bitcast<u32>(most), bitcast<u32>(result.x), bitcast<u32>(result.y), valid
        );
    }
#else
{{STORE}}
#endif
}
