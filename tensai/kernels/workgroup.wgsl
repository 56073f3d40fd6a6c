// Sums and maxima over a workgroup of 256 lanes; every lane gets the result.

var<workgroup> lanes: array<f32, 256>;

fn workgroup_sum(value: f32, lane: u32) -> f32 {
    workgroupBarrier();  // the last result may still be read
    lanes[lane] = value;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) {
        if (lane < width) {
            lanes[lane] += lanes[lane + width];
        }
        workgroupBarrier();
    }
    return lanes[0];
}

fn workgroup_max(value: f32, lane: u32) -> f32 {
    workgroupBarrier();
    lanes[lane] = value;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) {
        if (lane < width) {
            lanes[lane] = max_nan(lanes[lane], lanes[lane + width]);
        }
        workgroupBarrier();
    }
    return lanes[0];
}
