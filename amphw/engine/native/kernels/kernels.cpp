// Where a matrix's elements lie, and which kernels this machine runs.
#include "kernels/kernels.hpp"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

#if defined(__x86_64__)
/// Which instructions the processor has whose registers the system keeps for each thread.
struct Instructions {
    bool avx2 = false, avx512 = false;
};

/// Asked of the processor itself: __builtin_cpu_supports reads a table of the compiler's runtime, and that of zig,
/// which builds the wheels, leaves it empty, also after __builtin_cpu_init.
Instructions instructions() {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return {};
    unsigned kept, above;
    __asm__("xgetbv" : "=a"(kept), "=d"(above) : "c"(0));
    constexpr unsigned ymm = 0x06, zmm = 0xe6;  // with what lies in them of narrower registers
    if ((kept & ymm) != ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
    constexpr unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const bool avx2 = (b & bit_AVX2) != 0;
    return {avx2, avx2 && (kept & zmm) == zmm && (b & wide) == wide};
}
#endif

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
#if defined(__x86_64__)
    static const Instructions processor = instructions();
#endif
    const Candidate best_first[] = {
#if defined(__x86_64__)
        {&avx512::table, processor.avx512},
        {&avx2::table, processor.avx2},
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
