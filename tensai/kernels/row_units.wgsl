// Rows as units of one element, or of four that lie side by side.
#if VECTOR
fn unit_sum(a: vec4<f32>) -> f32 {
    return (a.x + a.y) + (a.z + a.w);
}

fn unit_max(a: vec4<f32>) -> f32 {
    return max(max(a.x, a.y), max(a.z, a.w));
}

fn unit_squares(a: vec4<f32>) -> f32 {
    return dot(a, a);
}
#else
fn unit_sum(a: f32) -> f32 {
    return a;
}

fn unit_max(a: f32) -> f32 {
    return a;
}

fn unit_squares(a: f32) -> f32 {
    return a * a;
}
#endif
