// What the generated functions of elementwise operations need: amphw/ir/primitives/kernel_text.py says what each is.
#pragma once

#include "kernels/vector.hpp"

namespace amphw::AMPHW_ISA {
namespace {

using Real = Floats;
using Int = Ints;
using Word = Words;

template <class From>
inline Real as_Real(From v) { return reinterpret_cast<Real>(v); }
template <class From>
inline Int as_Int(From v) { return reinterpret_cast<Int>(v); }
template <class From>
inline Word as_Word(From v) { return reinterpret_cast<Word>(v); }

// p * 2^n
inline Floats scaled(Floats p, Ints n) {
#if defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(-1, p, __builtin_convertvector(n, Floats));
#else
    // In two steps, since 2^128 and 2^-150 are not floats themselves.
    const Ints half = n >> 1, rest = n - half;
    return p * from_bits((as_words(half) + 127) << 23) * from_bits((as_words(rest) + 127) << 23);
#endif
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
