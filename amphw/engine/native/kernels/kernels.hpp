// What the engine asks of the arithmetic, one table of functions for each instruction set.
//
// impl.hpp holds the code, written in vector extensions and compiled once for AVX-512, once for AVX2
// and once for whatever the compiler targets; `kernels()` picks the best that this machine runs.
#pragma once

#include <cstdint>

#include "code.hpp"
#include "generated/optimizers.hpp"

namespace amphw {

constexpr int COLUMN_BLOCK = 16;  // columns of a matrix are padded to a multiple of this, with zeros

// How a matrix [rows, cols] lies in memory: panels of `panel` columns one after another, each row-major
// [rows_padded, width of the panel]. A flat matrix is one panel as wide as the padded columns.
struct Layout {
    int32_t rows = 0, cols = 0, rows_padded = 0, cols_padded = 0, panel = 0;

    static Layout paneled(int32_t rows, int32_t cols, int32_t panel);
    static Layout flat(int32_t rows, int32_t cols);
    int64_t size() const { return int64_t(rows_padded) * cols_padded; }
    int32_t width(int32_t first_column) const;  // of the panel that starts at this column
    int64_t offset(int32_t row, int32_t column) const;
};

// first .. end - 1. Of a matrix's columns: whole panels, but that the last ends with the matrix.
struct Range {
    int32_t first, end;
};

// c[r][0..cols) (+)= a[r] @ B (+ bias or start[r]), a[r] being the segments' columns side by side.
struct Gemm {
    const float* b;     // [k, cols] in `layout`
    const Layout* layout;
    const float* bias;  // [cols padded], or null
    bool accumulate;
    int32_t segments;
    const float* const* const* a;  // a[s][r]: where segment s of row r starts
    const int32_t* widths;         // of the segments; they multiply as many rows of B, from `first_row` on
    float* const* c;               // where row r of the result starts; exactly `cols` floats are written
    int32_t rows;
    int32_t first_row = 0;
    const float* const* start = nullptr;  // start[r] [cols padded]: what row r begins with in the bias's place, or null
};

// Attention of one message: the primitives attend, attend_queries and attend_keys (amphw.ir.primitives.attention).
struct Attention {
    int32_t heads, width, value_width;  // columns of q and k, and of v, of all heads
    int32_t queries, keys;              // rows
    const float* const *q, *const *k, *const *v;
    const float* const *d, *const *numbers;  // of the gradients: that of the result, and two numbers a head
    const int64_t* seen;                // by query, how many of the first keys it looks at; null: all
    float* const* out;
    const float** from;  // scratch: as many pointers as the larger side has rows
    float** to;          // likewise
    float* room;         // scratch: room_floats()

    int64_t room_floats() const;
};

// Bit patterns of magnitudes: infinity has this one, a NaN a larger one.
constexpr uint32_t NOT_FINITE = 0x7f800000;

// One streaming pass over n floats: out = step(w, g), optimiser arrays change in place, g becomes 0.
// The rule is amphw.ir.update's; `scale` (1/rows, clipping) multiplies g first. numbers: those of this update, as
// numbers_of leaves them.
struct Update {
    Optimizer optimizer;
    int64_t n;
    const float* w;
    float* out;  // may be w
    float* g;
    float* slots[MAX_SLOTS];
    float scale, weight_decay;
    float numbers[MAX_NUMBERS];
};

struct Kernels {
    const char* name;  // "avx512", "avx2", "generic"
    int32_t panel;     // best panel width for `gemm`, a multiple of COLUMN_BLOCK

    // Run `code` on rows first .. first + rows - 1. bases[b * stride + r] is row r of base b; ints[s][r] the
    // integer slot s of row r. Returns null, or a static text saying what was wrong with an integer.
    const char* (*rows)(const Instr* code, int32_t n, float* const* bases, int64_t stride, int64_t* const* ints,
                        int32_t first, int32_t rows);
    void (*gemm)(const Gemm&);
    // Rows first_row .. first_row + x_cols - 1 of g, which lies in `layout`, += x' @ d over `rows` rows; ldx, ldd
    // in floats. Of the columns those in `part` alone. `pack`: scratch of GRADIENT_PACK floats.
    void (*gradient)(const float* x, int64_t ldx, int32_t x_cols, const float* d, int64_t ldd, int32_t rows, float* g,
                     const Layout& layout, int32_t first_row, Range part, float* pack);
    void (*add_columns)(const float* d, int64_t ldd, int32_t rows, int32_t cols, float* g);  // g += sum of rows
    // The windows of an image to the rows windows[0], windows[1], .. from column `offset` on, and their sum back to it.
    void (*patches)(const Windows&, const float* image, float* const* windows, int64_t offset);
    void (*unpatch)(const Windows&, float* const* windows, int64_t offset, float* image);
    void (*attend)(const Attention&);
    void (*attend_queries)(const Attention&);
    void (*attend_keys)(const Attention&);
    void (*add)(float* to, const float* from, int64_t n);                                    // to += from
    void (*update)(const Update&);
    double (*sum_squares)(const float* x, int64_t n);
    uint32_t (*largest)(const float* x, int64_t n);  // the largest magnitude's bit pattern
    bool (*finite)(const float* x, int64_t n);       // by bit pattern: compiler flags cannot remove it
    // `to` [cols, n] = transpose of rows first_row .. first_row + n - 1 of `from` [rows, cols]; of these columns those in
    // `part` alone.
    void (*transpose)(const float* from, const Layout& from_layout, int32_t first_row, float* to,
                      const Layout& to_layout, Range part);
};

constexpr int64_t GRADIENT_PACK = 256 * 64;

// name: one of the tables' names, or null for the best. Null where this machine cannot run it.
const Kernels* kernels(const char* name = nullptr);

}  // namespace amphw
