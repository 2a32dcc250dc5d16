// A frame's products: by the own kernels, a BLAS library, or of bfloat16.
#include <algorithm>

#include "frame.hpp"
#include "kernels/blas.hpp"

namespace amphw {

void FrameRunner::gemm(const Phase& p) {
    const int32_t rows = rows_[p.space];
    const Tensor& t = parameters_->tensor(p.param);
    const size_t segments = p.a.size();
    if (segments_.size() < segments) segments_.resize(segments);
    const float* const* a[16];
    int32_t widths[16];
    for (size_t s = 0; s < segments; s++) {
        segments_[s].resize(std::max<size_t>(segments_[s].size(), rows));
        float* const* from = bases_.data() + p.a[s].at.base * capacity_;
        for (int32_t r = 0; r < rows; r++) segments_[s][r] = from[r] + p.a[s].at.offset;
        a[s] = segments_[s].data();
        widths[s] = p.a[s].width;
    }
    results_.resize(std::max<size_t>(results_.size(), rows));
    float* const* to = bases_.data() + p.d.base * capacity_;
    for (int32_t r = 0; r < rows; r++) results_[r] = to[r] + p.d.offset;
    Gemm g{};
    const bool transposed = p.transposed && t.has_transposed();
    g.b = (transposed ? t.transposed[frame_->buffer] : t.value[frame_->buffer]).floats();
    g.layout = transposed ? &t.transposed_layout : &t.layout;
    g.bias = p.bias < 0 ? nullptr : parameters_->tensor(p.bias).value[frame_->buffer].floats();
    g.accumulate = p.accumulate;
    g.start = p.start < 0 ? nullptr : bases_.data() + p.start * capacity_;
    g.first_row = p.transposed ? 0 : std::max(0, p.first_row);  // the transposed copy has that part alone
    g.segments = int32_t(segments);
    g.a = a;
    g.widths = widths;
    g.c = results_.data();
    g.rows = rows;
    if (t.desc.blas) {
        blas_gemm(g, p.transposed, blas_room_);
    } else if (t.desc.bf16) {
        int32_t depth = 0;
        for (size_t s = 0; s < segments; s++) depth += widths[s];
        pairs_room_.resize(std::max(pairs_room_.size(), size_t(gemm_room(rows, depth))));
        bf16_->gemm(g, t.pairs_of(transposed, frame_->buffer), pairs_room_.data());
    } else {
        kernels_.gemm(g);
    }
}

}  // namespace amphw
