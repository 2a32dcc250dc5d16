// Attention of one message (amphw/ir/primitives/attention.py says what it is), head by head.
//
// Scores of all pairs lie in scratch: a product of the rows of one side with those of the other as a matrix, which is
// packed into panels for it. What then comes of the scores is multiplied by further rows that are packed so. Both
// sides take turns: for the gradients of keys and values, the keys are the rows, and the queries the matrix. All of
// it stays in the second-level cache where a message has no more than some 200 rows.
#pragma once

#include "kernels/gemm.hpp"
#include "kernels/math.hpp"
#include "generated/elementwise.hpp"
#include "kernels/update.hpp"

namespace amphw::AMPHW_ISA {
namespace {

// `columns` columns of n rows, from column `first` on, as a matrix [n, columns].
Layout pack_rows(const float* const* rows, int n, int first, int columns, float* to) {
    const Layout layout = Layout::paneled(n, columns, PANEL);
    for (int panel = 0; panel < columns; panel += PANEL) {
        const int width = layout.width(panel), have = least(width, columns - panel);
        float* at = to + layout.offset(0, panel);
        for (int r = 0; r < n; r++, at += width) {
            const float* from = rows[r] + first + panel;
            int c = 0;
            for (; c + W <= have; c += W) store(at + c, load(from + c));
            if (c == width) continue;
            store(at + c, Tail(have - c).load(from + c));
            for (c += W; c < width; c += W) store(at + c, Floats{});
        }
    }
    return layout;
}

// Likewise as its transpose [columns, n].
Layout pack_columns(const float* const* rows, int n, int first, int columns, float* to) {
    const Layout layout = Layout::paneled(columns, n, PANEL);
    for (int r = 0; r < layout.cols_padded; r += W) {
        const int width = layout.width(r - r % PANEL), have = least(W, n - r);
        float* at = to + layout.offset(0, r);
        for (int c = 0; c < columns; c += W) {
            const int wide = least(W, columns - c);
            Floats square[W];
            for (int i = 0; i < W; i++) {
                const float* from = i < have ? rows[r + i] + first + c : nullptr;
                square[i] = !from ? Floats{} : wide == W ? load(from) : Tail(wide).load(from);
            }
            transpose_registers(square);
            for (int i = 0; i < wide; i++, at += width) store(at, square[i]);
        }
    }
    return layout;
}

// Scratch for the scores of one head, and the two kinds of product that attention consists of. `rows` are those that
// something is computed for, `others` those that they are compared with.
struct Compared {
    const Attention& a;
    const int rows, others;
    const int width, value_width;  // columns of a head
    const float scale;             // of scores
    const int64_t stride;  // of a row of scores: whole vectors
    float *const scores, *const back, *const logs, *const offsets, *const pack;

    Compared(const Attention& a, int rows, int others)
        : a(a),
          rows(rows),
          others(others),
          width(a.width / a.heads),
          value_width(a.value_width / a.heads),
          scale(1.0f / __builtin_sqrtf(float(width))),
          stride((others + W - 1) / W * W),
          scores(a.room),
          back(scores + rows * stride),
          logs(back + rows * stride),
          offsets(logs + stride),
          pack(offsets + stride) {}

    float* row(float* matrix, int r) const { return matrix + r * stride; }

    // to(r) = from(r), n columns, times the matrix in `pack`.
    template <class From, class To>
    void multiply(int n, const Layout& layout, From from, To to) const {
        for (int r = 0; r < rows; r++) {
            a.from[r] = from(r);
            a.to[r] = to(r);
        }
        const float* const* const segments[] = {a.from};
        Gemm g{};
        g.b = pack;
        g.layout = &layout;
        g.segments = 1;
        g.a = segments;
        g.widths = &n;
        g.c = a.to;
        g.rows = rows;
        gemm(g);
    }

    // matrix = `columns` columns of the rows, from column `first` on, times those of the others, pair by pair.
    void compare(const float* const* mine, const float* const* theirs, int first, int columns, float* matrix) const {
        const Layout layout = pack_columns(theirs, others, first, columns, pack);
        multiply(
            columns, layout, [=](int r) { return mine[r] + first; }, [=, this](int r) { return row(matrix, r); });
    }

    // The results from column `to` on = the matrix times `columns` columns of the others, from column `first` on.
    void mix(float* matrix, const float* const* theirs, int first, int columns, int to) const {
        const Layout layout = pack_rows(theirs, others, first, columns, pack);
        multiply(
            others, layout, [=, this](int r) { return row(matrix, r); }, [=, this](int r) { return a.out[r] + to; });
    }

