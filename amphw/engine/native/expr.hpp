// State expressions, evaluated over columns: amphw.ir.expr in C++.
//
// An expression is prefix code of 64-bit integers, made by native_plane.py. Evaluation is column at a time, so
// its cost per state is a few nanoseconds. A read outside a table or a division by zero is noted for the rows
// that really take that branch of a `where`, as numpy's evaluation does by cutting columns.
#pragma once

#include <cstdint>
#include <vector>

#include "arena.hpp"
#include "generated/numbers.hpp"

namespace amphw {

// Prefix code: CONST value | FIELD column | ATTR number | TABLE number dimensions index... | op operand...
using Expr = std::vector<int64_t>;

// One structure table, converted to 64 bits. values is null where the instance lacks the table.
struct TableView {
    const int64_t* values = nullptr;
    int64_t shape[4] = {0, 0, 0, 0};
    int32_t dimensions = 0;
};

// What expressions read: an instance's attributes and tables.
struct Structure {
    std::vector<int64_t> attrs;
    std::vector<TableView> tables;
};

// Columns of one length, in an arena.
struct Columns {
    List<const int64_t*> fields;
    int64_t size = 0;

    // These and one more.
    Columns with(Arena& arena, const int64_t* column) const {
        Columns out{arena.list<const int64_t*>(fields.size() + 1), size};
        std::copy(fields.begin(), fields.end(), out.fields.begin());
        out.fields.back() = column;
        return out;
    }
};

// The result: a number that stands for a column of equal values, or a column in the arena.
struct Value {
    int64_t number = 0;
    const int64_t* column = nullptr;

    bool scalar() const { return column == nullptr; }
    int64_t at(int64_t i) const { return column == nullptr ? number : column[i]; }
};

enum class Trouble { None, Outside, DivisionByZero };

class Evaluator {
public:
    Evaluator(const Structure& structure, Arena& arena) : structure_(structure), arena_(arena) {}

    // Evaluate over all rows. With `outside`, rows that read outside a table get 0 and are marked there, and
    // `marked` is set; without it, `trouble` remembers that there was one.
    Value operator()(const Expr& e, const Columns& columns, uint8_t* outside = nullptr);

    // Of an expression that reads no columns.
    int64_t number(const Expr& e) { return (*this)(e, Columns{{}, 1}).at(0); }

    Trouble trouble = Trouble::None;
    bool marked = false;

private:
    Value evaluate(const int64_t*& code, const Columns& columns, const uint8_t* active);
    Value table(const int64_t*& code, const Columns& columns, const uint8_t* active);
    Value where(const int64_t*& code, const Columns& columns, const uint8_t* active);
    Value divide(bool rest, Value a, Value b, int64_t n, const uint8_t* active);
    void note_outside(int64_t begin, int64_t end, const uint8_t* active);

    template <class F>
    Value combine(Value a, Value b, int64_t n, F f);

    const Structure& structure_;
    Arena& arena_;
    uint8_t* outside_ = nullptr;
};

}  // namespace amphw
