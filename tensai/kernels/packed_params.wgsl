// What every product with a packed matrix is given, and how its sums become the output.
#include math

struct Params {
    m: u32,  // rows of x
    columns: u32,  // of the output: half the rows of the matrix with a gate, else all of them
    k: u32,
    rows: u32,  // of the matrix
    vectors: u32,
    groups: u32,
    group: u32,
    units: u32,  // in a row of the matrix
    width: u32,  // vec4s in a row of x
    gate: u32,  // 0: none, 1: silu, 2: gelu_tanh
    flags: u32,  // 1: a bias, 2: a residual, 4: x is to be normalized
    eps: f32,
}
var<params> params: Params;

@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> residual: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

// The output for a sum over k, and with a gate also that of the row half the rows on.
fn finish(row: u32, column: u32, sum: f32, second: f32) {
    var value = sum;
    var up = second;
    if ((params.flags & 1u) != 0u) {
        value += bias[column];
        up += bias[params.rows - params.columns + column];
    }
    if (params.gate == 1u) {
        value = silu_mul_f32(value, up);
    } else if (params.gate == 2u) {
        value = gelu_tanh(value) * up;
    }
    let at = row * params.columns + column;
    if ((params.flags & 2u) != 0u) {
        value += residual[at];
    }
    out[at] = value;
}
