// Sums and maxima of floats over the lanes of a team.
#include team

fn joined(a: f32, b: f32, way: u32) -> f32 {
    if (way == 0u) {
        return a + b;
    }
    return max(a, b);
}

fn team_sum(value: f32, lane: u32, subgroup_size: u32) -> f32 {
    return team_joined(value, 0u, lane, subgroup_size);
}

// NaN may get lost.
fn team_max(value: f32, lane: u32, subgroup_size: u32) -> f32 {
    return team_joined(value, 1u, lane, subgroup_size);
}
