// Functions that drivers get wrong at the edges or compute with few digits, written out so that
// every device agrees with NumPy to the last digits. NaN goes in, NaN comes out; large arguments
// saturate. Polynomials: Cephes (S. L. Moshier), single precision.

// NaN and infinity are recognized by their bits: compilers may assume that x == x.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// WGSL refuses infinity as a constant, so it is made from a variable.
fn infinity() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}

fn not_a_number() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}

fn max_nan(a: f32, b: f32) -> f32 {
    return select(max(a, b), a + b, is_nan(a) || is_nan(b));
}

fn min_nan(a: f32, b: f32) -> f32 {
    return select(min(a, b), a + b, is_nan(a) || is_nan(b));
}

// 2^k for a k in -126 to 127.
fn power_of_two(k: i32) -> f32 {
    return bitcast<f32>(u32(k + 127) << 23u);
}

// The upper half of a number's digits, cut off by its bits: compilers simplify the arithmetic way.
fn upper_half(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// e^r - 1 for |r| <= ln(2) / 2.
fn exp_minus_one(r: f32) -> f32 {
    var p = 1.9875691500e-4;
    p = fma(p, r, 1.3981999507e-3);
    p = fma(p, r, 8.3334519073e-3);
    p = fma(p, r, 4.1665795894e-2);
    p = fma(p, r, 1.6666665459e-1);
    p = fma(p, r, 5.0000001201e-1);
    return fma(p * r, r, r);
}

// (e^r, k) with e^x = 2^k e^r and |r| <= ln(2) / 2, ln(2) in two parts.
fn exp_parts(x: f32) -> vec2<f32> {
    let bounded = clamp(x, -104.0, 89.0);
    let k = round(bounded * 1.44269504);
    // The larger part of k ln(2) is exact; it goes through an integer, or compilers join both parts.
    var r = bounded - f32(i32(k) * 355) * 0.001953125;
    r = fma(k, 2.12194440e-4, r);
    return vec2<f32>(exp_minus_one(r) + 1.0, k);
}

// 2^k x, in two factors, since 2^k alone may not be representable.
fn times_power_of_two(x: f32, k: i32) -> f32 {
    let half_k = k >> 1u;
    return x * power_of_two(half_k) * power_of_two(k - half_k);
}

fn exp_f32(x: f32) -> f32 {
    let parts = exp_parts(x);
    return select(times_power_of_two(parts.x, i32(parts.y)), x, is_nan(x));
}

// 1 - e^x for an x below 0.
fn one_minus_exp(x: f32) -> f32 {
    return select(1.0 - exp_f32(x), -exp_minus_one(max(x, -0.3)), x > -0.3);
}

// log(2^e (1 + m)) in two parts; the first has half the digits, so that power_f32 can multiply it
// exactly.
fn log_parts(x: f32) -> vec2<f32> {
    let small = x < 1.17549435e-38;
    let bits = bitcast<u32>(select(x, x * 8388608.0, small));
    var e = f32(i32(bits >> 23u) - 126) - select(0.0, 23.0, small);
    var m = bitcast<f32>((bits & 0x7fffffu) | 0x3f000000u);
    let low = m < 0.707106781;
    e = select(e, e - 1.0, low);
    m = select(m, m + m, low) - 1.0;
    let z = m * m;
    var p = 7.0376836292e-2;
    p = fma(p, m, -1.1514610310e-1);
    p = fma(p, m, 1.1676998740e-1);
    p = fma(p, m, -1.2420140846e-1);
    p = fma(p, m, 1.4249322787e-1);
    p = fma(p, m, -1.6668057665e-1);
    p = fma(p, m, 2.0000714765e-1);
    p = fma(p, m, -2.4999993993e-1);
    p = fma(p, m, 3.3333331174e-1);
    var rest = p * m * z;
    rest = fma(e, -2.12194440e-4, rest);
    rest = fma(z, -0.5, rest);
    let whole = e * 0.693359375;
    let high = upper_half(whole + m);
    return vec2<f32>(high, ((whole - high) + m) + rest);
}

fn log_f32(x: f32) -> f32 {
    let parts = log_parts(x);
    var result = parts.x + parts.y;
    result = select(result, -infinity(), x == 0.0);
    result = select(result, not_a_number(), x < 0.0);
    return select(result, x, x >= infinity() || is_nan(x));
}

fn tanh_f32(x: f32) -> f32 {
    let magnitude = min(abs(x), 9.01);
    let z = x * x;
    var p = -5.70498872745e-3;
    p = fma(p, z, 2.06390887954e-2);
    p = fma(p, z, -5.37397155531e-2);
    p = fma(p, z, 1.33314422036e-1);
    p = fma(p, z, -3.33332819422e-1);
    let near = fma(p * z, x, x);
    let far = sign(x) * (1.0 - 2.0 / (exp_f32(2.0 * magnitude) + 1.0));
    let result = select(far, near, magnitude < 0.625);
    return select(result, x, is_nan(x));
}

// Some GPUs divide by way of 1/b, which is lost where b is near the largest float.
fn divide_f32(a: f32, b: f32) -> f32 {
    let scale = select(1.0, 0.0625, abs(b) > 1e37);
    return (a * scale) / (b * scale);
}

fn sigmoid_f32(x: f32) -> f32 {
    let e = exp_f32(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}

// x sigmoid(x). Far below 0 that is x e^x, where e^x may be less than a GPU can hold and the product
// is not: 64 of the power of two goes into x.
fn silu_f32(x: f32) -> f32 {
    let parts = exp_parts(x);
    let far = x * 0.015625 * parts.x * power_of_two(max(i32(parts.y) + 6, -126));
    let e = exp_f32(-abs(x));
    let near = select(x, x * e, x < 0.0) / (1.0 + e);
    return select(select(near, far, x < -40.0), 0.0, x < -92.0);
}

// silu(a) b. Half of a small a may be less than a GPU can hold, though its product with b is not.
fn silu_mul_f32(a: f32, b: f32) -> f32 {
    return select(silu_f32(a) * b, a * (0.5 * b), abs(a) < 1e-30);
}

fn erf_small(x: f32) -> f32 {
    let z = x * x;
    var p = 7.853861353153693e-5;
    p = fma(p, z, -8.010193625184903e-4);
    p = fma(p, z, 5.188327685732524e-3);
    p = fma(p, z, -2.685381193529856e-2);
    p = fma(p, z, 1.128358514861418e-1);
    p = fma(p, z, -3.761262582423300e-1);
    p = fma(p, z, 1.128379165726710);
    return p * x;
}

// 1 - erf(x) for x >= 1.
fn erfc_large(x: f32) -> f32 {
    let bounded = min(x, 10.0);
    let q = 1.0 / bounded;
    let y = q * q;
    var p = 2.326819970068386e-2;
    p = fma(p, y, -1.387039388740657e-1);
    p = fma(p, y, 3.687424674597105e-1);
    p = fma(p, y, -5.824733027278666e-1);
    p = fma(p, y, 6.210004621745983e-1);
    p = fma(p, y, -4.944515323274145e-1);
    p = fma(p, y, 3.404879937665872e-1);
    p = fma(p, y, -2.741127028184656e-1);
    p = fma(p, y, 5.638259427386472e-1);
    var r = -1.047766399936249e+1;
    r = fma(r, y, 1.297719955372516e+1);
    r = fma(r, y, -7.495518717768503);
    r = fma(r, y, 2.921019019210786);
    r = fma(r, y, -1.015265279202700);
    r = fma(r, y, 4.218463358204948e-1);
    r = fma(r, y, -2.820767439740514e-1);
    r = fma(r, y, 5.641895067754075e-1);
    return exp_f32(-bounded * bounded) * q * select(r, p, bounded < 2.0);
}

fn erf_f32(x: f32) -> f32 {
    let magnitude = abs(x);
    let far = sign(x) * (1.0 - erfc_large(max(magnitude, 1.0)));
    let result = select(far, erf_small(x), magnitude < 1.0);
    return select(result, x, is_nan(x));
}

// The normal distribution's function: erfc(-x / sqrt(2)) / 2, which keeps its digits where
// 1 + erf(x / sqrt(2)) would cancel.
fn normal_cdf(x: f32) -> f32 {
    let t = x * 0.7071067811865476;
    let magnitude = abs(t);
    let tail = erfc_large(max(magnitude, 1.0));
    let far = select(tail, 2.0 - tail, t > 0.0);
    return 0.5 * select(far, 1.0 + erf_small(t), magnitude < 1.0);
}

fn gelu_erf(x: f32) -> f32 {
    let result = select(x * normal_cdf(x), 0.0, x < -14.0);
    return select(result, x, is_nan(x));
}

// x/2 (1 + tanh(u)) = x sigmoid(2u), which does not cancel.
fn gelu_tanh(x: f32) -> f32 {
    let bounded = clamp(x, -14.0, 14.0);
    let u = 0.7978845608028654 * fma(0.044715 * bounded * bounded, bounded, bounded);
    let result = select(x * sigmoid_f32(2.0 * u), 0.0, x < -14.0);
    return select(result, x, is_nan(x));
}

// Derivatives of activations.
fn relu_slope(x: f32) -> f32 {
    return select(select(0.0, 1.0, x > 0.0), x, is_nan(x));
}

fn tanh_slope(x: f32) -> f32 {
    let e = exp_f32(-2.0 * abs(x));
    return 4.0 * e / ((1.0 + e) * (1.0 + e));
}

fn sigmoid_slope(x: f32) -> f32 {
    let e = exp_f32(-abs(x));
    return e / ((1.0 + e) * (1.0 + e));
}

fn silu_slope(x: f32) -> f32 {
    let bounded = clamp(x, -100.0, 100.0);
    let result = sigmoid_f32(x) + bounded * sigmoid_slope(bounded);
    return select(result, x, is_nan(x));
}

// A slope at x that is relu's far from 0: exactly, since it may meet an infinite gradient.
fn saturated(slope: f32, x: f32) -> f32 {
    return select(slope, relu_slope(x), abs(x) > 14.0 || is_nan(x));
}

fn gelu_erf_slope(x: f32) -> f32 {
    let bounded = clamp(x, -14.0, 14.0);
    let density = 0.3989422804014327 * exp_f32(-0.5 * bounded * bounded);
    let result = fma(bounded, density, normal_cdf(bounded));
    return saturated(result, x);
}

fn gelu_tanh_slope(x: f32) -> f32 {
    let bounded = clamp(x, -14.0, 14.0);
    let square = bounded * bounded;
    let u = 0.7978845608028654 * fma(0.044715 * square, bounded, bounded);
    let steepness = 2.0 * 0.7978845608028654 * fma(0.134145, square, 1.0);
    let result = fma(bounded * sigmoid_slope(2.0 * u), steepness, sigmoid_f32(2.0 * u));
    return saturated(result, x);
}

// |a| / |b| cut to an integer, and what remains, for finite numbers with b not 0: long division of
// the digits, eight at a time, so that the remainder is exact however large the quotient is.
fn divide_whole(a: f32, b: f32) -> vec2<f32> {
    if (abs(a) < abs(b)) {
        return vec2<f32>(0.0, abs(a));
    }
    let bits_a = bitcast<u32>(a) & 0x7fffffffu;
    let bits_b = bitcast<u32>(b) & 0x7fffffffu;
    let digits_a = (bits_a & 0x7fffffu) | select(0u, 0x800000u, bits_a >= 0x800000u);
    let digits_b = (bits_b & 0x7fffffu) | select(0u, 0x800000u, bits_b >= 0x800000u);
    let exponent_b = max(bits_b >> 23u, 1u);
    var left = max(bits_a >> 23u, 1u) - exponent_b;
    var quotient = f32(digits_a / digits_b);
    var rest = digits_a % digits_b;
    while (left > 0u) {
        let step = min(left, 8u);
        rest = rest << step;
        quotient = quotient * f32(1u << step) + f32(rest / digits_b);
        rest = rest % digits_b;
        left -= step;
    }
    let scale = i32(exponent_b) - 150;
    return vec2<f32>(
        quotient,
        f32(rest) * power_of_two(max(scale, -126)) * power_of_two(min(scale + 126, 0)),
    );
}

// Division that rounds toward minus infinity, and the remainder that goes with it.
fn divmod_f32(a: f32, b: f32) -> vec2<f32> {
    if (is_nan(a) || is_nan(b)) {
        return vec2<f32>(a + b);
    }
    if (b == 0.0) {
        return vec2<f32>(a / b, not_a_number());
    }
    if (abs(a) >= infinity()) {
        return vec2<f32>(not_a_number());
    }
    var result = divide_whole(a, b);
    if ((a < 0.0) != (b < 0.0)) {
        result.x = -result.x;
        if (result.y != 0.0) {
            result = vec2<f32>(result.x - 1.0, abs(b) - result.y);
        }
    }
    return vec2<f32>(result.x, select(result.y, -result.y, b < 0.0));
}

fn divmod_i32(a: i32, b: i32) -> vec2<i32> {
    if (b == 0) {
        return vec2<i32>(0, 0);
    }
    if (b == -1) {
        return vec2<i32>(-a, 0);  // the lowest integer overflows in a division
    }
    var q = a / b;
    var r = a - q * b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q -= 1;
        r += b;
    }
    return vec2<i32>(q, r);
}

fn divmod_u32(a: u32, b: u32) -> vec2<u32> {
    if (b == 0u) {
        return vec2<u32>(0u, 0u);
    }
    let q = a / b;
    return vec2<u32>(q, a - q * b);
}

// a^b = e^(b log a) with log a in two parts, so that the product's error stays out of the exponent.
fn power_f32(a: f32, b: f32) -> f32 {
    if (b == 0.0 || a == 1.0) {
        return 1.0;
    }
    if (is_nan(a) || is_nan(b)) {
        return a + b;
    }
    let whole = floor(b) == b;
    let odd = whole && abs(b) < 16777216.0 && (i32(b) & 1) != 0;
    if (abs(b) >= infinity()) {
        if (abs(a) == 1.0) {
            return 1.0;
        }
        return select(0.0, infinity(), (abs(a) > 1.0) == (b > 0.0));
    }
    if (a == 0.0 || abs(a) >= infinity()) {
        let grows = (a == 0.0) == (b < 0.0);
        let size = select(0.0, infinity(), grows);
        return select(size, -size, odd && (bitcast<u32>(a) >> 31u) == 1u);
    }
    if (a < 0.0 && !whole) {
        return not_a_number();
    }
    if (whole && abs(b) <= 32.0) {
        // Small whole powers by repeated squaring, exact where the result is.
        var n = u32(abs(b));
        var square = a;
        var product = 1.0;
        while (n > 0u) {
            if ((n & 1u) == 1u) {
                product *= square;
            }
            square *= square;
            n >>= 1u;
        }
        // What is below the normal numbers may have become 0, though its inverse is a number.
        if (b > 0.0 || abs(product) >= 1.17549435e-38) {
            return select(product, 1.0 / product, b < 0.0);
        }
    }
    let parts = log_parts(abs(a));
    let size = b * parts.x;
    if (abs(size) > 120.0) {
        let far = select(0.0, infinity(), size > 0.0);
        return select(far, -far, a < 0.0 && odd);
    }
    let high = upper_half(b);
    let root = exp_parts(0.5 * (high * parts.x));
    let rest = exp_parts((b - high) * parts.x + b * parts.y);
    // The root's square may be infinite where the result is not, so powers of two come last.
    let k = clamp(2 * i32(root.y) + i32(rest.y), -160, 132);
    let result = times_power_of_two(root.x * rest.x * root.x, k);
    return select(result, -result, a < 0.0 && odd);
}

fn power_i32(a: i32, b: i32) -> i32 {
    if (b < 0) {
        return select(select(0, select(1, -1, (b & 1) != 0), a == -1), 1, a == 1);
    }
    return bitcast<i32>(power_u32(bitcast<u32>(a), u32(b)));
}

fn power_u32(a: u32, b: u32) -> u32 {
    var n = b;
    var square = a;
    var product = 1u;
    while (n > 0u) {
        if ((n & 1u) == 1u) {
            product *= square;
        }
        square *= square;
        n >>= 1u;
    }
    return product;
}

// Float to integer as this project defines it: toward zero, saturating, NaN to 0.
fn to_i32(x: f32) -> i32 {
    if (is_nan(x)) {
        return 0;
    }
    if (x >= 2147483648.0) {
        return 2147483647;
    }
    return i32(max(x, -2147483648.0));
}

fn to_u32(x: f32) -> u32 {
    if (is_nan(x)) {
        return 0u;
    }
    if (x >= 4294967296.0) {
        return 0xffffffffu;
    }
    return u32(max(x, 0.0));
}
