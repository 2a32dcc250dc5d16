// The kernels for AVX-512: see impl.hpp. CMakeLists.txt gives this file its instruction set.
#define AMPHW_ISA avx512
#define VECTOR_WIDTH 16
#include "kernels/impl.hpp"
