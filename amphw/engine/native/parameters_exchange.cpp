// Parameters between the engine and Python: values, gradients and the optimiser's arrays, whole or by rows.
#include <algorithm>
#include <cstring>

#include "parameters.hpp"

namespace amphw {

// Not before there are values: a table may be pooled without ever having had any here.
void Parameters::allocate(Tensor& t) {
    for (Block& b : t.value) b = float_block(t.size());
    if (!t.tracked) t.gradient = float_block(t.size());
    for (int s = 0; s < rule.slots(); s++) t.slot[s] = float_block(t.size());
    const auto pairs = [](const Layout& layout) { return float_block(amphw::pairs_of(layout).size()); };
    if (t.desc.bf16)
        for (Block& b : t.pairs) b = pairs(t.layout);
    if (t.has_transposed())
        for (int b = 0; b < VERSIONS; b++)
            (t.desc.bf16 ? t.transposed_pairs : t.transposed)[b] =
                t.desc.bf16 ? pairs(t.transposed_layout) : float_block(t.transposed_layout.size());
}

void Parameters::load(int32_t param, const float* values, const float* gradient, const float* const* slots) {
    Tensor& t = tensors_[param];
    if (t.value[0].size() == 0) allocate(t);
    const int buffer = current_.load();
    each_piece(t.layout, [&](int64_t to, int64_t from, int32_t n) {
        std::copy_n(values + from, n, t.value[buffer].floats() + to);
        for (int s = 0; s < rule.slots(); s++) std::copy_n(slots[s] + from, n, t.slot[s].floats() + to);
    });
    make_copies(t, buffer, {0, t.layout.cols});
    load_gradient(param, gradient);
    if (t.sparse) all_missed(t);
}

// Only the current buffer has the values.
void Parameters::all_missed(Tensor& t) {
    for (int b = 0; b < VERSIONS; b++) {
        t.missed[b].clear();
        if (b == current_.load()) continue;
        for (int32_t r = 0; r < t.layout.rows; r++) t.missed[b].push_back(r);
    }
}

void Parameters::loaded(int64_t version, int64_t rows, const State& given) {
    state = given;
    version_.store(version);
    versions_[current_.load()].store(version);
    if (device_ == nullptr) make_tables(current_.load());
    gave(rows);
}

void Parameters::store(int32_t param, float* values, float* gradient, float* const* slots) const {
    const Tensor& t = tensors_[param];
    const float* w = t.value[current_.load()].floats();
    each_piece(t.layout, [&](int64_t from, int64_t to, int32_t n) {
        std::copy_n(w + from, n, values + to);
        for (int s = 0; s < rule.slots(); s++) std::copy_n(t.slot[s].floats() + from, n, slots[s] + to);
    });
    store_gradient(param, gradient);
}

void Parameters::load_gradient(int32_t param, const float* gradient) {
    Tensor& t = tensors_[param];
    if (!t.tracked) {
        each_piece(t.layout, [&](int64_t to, int64_t from, int32_t n) {
            std::copy_n(gradient + from, n, t.gradient.floats() + to);
        });
        return;
    }
    t.gradient_rows.clear();
    const int32_t cols = t.layout.cols;
    for (int32_t r = 0; r < t.layout.rows; r++) {
        const float* g = gradient + int64_t(r) * cols;
        if (std::any_of(g, g + cols, [](float x) { return x != 0.0f; }))
            std::copy_n(g, cols, t.gradient_rows.at(t.gradient_rows.add(r)));
    }
}

std::vector<int32_t> Parameters::touched(int32_t param) const {
    std::vector<int32_t> found = tensors_[param].gradient_rows.numbers();
    std::sort(found.begin(), found.end());
    return found;
}

void Parameters::store_rows(int32_t param, const int32_t* rows, int64_t count, float* gradient) const {
    const Tensor& t = tensors_[param];
    const int32_t cols = t.layout.cols;
    for (int64_t k = 0; k < count; k++) {
        const int32_t slot = t.gradient_rows.find(rows[k]);
        if (slot < 0)
            std::fill_n(gradient + k * cols, cols, 0.0f);
        else
            std::copy_n(t.gradient_rows.at(slot), cols, gradient + k * cols);
    }
}

void Parameters::load_rows(int32_t param, const int32_t* rows, int64_t count, const float* gradient) {
    Tensor& t = tensors_[param];
    t.gradient_rows.clear();
    for (int64_t k = 0; k < count; k++)
        std::copy_n(gradient + k * t.layout.cols, t.layout.cols, t.gradient_rows.at(t.gradient_rows.add(rows[k])));
}

void Parameters::keep(int32_t param) {
    Tensor& t = tensors_[param];
    t.kept = true;
    if (t.tracked && !t.sparse && !t.pooled) {
        t.sparse = true;  // what `put_rows` writes is all that changes
        all_missed(t);
    }
    divide();
}

void Parameters::put(int32_t param, const float* values) {
    Tensor& t = tensors_[param];
    const int buffer = current_.load();
    each_piece(t.layout, [&](int64_t to, int64_t from, int32_t n) {
        std::copy_n(values + from, n, t.value[buffer].floats() + to);
    });
    make_copies(t, buffer, {0, t.layout.cols});
    if (t.sparse) all_missed(t);
}

void Parameters::put_rows(int32_t param, const int32_t* rows, int64_t count, const float* values) {
    Tensor& t = tensors_[param];
    if (t.pooled) {
        t.rows.reset(count);  // whatever was there before is not what its owner has by now
        for (int64_t k = 0; k < count; k++)
            std::copy_n(values + k * t.layout.cols, t.layout.cols, t.rows.at(t.rows.add(rows[k])));
        return;
    }
    const int buffer = current_.load();
    for (int64_t k = 0; k < count; k++)
        std::copy_n(values + k * t.layout.cols, t.layout.cols, t.value[buffer].floats() + t.layout.offset(rows[k], 0));
    if (!t.sparse) return;
    for (int b = 0; b < VERSIONS; b++)
        if (b != buffer) t.missed[b].insert(t.missed[b].end(), rows, rows + count);
}

void Parameters::pool(int32_t param) {
    Tensor& t = tensors_[param];
    t.pooled = true;
    t.rows = RowPool(t.layout.cols_padded);
    t.gradient_rows = RowPool(t.layout.cols_padded);
    for (Block& b : t.value) b = {};
    for (Block& b : t.slot) b = {};
    // `= {}` would keep the room of vectors.
    for (std::vector<int32_t>& rows : t.missed) rows = std::vector<int32_t>();
    divide();
}

std::vector<int32_t> Parameters::pulled(int32_t param) const {
    std::vector<int32_t> found = tensors_[param].rows.numbers();
    std::sort(found.begin(), found.end());
    return found;
}

void Parameters::store_pulled(int32_t param, const int32_t* rows, int64_t count, float* values) const {
    const Tensor& t = tensors_[param];
    for (int64_t k = 0; k < count; k++)
        std::copy_n(t.rows.at(t.rows.find(rows[k])), t.layout.cols, values + k * t.layout.cols);
}

int64_t Parameters::bytes() const {
    size_t all = 0;
    const auto add = [&](const auto& blocks) {
        for (const Block& b : blocks) all += b.size();
    };
    for (const Tensor& t : tensors_) {
        add(t.value);
        add(t.transposed);
        add(t.pairs);
        add(t.transposed_pairs);
        add(t.slot);
        all += t.gradient.size() + t.told.size() + t.rows.bytes() + t.gradient_rows.bytes();
        for (const std::vector<int32_t>& rows : t.missed) all += rows.capacity() * sizeof(int32_t);
    }
    return int64_t(all);
}

void Parameters::gave(int64_t rows) {
    accumulated = interval_rows_ = rows;
    if (device_ == nullptr) clear_folded();  // the gradients that were loaded are complete
}

void Parameters::store_gradient(int32_t param, float* gradient) const {
    const Tensor& t = tensors_[param];
    if (t.tracked) {
        const int64_t cols = t.layout.cols;
        std::fill_n(gradient, t.layout.rows * cols, 0.0f);
        const std::vector<int32_t>& rows = t.gradient_rows.numbers();
        for (size_t k = 0; k < rows.size(); k++)
            std::copy_n(t.gradient_rows.at(int32_t(k)), cols, gradient + rows[k] * cols);
        return;
    }
    const float* g = t.gradient.floats();
    Block complete;
    if (!unit_.folds.empty()) {
        complete = float_block(t.size());
        std::memcpy(complete.bytes(), t.gradient.bytes(), t.gradient.size());
        add_folded(param, complete.floats());
        g = complete.floats();
    }
    each_piece(t.layout, [&](int64_t from, int64_t to, int32_t n) { std::copy_n(g + from, n, gradient + to); });
}

void Parameters::clear_gradient(Tensor& t) {
    if (t.tracked)
        t.gradient_rows.clear();
    else
        std::memset(t.gradient.bytes(), 0, t.gradient.size());
}

}  // namespace amphw
