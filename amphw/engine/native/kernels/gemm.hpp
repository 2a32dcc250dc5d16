// Products of few rows with a matrix: C (+)= A @ B (+ bias, or a row for each row of C).
//
// A frame has 1 to about 128 rows, too few for a BLAS library to copy and rearrange its operands. Here
// nothing is copied: rows of A and C are found by pointers, so that gathers and concatenations are free,
// and B lies in panels as wide as a *tile* of C. A tile of TILE_ROWS rows of TILE_VECTORS vectors stays in
// registers while k runs. Of one to three rows, several tiles do, side by side.
#pragma once

#include "kernels/kernels.hpp"
#include "kernels/tiles.hpp"

namespace amphw::AMPHW_ISA {
namespace {

struct TileProduct {
    const float* const* const* a;  // as in Gemm
    const int32_t* widths;
    int segments;
    int row;         // first row of the tile
    const float* b;  // its columns of B's first row
    int64_t b_stride;
    int64_t b_step;  // from there to the columns of the next tile, where several lie side by side
    const float* bias;         // its columns, or null
    const float* const* start;  // as in Gemm
    bool accumulate;
    float* const* c;  // rows of C
    int column;       // first column of the tile
    TileColumns columns;
};

template <int ROWS, int VECTORS, int TILES = 1>
void multiply_tile(const TileProduct& t) {
    // One chain of additions for each element, whatever the tile's height: a row's result must not depend on how
    // many rows come with it. So what hides the additions' latency is other elements: further rows, or, of few rows,
    // the columns of further tiles.
    constexpr int ALL = TILES * VECTORS;
    Floats sum[ROWS][ALL];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
        const float* start = t.start ? t.start[t.row + i] + t.column : t.bias;
#pragma GCC unroll 12
        for (int j = 0; j < ALL; j++) sum[i][j] = start ? load(start + j * W) : Floats{};
    }
    // The results' rows have left the near caches since they were written last: they come back while k runs.
    constexpr int LINE = 16;  // floats
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < ALL * W; j += LINE) __builtin_prefetch(t.c[t.row + i] + t.column + j, 1);
    }
    const float* b = t.b;
    for (int s = 0; s < t.segments; s++) {
        const float* a[ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) a[i] = t.a[s][t.row + i];
        const int width = t.widths[s];
        for (int k = 0; k < width; k++, b += t.b_stride) {
            Floats row[ALL];
#pragma GCC unroll 12
            for (int j = 0; j < ALL; j++) row[j] = load(b + j / VECTORS * t.b_step + j % VECTORS * W);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++) {
                Floats x = all(a[i][k]);
#pragma GCC unroll 12
                for (int j = 0; j < ALL; j++) sum[i][j] += x * row[j];
            }
        }
    }
    const bool complete = t.columns.complete();
    const Tail tail = t.columns.tail();
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
        float* c = t.c[t.row + i] + t.column;
#pragma GCC unroll 12
        for (int j = 0; j < ALL; j++) {
            const Floats total = sum[i][j];
            if (complete || j + 1 < ALL) {
                store(c + j * W, t.accumulate ? load(c + j * W) + total : total);
            } else {
                tail.store(c + j * W, t.accumulate ? tail.load(c + j * W) + total : total);
            }
        }
    }
}

// multiply_tile by its numbers of rows and vectors, each counted from 1.
using MultiplyTile = void (*)(const TileProduct&);

template <int ROWS>
constexpr MultiplyTile multiply_rows(int vectors) {
    if (vectors == 1) return multiply_tile<ROWS, 1>;
    if (vectors == 2) return multiply_tile<ROWS, 2>;
    return multiply_tile<ROWS, TILE_VECTORS>;
}

struct MultiplyTiles {
    MultiplyTile of[TILE_ROWS][TILE_VECTORS] = {};

    template <int ROWS>
    constexpr void fill() {
        for (int vectors = 1; vectors <= TILE_VECTORS; vectors++) {
            of[ROWS - 1][vectors - 1] = multiply_rows<ROWS>(vectors);
        }
        if constexpr (ROWS > 1) fill<ROWS - 1>();
    }
    constexpr MultiplyTiles() { fill<TILE_ROWS>(); }
};
constexpr MultiplyTiles MULTIPLY_TILE;

// Tiles of so many rows that lie side by side: as many as give work to both multipliers while an addition takes its
// four cycles, and no more than there are registers for.
constexpr int side_by_side(int rows) { return 12 / (rows * TILE_VECTORS); }
constexpr int FEW = 3;  // of more rows, a tile has work enough

constexpr MultiplyTile MULTIPLY_FEW[FEW] = {
    multiply_tile<1, TILE_VECTORS, side_by_side(1)>,
    multiply_tile<2, TILE_VECTORS, side_by_side(2)>,
    multiply_tile<3, TILE_VECTORS, side_by_side(3)>,
};

void gemm(const Gemm& g) {
    const Layout& layout = *g.layout;
    const RowTiles tiles(g.rows);
    TileProduct t{g.a, g.widths, g.segments, 0, nullptr, 0, 0, nullptr, g.start, g.accumulate, g.c, 0, {0}};
    const bool even = layout.panel == TILE_COLUMNS || layout.panel >= layout.cols;  // from a tile to the next
    const int beside = g.rows >= 1 && g.rows <= FEW && even ? side_by_side(g.rows) : 1;
    int width = 0;
    for (int column = 0; column < layout.cols; column += width) {
        const int panel = column - column % layout.panel, panel_width = layout.width(panel);
        width = least(TILE_COLUMNS, least(layout.cols, panel + panel_width) - column);
        t.column = column;
        t.columns.columns = width;
        t.b = g.b + layout.offset(g.first_row, column);
        t.b_stride = panel_width;
        t.bias = g.bias ? g.bias + column : nullptr;
        if (beside > 1 && column + beside * TILE_COLUMNS <= layout.cols) {
            t.b_step = layout.offset(g.first_row, column + TILE_COLUMNS) - layout.offset(g.first_row, column);
            width = beside * TILE_COLUMNS;
            MULTIPLY_FEW[g.rows - 1](t);
            continue;
        }
        for (int tile = 0; tile < tiles.tiles; tile++) {
            t.row = tiles.start(tile);
            MULTIPLY_TILE.of[tiles.start(tile + 1) - t.row - 1][t.columns.vectors() - 1](t);
        }
    }
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
