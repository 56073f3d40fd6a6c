// A token for each row of logits: the most likely top_k, of them those that make up top_p, and of those
// one by its probability; -1 where a logit is NaN. A workgroup a row.
#include math
#include workgroup

struct Params {
    rows: u32,
    length: u32,
    top_k: u32,  // 0 for all
    top_p: f32,
    inverse: f32,  // of the temperature
    seed: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> counter: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;

var<workgroup> values: array<f32, 256>;
var<workgroup> places: array<u32, 256>;

// Floats in the order of unsigned integers.
fn ordered(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u);
}

fn mixed(x: u32) -> u32 {
    var h = x;
    h = (h ^ (h >> 16u)) * 0x85ebca6bu;
    h = (h ^ (h >> 13u)) * 0xc2b2ae35u;
    return h ^ (h >> 16u);
}

// Logits less the largest, over the temperature.
fn relative(x: f32, largest: f32) -> f32 {
    return select((x - largest) * params.inverse, 0.0, x == largest);
}

fn weight(x: f32, largest: f32, counting: bool) -> f32 {
    return select(exp_f32(relative(x, largest)), 1.0, counting);
}

// The largest key such that the keys from it up weigh at least `share` of those from `least` up; with
// `counting`, such that they are at least `share`. Two bits at a time.
fn threshold(base: u32, largest: f32, least: u32, share: f32, counting: bool, lane: u32) -> u32 {
    var target_weight = share;
    if (!counting) {
        var total = 0.0;
        for (var i = lane; i < params.length; i += 256u) {
            let x = logits[base + i];
            total += select(0.0, weight(x, largest, false), ordered(x) >= least);
        }
        target_weight = share * workgroup_sum(total, lane);
    }
    var found = 0u;
    for (var shift = 32u; shift > 0u; shift -= 2u) {
        let step = 1u << (shift - 2u);
        var sums = vec3<f32>();
        for (var i = lane; i < params.length; i += 256u) {
            let x = logits[base + i];
            let key = ordered(x);
            let w = select(0.0, weight(x, largest, counting), key >= least);
            sums += select(vec3<f32>(), vec3<f32>(w), vec3<u32>(key) >= vec3<u32>(
                found + step, found + 2u * step, found + 3u * step
            ));
        }
        if (workgroup_sum(sums.z, lane) >= target_weight) {
            found += 3u * step;
        } else if (workgroup_sum(sums.y, lane) >= target_weight) {
            found += 2u * step;
        } else if (workgroup_sum(sums.x, lane) >= target_weight) {
            found += step;
        }
    }
    return max(found, least);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let base = row * params.length;
    var largest = -infinity();
    for (var i = lane; i < params.length; i += 256u) {
        largest = max_nan(largest, logits[base + i]);
    }
    largest = workgroup_max(largest, lane);
    let broken = is_nan(largest);
    var least = 0u;
    if (params.top_k != 0u) {
        least = threshold(base, largest, least, f32(params.top_k), true, lane);
    }
    if (params.top_p < 1.0) {
        least = threshold(base, largest, least, params.top_p, false, lane);
    }
    // The largest of logits with Gumbel noise is distributed as the softmax.
    let stream = mixed(params.seed ^ mixed(u32(counter[0]) + 0x9e3779b9u) ^ mixed(row * 2u + 1u));
    var best = -infinity();
    var place = params.length;
    for (var i = lane; i < params.length; i += 256u) {
        let x = logits[base + i];
        if (ordered(x) >= least) {
            let uniform_bits = mixed(stream + i * 0x9e3779b1u) >> 8u;
            let noise = -log_f32(-log_f32((f32(uniform_bits) + 0.5) * 5.9604645e-8));
            let value = relative(x, largest) + noise;
            if (place == params.length || value > best) {
                best = value;
                place = i;
            }
        }
    }
    values[lane] = best;
    places[lane] = place;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) {
        if (lane < width) {
            let other = lane + width;
            let more = values[other] > values[lane]
                || (values[other] == values[lane] && places[other] < places[lane]);
            if (places[other] < params.length && (more || places[lane] == params.length)) {
                values[lane] = values[other];
                places[lane] = places[other];
            }
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        out[row] = select(i32(places[0]), -1, broken);
    }
}
