    // Which tile this workgroup computes, and which part of it a thread.
    let each = select({{BN}}u, {{HALF_BN}}u, params.gate != 0u);
    let across = (params.columns + each - 1u) / each;
    let index = group.y * groups.x + group.x;
    let first_row = index / across * {{BM}}u;
    let tile = index % across;
    if (first_row >= params.m) {
        return;
    }
{{PLACE}}
