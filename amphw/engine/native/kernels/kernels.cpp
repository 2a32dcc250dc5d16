// Where a matrix's elements lie, and which kernels this machine runs.
#include "kernels/bf16_table.hpp"
#include "kernels/kernels.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace amphw {

namespace generic {
extern const Kernels table;
extern const Bf16 bf16;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels table;
extern const Bf16 bf16;
}
namespace avx512 {
extern const Kernels table;
extern const Bf16 bf16;
}
namespace avx512bf16 {
extern const Bf16 bf16;
}
#endif

namespace {

int32_t padded(int32_t n) { return (n + COLUMN_BLOCK - 1) / COLUMN_BLOCK * COLUMN_BLOCK; }

struct Candidate {
    const Kernels* kernels;
    const Bf16* portable;
    bool runs;
};

#if defined(__x86_64__)
/// Which instructions the processor has whose registers the system keeps for each thread.
struct Instructions {
    bool avx2 = false, avx512 = false, avx512bf16 = false;
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
    const bool avx2 = (b & bit_AVX2) != 0, avx512 = avx2 && (kept & zmm) == zmm && (b & wide) == wide;
    constexpr unsigned bf16 = 1u << 5;  // of subleaf 1; a is the last subleaf that there is
    const bool more = a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d);
    return {avx2, avx512, avx512 && more && (a & bf16) != 0};
}

const Instructions& processor() {
    static const Instructions found = instructions();
    return found;
}
#endif

const char* set_in(const char* variable) {
    const char* value = std::getenv(variable);
    return value && *value ? value : nullptr;
}

// By name, or the best for null; null where this machine does not run it.
const Candidate* candidate(const char* name) {
    static const Candidate best_first[] = {
#if defined(__x86_64__)
        {&avx512::table, &avx512::bf16, processor().avx512},
        {&avx2::table, &avx2::bf16, processor().avx2},
#endif
        {&generic::table, &generic::bf16, true},
    };
    for (const Candidate& each : best_first) {
        if (each.runs && (!name || !std::strcmp(name, each.kernels->name))) return &each;
    }
    return nullptr;
}

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

int64_t Attention::room_floats() const {
    const int64_t q = padded(queries), k = padded(keys);
    // Two matrices of scores, in either orientation; two numbers for each query; and one side, packed as a matrix.
    return 2 * q * k + 2 * std::max(q, k) + std::max(q, k) * padded(std::max(width, value_width) / heads);
}

const Kernels* kernels(const char* name) {
    const Candidate* found = candidate(name ? name : set_in("AMPHW_ISA"));
    return found ? found->kernels : nullptr;
}

Layout pairs_of(const Layout& layout) {
    const int32_t rows = (layout.rows + 1) / 2;
    return {rows, layout.cols, rows, layout.cols_padded, layout.panel};
}

int64_t gemm_room(int64_t rows, int64_t depth) {
    return rows * ((depth + 3) / 2);  // with a number in front of a row and one behind it
}

int64_t gradient_room(int64_t x_cols) {
    return BF16_ROWS / 2 * (BF16_COLUMNS + x_cols) + BF16_COLUMNS;  // whole vectors at the end
}

const Bf16* bf16_named(const char* name) {
#if defined(__x86_64__)
    if (!std::strcmp(name, avx512bf16::bf16.name)) return processor().avx512bf16 ? &avx512bf16::bf16 : nullptr;
#endif
    const Candidate* found = candidate(name);
    return found ? found->portable : nullptr;
}

const Bf16* bf16_chosen() {
    const Candidate* found = candidate(set_in("AMPHW_ISA"));
    if (!found) return nullptr;
    const char* asked = set_in("AMPHW_BF16");
    if (asked && !std::strcmp(asked, found->portable->name)) return found->portable;
#if defined(__x86_64__)
    if (found->kernels == &avx512::table && processor().avx512bf16) return &avx512bf16::bf16;
#endif
    return nullptr;
}

}  // namespace amphw
