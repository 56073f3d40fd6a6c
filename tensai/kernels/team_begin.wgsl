// How a kernel of teams begins: its place, and the size of its subgroups, 1 where it uses none.
@compute @workgroup_size({{LANES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
#if SUBGROUP
    @builtin(subgroup_size) subgroup_size: u32,
#endif
) {
#if SUBGROUP
#else
    let subgroup_size = 1u;
#endif
