// How a kernel whose teams hold rows in variables begins.
#include team_begin
    let member = lane % {{TEAM}}u;
    let row = (group.y * groups.x + group.x) * {{ROWS}}u + lane / {{TEAM}}u;
    // Lanes without a row or a unit of their own still meet the others at the barriers.
    let units = select(0u, params.units, row < params.rows);
    let base = row * params.units;
