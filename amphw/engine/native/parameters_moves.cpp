// Values that change otherwise than by updates, while frames read them: see moves.cpp for who may.
#include <algorithm>
#include <cstring>

#include "parameters.hpp"

namespace amphw {

void Parameters::latest(int32_t param, float* values) {
    const Tensor& t = tensors_[param];
    const int buffer = pin();
    each_piece(t.layout, [&](int64_t from, int64_t to, int32_t n) {
        std::copy_n(t.value[buffer].floats() + from, n, values + to);
    });
    unpin(buffer);
}

int Parameters::copy() {
    const int32_t n = int32_t(unit_.params.size());
    // Gradients of folded tables belong to the values that they were computed with.
    for (int32_t i = 0; i < n; i++) add_folded(i, tensors_[i].gradient.floats());
    clear_folded();
    const int from = current_.load(), to = spare();
    for (int32_t i = 0; i < n; i++) {
        Tensor& t = tensors_[i];
        if (t.sparse)
            catch_up(t, from, to);
        else
            std::memcpy(t.value[to].bytes(), t.value[from].bytes(), t.value[from].size());
    }
    return to;
}

void Parameters::replace(int to) {
    for (size_t i = 0; i < unit_.params.size(); i++)
        if (!tensors_[i].sparse) make_copies(tensors_[i], to, {0, tensors_[i].layout.cols});
    make_tables(to);
    versions_[to].store(version_.load());
    current_.store(to);
}

void Parameters::move(const std::vector<const float*>& moves) {
    const int to = copy();
    for (size_t i = 0; i < unit_.params.size(); i++) add(tensors_[i], to, moves[i]);
    replace(to);
}

void Parameters::add(Tensor& t, int to, const float* move) {
    float* values = t.value[to].floats();
    if (!t.sparse) {
        each_piece(t.layout, [&](int64_t at, int64_t index, int32_t n) {
            for (int32_t c = 0; c < n; c++) values[at + c] += move[index + c];
        });
        return;
    }
    for (int32_t row = 0; row < t.layout.rows; row++) {
        const float* m = move + int64_t(row) * t.layout.cols;
        if (std::all_of(m, m + t.layout.cols, [](float x) { return x == 0.0f; })) continue;
        float* mine = values + t.layout.offset(row, 0);
        for (int32_t c = 0; c < t.layout.cols; c++) mine[c] += m[c];
        miss(t, to, row);
    }
}

}  // namespace amphw
