#include "kernels/blas.hpp"

#include <algorithm>
#include <cstring>

#include "memory.hpp"
#include "timing.hpp"

namespace amphw {
namespace {

constexpr int ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112;

Sgemm library = nullptr;

}  // namespace

void set_sgemm(Sgemm sgemm) { library = sgemm; }
Sgemm sgemm() { return library; }

void blas_gemm(const Gemm& g, bool transposed, std::vector<float>& room) {
    const Layout& layout = *g.layout;
    const int32_t depth = transposed ? layout.cols : layout.rows, cols = transposed ? layout.rows : layout.cols;
    room.resize(std::max(room.size(), size_t(g.rows) * (depth + cols)));
    float* a = room.data();
    float* c = a + size_t(g.rows) * depth;
    for (int32_t r = 0; r < g.rows; r++) {
        float* to = a + size_t(r) * depth;
        for (int32_t s = 0; s < g.segments; to += g.widths[s++])
            std::memcpy(to, g.a[s][r], size_t(g.widths[s]) * sizeof(float));
    }
    library(ROW_MAJOR, AS_IT_IS, transposed ? TRANSPOSED : AS_IT_IS, g.rows, cols, depth, 1.0f, a, depth, g.b,
            layout.cols_padded, 0.0f, c, cols);
    for (int32_t r = 0; r < g.rows; r++) {
        const float* from = c + size_t(r) * cols;
        if (!g.accumulate && g.bias == nullptr) {
            std::memcpy(g.c[r], from, size_t(cols) * sizeof(float));
            continue;
        }
        for (int32_t j = 0; j < cols; j++)
            g.c[r][j] = from[j] + (g.accumulate ? g.c[r][j] : 0.0f) + (g.bias ? g.bias[j] : 0.0f);
    }
}

void blas_gradient(const float* x, int64_t ldx, const float* d, int64_t ldd, int32_t rows, float* g,
                   const Layout& layout) {
    library(ROW_MAJOR, TRANSPOSED, AS_IT_IS, layout.rows, layout.cols, rows, 1.0f, x, int(ldx), d, int(ldd), 1.0f, g,
            layout.cols_padded);
}

double time_blas_gemm(int32_t rows, int32_t depth, int32_t cols, int repeats, bool transposed) {
    const Layout layout = transposed ? Layout::flat(cols, depth) : Layout::flat(depth, cols);
    const Block a = float_block(int64_t(rows) * depth), b = float_block(layout.size()),
                c = float_block(int64_t(rows) * cols), bias = float_block(cols);
    fill(a.floats(), int64_t(rows) * depth);
    fill(b.floats(), layout.size());
    std::vector<const float*> from;
    std::vector<float*> to;
    for (int32_t r = 0; r < rows; r++) {
        from.push_back(a.floats() + int64_t(r) * depth);
        to.push_back(c.floats() + int64_t(r) * cols);
    }
    const float* const* segments[1] = {from.data()};
    Gemm g{};
    g.b = b.floats();
    g.layout = &layout;
    g.bias = bias.floats();
    g.segments = 1;
    g.a = segments;
    g.widths = &depth;
    g.c = to.data();
    g.rows = rows;
    std::vector<float> room;
    return best_seconds(repeats, [&] { blas_gemm(g, transposed, room); });
}

double time_blas_gradient(int32_t rows, int32_t depth, int32_t cols, int repeats) {
    const Layout layout = Layout::flat(depth, cols);
    const Block x = float_block(int64_t(rows) * depth), d = float_block(int64_t(rows) * cols),
                g = float_block(layout.size());
    fill(x.floats(), int64_t(rows) * depth);
    fill(d.floats(), int64_t(rows) * cols);
    return best_seconds(repeats,
                        [&] { blas_gradient(x.floats(), depth, d.floats(), cols, rows, g.floats(), layout); });
}

}  // namespace amphw
