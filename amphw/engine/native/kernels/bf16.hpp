// Products of bfloat16: both sides rounded to it, what is multiplied added up in float32 (amphw.ir.precision).
//
// The instruction takes pairs: in each lane of 32 bits two neighbouring elements of a row of A, in another register
// two neighbouring elements of a column of B, and adds both products to a float. So k runs in pairs. Of a matrix two
// rows lie interleaved in one row of words, the even one in the lower halves; a row of A is the sequence of its
// numbers, which is words by itself. Where the last pair has one number, the other is zero on both sides.
//
// All of it is written once. `add_products` alone depends on the instruction set: one instruction with AVX512-BF16
// (avx512bf16.cpp), elsewhere the same in two steps, with which everything around it can be tested.
#pragma once

#include "kernels/bf16_table.hpp"
#include "kernels/tiles.hpp"

namespace amphw::AMPHW_ISA {
namespace {

typedef uint32_t WordsAt __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(2 * W)));
typedef uint16_t HalvesAt __attribute__((vector_size(2 * W), aligned(2), may_alias));
typedef uint16_t HalfAt __attribute__((may_alias));  // which is read in words

constexpr uint32_t UPPER = 0xffff0000;

inline Words load(const uint32_t* p) { return *reinterpret_cast<const WordsAt*>(p); }
inline void store(uint32_t* p, Words v) { *reinterpret_cast<WordsAt*>(p) = v; }
inline Words all(uint32_t x) { return x - Words{}; }

// sum + the products of the upper halves + those of the lower ones, each a number of bfloat16.
inline Floats add_products(Floats sum, Words a, Words b) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum += from_bits(a & UPPER) * from_bits(b & UPPER);
    return sum + from_bits(a << 16) * from_bits(b << 16);
#endif
}

// The nearest numbers of bfloat16, to even where two are as near, in the upper halves; the lower ones are zero. A NaN
// stays one: rounding up might make infinity, or zero, of it.
inline Words to_bf16(Floats v) {
    const Words b = bits(v);
    const Words up = b + 0x7fff + ((b >> 16) & 1);
    return (as_ints(b & 0x7fffffff) > int32_t(NOT_FINITE) ? b | 0x400000 : up) & UPPER;
}

#if defined(__AVX512BF16__)
// The instructions take denormal numbers for zero, as the products do that read them.
inline Words interleaved(Floats lower, Floats upper) {
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)upper, (__m512)lower);
    const Words order = as_words(lanes()) * 0x10001 + 0x100000;  // 0, 16, 1, 17, ...
    return (Words)_mm512_maskz_permutexvar_epi16(-1, (__m512i)order, both);
}

inline Halves halves(Floats v) { return (Halves)_mm512_cvtneps_pbh((__m512)v); }
#else
inline Words interleaved(Floats lower, Floats upper) { return to_bf16(lower) >> 16 | to_bf16(upper); }

inline Halves halves(Floats v) { return __builtin_convertvector(to_bf16(v) >> 16, Halves); }
#endif

// --- packing --------------------------------------------------------------------------------------------------

// Bf16::pack
void pack_matrix(const float* from, const Layout& layout, uint32_t* to) {
    const Layout packed = pairs_of(layout);
    for (int panel = 0; panel < layout.cols_padded; panel += layout.panel) {
        const int width = layout.width(panel);
        for (int pair = 0; pair < packed.rows; pair++) {
            const float* lower = from + layout.offset(2 * pair, panel);
            const bool both = 2 * pair + 1 < layout.rows;
            uint32_t* target = to + packed.offset(pair, panel);
            for (int c = 0; c < width; c += W)
                store(target + c, interleaved(load(lower + c), both ? load(lower + width + c) : Floats{}));
        }
    }
}

// Bf16::round
void round_numbers(const float* from, int64_t n, float* to) {
    for_vectors(n, [&](int64_t i, auto part) { part.store(to + i, from_bits(to_bf16(part.load(from + i)))); });
}

// A row of A from its segments, behind `first` zeros (0 or 1).
void pack_row(const Gemm& g, int row, int first, HalfAt* to) {
    if (first > 0) *to++ = 0;
    for (int s = 0; s < g.segments; s++) {
        const float* from = g.a[s][row];
        const int n = g.widths[s];
        int i = 0;
        for (; i + W <= n; i += W)
            *reinterpret_cast<HalvesAt*>(to + i) = halves(load(from + i));
        const Halves rest = halves(Tail(n - i).load(from + i));
        for (int lane = 0; i < n; i++, lane++) to[i] = rest[lane];
        to += n;
    }
    *to = 0;  // the other half of the last word, or what is not read
}

