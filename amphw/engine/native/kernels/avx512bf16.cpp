// Products of bfloat16 for AVX512-BF16: see bf16.hpp. CMakeLists.txt gives this file its instruction set.
#define AMPHW_ISA avx512bf16
#define VECTOR_WIDTH 16
#include "kernels/bf16.hpp"
