// How many iterations of a loop this driver makes before it stops without a word.

struct Params {
    iterations: u32,
}
var<params> params: Params;

@group(0) @binding(0) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(1)
fn main() {
    var counted = 0u;
    var noise = params.iterations;
    for (var i = 0u; i < params.iterations; i++) {
        // No closed form: no compiler finds the sum without the loop.
        if (noise != 0u) {
            counted += 1u;
        }
        noise = noise * 1664525u + 1013904223u;
        noise = select(noise, 1u, noise == 0u);
    }
    out[0] = counted;
}