// --- the inner loop -------------------------------------------------------------------------------------------

// sum[i][j] += the products of `count` pairs: word(i, k) of A with vector j of row k of B. One chain of additions for
// each element, whatever the tile's height, as in multiply_tile.
template <int ROWS, int VECTORS, class Word>
inline void add_pairs(Floats (&sum)[ROWS][VECTORS], int count, const uint32_t* b, int64_t b_stride, Word word) {
    for (int k = 0; k < count; k++, b += b_stride) {
        Words row[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) row[j] = load(b + j * W);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            const Words x = all(word(i, k));
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++) sum[i][j] = add_products(sum[i][j], x, row[j]);
        }
    }
}

// A function by its numbers of rows and vectors, each counted from 1. Make::of<ROWS, VECTORS>() is one of them.
template <class Function, class Make>
struct ByTile {
    Function of[TILE_ROWS][TILE_VECTORS] = {};

    template <int ROWS, int VECTORS>
    constexpr void fill() {
        of[ROWS - 1][VECTORS - 1] = Make::template of<ROWS, VECTORS>();
        if constexpr (VECTORS > 1) fill<ROWS, VECTORS - 1>();
        else if constexpr (ROWS > 1) fill<ROWS - 1, TILE_VECTORS>();
    }
    constexpr ByTile() { fill<TILE_ROWS, TILE_VECTORS>(); }
};

// --- rows by a matrix -----------------------------------------------------------------------------------------

struct PairProduct {
    const Gemm* g;
    const uint32_t* a;  // words of the tile's first row, from one row to the next `a_stride`
    int64_t a_stride;
    int count;          // pairs
    const uint32_t* b;  // the tile's columns of B's first pair
    int64_t b_stride;
    int row, column;  // where the tile begins
    TileColumns columns;
};

template <int ROWS, int VECTORS>
void multiply_pairs(const PairProduct& t) {
    const Gemm& g = *t.g;
    const bool complete = t.columns.complete();
    const Tail tail = t.columns.tail();
    Floats sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
        const float* start = g.start ? g.start[t.row + i] : g.bias;
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) sum[i][j] = start ? load(start + t.column + j * W) : Floats{};
    }
    const uint32_t* a[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) a[i] = t.a + i * t.a_stride;
    add_pairs<ROWS, VECTORS>(sum, t.count, t.b, t.b_stride, [&](int i, int k) { return a[i][k]; });
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
        float* c = g.c[t.row + i] + t.column;
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) {
            const Floats total = sum[i][j];
            if (complete || j + 1 < VECTORS)
                store(c + j * W, g.accumulate ? load(c + j * W) + total : total);
            else
                tail.store(c + j * W, g.accumulate ? tail.load(c + j * W) + total : total);
        }
    }
}

using MultiplyPairs = void (*)(const PairProduct&);
struct MakeMultiply {
    template <int ROWS, int VECTORS>
    static constexpr MultiplyPairs of() { return multiply_pairs<ROWS, VECTORS>; }
};
constexpr ByTile<MultiplyPairs, MakeMultiply> MULTIPLY_PAIRS;

// Bf16::gemm
void gemm_pairs(const Gemm& g, const uint32_t* b, uint32_t* room) {
    const Layout& layout = *g.layout;
    const Layout packed = pairs_of(layout);
    const int first = g.first_row % 2;  // B's pairs begin with even rows: the one before is multiplied by zero
    int depth = 0;
    for (int s = 0; s < g.segments; s++) depth += g.widths[s];
    PairProduct t{&g, nullptr, gemm_room(1, depth), (first + depth + 1) / 2, nullptr, 0, 0, 0, {0}};
    for (int r = 0; r < g.rows; r++) pack_row(g, r, first, reinterpret_cast<HalfAt*>(room + r * t.a_stride));
    const RowTiles tiles(g.rows);
    for (int panel = 0; panel < layout.cols; panel += layout.panel) {
        const int panel_width = layout.width(panel);
        const int end = least(layout.cols, panel + panel_width);
        for (int column = panel; column < end; column += TILE_COLUMNS) {
            t.column = column;
            t.columns.columns = least(TILE_COLUMNS, end - column);
            t.b = b + packed.offset(g.first_row / 2, column);
            t.b_stride = panel_width;
            for (int tile = 0; tile < tiles.tiles; tile++) {
                t.row = tiles.start(tile);
                t.a = room + t.row * t.a_stride;
                MULTIPLY_PAIRS.of[tiles.start(tile + 1) - t.row - 1][t.columns.vectors() - 1](t);
            }
        }
    }
}

