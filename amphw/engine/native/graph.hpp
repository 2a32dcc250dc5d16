// A lowered graph as the engine sees it: units, paths between them, their code. Plain data from Python.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "code.hpp"
#include "expr.hpp"

namespace amphw {

// Of one unit in one instance: rows, states and messages are numbered with 32 bits; as in plan.py.
constexpr int64_t MOST_ROWS = std::numeric_limits<int32_t>::max();

// A step on a path: a guard lets the states through for which the expression holds; an expansion repeats each
// state so many times, numbered in a new column.
struct Step {
    bool expands;
    Expr expr;

    bool operator==(const Step&) const = default;
};

struct FieldDesc {
    Expr extent;
    int64_t bound;
};

struct PathDesc {
    int32_t output, target, operand;
    std::vector<Step> steps;
    size_t shared;          // so many first steps are those of the path before
    std::vector<Expr> key;  // the target's fields over the sender's columns
    Expr member;            // position in a group; empty: none
    int32_t row_column;     // column that picks one row; -1: the whole message goes
};

struct TrapDesc {
    std::vector<Step> steps;
};

struct OperandDesc {
    int32_t width, space;
    bool needs_gradient;
    Expr rows;   // of one message
    Expr count;  // messages a firing; empty: one
    bool shared;  // all messages of a firing have one gradient row, in space 0
};

struct ValueDesc {
    int32_t width, space;
    bool is_int = false;
};

struct TermDesc {
    TermKind kind;
    int32_t param, x, d, ints;  // x, d: log buffers; ints: logged integers
    int32_t first_row;          // Matmul: of the gradient's rows, as many as x has columns
};

// What `[.. take(E, i) ..] @ W (+ b)` adds for each i: rows of the table E @ (W's rows from first_row on) (+ b), which
// code and terms number behind the unit's parameters. The other rows of W are in front of these or behind them.
struct FoldDesc {
    int32_t table, weight, first_row, bias;  // E, W and b (-1: none)
};

struct ParamDesc {
    std::string name;
    int32_t rows, cols;  // rows 0: a vector
    bool multiplied, transposed, taken;
    bool blas;  // a BLAS library multiplies
    bool bf16;  // products are of bfloat16
};

struct UnitDesc {
    std::string name;
    int32_t depth;
    std::vector<FieldDesc> fields;
    std::vector<int32_t> choices;  // of the decided fields
    std::vector<int32_t> decided;  // the outputs that decide them
    std::vector<Expr> spaces;      // rows of a firing, by space; space 0 is "rows"
    std::vector<OperandDesc> operands;
    std::vector<ValueDesc> outputs, saved;
    std::vector<std::pair<Expr, int32_t>> ints;  // integer operands and their spaces
    std::vector<PathDesc> paths;
    std::vector<TrapDesc> traps;
    int32_t labels;  // outputs that a sink reports; 0: not a sink
    bool at_once = false;  // its frames run forward and backward tile by tile (sinks.cpp): nothing saved is kept
    // sources
    bool is_source;
    std::vector<FieldDesc> emitted;
    Expr emitted_rows;
    int32_t data;  // number of the data array; -1: messages without payload
    // units with a program
    Code forward, inference, backward;
    bool has_backward, grouped;
    std::vector<ValueDesc> log_buffers;
    std::vector<std::pair<int32_t, int32_t>> log_ints;  // (integer slot of the backward code, space)
    std::vector<TermDesc> terms;
    std::vector<ParamDesc> params;
    std::vector<FoldDesc> folds;

    // Outcomes of a firing; MOST_ROWS + 1 if there are more.
    int64_t decisions() const {
        int64_t n = 1;
        for (int32_t c : choices) n = std::min(n * c, MOST_ROWS + 1);
        return n;
    }
};

struct AxiomDesc {
    std::vector<FieldDesc> over;
    Expr left, right, where;  // where may be empty
};

struct GraphDesc {
    std::vector<UnitDesc> units;
    std::vector<AxiomDesc> axioms;           // what instances are told to fulfil
    std::vector<Expr> signature;             // scalars that a plan depends on
    std::vector<int32_t> signature_tables;   // tables that a plan depends on
};

// Floats from one row of a store to the next: wide rows start on a cache line.
inline int64_t row_stride(int32_t width) { return width <= 16 ? width : (width + 15) / 16 * 16; }

}  // namespace amphw
