// Products by a BLAS library, where a measurement on this machine found it faster than the own kernels.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"

namespace amphw {

// cblas_sgemm of a library that Python has loaded; null without one.
using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                       int lda, const float* b, int ldb, float beta, float* c, int ldc);
void set_sgemm(Sgemm sgemm);
Sgemm sgemm();

// As Kernels::gemm, for a flat matrix: c (+)= a @ b (+ bias), or a @ b' where `transposed` (then `layout` is still
// b's own, and c has layout->rows columns). `room` is scratch: the rows of a and c lie side by side there.
void blas_gemm(const Gemm& g, bool transposed, std::vector<float>& room);

// As Kernels::gradient, for a flat matrix.
void blas_gradient(const float* x, int64_t ldx, const float* d, int64_t ldd, int32_t rows, float* g,
                   const Layout& layout);

// Least seconds of one product [rows, depth] @ [depth, cols] plus a bias, gathers included, as the own kernels are
// timed; transposed: by a matrix that lies as [cols, depth], as backward. And of one gradient.
double time_blas_gemm(int32_t rows, int32_t depth, int32_t cols, int repeats, bool transposed);
double time_blas_gradient(int32_t rows, int32_t depth, int32_t cols, int repeats);

}  // namespace amphw
