// A workgroup as teams of {{TEAM}} neighbouring lanes. The includer has joined(a, b, way) for values
// of type {{SHARED}}; `way` is a constant, for those that join in two ways.

var<workgroup> shares: array<{{SHARED}}, {{LANES}}>;

#if SUBGROUP
// Every lane gets its team's values joined, through as much of the team as lies in a subgroup and
// then through workgroup memory.
fn team_joined(value: {{SHARED}}, way: u32, lane: u32, subgroup_size: u32) -> {{SHARED}} {
    var total = value;
    for (var apart = 1u; apart < min(subgroup_size, {{TEAM}}u); apart *= 2u) {
        total = joined(total, subgroupShuffleXor(total, apart), way);
    }
    if (subgroup_size < {{TEAM}}u) {
        workgroupBarrier();  // the last values may still be read
        shares[lane / subgroup_size] = total;
        workgroupBarrier();
        let count = {{TEAM}}u / subgroup_size;
        let first = lane / {{TEAM}}u * count;
        total = shares[first];
        for (var other = 1u; other < count; other++) {
            total = joined(total, shares[first + other], way);
        }
    }
    return total;
}
#else
fn team_joined(value: {{SHARED}}, way: u32, lane: u32, unused: u32) -> {{SHARED}} {
    workgroupBarrier();
    shares[lane] = value;
    workgroupBarrier();
    for (var width = {{TEAM}}u / 2u; width > 0u; width /= 2u) {
        if (lane % {{TEAM}}u < width) {
            shares[lane] = joined(shares[lane], shares[lane + width], way);
        }
        workgroupBarrier();
    }
    return shares[lane / {{TEAM}}u * {{TEAM}}u];
}
#endif
