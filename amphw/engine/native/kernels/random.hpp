// Random numbers: Philox-2x32-10, bit for bit as in amphw/ir/rng.py, which says what it is.
#pragma once

#include "code.hpp"
#include "kernels/vector.hpp"

namespace amphw::AMPHW_ISA {
namespace {

constexpr uint32_t PHILOX_MULTIPLIER = 0xD256D193, PHILOX_WEYL = 0x9E3779B9, COLUMN_KEY = 0x5BD1E995;
constexpr int PHILOX_ROUNDS = 10;

typedef uint64_t Products __attribute__((vector_size(4 * W)));

// The 64 bits of the product of each even lane.
inline Products multiply_even(Words words, uint32_t by) {
#if defined(__AVX512F__)
    return reinterpret_cast<Products>(
        _mm512_maskz_mul_epu32(-1, reinterpret_cast<__m512i>(words), _mm512_set1_epi64(by)));
#elif defined(__AVX2__)
    return reinterpret_cast<Products>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(words), _mm256_set1_epi64x(by)));
#else
    Products products;
    for (int i = 0; i < W / 2; i++) products[i] = uint64_t(words[2 * i]) * by;
    return products;
#endif
}

// The low words of W encrypted counters (low, high).
inline Words philox(Words low, Words high, uint32_t key) {
    for (int round = 0; round < PHILOX_ROUNDS; round++, key += PHILOX_WEYL) {
        const Products even = multiply_even(low, PHILOX_MULTIPLIER);
        const Words moved = reinterpret_cast<Words>(reinterpret_cast<Products>(low) >> 32);
        const Products odd = multiply_even(moved, PHILOX_MULTIPLIER);
        const Words product_high = reinterpret_cast<Words>((even >> 32) | (odd & 0xFFFFFFFF00000000));
        const Words product_low = reinterpret_cast<Words>((even & 0xFFFFFFFF) | (odd << 32));
        low = product_high ^ key ^ high;
        high = product_low;
    }
    return low;
}

inline uint32_t philox(uint32_t low, uint32_t high, uint32_t key) {
    for (int round = 0; round < PHILOX_ROUNDS; round++, key += PHILOX_WEYL) {
        const uint64_t product = uint64_t(low) * PHILOX_MULTIPLIER;
        low = uint32_t(product >> 32) ^ key ^ high;
        high = uint32_t(product);
    }
    return low;
}

// A row's integers as one word.
inline uint32_t chain(int64_t* const* ints, const Instr& in, int row) {
    uint32_t word = 0;
    for (int i = 0; i < in.n_ints; i++)
        word = philox(uint32_t(ints[in.ints[i]][row]), word, uint32_t(in.seed));
    return word;
}

// W columns of a row's uniform numbers, from `first_column` on.
inline Floats uniform(uint32_t row_word, uint32_t seed, int64_t first_column) {
    const Words columns = as_words(lanes() + int32_t(first_column));
    const Words drawn = philox(columns, row_word - Words{}, seed ^ COLUMN_KEY);
    return __builtin_convertvector(as_ints(drawn >> 8), Floats) * 0x1p-24f;
}

// W columns of a row's dropout mask: 1 where the element is kept.
inline Floats keep(uint32_t row_word, uint32_t seed, int64_t first_column, float rate) {
    return uniform(row_word, seed, first_column) >= rate ? all(1.0f) : Floats{};
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
