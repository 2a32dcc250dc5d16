// State expressions, evaluated over columns: amphw.ir.expr in C++.
//
// An expression is prefix code of 64-bit integers, made by native_plane.py. Evaluation is column at a time, so
// its cost per state is a few nanoseconds. A read outside a table or a division by zero is noted for the rows
// that really take that branch of a `where`, as numpy's evaluation does by cutting columns.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace amphw {

enum ExprOp : int64_t { CONST, FIELD, ATTR, TABLE, ADD, SUB, MUL, FLOORDIV, MOD, LESS, LESS_EQUAL, EQUAL, NOT_EQUAL, MIN,
                        MAX, HASH, WHERE };

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

// Columns of one length. They may be shared with other sets of columns.
using Column = std::shared_ptr<std::vector<int64_t>>;

struct Columns {
    std::vector<Column> fields;
    int64_t size = 0;
};

// The result: a scalar stands for a column of equal values.
struct Value {
    bool scalar = true;
    int64_t number = 0;
    std::vector<int64_t> column;

    int64_t at(int64_t i) const { return scalar ? number : column[i]; }
};

enum class Trouble { None, Outside, DivisionByZero };

class Evaluator {
public:
    explicit Evaluator(const Structure& structure) : structure_(structure) {}

    // Evaluate over all rows. With `outside`, rows that read outside a table get 0 and are marked there;
    // without it, `trouble` remembers that there was one.
    Value operator()(const Expr& e, const Columns& columns, std::vector<uint8_t>* outside = nullptr);

    Trouble trouble = Trouble::None;

private:
    Value evaluate(const int64_t*& code, const Columns& columns, const std::vector<uint8_t>* active);
    Value table(const int64_t*& code, const Columns& columns, const std::vector<uint8_t>* active);
    Value where(const int64_t*& code, const Columns& columns, const std::vector<uint8_t>* active);

    const Structure& structure_;
    std::vector<uint8_t>* outside_ = nullptr;
};

}  // namespace amphw
