// The kernels for AVX2 with FMA: see impl.hpp. CMakeLists.txt gives this file its instruction set.
#define AMPHW_ISA avx2
#define VECTOR_WIDTH 8
#include "kernels/impl.hpp"
