// _native.kernels: the kernels one by one on numpy arrays, for tests and benchmarks. Slow around the kernel.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "bind/arrays.hpp"
#include "bind/bind.hpp"
#include "kernels/bf16_table.hpp"
#include "timing.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace amphw {
namespace {

constexpr const char* WITH_BF16 = "avx512bf16";  // has products alone; all else is of AVX-512

// What multiplies numbers of bfloat16 with this instruction set, and the kernels beside it; null for float32.
std::pair<const Kernels&, const Bf16*> multiplying(const std::string& isa, bool bf16) {
    if (!bf16) return {named(isa), nullptr};
    const Bf16* found = bf16_named(isa.c_str());
    if (!found) throw std::invalid_argument("this machine does not run products of bfloat16 with '" + isa + "'");
    return {named(isa == WITH_BF16 ? "avx512" : isa), found};
}

std::vector<std::string> isa_names(bool bf16) {
    std::vector<std::string> names;
    for (const char* name : {WITH_BF16, "avx512", "avx2", "generic"}) {
        if (bf16 ? bf16_named(name) != nullptr : kernels(name) != nullptr) names.push_back(name);
    }
    return names;
}

// Zeros on a boundary of cache lines, as the engine holds its matrices.
class Buffer {
public:
    explicit Buffer(int64_t n)
        : memory_(static_cast<float*>(std::aligned_alloc(64, size_t((n + 16) / 16) * 64)), std::free) {
        if (!memory_) throw std::bad_alloc();
        for (int64_t i = 0; i < (n + 16) / 16 * 16; i++) memory_.get()[i] = 0.0f;
    }
    float* data() { return memory_.get(); }
    float& operator[](int64_t i) { return memory_.get()[i]; }

private:
    std::unique_ptr<float, void (*)(void*)> memory_;
};

Layout layout_of(const Kernels& k, const std::string& kind, int32_t rows, int32_t cols) {
    if (kind == "panel") return Layout::paneled(rows, cols, k.panel);
    if (kind == "flat") return Layout::flat(rows, cols);
    throw std::invalid_argument("layout '" + kind + "': it can be 'panel' or 'flat'");
}

using Words = std::vector<uint32_t>;

struct Matrix {
    Layout layout;
    Buffer data;

    explicit Matrix(Layout layout) : layout(layout), data(layout.size()) {}

