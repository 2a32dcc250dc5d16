// Tile code: a program lowered to phases over row pointers. amphw/engine/tiles/code.py, which makes it, says what
// everything here means.
#pragma once

#include <cstdint>
#include <vector>

#include "generated/operations.hpp"

namespace amphw {

struct Base {
    Place place;
    int32_t index;
    int32_t width;      // floats
    int32_t space;      // row space, by number
    int32_t ints = -1;  // ParamRow: the integer slot
};

struct Ref {
    int32_t base = -1;
    int32_t offset = 0;
};

// d, a, b, c are rows; n the width; f a constant; i integer slots.
struct Instr {
    Op op;
    int32_t n;
    Ref d, a, b, c;
    float f = 0.0f;
    int32_t ints[MAX_INT_ARGS] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int32_t n_ints = 0;
    int64_t seed = 0;
};

struct Segment {
    Ref at;
    int32_t width;
};

// Windows of an image [height, width, channels] in one row: of size [tall, wide], `stride` pixels apart, the first
// one `padding` pixels outside. Outside there are zeros.
struct Windows {
    int32_t height = 0, width = 0, channels = 0, tall = 0, wide = 0, stride = 1, padding = 0;
};

struct Phase {
    PhaseKind kind;
    int32_t space = 0;
    std::vector<Instr> code;  // Rows
    // Gemm: matrix parameter, vector parameter added (-1: none), and whether d is added to
    int32_t param = -1;
    int32_t bias = -1;
    bool transposed = false;
    bool accumulate = false;
    int32_t start = -1;      // base whose rows are added in the bias's place
    int32_t first_row = -1;  // of W where only a part of its rows is meant, as many as a (transposed: d) has columns
    std::vector<Segment> a;
    // Gemm and the row moves
    Ref d;
    int32_t width = 0;  // columns of d
    // row moves
    Ref from;
    int32_t source = 0;
    int32_t ints = -1;
    Windows windows;            // Patches, Unpatch
    int32_t heads = 0;          // of attention, whose operands are `a`
    std::vector<int32_t> late;  // ParamRow bases that it reads, whose integers the code itself makes before
};

// Where an integer slot comes from: the unit's integer operand, or -1 where the code makes it.
struct Code {
    std::vector<Base> bases;
    std::vector<int32_t> int_operands;  // by slot
    std::vector<int32_t> int_spaces;    // by slot: row space
    std::vector<Phase> phases;
    std::vector<int32_t> int_outputs;  // integer slots of the program's integer outputs, by output; -1: a float
    // Where a tile may cut a message between rows of space 0: the rows that each space has for one of them. Else empty.
    std::vector<int32_t> factors;
};

}  // namespace amphw
