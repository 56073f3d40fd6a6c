// softmax or log_softmax over rows of `units`, read once: a team of lanes holds a row in variables.
#include math
#include row_units
#include float_team

struct Params {
    rows: u32,
    units: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<{{UNIT}}>;
@group(0) @binding(1) var<storage, read_write> out: array<{{UNIT}}>;

#if VECTOR
fn unit_exp(a: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exp_f32(a.x), exp_f32(a.y), exp_f32(a.z), exp_f32(a.w));
}
#else
fn unit_exp(a: f32) -> f32 {
    return exp_f32(a);
}
#endif

#include held_row_begin
    let nothing = {{UNIT}}(-infinity());
    // The units of this lane: unit_0, unit_1, ...
{{DECLARE}}
{{LOAD}}
    // A NaN may not show in the maximum, but it does in the sum.
    let largest = team_max(unit_max({{LARGEST}}), lane, subgroup_size);
    // A row of nothing but -inf has no largest element to subtract.
    let shift = select(largest, 0.0, largest == -infinity());
{{SHIFT}}
    let sum = team_sum(unit_sum({{SUM}}), lane, subgroup_size);
#if LOG
    let offset = log_f32(select(sum, 1.0, sum == 0.0));
#else
    let scale = 1.0 / select(sum, 1.0, sum == 0.0);
#endif
{{STORE}}
}
