// What the host adds to parameters while frames run: copies of a node are brought together so.
//
// Whoever moves takes the place of the one who reduces. So no update is under way, and a move makes the next version as
// an update does, in a buffer that nobody reads; gradients that are logged meanwhile wait for their reduction.
#include <cstring>
#include <thread>

#include "engine.hpp"
#include "kernels/denormals.hpp"

namespace amphw {

void Parameters::latest(int32_t param, float* values) {
    const Tensor& t = tensors_[param];
    const int buffer = pin();
    each_piece(t.layout, [&](int64_t from, int64_t to, int32_t n) {
        std::copy_n(t.value[buffer].floats() + from, n, values + to);
    });
    unpin(buffer);
}

void Parameters::move(const std::vector<const float*>& moves) {
    const int32_t n = int32_t(unit_.params.size());
    // Gradients of folded tables belong to the values that they were computed with.
    for (int32_t i = 0; i < n; i++) add_folded(i, tensors_[i].gradient.floats(), pack_.floats());
    clear_folded();
    const int from = current_.load(), to = spare();
    for (int32_t i = 0; i < n; i++) add(tensors_[i], from, to, moves[i]);
    make_tables(to);
    versions_[to].store(version_.load());
    current_.store(to);
}

void Parameters::add(Tensor& t, int from, int to, const float* move) {
    float* values = t.value[to].floats();
    if (!t.sparse) {
        std::memcpy(values, t.value[from].bytes(), t.value[from].size());
        each_piece(t.layout, [&](int64_t at, int64_t index, int32_t n) {
            for (int32_t c = 0; c < n; c++) values[at + c] += move[index + c];
        });
        transpose(t, to);
        return;
    }
    catch_up(t, from, to);
    for (int32_t row = 0; row < t.layout.rows; row++) {
        const float* m = move + int64_t(row) * t.layout.cols;
        if (std::all_of(m, m + t.layout.cols, [](float x) { return x == 0.0f; })) continue;
        float* mine = values + t.layout.offset(row, 0);
        for (int32_t c = 0; c < t.layout.cols; c++) mine[c] += m[c];
        for (int b = 0; b < VERSIONS; b++)
            if (b != to) t.missed[b].push_back(row);
    }
}

void Engine::move(int32_t unit, const std::vector<const float*>& moves) {
    const FlushDenormals flush;
    Parameters& p = *parameters_[unit];
    const auto holds = [&] {
        std::lock_guard lock(p.mutex);
        return p.hold();
    };
    while (!holds()) {
        if (failed_.load()) return;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    p.move(moves);
    {
        std::lock_guard lock(p.mutex);
        p.let_go();
    }
    try {
        reduce_due(workers_.back().get(), -1, unit);  // what others could not meanwhile
    } catch (const EngineError& error) {
        fail(error);
    }
}

}  // namespace amphw