// --- gradients ------------------------------------------------------------------------------------------------

struct PairGradient {
    const uint32_t* x;  // by pair of rows, the tile's columns of X
    const uint32_t* d;  // by pair of rows, the tile's columns of D
    int count;          // pairs
    float* g;
    int64_t g_stride;
};

template <int ROWS, int VECTORS>
void gradient_pairs_tile(const PairGradient& t) {
    Floats sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) sum[i][j] = load(t.g + i * t.g_stride + j * W);
    }
    add_pairs<ROWS, VECTORS>(sum, t.count, t.d, VECTORS * W, [&](int i, int k) { return t.x[k * ROWS + i]; });
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) store(t.g + i * t.g_stride + j * W, sum[i][j]);
    }
}

using GradientPairs = void (*)(const PairGradient&);
struct MakeGradient {
    template <int ROWS, int VECTORS>
    static constexpr GradientPairs of() { return gradient_pairs_tile<ROWS, VECTORS>; }
};
constexpr ByTile<GradientPairs, MakeGradient> GRADIENT_PAIRS;

// Columns of two rows after another, of which there are `rows`, interleaved: `wide` words a pair, in ascending order,
// and of the last pair as many as whole vectors have.
inline void pack_pairs(const float* from, int64_t stride, int rows, const TileColumns& columns, int wide,
                       uint32_t* to) {
    const int last = columns.vectors() - 1;
    const Tail tail = columns.tail();
    for (int k = 0; k < rows; k += 2, from += 2 * stride, to += wide) {
        const bool both = k + 1 < rows;
        for (int j = 0; j < last; j++)
            store(to + j * W, interleaved(load(from + j * W), both ? load(from + stride + j * W) : Floats{}));
        const float* rest = from + last * W;
        store(to + last * W, interleaved(tail.load(rest), both ? tail.load(rest + stride) : Floats{}));
    }
}

// Bf16::gradient. X's columns lie tile by tile, so that one tile reads them one after another.
void gradient_pairs(const float* x, int64_t ldx, int32_t x_cols, const float* d, int64_t ldd, int32_t rows, float* g,
                    const Layout& layout, int32_t first_row, uint32_t* room) {
    static_assert(TILE_ROWS <= W && TILE_COLUMNS <= BF16_COLUMNS);
    const RowTiles tiles(x_cols);
    uint32_t* packed_x = room + BF16_ROWS / 2 * BF16_COLUMNS;
    for (int start = 0; start < rows; start += BF16_ROWS) {
        const int count = least(BF16_ROWS, rows - start), pairs = (count + 1) / 2;
        for (int tile = 0; tile < tiles.tiles; tile++) {
            const int row = tiles.start(tile), height = tiles.start(tile + 1) - row;
            pack_pairs(x + start * ldx + row, ldx, count, {height}, height, packed_x + row * pairs);
        }
        for (int panel = 0; panel < layout.cols; panel += layout.panel) {
            const int panel_width = layout.width(panel);
            const int end = least(layout.cols, panel + panel_width);
            for (int column = panel; column < end; column += TILE_COLUMNS) {
                const TileColumns columns{least(TILE_COLUMNS, end - column)};
                pack_pairs(d + start * ldd + column, ldd, count, columns, columns.vectors() * W, room);
                float* first = g + layout.offset(first_row, column);
                for (int tile = 0; tile < tiles.tiles; tile++) {
                    const int row = tiles.start(tile);
                    const PairGradient t{packed_x + row * pairs, room, pairs, first + int64_t(row) * panel_width,
                                         panel_width};
                    GRADIENT_PAIRS.of[tiles.start(tile + 1) - row - 1][columns.vectors() - 1](t);
                }
            }
        }
    }
}

}  // namespace

extern const Bf16 bf16;
const Bf16 bf16 = {
#if defined(__AVX512BF16__)
    .name = "avx512bf16",
#else
    .name = "portable",
#endif
    .pack = pack_matrix,
    .gemm = gemm_pairs,
    .round = round_numbers,
    .gradient = gradient_pairs,
};

}  // namespace amphw::AMPHW_ISA
