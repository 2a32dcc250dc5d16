// Where a matrix's elements lie, and which kernels this machine runs.
#include "kernels/kernels.hpp"

#include <cstdlib>
#include <cstring>

namespace amphw {

namespace generic {
extern const Kernels table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

namespace {

int32_t padded(int32_t n) { return (n + COLUMN_BLOCK - 1) / COLUMN_BLOCK * COLUMN_BLOCK; }

struct Candidate {
    const Kernels* kernels;
    bool runs;
};

}  // namespace

Layout Layout::paneled(int32_t rows, int32_t cols, int32_t panel) {
    // Rows are padded like columns, so that the transpose of a matrix has the padding that it needs.
    return {rows, cols, padded(rows), padded(cols), panel};
}

Layout Layout::flat(int32_t rows, int32_t cols) { return paneled(rows, cols, padded(cols)); }

int32_t Layout::width(int32_t first_column) const {
    const int32_t left = cols_padded - first_column;
    return left < panel ? left : panel;
}

int64_t Layout::offset(int32_t row, int32_t column) const {
    const int32_t within = column % panel;
    const int32_t first = column - within;
    return int64_t(first) * rows_padded + int64_t(row) * width(first) + within;
}

const Kernels* kernels(const char* name) {
    const Candidate best_first[] = {
#if defined(__x86_64__)
        {&avx512::table, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                             __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
        {&avx2::table, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
#endif
        {&generic::table, true},
    };
    if (!name) {
        name = std::getenv("AMPHW_ISA");
        if (name && !*name) name = nullptr;
    }
    for (const Candidate& candidate : best_first) {
        if (candidate.runs && (!name || !std::strcmp(name, candidate.kernels->name)))
            return candidate.kernels;
    }
    return nullptr;
}

}  // namespace amphw
