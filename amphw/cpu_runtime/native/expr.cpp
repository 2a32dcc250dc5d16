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

template <class F>
Value combine(Value a, Value b, int64_t n, F f) {
    if (a.scalar && b.scalar) {
        a.number = f(a.number, b.number);
        return a;
    }
    if (!a.scalar) {
        if (b.scalar)
            for (int64_t i = 0; i < n; i++) a.column[i] = f(a.column[i], b.number);
        else
            for (int64_t i = 0; i < n; i++) a.column[i] = f(a.column[i], b.column[i]);
        return a;
    }
    for (int64_t i = 0; i < n; i++) b.column[i] = f(a.number, b.column[i]);
    return b;
}

bool on(const std::vector<uint8_t>* active, int64_t i) { return active == nullptr || (*active)[i]; }

}  // namespace

Value Evaluator::operator()(const Expr& e, const Columns& columns, std::vector<uint8_t>* outside) {
    outside_ = outside;
    const int64_t* code = e.data();
    return evaluate(code, columns, nullptr);
}

Value Evaluator::evaluate(const int64_t*& code, const Columns& columns, const std::vector<uint8_t>* active) {
    const int64_t op = *code++;
    const int64_t n = columns.size;
    switch (op) {
        case CONST: return {true, *code++, {}};
        case FIELD: return {false, 0, *columns.fields[*code++]};
        case ATTR: return {true, structure_.attrs[*code++], {}};
        case TABLE: return table(code, columns, active);
        case WHERE: return where(code, columns, active);
        default: break;
    }
    Value a = evaluate(code, columns, active);
    Value b = evaluate(code, columns, active);
    switch (op) {
        case ADD: return combine(std::move(a), std::move(b), n, wrapped<std::plus<uint64_t>>);
        case SUB: return combine(std::move(a), std::move(b), n, wrapped<std::minus<uint64_t>>);
        case MUL: return combine(std::move(a), std::move(b), n, wrapped<std::multiplies<uint64_t>>);
        case LESS: return combine(std::move(a), std::move(b), n, [](int64_t x, int64_t y) { return int64_t(x < y); });
        case LESS_EQUAL:
            return combine(std::move(a), std::move(b), n, [](int64_t x, int64_t y) { return int64_t(x <= y); });
        case EQUAL: return combine(std::move(a), std::move(b), n, [](int64_t x, int64_t y) { return int64_t(x == y); });
        case NOT_EQUAL:
            return combine(std::move(a), std::move(b), n, [](int64_t x, int64_t y) { return int64_t(x != y); });
        case MIN: return combine(std::move(a), std::move(b), n, [](int64_t x, int64_t y) { return std::min(x, y); });
        case MAX: return combine(std::move(a), std::move(b), n, [](int64_t x, int64_t y) { return std::max(x, y); });
        case HASH: return combine(std::move(a), std::move(b), n, hash);
        default: break;
    }
    // What remains divides. Rows that do not take this branch may divide by zero.
    for (int64_t i = 0; i < (b.scalar ? 1 : n); i++) {
        int64_t& divisor = b.scalar ? b.number : b.column[i];
        if (divisor != 0) continue;
        divisor = 1;
        bool taken = !b.scalar && on(active, i);
        for (int64_t k = 0; b.scalar && k < n; k++) taken = taken || on(active, k);
        if (taken) trouble = Trouble::DivisionByZero;
    }
    if (op == FLOORDIV) return combine(std::move(a), std::move(b), n, floor_divide);
    return combine(std::move(a), std::move(b), n,
                   [](int64_t x, int64_t y) { return x - floor_divide(x, y) * y; });
}

Value Evaluator::table(const int64_t*& code, const Columns& columns, const std::vector<uint8_t>* active) {
    const TableView& view = structure_.tables[*code++];
    const int64_t dimensions = *code++;
    std::vector<Value> index;
    for (int64_t d = 0; d < dimensions; d++) index.push_back(evaluate(code, columns, active));
    bool scalar = true;
    for (const Value& i : index) scalar = scalar && i.scalar;
    Value out{scalar, 0, {}};
    if (!scalar) out.column.resize(columns.size);
    const int64_t n = scalar ? (columns.size > 0) : columns.size;
    for (int64_t i = 0; i < n; i++) {
        int64_t flat = 0;
        bool inside = view.values != nullptr;
        for (int64_t d = 0; inside && d < dimensions; d++) {
            const int64_t at = index[d].at(i);
            inside = at >= 0 && at < view.shape[d];
            flat = flat * view.shape[d] + at;
        }
        int64_t value = 0;
        if (inside) {
            value = view.values[flat];
        } else if (outside_ == nullptr) {
            bool taken = !scalar && on(active, i);
            for (int64_t k = 0; scalar && k < columns.size; k++) taken = taken || on(active, k);
            if (taken) trouble = Trouble::Outside;
        } else {
            for (int64_t k = scalar ? 0 : i; k < (scalar ? columns.size : i + 1); k++)
                if (on(active, k)) (*outside_)[k] = 1;
        }
        (scalar ? out.number : out.column[i]) = value;
    }
    return out;
}

Value Evaluator::where(const int64_t*& code, const Columns& columns, const std::vector<uint8_t>* active) {
    const int64_t n = columns.size;
    Value condition = evaluate(code, columns, active);
    std::vector<uint8_t> chosen(n);
    for (int64_t i = 0; i < n; i++) chosen[i] = condition.at(i) != 0 && on(active, i);
    Value then = evaluate(code, columns, &chosen);
    for (int64_t i = 0; i < n; i++) chosen[i] = condition.at(i) == 0 && on(active, i);
    Value otherwise = evaluate(code, columns, &chosen);
    if (condition.scalar) return condition.number != 0 ? then : otherwise;
    for (int64_t i = 0; i < n; i++) condition.column[i] = condition.column[i] != 0 ? then.at(i) : otherwise.at(i);
    return condition;
}

}  // namespace amphw
