// What updates have applied, for those who apply it elsewhere as well, and what theirs have, applied here
// (amphw.ir.device.Tells and Receives).
//
// An update leaves no gradient behind. So whoever makes the next version adds the gradient, as the rule has clipped
// it, to a sum of its own first. Sums are taken, and ranges applied, by the one that holds (moves.cpp).
#include <algorithm>

#include "parameters.hpp"

namespace amphw {

void Parameters::tell() {
    for (size_t i = 0; i < unit_.params.size(); i++) tensors_[i].told = float_block(tensors_[i].size());
    tells_ = true;
    told_rows_ = told_updates_ = 0;
}

void Parameters::note_told(Tensor& t, float clipping) {
    const auto add = [&](const float* g, int64_t at, int64_t count) {
        for (int64_t k = 0; k < count; k++) t.told.floats()[at + k] += clipping * g[k];
    };
    if (!t.tracked) return add(t.gradient.floats(), 0, t.size());
    const std::vector<int32_t>& rows = t.gradient_rows.numbers();
    for (size_t k = 0; k < rows.size(); k++)
        add(t.gradient_rows.at(int32_t(k)), t.layout.offset(rows[k], 0), t.desc.cols);
}

std::pair<int64_t, int64_t> Parameters::take_told(const std::vector<float*>& sums) {
    for (size_t i = 0; told_updates_ > 0 && i < sums.size(); i++) {
        Tensor& t = tensors_[i];
        float* told = t.told.floats();
        each_piece(t.layout,
                   [&](int64_t from, int64_t to, int32_t n) { std::copy_n(told + from, n, sums[i] + to); });
        std::fill_n(told, t.size(), 0.0f);
    }
    return {std::exchange(told_rows_, 0), std::exchange(told_updates_, 0)};
}

void Parameters::receive(const std::vector<ReceivedRange>& ranges) {
    // The rate and the scalars of the last own update, which stay as they are.
    State last = state;
    const Update u = arguments(std::max<int64_t>(0, version_.load() - 1), last);
    const int to = copy();
    for (const ReceivedRange& range : ranges) step_range(tensors_[range.param], to, range, u);
    replace(to);
}

// amphw.ir.received defines it. Piece by piece, as a range is contiguous in a row of a panel alone.
void Parameters::step_range(Tensor& t, int to, const ReceivedRange& range, Update u) {
    u.scale = range.scale;
    const Layout& layout = t.layout;
    std::vector<float> gradient(std::min<int64_t>(range.count, layout.panel));  // of which the kernel makes zeros
    for (int64_t at = 0; at < range.count; at += u.n) {
        const int32_t row = int32_t((range.first + at) / layout.cols), column = int32_t((range.first + at) % layout.cols);
        const int32_t end = std::min(layout.cols, column - column % layout.panel + layout.panel);
        u.n = std::min<int64_t>(range.count - at, end - column);
        const float* g = range.values + at;
        if (t.sparse) {  // rows without a gradient stay as they are
            if (std::all_of(g, g + u.n, [](float x) { return x == 0.0f; })) continue;
            miss(t, to, row);
        }
        const int64_t place = layout.offset(row, column);
        std::copy_n(g, u.n, gradient.data());
        u.g = gradient.data();
        u.out = t.value[to].floats() + place;
        u.w = u.out;
        for (int s = 0; s < rule.slots(); s++) u.slots[s] = t.slot[s].floats() + place;
        kernels_.update(u);
    }
}

}  // namespace amphw
