// Tile code: a program lowered to phases over row pointers. See amphw/engine/tile_code.py, which makes it.
//
// A *base* is a list of row pointers, one for each row of a tile; everything that a program touches is one:
// an operand's rows (a gather is a pointer), stores of outputs and residuals, gradient rows, rows of the
// gradient log, scratch, parameter rows. An instruction names its operands as (base, column offset), so
// slices and concatenations cost nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace amphw {

enum class Place : int32_t {
    Operand,         // rows of in-port `index`, wherever their sender stored them
    Output,          // rows of the program's output `index`
    Saved,           // rows of residual value `index`
    InputGradient,   // gradient rows of in-port `index`
    OutputGradient,  // gradient of output `index`, summed over what came back
    Log,             // rows of gradient-log buffer `index`
    Scratch,         // rows that live for one tile
    Constant,        // a row of `index` (0 or 1) in every column
    Param,           // vector parameter `index`, the same row for all
    ParamRow,        // row of table `index`, a parameter or a folded one, chosen by integer slot `ints`
};

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
enum class Op : int32_t {
    Mov,          // d = a
    Fill,         // d = f
    Add,          // d = a + b
    Sub,          // d = a - b
    Mul,          // d = a * b
    Div,          // d = a / b
    Scale,        // d = a * f
    Shift,        // d = a + f
    Sigmoid,      // d = 1 / (1 + exp(-a))
    Tanh,         // d = tanh(a)
    Relu,         // d = max(a, 0), a NaN stays one
    Step,         // d = a > 0
    Exp,          // d = exp(a)
    Log,          // d = log(a)
    Sqrt,         // d = sqrt(a)
    Abs,          // d = |a|
    Sign,         // d = -1, 0, 1
    Equal,        // d = a == b
    Maximum,      // d = max(a, b), a NaN stays one
    Fma,          // d = a * b + c
    AddRelu,      // d = max(a + b, 0)
    MulStep,      // d = b > 0 ? a : 0
    DSigmoid,     // d = a * (b * (1 - b))
    DTanh,        // d = a * (1 - b * b)
    MulDSigmoid,  // d = a * b * (c * (1 - c))
    MulDTanh,     // d = a * b * (1 - c * c)
    AddCol,       // d = a + b[0]
    SubCol,       // d = a - b[0]
    MulCol,       // d = a * b[0]
    DivCol,       // d = a / b[0]
    SumCols,      // d[0] = sum of a[0..n)
    MaxCols,      // d[0] = maximum of a[0..n)
    SpreadCols,   // d[0..n) = a[0]
    Pick,         // d[0] = a[i0]; i0 outside 0..n-1 is an error
    Place,        // d[0..n) = 0, d[i0] = a[0]
    Dropout,      // d = a * mask(i...) / (1 - f); seed in `seed`
    Argmax,       // int i0 = column of the maximum of a[0..n), the first of equals (a NaN counts as largest)
    Above,        // int i0 = a[0] > f
    ToFloat,      // d[0] = i0
    SameInt,      // d[0] = i0 == i1
    SaveInt,      // d[0..2) holds the 64 bits of i0
    LoadInt,      // int i0 = the 64 bits of a[0..2)
};

constexpr int MAX_INT_ARGS = 8;

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

enum class PhaseKind : int32_t {
    Rows,         // `code`, row by row over `space`
    Gemm,         // d[0..width) (+)= [a segments] @ W (or @ W' where transposed) (+ bias, or rows of `start`)
    SumRows,      // d over `space` = sum of a over the message's rows of `source`
    MaxRows,      // likewise the maximum; 0 for a message without rows
    SpreadRows,   // d over `space` = the message's one row of `source`
    GatherRows,   // d over `space` = row [ints] of the message's rows of `source`
    ScatterRows,  // d over `space` = 0, then row [ints] of it += each row of `source`
    Patches,      // d over `space` = the windows of the image in each row of `source`, one behind the other
    Unpatch,      // d over `space` = 0, then the pixels of each window in `source` are added to its image
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
