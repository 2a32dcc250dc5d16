#include "expr.hpp"

#include <algorithm>
#include <functional>

namespace amphw {
namespace {

// Python's rounding: towards minus infinity.
int64_t floor_divide(int64_t a, int64_t b) {
    int64_t q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

// murmur3's finaliser on 32 bits; the same steps as amphw.ir.expr.
int64_t hash(int64_t a, int64_t seed) {
    uint32_t h = uint32_t(a) + uint32_t(seed) * 0x9E3779B9u;
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    return h ^ (h >> 16);
}

// Overflow wraps, as numpy's does.
template <class F>
int64_t wrapped(int64_t a, int64_t b) {
    return int64_t(F()(uint64_t(a), uint64_t(b)));
}

bool on(const uint8_t* active, int64_t i) { return active == nullptr || active[i]; }

}  // namespace

Value Evaluator::operator()(const Expr& e, const Columns& columns, uint8_t* outside) {
    outside_ = outside;
    marked = false;
    const int64_t* code = e.data();
    return evaluate(code, columns, nullptr);
}

template <class F>
Value Evaluator::combine(Value a, Value b, int64_t n, F f) {
    if (a.scalar() && b.scalar()) return {f(a.number, b.number)};
    const List<int64_t> out = arena_.list<int64_t>(n);
    if (a.scalar())
        for (int64_t i = 0; i < n; i++) out[i] = f(a.number, b.column[i]);
    else if (b.scalar())
        for (int64_t i = 0; i < n; i++) out[i] = f(a.column[i], b.number);
    else
        for (int64_t i = 0; i < n; i++) out[i] = f(a.column[i], b.column[i]);
    return {0, out.values};
}

Value Evaluator::evaluate(const int64_t*& code, const Columns& columns, const uint8_t* active) {
    const int64_t op = *code++;
    const int64_t n = columns.size;
    switch (op) {
        case CONST: return {*code++};
        case FIELD: return {0, columns.fields[*code++]};
        case ATTR: return {structure_.attrs[*code++]};
        case TABLE: return table(code, columns, active);
        case WHERE: return where(code, columns, active);
        default: break;
    }
    const Value a = evaluate(code, columns, active);
    const Value b = evaluate(code, columns, active);
    switch (op) {
        case ADD: return combine(a, b, n, wrapped<std::plus<uint64_t>>);
        case SUB: return combine(a, b, n, wrapped<std::minus<uint64_t>>);
        case MUL: return combine(a, b, n, wrapped<std::multiplies<uint64_t>>);
        case LESS: return combine(a, b, n, [](int64_t x, int64_t y) { return int64_t(x < y); });
        case LESS_EQUAL: return combine(a, b, n, [](int64_t x, int64_t y) { return int64_t(x <= y); });
        case EQUAL: return combine(a, b, n, [](int64_t x, int64_t y) { return int64_t(x == y); });
        case NOT_EQUAL: return combine(a, b, n, [](int64_t x, int64_t y) { return int64_t(x != y); });
        case MIN: return combine(a, b, n, [](int64_t x, int64_t y) { return std::min(x, y); });
        case MAX: return combine(a, b, n, [](int64_t x, int64_t y) { return std::max(x, y); });
        case HASH: return combine(a, b, n, hash);
        default: return divide(op == MOD, a, b, n, active);
    }
}

// Rows that do not take this branch may divide by zero.
Value Evaluator::divide(bool rest, Value a, Value b, int64_t n, const uint8_t* active) {
    for (int64_t i = 0; i < n; i++)
        if (b.at(i) == 0 && on(active, i)) trouble = Trouble::DivisionByZero;
    const auto safe = [](int64_t y) { return y == 0 ? 1 : y; };
    if (!rest) return combine(a, b, n, [&](int64_t x, int64_t y) { return floor_divide(x, safe(y)); });
    return combine(a, b, n, [&](int64_t x, int64_t y) { return x - floor_divide(x, safe(y)) * safe(y); });
}

Value Evaluator::table(const int64_t*& code, const Columns& columns, const uint8_t* active) {
    const TableView& view = structure_.tables[*code++];
    const int64_t dimensions = *code++;
    Value index[4];
    bool scalar = true;
    for (int64_t d = 0; d < dimensions; d++) {
        index[d] = evaluate(code, columns, active);
        scalar = scalar && index[d].scalar();
    }
    const int64_t n = scalar ? (columns.size > 0) : columns.size;
    const List<int64_t> out = arena_.list<int64_t>(std::max<int64_t>(n, 1));
    out[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t flat = 0;  // may wrap where an index is outside
        bool inside = view.values != nullptr;
        for (int64_t d = 0; d < dimensions; d++) {
            const int64_t at = index[d].at(i);
            inside = inside && at >= 0 && at < view.shape[d];
            flat = flat * uint64_t(view.shape[d]) + uint64_t(at);
        }
        out[i] = inside ? view.values[flat] : 0;
        if (!inside) note_outside(i, scalar ? columns.size : i + 1, active);
    }
    return scalar ? Value{out[0]} : Value{0, out.values};
}

void Evaluator::note_outside(int64_t begin, int64_t end, const uint8_t* active) {
    for (int64_t i = begin; i < end; i++) {
        if (!on(active, i)) continue;
        marked = true;
        if (outside_ == nullptr)
            trouble = Trouble::Outside;
        else
            outside_[i] = 1;
    }
}

Value Evaluator::where(const int64_t*& code, const Columns& columns, const uint8_t* active) {
    const int64_t n = columns.size;
    const Value condition = evaluate(code, columns, active);
    const List<uint8_t> chosen = arena_.list<uint8_t>(n);
    for (int64_t i = 0; i < n; i++) chosen[i] = condition.at(i) != 0 && on(active, i);
    const Value then = evaluate(code, columns, chosen.values);
    for (int64_t i = 0; i < n; i++) chosen[i] = condition.at(i) == 0 && on(active, i);
    const Value otherwise = evaluate(code, columns, chosen.values);
    if (condition.scalar()) return condition.number != 0 ? then : otherwise;
    const List<int64_t> out = arena_.list<int64_t>(n);
    for (int64_t i = 0; i < n; i++) out[i] = condition.column[i] != 0 ? then.at(i) : otherwise.at(i);
    return {0, out.values};
}

}  // namespace amphw
