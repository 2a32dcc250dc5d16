// What happens to a parameter between gradient and use: sums, norms, the optimiser's step, the transpose.
#pragma once

#include "kernels/kernels.hpp"
#include "kernels/math.hpp"
#include "generated/steps.hpp"

namespace amphw::AMPHW_ISA {
namespace {

// The step of one optimiser on vectors: amphw.ir.update.UpdateRule.step defines it.
template <Optimizer OPTIMIZER>
void update_with(const Update& u) {
    const Step<OPTIMIZER> step(u.numbers);
    for_vectors(u.n, [&](int64_t i, auto part) {
        const Floats w = part.load(u.w + i);
        Floats g = part.load(u.g + i) * u.scale;
        part.store(u.g + i, Floats{});
        if (u.weight_decay != 0.0f) g += u.weight_decay * w;
        Floats slots[MAX_SLOTS];
        for (int s = 0; s < slots_of(OPTIMIZER); s++) slots[s] = part.load(u.slots[s] + i);
        const Floats change = step(g, slots);
        for (int s = 0; s < slots_of(OPTIMIZER); s++) part.store(u.slots[s] + i, slots[s]);
        part.store(u.out + i, w - step.rate * change);
    });
}

void update(const Update& u) {
    switch (u.optimizer) {
#define UPDATE(optimizer) case Optimizer::optimizer: return update_with<Optimizer::optimizer>(u);
        AMPHW_OPTIMIZERS(UPDATE)
#undef UPDATE
    }
}

void add(float* to, const float* from, int64_t n) {
    for_vectors(n,
                [&](int64_t i, auto part) { part.store(to + i, part.load(to + i) + part.load(from + i)); });
}

double sum_squares(const float* x, int64_t n) {
    // Half as many doubles fit into a register; a vector twice as wide becomes two of them.
    typedef double Doubles __attribute__((vector_size(8 * W)));
    Doubles total{};
    for_vectors(n, [&](int64_t i, auto part) {
        const Doubles v = __builtin_convertvector(part.load(x + i), Doubles);
        total += v * v;
    });
    double sum = 0.0;
    for (int i = 0; i < W; i++) sum += total[i];
    return sum;
}

uint32_t largest(const float* x, int64_t n) {
    // Without their sign, floats are ordered as their bit patterns are, infinity and then NaN last.
    Ints most{};
    for_vectors(n, [&](int64_t i, auto part) {
        const Ints size = as_ints(bits(part.load(x + i)) & 0x7fffffff);
        most = size > most ? size : most;
    });
    int32_t found = 0;
    for (int i = 0; i < W; i++) found = most[i] > found ? most[i] : found;
    return uint32_t(found);
}

bool finite(const float* x, int64_t n) { return largest(x, n) < NOT_FINITE; }

// Transpose W vectors of W floats in registers. Each of log2(W) rounds merges vectors i and i + W / 2,
// element by element: the perfect shuffle of a deck of W x W cards, which after all rounds has swapped
// row and column numbers.
inline void transpose_registers(Floats v[W]) {
    Ints low, high;
    for (int i = 0; i < W; i++) {
        low[i] = i / 2 + (i % 2) * W;
        high[i] = low[i] + W / 2;
    }
    Floats merged[W];
#pragma GCC unroll 4
    for (int round = 1; round < W; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < W / 2; i++) {
            merged[2 * i] = shuffle(v[i], v[i + W / 2], low);
            merged[2 * i + 1] = shuffle(v[i], v[i + W / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < W; i++) v[i] = merged[i];
    }
}

void transpose(const float* from, const Layout& from_layout, int32_t first_row, float* to, const Layout& to_layout,
               Range part) {
    // Columns are padded to a multiple of W with zeros; they and the rows that are not wanted become the padding of
    // the result.
    for (int panel = part.first; panel < part.end; panel += from_layout.panel) {
        const int64_t from_stride = from_layout.width(panel);
        const int end = panel + from_layout.width(panel);
        for (int row = 0; row < to_layout.cols_padded; row += W) {
            const int there = to_layout.cols - row;
            const int64_t to_stride = to_layout.width(row - row % to_layout.panel);
            for (int column = panel; column < end; column += W) {
                const float* source = from + from_layout.offset(first_row + row, column);
                float* target = to + to_layout.offset(column, row);
                Floats v[W];
#pragma GCC unroll 16
                for (int i = 0; i < W; i++) v[i] = i < there ? load(source + i * from_stride) : Floats{};
                transpose_registers(v);
#pragma GCC unroll 16
                for (int i = 0; i < W; i++) store(target + i * to_stride, v[i]);
            }
        }
    }
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
