// The kernels for any machine, in vectors of four floats (SSE2, NEON): see impl.hpp.
#define AMPHW_ISA generic
#define VECTOR_WIDTH 4
#include "kernels/impl.hpp"