    void read(const Floats2& from) {
        for (int32_t r = 0; r < layout.rows; r++) {
            for (int32_t c = 0; c < layout.cols; c++) data[layout.offset(r, c)] = row(from, r)[c];
        }
    }
    void write(const Floats2& to) {
        for (int32_t r = 0; r < layout.rows; r++) {
            for (int32_t c = 0; c < layout.cols; c++) row(to, r)[c] = data[layout.offset(r, c)];
        }
    }
    // Whether all that is not part of the matrix is 0.
    bool padded_with_zeros() {
        for (int32_t r = 0; r < layout.rows_padded; r++) {
            for (int32_t c = 0; c < layout.cols_padded; c++) {
                if ((r >= layout.rows || c >= layout.cols) && data[layout.offset(r, c)] != 0.0f) return false;
            }
        }
        return true;
    }
};

void gemm(const std::string& isa, const std::vector<Floats2>& a, const Floats2& b, std::optional<Floats1> bias,
          const Floats2& c, bool accumulate, const std::string& kind, int32_t first_row, std::optional<Floats2> start,
          bool bf16) {
    const auto [k, rounding] = multiplying(isa, bf16);
    const int32_t rows = int32_t(c.shape(0)), cols = int32_t(b.shape(1));
    Matrix matrix(layout_of(k, kind, int32_t(b.shape(0)), cols));
    matrix.read(b);
    Buffer padded_bias(matrix.layout.cols_padded);
    for (int32_t i = 0; bias && i < cols; i++) padded_bias[i] = bias->data()[i];
    std::vector<std::vector<const float*>> a_rows(a.size());
    std::vector<const float* const*> segments;
    std::vector<int32_t> widths;
    std::vector<float*> c_rows;
    int32_t depth = 0;
    for (size_t s = 0; s < a.size(); s++) {
        for (int32_t r = 0; r < rows; r++) a_rows[s].push_back(row(a[s], r));
        segments.push_back(a_rows[s].data());
        widths.push_back(int32_t(a[s].shape(1)));
        depth += widths.back();
        if (int32_t(a[s].shape(0)) != rows) throw std::invalid_argument("gemm: a segment has other rows than c");
    }
    if (first_row < 0 || first_row + depth > matrix.layout.rows || int32_t(c.shape(1)) != cols) {
        throw std::invalid_argument("gemm: the segments, b and c do not fit together");
    }
    if (start && (int32_t(start->shape(0)) != rows || int32_t(start->shape(1)) != cols)) {
        throw std::invalid_argument("gemm: start and c do not fit together");
    }
    Matrix started(Layout::flat(rows, cols));
    std::vector<const float*> start_rows;
    if (start) started.read(*start);
    for (int32_t r = 0; r < rows; r++) {
        c_rows.push_back(row(c, r));
        start_rows.push_back(started.data.data() + started.layout.offset(r, 0));
    }
    const Gemm product{matrix.data.data(), &matrix.layout, bias ? padded_bias.data() : nullptr, accumulate,
                       int32_t(a.size()),  segments.data(), widths.data(), c_rows.data(), rows, first_row,
                       start ? start_rows.data() : nullptr};
    if (!rounding) return k.gemm(product);
    Words packed(pairs_of(matrix.layout).size()), room(gemm_room(rows, depth));
    rounding->pack(matrix.data.data(), matrix.layout, packed.data());
    rounding->gemm(product, packed.data(), room.data());
}

// f(columns) of the whole matrix, or of a panel after another.
template <class F>
void each_part(const Layout& layout, bool in_parts, F f) {
    if (!in_parts) return f(Range{0, layout.cols});
    for (int32_t column = 0; column < layout.cols; column += layout.panel)
        f(Range{column, std::min(layout.cols, column + layout.panel)});
}

void gradient(const std::string& isa, const Floats2& x, const Floats2& d, const Floats2& g, const std::string& kind,
              int32_t first_row, bool in_parts, bool bf16) {
    const auto [found, rounding] = multiplying(isa, bf16);
    const Kernels& k = found;
    Matrix sum(layout_of(k, kind, int32_t(g.shape(0)), int32_t(g.shape(1))));
    if (first_row < 0 || first_row + int32_t(x.shape(1)) > sum.layout.rows || d.shape(1) != g.shape(1)) {
        throw std::invalid_argument("gradient: x, d and g do not fit together");
    }
    sum.read(g);
    Buffer pack(GRADIENT_PACK);
    Words room(gradient_room(int64_t(x.shape(1))));
    if (rounding)
        rounding->gradient(row(x, 0), x.stride(0), int32_t(x.shape(1)), row(d, 0), d.stride(0), int32_t(x.shape(0)),
                           sum.data.data(), sum.layout, first_row, room.data());
    else
        each_part(sum.layout, in_parts, [&](Range part) {
            k.gradient(row(x, 0), x.stride(0), int32_t(x.shape(1)), row(d, 0), d.stride(0), int32_t(x.shape(0)),
                       sum.data.data(), sum.layout, first_row, part, pack.data());
        });
    if (!sum.padded_with_zeros()) throw std::runtime_error("gradient: wrote into the padding");
    sum.write(g);
}

void transpose(const std::string& isa, const Floats2& from, const Floats2& to, const std::string& from_kind,
               const std::string& to_kind, int32_t first_row, bool in_parts) {
    const Kernels& k = named(isa);
    const int32_t rows = int32_t(from.shape(0)), cols = int32_t(from.shape(1)), wanted = int32_t(to.shape(1));
    if (first_row < 0 || first_row + wanted > rows || int32_t(to.shape(0)) != cols) {
        throw std::invalid_argument("transpose: the matrices do not fit together");
    }
    Matrix source(layout_of(k, from_kind, rows, cols)), target(layout_of(k, to_kind, cols, wanted));
    source.read(from);
    each_part(source.layout, in_parts, [&](Range part) {
        k.transpose(source.data.data(), source.layout, first_row, target.data.data(), target.layout, part);
    });
    if (!target.padded_with_zeros()) throw std::runtime_error("transpose: wrote into the padding");
    target.write(to);
}

Op op_named(const std::string& name) {
    for (size_t i = 0; i < std::size(OP_NAMES); i++) {
        if (name == OP_NAMES[i]) return Op(i);
    }
    throw std::invalid_argument("unknown operation '" + name + "'");
}

// op, n, [(base, offset) of d, a, b, c], f, integer slots, seed
using Line = std::tuple<std::string, int32_t, std::vector<std::pair<int32_t, int32_t>>, float, std::vector<int32_t>,
                        int64_t>;

Instr instruction(const Line& line) {
    const auto& [op, n, refs, f, ints, seed] = line;
    Instr in{};
    in.op = op_named(op);
    in.n = n;
    in.f = f;
    in.seed = seed;
    Ref* places[] = {&in.d, &in.a, &in.b, &in.c};
    if (refs.size() > std::size(places) || ints.size() > MAX_INT_ARGS) {
        throw std::invalid_argument("an instruction has at most 4 references and 8 integer slots");
    }
    for (size_t i = 0; i < refs.size(); i++) *places[i] = {refs[i].first, refs[i].second};
    for (int32_t slot : ints) in.ints[in.n_ints++] = slot;
    return in;
}

// bases: a matrix each; ints: [slots, rows].
void rows(const std::string& isa, const std::vector<Line>& lines, const std::vector<Floats2>& bases, const Ints2& ints,
          int32_t first, int32_t count) {
    const Kernels& k = named(isa);
    std::vector<Instr> code;
    for (const Line& line : lines) code.push_back(instruction(line));
    const int32_t end = first + count;
    std::vector<float*> base_rows;
    for (const Floats2& base : bases) {
        for (int32_t r = 0; r < end; r++) base_rows.push_back(row(base, r));
    }
    std::vector<int64_t*> slots;
    for (size_t s = 0; s < ints.shape(0); s++) slots.push_back(ints.data() + s * ints.shape(1));
    const char* error = k.rows(code.data(), int32_t(code.size()), base_rows.data(), end, slots.data(), first, count);
    if (error) throw nb::value_error(error);
}

Windows windows_of(const std::vector<int32_t>& w) {
    if (w.size() != 7) throw std::invalid_argument("windows are seven numbers");
    return {w[0], w[1], w[2], w[3], w[4], w[5], w[6]};
}

void patches(const std::string& isa, const std::vector<int32_t>& geometry, const Floats1& image, const Floats2& to) {
    std::vector<float*> rows;
    for (size_t r = 0; r < to.shape(0); r++) rows.push_back(row(to, r));
    named(isa).patches(windows_of(geometry), image.data(), rows.data(), 0);
}

void unpatch(const std::string& isa, const std::vector<int32_t>& geometry, const Floats2& from, const Floats1& image) {
    std::vector<float*> rows;
    for (size_t r = 0; r < from.shape(0); r++) rows.push_back(row(from, r));
    named(isa).unpatch(windows_of(geometry), rows.data(), 0, image.data());
}

Optimizer optimizer_named(const std::string& name) {
    for (size_t i = 0; i < std::size(OPTIMIZER_NAMES); i++) {
        if (name == OPTIMIZER_NAMES[i]) return Optimizer(i);
    }
    throw std::invalid_argument("unknown optimizer '" + name + "'");
}

void update(const std::string& isa, const std::string& optimizer, const Floats1& w, const Floats1& out,
            const Floats1& g, const std::vector<Floats1>& slots, float scale, float weight_decay,
            const std::vector<float>& numbers) {
    Update u{};
    u.optimizer = optimizer_named(optimizer);
    if (int(slots.size()) != slots_of(u.optimizer) || numbers.size() > std::size(u.numbers)) {
        throw std::invalid_argument("update: " + optimizer + " has other arrays or numbers");
    }
    u.n = int64_t(w.shape(0));
    u.w = w.data();
    u.out = out.data();
    u.g = g.data();
    for (size_t s = 0; s < slots.size(); s++) u.slots[s] = slots[s].data();
    u.scale = scale;
    u.weight_decay = weight_decay;
    std::copy(numbers.begin(), numbers.end(), u.numbers);
    named(isa).update(u);
}

double time_gemm(const std::string& isa, int32_t rows, int32_t depth, int32_t cols, int repeats,
                 const std::string& kind, bool bf16) {
    const auto [k, rounding] = multiplying(isa, bf16);
    Matrix b(layout_of(k, kind, depth, cols));
    const int64_t a_stride = Layout::flat(1, depth).cols_padded, c_stride = b.layout.cols_padded;
    Buffer a(rows * a_stride), c(rows * c_stride), bias(c_stride);
    fill(a.data(), rows * a_stride);
    fill(b.data.data(), b.layout.size());
    std::vector<const float*> a_rows;
    std::vector<float*> c_rows;
    for (int32_t r = 0; r < rows; r++) {
        a_rows.push_back(a.data() + r * a_stride);
        c_rows.push_back(c.data() + r * c_stride);
    }
    const float* const* segments[] = {a_rows.data()};
    const Gemm product{b.data.data(), &b.layout, bias.data(), false, 1, segments, &depth, c_rows.data(), rows};
    if (!rounding) return best_seconds(repeats, [gemm = k.gemm, &product] { gemm(product); });
    Words packed(pairs_of(b.layout).size()), room(gemm_room(rows, depth));
    rounding->pack(b.data.data(), b.layout, packed.data());
    return best_seconds(repeats,
                        [&, gemm = rounding->gemm] { gemm(product, packed.data(), room.data()); });
}

double time_gradient(const std::string& isa, int32_t rows, int32_t x_cols, int32_t d_cols, int repeats,
                     bool bf16) {
    const auto [k, rounding] = multiplying(isa, bf16);
    Matrix g(Layout::paneled(x_cols, d_cols, k.panel));
    const int64_t ldx = Layout::flat(1, x_cols).cols_padded, ldd = g.layout.cols_padded;
    Buffer x(rows * ldx), d(rows * ldd), pack(GRADIENT_PACK);
    fill(x.data(), rows * ldx);
    fill(d.data(), rows * ldd);
    Words room(gradient_room(x_cols));
    if (rounding)
        return best_seconds(repeats, [&, gradient = rounding->gradient] {
            gradient(x.data(), ldx, x_cols, d.data(), ldd, rows, g.data.data(), g.layout, 0, room.data());
        });
    return best_seconds(repeats, [&, gradient = k.gradient] {
        gradient(x.data(), ldx, x_cols, d.data(), ldd, rows, g.data.data(), g.layout, 0, {0, d_cols}, pack.data());
    });
}

double time_rows(const std::string& isa, const std::string& op, int32_t rows, int32_t n, int repeats) {
    const Kernels& k = named(isa);
    const Instr in = instruction({op, n, {{0, 0}, {1, 0}, {2, 0}, {3, 0}}, 0.5f, {0}, 1});
    const int64_t stride = Layout::flat(1, n).cols_padded;
    Buffer memory(4 * rows * stride);
    fill(memory.data(), 4 * rows * stride);
    std::vector<float*> bases;
    for (int64_t i = 0; i < 4 * rows; i++) bases.push_back(memory.data() + i * stride);
    std::vector<int64_t> column(size_t(rows), 0);
    int64_t* slots[] = {column.data()};
    return best_seconds(repeats, [&] { k.rows(&in, 1, bases.data(), rows, slots, 0, rows); });
}

double time_update(const std::string& isa, const std::string& optimizer, int32_t rows, int32_t cols, int repeats) {
    const Kernels& k = named(isa);
    Matrix w(Layout::paneled(rows, cols, k.panel));
    const int64_t n = w.layout.size();
    Buffer out(n), g(n);
    std::vector<Buffer> slots;
    fill(w.data.data(), n);
    Update u{};
    u.optimizer = optimizer_named(optimizer);
    u.n = n;
    u.w = w.data.data();
    u.out = out.data();
    u.g = g.data();
    for (int s = 0; s < slots_of(u.optimizer); s++) u.slots[s] = slots.emplace_back(n).data();
    u.scale = 1.0f;
    std::fill_n(u.numbers, MAX_NUMBERS, 0.01f);
    return best_seconds(repeats, [&] { k.update(u); });
}

double time_transpose(const std::string& isa, int32_t rows, int32_t cols, int repeats) {
    const Kernels& k = named(isa);
    Matrix from(Layout::paneled(rows, cols, k.panel)), to(Layout::paneled(cols, rows, k.panel));
    return best_seconds(repeats, [&] { k.transpose(from.data.data(), from.layout, 0, to.data.data(), to.layout, {0, cols}); });
}

}  // namespace

