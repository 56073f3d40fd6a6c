// Skinny products with a matrix whose rows lie along k. A workgroup computes {{ROWS}} rows of it,
// its lanes side by side along k, {{AHEAD}} loads of each row on their way at a time.
#include skinny_params
#include team

fn joined(a: {{SHARED}}, b: {{SHARED}}, way: u32) -> {{SHARED}} {
    return a + b;
}

#include team_begin
    let number = group.y * groups.x + group.x;
    let first_row = number % params.groups * {{ROWS}}u;
    let split = number / params.groups % params.splits;
    let batch = number / params.groups / params.splits;
    if (batch >= params.batches) {
        return;
    }
    let units = params.k / {{WIDTH}}u;
    let start = split * params.chunk;
    let end = min(start + params.chunk, units);
    // Rows and vectors past the end repeat the last ones and are not stored.
{{DECLARE}}
    var unit = start + lane;
    for (; unit + {{REACH}}u < end; unit += {{STRIDE}}u) {
{{AHEAD_BODY}}
    }
    for (; unit < end; unit += {{LANES}}u) {
{{BODY}}
    }
{{JOIN}}
    if (lane == 0u) {
{{STORE}}
    }
}
