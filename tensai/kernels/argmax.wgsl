// The index of the largest element over the middle axis of x seen as (outer, length, inner): the
// first NaN if there is one, else the first of the largest.
#include math

struct Params {
    outputs: u32,  // outer * inner
    length: u32,
    inner: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<{{T}}>;
@group(0) @binding(1) var<storage, read_write> out: array<i32>;

var<workgroup> values: array<{{T}}, 256>;
var<workgroup> places: array<u32, 256>;

fn beats(a: {{T}}, at_a: u32, b: {{T}}, at_b: u32) -> bool {
#if FLOAT
    if (is_nan(a) || is_nan(b)) {
        return is_nan(a) && (!is_nan(b) || at_a < at_b);
    }
#endif
    return a > b || (a == b && at_a < at_b);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group.y * groups.x + group.x;
    if (index >= params.outputs) {
        return;
    }
    let base = (index / params.inner) * params.length * params.inner + index % params.inner;
    var place = min(lane, params.length - 1u);
    var best = x[base + place * params.inner];
    for (var k = lane + 256u; k < params.length; k += 256u) {
        let value = x[base + k * params.inner];
        if (beats(value, k, best, place)) {
            best = value;
            place = k;
        }
    }
    values[lane] = best;
    places[lane] = place;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) {
        if (lane < width) {
            let other = lane + width;
            if (beats(values[other], places[other], values[lane], places[lane])) {
                values[lane] = values[other];
                places[lane] = places[other];
            }
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        out[index] = i32(places[0]);
    }
}
