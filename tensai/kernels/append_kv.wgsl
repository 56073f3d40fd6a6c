// Rows of [queries | keys | values] on their way into attention: queries and keys are normalized, if
// asked for, and turned by their position; keys and values go into the caches. A workgroup a head.
#include math
#include turns

struct Params {
    rows: u32,
    heads: u32,
    kv_heads: u32,
    dim: u32,  // of a head
    turning: u32,  // pairs of a head that turn
    neighbours: u32,  // 1: pairs are neighbours, 0: they lie `turning` apart
    capacity: u32,  // rows of the caches
    eps: f32,
    scale: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> k_cache: array<f32>;
@group(0) @binding(1) var<storage, read_write> v_cache: array<f32>;
@group(0) @binding(2) var<storage, read> qkv: array<f32>;
@group(0) @binding(3) var<storage, read> start: array<i32>;
@group(0) @binding(4) var<storage, read> frequencies: array<vec2<u32>>;
#if NORM
@group(0) @binding(5) var<storage, read> norms: array<f32>;  // of queries, then of keys
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

var<workgroup> squares: array<f32, 64>;
#else
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    let all = params.heads + 2u * params.kv_heads;
    let row = number / all;
    let head = number % all;
    if (row >= params.rows) {
        return;
    }
    let base = (row * all + head) * params.dim;
    // A negative place is a huge one when read as u32.
    let place = u32(start[0]) + row;
    let fits = place < params.capacity;
    if (head >= params.heads + params.kv_heads) {
        let width = params.kv_heads * params.dim;
        let target_at = place * width + (head - params.heads - params.kv_heads) * params.dim;
        for (var i = lane; i < params.dim && fits; i += 64u) {
            v_cache[target_at + i] = qkv[base + i];
        }
        return;
    }
    let is_key = head >= params.heads;
    var factor = 1.0;
#if NORM
    var sum = 0.0;
    for (var i = lane; i < params.dim; i += 64u) {
        sum = fma(qkv[base + i], qkv[base + i], sum);
    }
    squares[lane] = sum;
    workgroupBarrier();
    for (var width = 32u; width > 0u; width /= 2u) {
        if (lane < width) {
            squares[lane] += squares[lane + width];
        }
        workgroupBarrier();
    }
    factor = 1.0 / sqrt(squares[0] / f32(params.dim) + params.eps);
    let norm_at = select(0u, params.dim, is_key);
#endif
    var to = (row * params.heads + head) * params.dim;
    if (is_key) {
        to = (place * params.kv_heads + head - params.heads) * params.dim;
    }
    for (var pair = lane; pair < (params.dim + 1u) / 2u; pair += 64u) {
        // Pairs that turn come first; what is left does so two by two.
        let turns = pair < params.turning;
        var i = pair * 2u;
        var j = i + 1u;
        if (turns && params.neighbours == 0u) {
            i = pair;
            j = pair + params.turning;
        }
        var value = vec2<f32>(qkv[base + i], 0.0);
        if (j < params.dim) {
            value.y = qkv[base + j];
        }
#if NORM
        value *= factor * vec2<f32>(norms[norm_at + i], norms[norm_at + min(j, params.dim - 1u)]);
#endif
        if (turns) {
            value = rotated(value, turned(place, frequencies[pair]) * params.scale);
        }
        if (!is_key) {
            out[to + i] = value.x;
            if (j < params.dim) { out[to + j] = value.y; }
        } else if (fits) {
            k_cache[to + i] = value.x;
            if (j < params.dim) { k_cache[to + j] = value.y; }
        }
    }
}
