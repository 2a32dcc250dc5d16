// Weight gradients: G += X' @ D, X and D being the rows of a gradient log.
#pragma once

#include "kernels/gemm.hpp"

namespace amphw::AMPHW_ISA {
namespace {

// Rows of X and D that one pass over G takes: so many that reading and writing G hardly counts, so few that the
// packed columns of D stay in the first-level cache.
constexpr int GRADIENT_ROWS = 128;
static_assert(GRADIENT_ROWS * TILE_COLUMNS <= GRADIENT_PACK);

struct TileGradient {
    const float* x;  // the tile's first column of X's first row
    int64_t ldx;
    int rows;
    const float* packed;  // D's columns, row after row
    float* g;
    int64_t g_stride;
};

template <int ROWS, int VECTORS>
void gradient_tile(const TileGradient& t) {
    Floats sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) sum[i][j] = load(t.g + i * t.g_stride + j * W);
    }
    const float* x = t.x;
    const float* d = t.packed;
    for (int k = 0; k < t.rows; k++, x += t.ldx, d += VECTORS * W) {
        Floats row[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) row[j] = load(d + j * W);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            Floats xi = all(x[i]);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++) sum[i][j] += xi * row[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) store(t.g + i * t.g_stride + j * W, sum[i][j]);
    }
}

// gradient_tile by its numbers of rows and vectors, each counted from 1.
using GradientTile = void (*)(const TileGradient&);

template <int ROWS>
constexpr GradientTile gradient_rows(int vectors) {
    if (vectors == 1) return gradient_tile<ROWS, 1>;
    if (vectors == 2) return gradient_tile<ROWS, 2>;
    return gradient_tile<ROWS, TILE_VECTORS>;
}

struct GradientTiles {
    GradientTile of[TILE_ROWS][TILE_VECTORS] = {};

    template <int ROWS>
    constexpr void fill() {
        for (int vectors = 1; vectors <= TILE_VECTORS; vectors++) {
            of[ROWS - 1][vectors - 1] = gradient_rows<ROWS>(vectors);
        }
        if constexpr (ROWS > 1) fill<ROWS - 1>();
    }
    constexpr GradientTiles() { fill<TILE_ROWS>(); }
};
constexpr GradientTiles GRADIENT_TILE;

// Copy `columns` columns of D side by side into whole vectors, with zeros behind the last column.
void pack_columns(const float* d, int64_t ldd, int rows, const TileColumns& columns, float* packed) {
    const int last = columns.vectors() - 1;
    const Tail tail = columns.tail();
    for (int k = 0; k < rows; k++, d += ldd, packed += (last + 1) * W) {
        for (int j = 0; j < last; j++) store(packed + j * W, load(d + j * W));
        store(packed + last * W, tail.load(d + last * W));
    }
}

void gradient(const float* x, int64_t ldx, int32_t x_cols, const float* d, int64_t ldd, int32_t rows, float* g,
              const Layout& layout, int32_t first_row, Range part, float* pack) {
    const RowTiles tiles(x_cols);
    for (int start = 0; start < rows; start += GRADIENT_ROWS) {
        const int count = least(GRADIENT_ROWS, rows - start);
        for (int panel = part.first; panel < part.end; panel += layout.panel) {
            const int panel_width = layout.width(panel);
            const int end = least(part.end, panel + panel_width);
            for (int column = panel; column < end; column += TILE_COLUMNS) {
                const TileColumns columns{least(TILE_COLUMNS, end - column)};
                pack_columns(d + start * ldd + column, ldd, count, columns, pack);
                float* first = g + layout.offset(first_row, column);
                for (int tile = 0; tile < tiles.tiles; tile++) {
                    const int row = tiles.start(tile);
                    const TileGradient t{x + start * ldx + row, ldx, count, pack, first + int64_t(row) * panel_width,
                                         panel_width};
                    GRADIENT_TILE.of[tiles.start(tile + 1) - row - 1][columns.vectors() - 1](t);
                }
            }
        }
    }
}

// g[column] += sum of d over the rows
void add_columns(const float* d, int64_t ldd, int32_t rows, int32_t cols, float* g) {
    constexpr int VECTORS = 8;  // at a time: neighbouring columns of a row come from memory together
    int column = 0;
    for (; column + VECTORS * W <= cols; column += VECTORS * W) {
        Floats total[VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) total[j] = load(g + column + j * W);
        for (int k = 0; k < rows; k++) {
#pragma GCC unroll 8
            for (int j = 0; j < VECTORS; j++) total[j] += load(d + k * ldd + column + j * W);
        }
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) store(g + column + j * W, total[j]);
    }
    for_vectors(cols - column, [&](int64_t j, auto part) {
        Floats total = part.load(g + column + j);
        for (int k = 0; k < rows; k++) total += part.load(d + k * ldd + column + j);
        part.store(g + column + j, total);
    });
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
