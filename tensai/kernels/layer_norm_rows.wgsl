// (x - mean) / sqrt(variance + eps), times weight plus bias if AFFINE, over rows of `units`, read
// once: a team of lanes holds a row in variables.
#include row_units
#include float_team

struct Params {
    rows: u32,
    units: u32,
    length: f32,  // of a row, in elements
    eps: f32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read> x: array<{{UNIT}}>;
#if AFFINE
@group(0) @binding(1) var<storage, read> weight: array<{{UNIT}}>;
@group(0) @binding(2) var<storage, read> bias: array<{{UNIT}}>;
@group(0) @binding(3) var<storage, read_write> out: array<{{UNIT}}>;
#else
@group(0) @binding(1) var<storage, read_write> out: array<{{UNIT}}>;
#endif

#include held_row_begin
    let nothing = {{UNIT}}(0.0);
    // The units of this lane: unit_0, unit_1, ...
{{DECLARE}}
{{LOAD}}
    let mean = team_sum(unit_sum({{SUM}}), lane, subgroup_size) / params.length;
{{CENTRE}}
    // Sums are rounded, and drivers divide with an error of their own: what that leaves of the mean
    // would show where eps is larger than the variance.
    let rest = team_sum(unit_sum({{SUM}}), lane, subgroup_size) / params.length;
{{CENTRE_AGAIN}}
    let squares = team_sum({{SQUARES}}, lane, subgroup_size);
    let scale = 1.0 / sqrt(squares / params.length + params.eps);
{{STORE}}
}