void bind_kernels(nb::module_& parent) {
    nb::module_ m = parent.def_submodule("kernels", "The kernels one by one, for tests and benchmarks.");
    m.def("isa_names", isa_names, "bf16"_a = false,
          "Instruction sets that this machine runs, best first; bf16: with which products of bfloat16 run.");
    m.def("bf16", [] { return bf16_chosen() ? std::string(bf16_chosen()->name) : std::string(); },
          "Which products of bfloat16 a run uses: avx512bf16, portable (with AMPHW_BF16=portable), or '' for none.");
    m.def("has_bf16", [] { return bf16_named(WITH_BF16) != nullptr; }, "Whether the processor has AVX512-BF16.");
    m.def("chosen", [] { return kernels() ? std::string(kernels()->name) : std::string(); },
          "The instruction set that is used: the best, or the one that AMPHW_ISA names ('' if it cannot run).");
    m.def("panel", [](const std::string& isa) { return named(isa).panel; }, "isa"_a);
    m.def("gemm", gemm, "isa"_a, "a"_a, "b"_a, "bias"_a.none(), "c"_a, "accumulate"_a, "layout"_a,
          "first_row"_a = 0, "start"_a.none() = nb::none(), "bf16"_a = false,
          "c (+)= [segments a side by side] @ (rows of b from first_row on) (+ start, else bias), in place. bf16: of both "
          "sides rounded to bfloat16.");
    m.def("gradient", gradient, "isa"_a, "x"_a, "d"_a, "g"_a, "layout"_a, "first_row"_a = 0, "in_parts"_a = false,
          "bf16"_a = false, "Rows of g from first_row on += x' @ d, in place; in_parts: panel by panel, of float32.");
    m.def("transpose", transpose, "isa"_a, "a"_a, "to"_a, "from_layout"_a, "to_layout"_a, "first_row"_a = 0,
          "in_parts"_a = false, "to = (rows of a from first_row on)'; in_parts: panel by panel.");
    m.def("op_names", [] { return std::vector<std::string>(std::begin(OP_NAMES), std::end(OP_NAMES)); });
    m.def("rows", rows, "isa"_a, "code"_a, "bases"_a, "ints"_a, "first"_a, "count"_a,
          "Run code on rows first .. first + count - 1. An instruction is (op, n, [(base, offset) of d, a, b, c], f, "
          "integer slots, seed). ValueError for an integer that the code cannot use.");
    m.def("update", update, "isa"_a, "optimizer"_a, "w"_a, "out"_a, "g"_a, "slots"_a, "scale"_a, "weight_decay"_a,
          "numbers"_a, "numbers: the rate, then those that the optimiser's kernel names, in its row's order.");
    m.def("patches", patches, "isa"_a, "windows"_a, "image"_a, "to"_a,
          "Rows of `to` = the windows (height, width, channels, tall, wide, stride, padding) of an image.");
    m.def("unpatch", unpatch, "isa"_a, "windows"_a, "from_"_a, "image"_a, "image = the sum of its windows' rows.");
    bind_attention(m);
    m.def("add", [](const std::string& isa, const Floats1& to, const Floats1& from) {
        named(isa).add(to.data(), from.data(), int64_t(to.shape(0)));
    }, "isa"_a, "to"_a, "from_"_a);
    m.def("add_columns", [](const std::string& isa, const Floats2& d, const Floats1& g) {
        named(isa).add_columns(row(d, 0), d.stride(0), int32_t(d.shape(0)), int32_t(d.shape(1)), g.data());
    }, "isa"_a, "d"_a, "g"_a);
    m.def("sum_squares", [](const std::string& isa, const Floats1& x) {
        return named(isa).sum_squares(x.data(), int64_t(x.shape(0)));
    }, "isa"_a, "x"_a);
    m.def("largest", [](const std::string& isa, const Floats1& x) {
        return std::bit_cast<float>(named(isa).largest(x.data(), int64_t(x.shape(0))));
    }, "isa"_a, "x"_a);
    m.def("finite", [](const std::string& isa, const Floats1& x) {
        return named(isa).finite(x.data(), int64_t(x.shape(0)));
    }, "isa"_a, "x"_a);
    m.def("time_gemm", time_gemm, "isa"_a, "rows"_a, "depth"_a, "cols"_a, "repeats"_a, "layout"_a = "panel",
          "bf16"_a = false, "Least seconds of one product [rows, depth] @ [depth, cols].");
    m.def("time_gradient", time_gradient, "isa"_a, "rows"_a, "x_cols"_a, "d_cols"_a, "repeats"_a, "bf16"_a = false);
    m.def("time_rows", time_rows, "isa"_a, "op"_a, "rows"_a, "n"_a, "repeats"_a);
    m.def("time_update", time_update, "isa"_a, "optimizer"_a, "rows"_a, "cols"_a, "repeats"_a);
    m.def("time_transpose", time_transpose, "isa"_a, "rows"_a, "cols"_a, "repeats"_a);
}

}  // namespace amphw
