// exp, sigmoid, tanh and log of vectors.
//
// Greatest relative errors, measured on every 331st float: exp 8.3e-8 (1.02 units in the last place),
// sigmoid 1.4e-7 (2.2), tanh 1.8e-7 (2.4), log 8.2e-8 (0.81). A NaN stays one, infinities and saturation
// come out exact, and results below the least normal float come out as 0 or a denormal.
#pragma once

#include "kernels_vector.hpp"

namespace amphw::AMPHW_ISA {
namespace {

// x = exponent * ln 2 + remainder, |remainder| <= ln 2 / 2. |x| must be below 2^22.
struct Reduced {
    Ints exponent;
    Floats remainder;
};

inline Reduced reduce(Floats x) {
    // Adding 1.5 * 2^23 leaves no bits for a fraction: the sum is rounded, and its low bits are the integer.
    constexpr float MAGIC = 12582912.0f;
    Floats shifted = x * 1.44269504f + MAGIC;
    Floats n = shifted - MAGIC;
    // ln 2 in two parts, the first of so few bits that its product with n is exact.
    Floats r = x - n * 0.693359375f;
    return {as_ints(bits(shifted) - bits(all(MAGIC))), r + n * 2.12194440e-4f};
}

// exp(r) - 1 for |r| <= ln 2 / 2, with a small *relative* error (minimax fit, 1.3e-8 before rounding).
inline Floats expm1_reduced(Floats r) {
    Floats p = r * 1.38825167e-3f + 8.36654753e-3f;
    p = p * r + 4.16672006e-2f;
    p = p * r + 1.66665435e-1f;
    p = p * r + 4.99999970e-1f;
    return p * (r * r) + r;
}

// 2^n for n in -126..127
inline Floats power_of_two(Ints n) { return from_bits((as_words(n) + 127) << 23); }

inline Floats exp(Floats x) {
    // Beyond these the result is infinite or 0 in any case. A NaN fails both comparisons and passes through.
    x = x > 89.0f ? all(89.0f) : x;
    x = x < -104.0f ? all(-104.0f) : x;
    Reduced reduced = reduce(x);
    Floats p = expm1_reduced(reduced.remainder) + 1.0f;
#if defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(-1, p, __builtin_convertvector(reduced.exponent, Floats));
#else
    // In two steps, since 2^128 and 2^-150 are not floats themselves.
    Ints half = reduced.exponent >> 1;
    return p * power_of_two(half) * power_of_two(reduced.exponent - half);
#endif
}

inline Floats sigmoid(Floats x) { return 1.0f / (1.0f + exp(-x)); }

// (e^2x - 1) / (e^2x - 1 + 2): unlike 2 sigmoid(2x) - 1 it keeps its relative accuracy near 0.
inline Floats tanh(Floats x) {
    Words sign = bits(x) & 0x80000000;
    Floats twice = from_bits(bits(x) ^ sign) * 2.0f;
    twice = twice > 20.0f ? all(20.0f) : twice;  // 1 to the last bit from 9.02 on
    Reduced reduced = reduce(twice);
    Floats scale = power_of_two(reduced.exponent);
    Floats e = scale * expm1_reduced(reduced.remainder) + (scale - 1.0f);
    return from_bits(bits(e / (e + 2.0f)) | sign);
}

inline Floats log(Floats x) {
    constexpr float LEAST_NORMAL = 1.17549435e-38f;
    Ints denormal = x < LEAST_NORMAL;
    Floats y = denormal ? x * 8388608.0f : x;
    // y = mantissa * 2^exponent, with the mantissa in [sqrt(1/2), sqrt(2))
    Ints exponent = as_ints(bits(y) - 0x3f3504f3) >> 23;
    Floats f = from_bits(bits(y) - (as_words(exponent) << 23)) - 1.0f;
    Floats n = __builtin_convertvector(exponent - (denormal & 23), Floats);
    // log(1 + f) = f - f^2 / 2 + f^3 p(f), a minimax fit with a relative error of 5.9e-9
    Floats p = f * -7.63449743e-2f + 1.27615780e-1f;
    p = p * f - 1.31601825e-1f;
    p = p * f + 1.42017573e-1f;
    p = p * f - 1.66233569e-1f;
    p = p * f + 2.00012267e-1f;
    p = p * f - 2.50008196e-1f;
    p = p * f + 3.33333313e-1f;
    Floats square = f * f;
    Floats low = p * f * square - square * 0.5f - n * 2.12194440e-4f;
    Floats result = (low + f) + n * 0.693359375f;
    const Floats infinity = all(__builtin_inff());
    result = x == infinity ? infinity : result;
    result = x == 0.0f ? -infinity : result;
    result = x < 0.0f ? all(__builtin_nanf("")) : result;
    return x != x ? x : result;
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
