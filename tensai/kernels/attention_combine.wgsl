// Puts the parts of attention_split together: a workgroup for each row of the result.
#include attention_parts

@group(0) @binding(0) var<storage, read> length: array<u32>;
@group(0) @binding(1) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

var<workgroup> maxima: array<vec4<f32>, 32>;
var<workgroup> totals: array<vec4<f32>, 128>;
var<workgroup> sums: array<f32, 128>;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.y * groups.x + group.x;
    let rows = params.batches * params.queries * params.heads;
    if (row >= rows) {
        return;
    }
    let vectors = params.dim / 4u;
    let seen = seen_by(0u, params.queries, valid_rows(length[0]));
    let each = part_length(seen.y - seen.x);
    let used = (seen.y - seen.x + each - 1u) / each;
    // Behind the weighted sums: the largest score of each part and row, and the sum of weights.
    let marks = params.splits * rows * vectors + row;

    var largest = LOWEST;
    for (var part = lane; part < used; part += 128u) {
        largest = max(largest, parts[marks + part * rows].x);
    }
    maxima[lane / 4u][lane % 4u] = largest;
    workgroupBarrier();
    for (var i = 0u; i < 32u; i++) {
        let four = maxima[i];
        largest = max(largest, max(max(four.x, four.y), max(four.z, four.w)));
    }

    let together = 128u / vectors;
    let column = lane % vectors;
    let line = lane / vectors;
    var total = vec4<f32>();
    var sum = 0.0;
    if (line < together) {
        for (var part = line; part < used; part += together) {
            let mark = parts[marks + part * rows];
            let weight = exp_f32(mark.x - largest);
            sum = fma(weight, mark.y, sum);
            let value = parts[(part * rows + row) * vectors + column];
            total = select(fma(vec4<f32>(weight), value, total), total, weight == 0.0);
        }
    }
    totals[lane] = total;
    sums[lane] = sum;
    workgroupBarrier();
    if (lane < vectors) {
        for (var i = 1u; i < together; i++) {
            total += totals[i * vectors + lane];
            sum += sums[i * vectors + lane];
        }
        out[row * vectors + lane] = select(total / sum, vec4<f32>(), sum == 0.0);
    }
}
