// The interpreter of tile code: one instruction after the other, each over a few rows.
#pragma once

#include <cmath>

#include "code.hpp"
#include "kernels/math.hpp"
#include "generated/elementwise.hpp"
#include "kernels/random.hpp"
#include "kernels/vector.hpp"

namespace amphw::AMPHW_ISA {
namespace {

// The rows that an instruction runs over.
struct Rows {
    float* const* bases;
    int64_t stride;
    int64_t* const* ints;
    int first, end;

    float* at(Ref ref, int row) const { return bases[ref.base * stride + row] + ref.offset; }
};

using Unary = Floats (*)(Floats);
using Binary = Floats (*)(Floats, Floats);
using Ternary = Floats (*)(Floats, Floats, Floats);

// d = F(a), d = F(a, b), d = F(a, b, c), element by element.
template <Unary F>
void each(const Instr& in, const Rows& rows) {
    for (int r = rows.first; r < rows.end; r++) {
        const float* a = rows.at(in.a, r);
        float* d = rows.at(in.d, r);
        for_vectors(in.n, [=](int64_t j, auto part) { part.store(d + j, F(part.load(a + j))); });
    }
}

template <Binary F>
void each(const Instr& in, const Rows& rows) {
    for (int r = rows.first; r < rows.end; r++) {
        const float *a = rows.at(in.a, r), *b = rows.at(in.b, r);
        float* d = rows.at(in.d, r);
        for_vectors(in.n,
                    [=](int64_t j, auto part) { part.store(d + j, F(part.load(a + j), part.load(b + j))); });
    }
}

template <Ternary F>
void each(const Instr& in, const Rows& rows) {
    for (int r = rows.first; r < rows.end; r++) {
        const float *a = rows.at(in.a, r), *b = rows.at(in.b, r), *c = rows.at(in.c, r);
        float* d = rows.at(in.d, r);
        for_vectors(in.n, [=](int64_t j, auto part) {
            part.store(d + j, F(part.load(a + j), part.load(b + j), part.load(c + j)));
        });
    }
}

// d = F(a, the instruction's constant)
template <Binary F>
void each_with_constant(const Instr& in, const Rows& rows) {
    const Floats f = all(in.f);
    for (int r = rows.first; r < rows.end; r++) {
        const float* a = rows.at(in.a, r);
        float* d = rows.at(in.d, r);
        for_vectors(in.n, [=](int64_t j, auto part) { part.store(d + j, F(part.load(a + j), f)); });
    }
}

// d = F(a, b[0])
template <Binary F>
void each_with_column(const Instr& in, const Rows& rows) {
    for (int r = rows.first; r < rows.end; r++) {
        const float* a = rows.at(in.a, r);
        const Floats b = all(*rows.at(in.b, r));
        float* d = rows.at(in.d, r);
        for_vectors(in.n, [=](int64_t j, auto part) { part.store(d + j, F(part.load(a + j), b)); });
    }
}

void fill(float* d, int64_t n, float x) {
    const Floats v = all(x);
    for_vectors(n, [=](int64_t j, auto part) { part.store(d + j, v); });
}

float sum_columns(const float* a, int64_t n) {
    Floats total{};
    for_vectors(n, [&](int64_t j, auto part) { total += part.load(a + j); });
    return sum(total);
}

inline float largest_lane(Floats v) {
#pragma GCC unroll 4
    for (int distance = W / 2; distance > 0; distance /= 2) v = maximum(v, shuffle(v, v, lanes() ^ distance));
    return v[0];
}

float max_columns(const float* a, int64_t n) {
    // Not the zeros behind a Tail: the last vector of a row is read again, whole, over what was read before.
    if (n < W) {
        float most = a[0];
        for (int64_t j = 1; j < n; j++) most = a[j] > most || a[j] != a[j] ? a[j] : most;
        return most;
    }
    Floats most = load(a);
    for (int64_t j = W; j + W <= n; j += W) most = maximum(most, load(a + j));
    return largest_lane(maximum(most, load(a + n - W)));
}

// A NaN counts as largest, as in numpy.
int64_t argmax(const float* a, int64_t n) {
    const float most = max_columns(a, n);
    constexpr int64_t BLOCK = 8 * W;  // is looked through column by column once it has what is looked for
    int64_t j = 0;
    for (; j + BLOCK <= n; j += BLOCK) {
        Ints found{};
#pragma GCC unroll 8
        for (int64_t k = j; k < j + BLOCK; k += W) {
            const Floats x = load(a + k);
            found |= (x == most) | (x != x);
        }
        int32_t any = 0;
        for (int i = 0; i < W; i++) any |= found[i];
        if (any) break;
    }
    for (; j < n; j++) {
        if (a[j] == most || a[j] != a[j]) return j;
    }
    return 0;
}

void dropout(const Instr& in, const Rows& rows) {
    const Floats scale = all(float(1.0 / (1.0 - double(in.f))));
    for (int r = rows.first; r < rows.end; r++) {
        const float* a = rows.at(in.a, r);
        float* d = rows.at(in.d, r);
        const uint32_t word = chain(rows.ints, in, r);
        for_vectors(in.n, [&](int64_t j, auto part) {
            part.store(d + j, part.load(a + j) * keep(word, uint32_t(in.seed), j, in.f) * scale);
        });
    }
}

void uniform(const Instr& in, const Rows& rows) {
    for (int r = rows.first; r < rows.end; r++) {
        float* d = rows.at(in.d, r);
        const uint32_t word = chain(rows.ints, in, r);
        for_vectors(in.n, [&](int64_t j, auto part) { part.store(d + j, uniform(word, uint32_t(in.seed), j)); });
    }
}

// Operations on a number or an integer of each row. Returns null or what was wrong.
const char* run_scalars(const Instr& in, const Rows& rows) {
    for (int r = rows.first; r < rows.end; r++) {
        float* d = in.d.base >= 0 ? rows.at(in.d, r) : nullptr;
        const float* a = in.a.base >= 0 ? rows.at(in.a, r) : nullptr;
        const auto integer = [&](int i) -> int64_t& { return rows.ints[in.ints[i]][r]; };
        switch (in.op) {
            case Op::SumCols: *d = sum_columns(a, in.n); break;
            case Op::MaxCols: *d = max_columns(a, in.n); break;
            case Op::SpreadCols: fill(d, in.n, *a); break;
            case Op::Pick:
                if (integer(0) < 0 || integer(0) >= in.n)
                    return "pick: a column number is outside its operand";
                *d = a[integer(0)];
                break;
            case Op::Place: {
                if (integer(0) < 0 || integer(0) >= in.n)
                    return "place: a column number is outside the result";
                const float placed = *a;
                fill(d, in.n, 0.0f);
                d[integer(0)] = placed;
                break;
            }
            case Op::AddAt: {
                if (integer(0) < 0 || integer(0) >= in.n)
                    return "place: a column number is outside the result";
                const float added = *rows.at(in.b, r);
                if (d != a) for_vectors(in.n, [=](int64_t j, auto part) { part.store(d + j, part.load(a + j)); });
                d[integer(0)] += added;
                break;
            }
            case Op::Argmax: integer(0) = argmax(a, in.n); break;
            case Op::Above: integer(0) = *a > in.f; break;
            case Op::ToInt:
                // A number that is not one (a NaN) is no magnitude either.
                if (!(std::fabs(*a) <= 0x1p24f) || *a != std::rint(*a))
                    return "to_int: an index is no whole number";
                integer(0) = int64_t(*a);
                break;
            case Op::ToFloat: *d = float(integer(0)); break;
            case Op::SameInt: *d = integer(0) == integer(1); break;
            case Op::SaveInt: __builtin_memcpy(d, &integer(0), sizeof(int64_t)); break;
            case Op::LoadInt: __builtin_memcpy(&integer(0), a, sizeof(int64_t)); break;
            default: return "tile code: unknown operation";
        }
    }
    return nullptr;
}

void fill_rows(const Instr& in, const Rows& rows) {
    for (int r = rows.first; r < rows.end; r++) fill(rows.at(in.d, r), in.n, in.f);
}

inline Floats copy(Floats a) { return a; }

const char* run(const Instr& in, const Rows& rows) {
    switch (in.op) {
#define EACH(op, function) case Op::op: each<function>(in, rows); break;
#define EACH_WITH_CONSTANT(op, function) case Op::op: each_with_constant<function>(in, rows); break;
#define EACH_WITH_COLUMN(op, function) case Op::op: each_with_column<function>(in, rows); break;
        AMPHW_ELEMENTWISE(EACH)
        AMPHW_WITH_CONSTANT(EACH_WITH_CONSTANT)
        AMPHW_BY_COLUMN(EACH_WITH_COLUMN)
#undef EACH
#undef EACH_WITH_CONSTANT
#undef EACH_WITH_COLUMN
        case Op::Mov: each<copy>(in, rows); break;
        case Op::Fill: fill_rows(in, rows); break;
        case Op::Dropout: dropout(in, rows); break;
        case Op::Uniform: uniform(in, rows); break;
        default: return run_scalars(in, rows);
    }
    return nullptr;
}

// Kernels::rows. Instruction after instruction over as many rows as stay in the first-level cache together.
const char* rows(const Instr* code, int32_t n, float* const* bases, int64_t stride, int64_t* const* ints,
                 int32_t first, int32_t count) {
    constexpr int FLOATS_AT_ONCE = 1024;
    int widest = 1;
    for (int i = 0; i < n; i++) widest = code[i].n > widest ? code[i].n : widest;
    const int step = widest < FLOATS_AT_ONCE ? FLOATS_AT_ONCE / widest : 1;
    for (int start = first; start < first + count; start += step) {
        const Rows some{bases, stride, ints, start, least(start + step, first + count)};
        for (int i = 0; i < n; i++) {
            if (const char* error = run(code[i], some)) return error;
        }
    }
    return nullptr;
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
