// What updates have applied, summed up for those who apply it elsewhere as well (amphw.ir.device.Tells).
//
// An update leaves no gradient behind. So whoever makes the next version adds the gradient, as the rule has clipped
// it, to a sum of its own first. Python takes the sums while nothing is in flight.
#include <algorithm>

#include "parameters.hpp"

namespace amphw {

void Parameters::tell() {
    for (size_t i = 0; i < unit_.params.size(); i++) tensors_[i].told = float_block(tensors_[i].size());
    tells_ = true;
    told_rows_ = told_updates_ = 0;
}

void Parameters::note_told(Tensor& t, float clipping) {
    const float* g = t.gradient.floats();
    float* sum = t.told.floats();
    const auto add = [&](int64_t from, int64_t to) {
        for (int64_t k = from; k < to; k++) sum[k] += clipping * g[k];
    };
    if (!t.tracked) return add(0, t.size());
    for (int32_t row : t.touched_rows) add(t.layout.offset(row, 0), t.layout.offset(row, 0) + t.desc.cols);
}

std::pair<int64_t, int64_t> Parameters::take_told() {
    return {std::exchange(told_rows_, 0), std::exchange(told_updates_, 0)};
}

void Parameters::store_told(int32_t param, float* sum) {
    Tensor& t = tensors_[param];
    float* told = t.told.floats();
    each_piece(t.layout, [&](int64_t from, int64_t to, int32_t n) { std::copy_n(told + from, n, sum + to); });
    std::fill_n(told, t.size(), 0.0f);
}

}  // namespace amphw
