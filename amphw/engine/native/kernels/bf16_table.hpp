// What the engine asks of products of bfloat16; bf16.hpp has the code.
#pragma once

#include "kernels/kernels.hpp"

namespace amphw {

// Two rows of a matrix in one: words of two numbers, the even row's in the lower half.
Layout pairs_of(const Layout& layout);

constexpr int BF16_ROWS = 128;   // of X and D that one pass over G takes, as GRADIENT_ROWS
constexpr int BF16_COLUMNS = 64;  // of D at once, at most

// Words of scratch for `gemm` with so many rows and columns of A, and for `gradient` with so many columns of X.
int64_t gemm_room(int64_t rows, int64_t depth);
int64_t gradient_room(int64_t x_cols);

struct Bf16 {
    const char* name;  // "avx512bf16", or "portable": the same in float32, slowly

    // `to`, in pairs_of(layout): the matrix rounded to bfloat16.
    void (*pack)(const float* from, const Layout& layout, uint32_t* to);
    // As Kernels::gemm, of b as `pack` has left it in the place of g.b; g.layout is the unpacked matrix's.
    void (*gemm)(const Gemm& g, const uint32_t* b, uint32_t* room);
    // The nearest numbers of bfloat16, as floats; `to` may be `from`.
    void (*round)(const float* from, int64_t n, float* to);
    // As Kernels::gradient.
    void (*gradient)(const float* x, int64_t ldx, int32_t x_cols, const float* d, int64_t ldd, int32_t rows, float* g,
                     const Layout& layout, int32_t first_row, uint32_t* room);
};

// By the name of an instruction set, as of `kernels`: what runs there in its vectors, or "avx512bf16". Null where this
// machine cannot.
const Bf16* bf16_named(const char* name);

// Those that a run with the chosen kernels uses; null where the processor lacks the instruction. AMPHW_BF16=portable
// takes the portable ones, for tests.
const Bf16* bf16_chosen();

}  // namespace amphw
