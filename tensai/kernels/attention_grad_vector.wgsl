// Four elements of a row of {{NAME}}, zeros where there is no such row or element.
fn {{NAME}}_vector(base: u32, width: u32, row: u32, rows: u32, d: u32) -> vec4<f32> {
    let left = max(params.dim, d * 4u) - d * 4u;
    if (row >= rows || left == 0u) {
        return vec4<f32>();
    }
    let at = base + row * width + d * 4u;
#if VECTORS
    return {{NAME}}[at / 4u];
#else
    var value = vec4<f32>({{NAME}}[at], 0.0, 0.0, 0.0);
    if (left > 1u) { value.y = {{NAME}}[at + 1u]; }
    if (left > 2u) { value.z = {{NAME}}[at + 2u]; }
    if (left > 3u) { value.w = {{NAME}}[at + 3u]; }
    return value;
#endif
}
