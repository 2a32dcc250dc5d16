// How long a piece of work takes, for choices between kernels and for benchmarks: the same for all of them.
#pragma once

#include <chrono>
#include <cstdint>

namespace amphw {

// Least seconds that one call of `work` took.
template <class Work>
double best_seconds(int repeats, Work work) {
    using Clock = std::chrono::steady_clock;
    work();
    int calls = 1;
    double best = 1e9;
    for (int i = 0; i < repeats; i++) {
        const auto start = Clock::now();
        for (int call = 0; call < calls; call++) work();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / calls;
        if (seconds < best) best = seconds;
        calls = best < 2e-4 ? int(2e-4 / best) + 1 : 1;  // long against the clock, short against the scheduler
    }
    return best;
}

// Operands as they are in practice: neither denormal nor all the same.
inline void fill(float* x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = float(i % 97) * 0.01f - 0.5f;
}

}  // namespace amphw
