// What products are taken of and make: copies of each version, gradients of matrices, folded tables.
#include <algorithm>
#include <cstring>

#include "kernels/blas.hpp"
#include "parameters.hpp"

namespace amphw {
namespace {

uint32_t* words(float* room) { return reinterpret_cast<uint32_t*>(room); }

}  // namespace

// What products read of a version beside the values themselves.
void Parameters::make_copies(Tensor& t, int buffer, Range columns) {
    if (t.desc.bf16) bf16_->pack(t.value[buffer].floats(), t.layout, words(t.pairs[buffer].floats()));
    if (!t.has_transposed()) return;
    float* const transposed = (t.desc.bf16 ? transposed_ : t.transposed[buffer]).floats();
    kernels_.transpose(t.value[buffer].floats(), t.layout, t.transposed_row, transposed, t.transposed_layout,
                       t.desc.bf16 ? Range{0, t.layout.cols} : columns);
    if (t.desc.bf16) bf16_->pack(transposed, t.transposed_layout, words(t.transposed_pairs[buffer].floats()));
}

void Parameters::add_product(Tensor& t, const TermDesc& term, const LogChunk& chunk, const float* d, int64_t ldd,
                             int32_t rows, Range columns) {
    const int32_t width = unit_.log_buffers[term.x].width;
    const int64_t ldx = row_stride(width);
    const float* x = chunk.buffers[term.x].floats();
    float* g = t.gradient.floats();
    if (t.desc.blas) return blas_gradient(x, ldx, d, ldd, rows, g, t.layout);
    const Rooms::Loan pack(packing_);
    if (t.desc.bf16)
        bf16_->gradient(x, ldx, width, d, ldd, rows, g, t.layout, term.first_row, words(pack.floats()));
    else
        kernels_.gradient(x, ldx, width, d, ldd, rows, g, t.layout, term.first_row, columns, pack.floats());
}

// --- folded tables --------------------------------------------------------------------------------------------

void Parameters::make_tables(int buffer) {
    for (size_t f = 0; f < unit_.folds.size(); f++) {
        const FoldDesc& fold = unit_.folds[f];
        const Tensor &e = tensors_[fold.table], &w = tensors_[fold.weight], &table = tensors_[unit_.params.size() + f];
        std::vector<const float*> a;
        std::vector<float*> c;
        for (int32_t r = 0; r < e.layout.rows; r++) {
            a.push_back(e.value[buffer].floats() + e.layout.offset(r, 0));
            c.push_back(table.value[buffer].floats() + table.layout.offset(r, 0));
        }
        const float* const* segments[] = {a.data()};
        Gemm g{};
        g.b = w.value[buffer].floats();
        g.layout = &w.layout;
        g.bias = fold.bias < 0 ? nullptr : tensors_[fold.bias].value[buffer].floats();
        g.segments = 1;
        g.a = segments;
        g.widths = &e.layout.cols;
        g.c = c.data();
        g.rows = e.layout.rows;
        g.first_row = fold.first_row;
        if (w.desc.bf16) {
            std::vector<uint32_t> room(gemm_room(g.rows, e.layout.cols));
            bf16_->gemm(g, w.pairs_of(false, buffer), room.data());
        } else {
            kernels_.gemm(g);
        }
    }
}

// What the gradients of folded tables contribute to a parameter's: of T = E W + b, dT W' to E, E' dT to W, and the sum
// of dT's rows to b. Where products are of bfloat16, E and W are rounded, and dT is the sum of what was: it stays as it
// is, and the kernels of float32 multiply. The gradient of b is a sum of numbers that are not rounded: it has a term of
// its own.
void Parameters::add_folded(int32_t param, float* gradient) const {
    const int buffer = current_.load();
    for (size_t f = 0; f < unit_.folds.size(); f++) {
        const FoldDesc& fold = unit_.folds[f];
        if (param != fold.table && param != fold.weight && param != fold.bias) continue;
        const Tensor &e = tensors_[fold.table], &w = tensors_[fold.weight], &table = tensors_[unit_.params.size() + f];
        const float* d = table.gradient.floats();
        const int64_t ldd = table.layout.cols_padded;
        const int32_t rows = e.layout.rows;
        if (param == fold.bias) {
            if (!w.desc.bf16) kernels_.add_columns(d, ldd, rows, table.layout.cols, gradient);
        } else if (param == fold.weight) {
            const Rooms::Loan pack(packing_);
            const float* x = e.value[buffer].floats();
            Block rounded;
            if (w.desc.bf16) {
                rounded = float_block(e.layout.size());
                bf16_->round(x, e.layout.size(), rounded.floats());
                x = rounded.floats();
            }
            kernels_.gradient(x, e.layout.cols_padded, e.layout.cols, d, ldd, rows, gradient,
                              w.layout, fold.first_row, {0, w.layout.cols}, pack.floats());
        } else {
            const Layout layout = Layout::paneled(w.layout.cols, e.layout.cols, kernels_.panel);
            const Block transposed = float_block(layout.size());
            kernels_.transpose(w.value[buffer].floats(), w.layout, fold.first_row, transposed.floats(), layout,
                                {0, w.layout.cols});
            if (w.desc.bf16) bf16_->round(transposed.floats(), layout.size(), transposed.floats());
            std::vector<const float*> a;
            std::vector<float*> c;
            for (int32_t r = 0; r < rows; r++) {
                a.push_back(d + r * ldd);
                c.push_back(gradient + e.layout.offset(r, 0));
            }
            const float* const* segments[] = {a.data()};
            Gemm g{};
            g.b = transposed.floats();
            g.layout = &layout;
            g.accumulate = true;
            g.segments = 1;
            g.a = segments;
            g.widths = &w.layout.cols;
            g.c = c.data();
            g.rows = rows;
            kernels_.gemm(g);
        }
    }
}

void Parameters::clear_folded() {
    for (size_t i = unit_.params.size(); i < tensors_.size(); i++)
        std::memset(tensors_[i].gradient.bytes(), 0, tensors_[i].gradient.size());
}

}  // namespace amphw
