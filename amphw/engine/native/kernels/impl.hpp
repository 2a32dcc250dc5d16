// All kernels for one instruction set, as a table. Included by avx512.cpp and its siblings only,
// which define AMPHW_ISA and VECTOR_WIDTH; vector.hpp says why all else is hidden from the linker.
#pragma once

#include "kernels/kernels.hpp"
#include "kernels/attention.hpp"
#include "kernels/bf16.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gradient.hpp"
#include "kernels/rows.hpp"
#include "kernels/update.hpp"
#include "kernels/windows.hpp"

#define AMPHW_TEXT_(x) #x
#define AMPHW_TEXT(x) AMPHW_TEXT_(x)

namespace amphw::AMPHW_ISA {

extern const Kernels table;
const Kernels table = {
    .name = AMPHW_TEXT(AMPHW_ISA),
    .panel = PANEL,
    .rows = rows,
    .gemm = gemm,
    .gradient = gradient,
    .add_columns = add_columns,
    .patches = patches,
    .unpatch = unpatch,
    .attend = attend,
    .attend_queries = attend_queries,
    .attend_keys = attend_keys,
    .add = add,
    .update = update,
    .sum_squares = sum_squares,
    .largest = largest,
    .finite = finite,
    .transpose = transpose,
};

}  // namespace amphw::AMPHW_ISA
