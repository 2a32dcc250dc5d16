// Vectors of floats, as wide as the instruction set at hand.
//
// The headers that impl.hpp includes are compiled once for each instruction set, by
// avx512.cpp and its siblings, which define AMPHW_ISA (a namespace) and VECTOR_WIDTH (floats in a
// register). Everything lives in an unnamed namespace: were two copies of one function visible to the
// linker, it would keep either, and a machine without AVX-512 might get the wrong one. For the same reason
// no std:: function is called here.
#pragma once

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace amphw::AMPHW_ISA {
namespace {

constexpr int W = VECTOR_WIDTH;

typedef float Floats __attribute__((vector_size(4 * W)));
typedef int32_t Ints __attribute__((vector_size(4 * W)));
typedef uint32_t Words __attribute__((vector_size(4 * W)));
// The same in memory, at any address.
typedef float FloatsAt __attribute__((vector_size(4 * W), aligned(4), may_alias));

inline Floats load(const float* p) { return *reinterpret_cast<const FloatsAt*>(p); }
inline void store(float* p, Floats v) { *reinterpret_cast<FloatsAt*>(p) = v; }

inline Floats all(float x) { return x - Floats{}; }

// Arithmetic on the bits of floats is unsigned, so that it may overflow.
inline Words bits(Floats v) { return reinterpret_cast<Words>(v); }
inline Floats from_bits(Words v) { return reinterpret_cast<Floats>(v); }
inline Ints as_ints(Words v) { return reinterpret_cast<Ints>(v); }
inline Words as_words(Ints v) { return reinterpret_cast<Words>(v); }

inline int least(int a, int b) { return a < b ? a : b; }

// 0, 1, 2, ...
inline Ints lanes() {
    Ints v;
    for (int i = 0; i < W; i++) v[i] = i;
    return v;
}

// Element i of the result is element index[i] of a and b, one behind the other. `index` should be a constant.
inline Floats shuffle(Floats a, Floats b, Ints index) {
#if defined(__clang__)
    Floats v;
    for (int i = 0; i < W; i++) v[i] = index[i] < W ? a[index[i]] : b[index[i] - W];
    return v;
#else
    return __builtin_shuffle(a, b, index);
#endif
}

// A whole vector of a row, for code that is written for it and for a Tail.
struct Whole {
    static Floats load(const float* p) { return AMPHW_ISA::load(p); }
    static void store(float* p, Floats v) { AMPHW_ISA::store(p, v); }
};

// The last vector of a row, of which only `count` lanes (0..W) exist: nothing beyond them is read or written.
struct Tail {
    int count;
#if defined(__AVX512F__)
    __mmask16 mask;
    explicit Tail(int count) : count(count), mask(__mmask16((1u << count) - 1)) {}
    Floats load(const float* p) const { return _mm512_maskz_loadu_ps(mask, p); }
    void store(float* p, Floats v) const { _mm512_mask_storeu_ps(p, mask, v); }
#elif defined(__AVX2__)
    __m256i mask;
    explicit Tail(int count) : count(count), mask((__m256i)(lanes() < count)) {}
    Floats load(const float* p) const { return _mm256_maskload_ps(p, mask); }
    void store(float* p, Floats v) const { _mm256_maskstore_ps(p, mask, v); }
#else
    explicit Tail(int count) : count(count) {}
    Floats load(const float* p) const {
        Floats v{};
        for (int i = 0; i < count; i++) v[i] = p[i];
        return v;
    }
    void store(float* p, Floats v) const {
        for (int i = 0; i < count; i++) p[i] = v[i];
    }
#endif
};

inline Floats square_root(Floats v) {
#if defined(__AVX512F__)
    return _mm512_maskz_sqrt_ps(-1, v);  // the unmasked one makes GCC 12 warn about itself
#elif defined(__AVX2__)
    return _mm256_sqrt_ps(v);
#else
    for (int i = 0; i < W; i++) v[i] = __builtin_sqrtf(v[i]);
    return v;
#endif
}

inline float sum(Floats v) {
#pragma GCC unroll 4
    for (int distance = W / 2; distance > 0; distance /= 2) v += shuffle(v, v, lanes() ^ distance);
    return v[0];
}

// Calls `body(offset, part)` for the vectors of 0..n-1: a Whole for whole ones, a Tail for what is left.
template <class Body>
inline void for_vectors(int64_t n, Body body) {
    int64_t i = 0;
    for (; i + W <= n; i += W) body(i, Whole{});
    if (i < n) body(i, Tail(int(n - i)));
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