    // How many of the first keys a query looks at.
    int seen(int query) const {
        if (!a.seen) return a.keys;
        const int64_t n = a.seen[query];
        return n < 0 ? 0 : n < a.keys ? int(n) : a.keys;
    }
};

// The first n scores of a row become weights, the others of its `count` zeros. Returns the logarithm of what the powers
// add up to.
inline float weigh(float* scores, int n, int count, float scale) {
    Floats most = all(-__builtin_huge_valf());
    for_vectors(n, [&](int64_t j, auto part) {
        Floats x = part.load(scores + j) * scale;
        part.store(scores + j, x);
        if (n - j < W) x = lanes() < int(n - j) ? x : most;
        most = x > most ? x : most;
    });
    float top = most[0];
    for (int i = 1; i < W; i++) top = most[i] > top ? most[i] : top;
    Floats total{};
    for_vectors(n, [&](int64_t j, auto part) {
        Floats x = exp(part.load(scores + j) - top);
        if (n - j < W) x = lanes() < int(n - j) ? x : Floats{};
        part.store(scores + j, x);
        total += x;
    });
    const float whole = sum(total), share = 1.0f / whole;
    for_vectors(n, [&](int64_t j, auto part) { part.store(scores + j, part.load(scores + j) * share); });
    for (int j = n; j < count; j++) scores[j] = 0.0f;
    return top + log(all(whole))[0];
}

void attend(const Attention& a) {
    const Compared pairs(a, a.queries, a.keys);
    const int width = pairs.width, value_width = pairs.value_width;
    for (int h = 0; h < a.heads; h++) {
        pairs.compare(a.q, a.k, h * width, width, pairs.scores);
        for (int i = 0; i < a.queries; i++) {
            const int n = pairs.seen(i);
            float* const scores = pairs.row(pairs.scores, i);
            if (n == 0) {
                for (int j = 0; j < a.keys; j++) scores[j] = 0.0f;
                a.out[i][a.value_width + h] = 0.0f;
                continue;
            }
            a.out[i][a.value_width + h] = weigh(scores, n, a.keys, pairs.scale);
        }
        pairs.mix(pairs.scores, a.v, h * value_width, value_width, h * value_width);
    }
}

// Of one query and one key: its weight from the score, and the score's gradient from that of the weight.
struct ScoreGradient {
    Floats weight, score;
    ScoreGradient(Floats score, Floats back, Floats log, Floats offset, float scale)
        : weight(exp(score * scale - log)), score(weight * (back - offset) * scale) {}
};

void attend_queries(const Attention& a) {
    const Compared pairs(a, a.queries, a.keys);
    const int width = pairs.width, value_width = pairs.value_width;
    for (int h = 0; h < a.heads; h++) {
        pairs.compare(a.q, a.k, h * width, width, pairs.scores);
        pairs.compare(a.d, a.v, h * value_width, value_width, pairs.back);
        for (int i = 0; i < a.queries; i++) {
            const float *scores = pairs.row(pairs.scores, i), log = a.numbers[i][h], offset = a.numbers[i][a.heads + h];
            float* const back = pairs.row(pairs.back, i);
            const int n = pairs.seen(i);
            for_vectors(n, [&](int64_t j, auto part) {
                const ScoreGradient of(part.load(scores + j), part.load(back + j), all(log), all(offset), pairs.scale);
                part.store(back + j, of.score);
            });
            for (int j = n == 1 ? 0 : n; j < a.keys; j++) back[j] = 0.0f;  // of one key, the score decides nothing
        }
        pairs.mix(pairs.back, a.k, h * width, width, h * width);
    }
}

void attend_keys(const Attention& a) {
    const Compared pairs(a, a.keys, a.queries);
    const int width = pairs.width, value_width = pairs.value_width;
    for (int h = 0; h < a.heads; h++) {
        pairs.compare(a.k, a.q, h * width, width, pairs.scores);
        pairs.compare(a.v, a.d, h * value_width, value_width, pairs.back);
        for (int i = 0; i < a.queries; i++) {
            pairs.logs[i] = a.numbers[i][h];
            pairs.offsets[i] = a.numbers[i][a.heads + h];
        }
        for (int j = 0; j < a.keys; j++) {
            float *const scores = pairs.row(pairs.scores, j), *const back = pairs.row(pairs.back, j);
            for_vectors(a.queries, [&](int64_t i, auto part) {
                const ScoreGradient of(part.load(scores + i), part.load(back + i), part.load(pairs.logs + i),
                                      part.load(pairs.offsets + i), pairs.scale);
                part.store(scores + i, of.weight);
                part.store(back + i, of.score);
            });
            for (int i = 0; (a.seen || a.keys == 1) && i < a.queries; i++) {
                const int n = pairs.seen(i);
                if (j >= n) scores[i] = 0.0f;
                if (j >= n || n == 1) back[i] = 0.0f;
            }
        }
        pairs.mix(pairs.back, a.q, h * width, width, h * width);
        pairs.mix(pairs.scores, a.d, h * value_width, value_width, a.width + h * value_width);
    }
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
