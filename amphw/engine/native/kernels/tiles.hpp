// The tiles that products are cut into: how large one is, and how rows and columns come to be some.
#pragma once

#include "kernels/kernels.hpp"
#include "kernels/vector.hpp"

namespace amphw::AMPHW_ISA {
namespace {

// As many accumulators as there are registers, less those for a row of B and an element of A.
#if defined(__AVX512F__)
constexpr int TILE_ROWS = 8, TILE_VECTORS = 3;
#elif defined(__AVX2__)
constexpr int TILE_ROWS = 6, TILE_VECTORS = 2;
#else
constexpr int TILE_ROWS = 4, TILE_VECTORS = 2;
#endif
constexpr int TILE_COLUMNS = TILE_VECTORS * W;
static_assert(TILE_COLUMNS % COLUMN_BLOCK == 0 || COLUMN_BLOCK % TILE_COLUMNS == 0);
constexpr int PANEL = TILE_COLUMNS < COLUMN_BLOCK ? COLUMN_BLOCK : TILE_COLUMNS;

// Columns that belong to one tile, `vectors` of them, the last of which may be incomplete.
struct TileColumns {
    int columns;
    int vectors() const { return (columns + W - 1) / W; }
    bool complete() const { return columns % W == 0; }
    Tail tail() const { return Tail(columns - (vectors() - 1) * W); }
};

// Cuts `n` rows into tiles of nearly equal height: 9 rows as 5 + 4 take less time than as 8 + 1.
struct RowTiles {
    int tiles, rows;
    explicit RowTiles(int n) : tiles((n + TILE_ROWS - 1) / TILE_ROWS), rows(n) {}
    int start(int tile) const { return int(int64_t(rows) * tile / tiles); }
};

}  // namespace
}  // namespace amphw::AMPHW_ISA
