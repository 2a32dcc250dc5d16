// _native.peak: how many fused multiply-adds a core does in a second, which no product of matrices exceeds.
//
// Registers alone are used: ACCUMULATORS vectors, each of which waits for itself only, more than the latency times the
// ports of any processor that we know. CMakeLists.txt lets the compiler contract a product and a sum.
#include <chrono>
#include <utility>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "bind/bind.hpp"
#include "kernels/kernels.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace amphw {
namespace {

constexpr int ACCUMULATORS = 12, TURNS = 4096;

// Runs TURNS steps of all accumulators with vectors of WIDTH floats. Values stay near 1, which is neither denormal nor
// infinite. `one` and `less` are unknown to the compiler, so that nothing is computed beforehand.
#define AMPHW_FUSED(NAME, WIDTH, TARGET)                                           \
    TARGET float NAME(float one, float less) {                                     \
        typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float))));  \
        Vector x[ACCUMULATORS];                                                    \
        const Vector a = Vector{} + less, b = Vector{} + (one - less);             \
        for (int i = 0; i < ACCUMULATORS; i++) x[i] = Vector{} + one;              \
        for (int turn = 0; turn < TURNS; turn++) {                                 \
            for (int i = 0; i < ACCUMULATORS; i++) x[i] = x[i] * a + b;            \
        }                                                                          \
        Vector sum{};                                                              \
        for (int i = 0; i < ACCUMULATORS; i++) sum += x[i];                        \
        float total = 0.0f;                                                        \
        for (int lane = 0; lane < WIDTH; lane++) total += sum[lane];               \
        return total;                                                              \
    }

AMPHW_FUSED(generic, 4, )
#if defined(__x86_64__)
AMPHW_FUSED(avx2, 8, __attribute__((target("avx2,fma"))))
AMPHW_FUSED(avx512, 16, __attribute__((target("avx512f"))))
#endif

struct Widest {
    float (*run)(float, float);
    int width;  // floats of a vector
};

Widest widest() {
#if defined(__x86_64__)
    if (kernels("avx512") != nullptr) return {avx512, 16};
    if (kernels("avx2") != nullptr) return {avx2, 8};
#endif
    return {generic, 4};
}

// Operations a second, a fused multiply-add being two, over so many seconds.
double fused(double seconds) {
    using Clock = std::chrono::steady_clock;
    const Widest way = widest();
    volatile float one = 1.0f, less = 0.999f, sink = 0.0f;
    const double operations = 2.0 * way.width * ACCUMULATORS * TURNS * 16;
    double done = 0.0, passed = 0.0;
    const auto begin = Clock::now();
    while (passed < seconds) {
        for (int i = 0; i < 16; i++) sink = way.run(one, less);
        done += operations;
        passed = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    (void)sink;
    return done / passed;
}

}  // namespace

void bind_peak(nb::module_& parent) {
    nb::module_ m = parent.def_submodule("peak", "What a core can do at most.");
    m.def("fused", fused, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Floating-point operations a second of fused multiply-adds on this thread.");
    m.def("width", [] { return widest().width; }, "Floats of the widest vector that this processor multiplies.");
}

}  // namespace amphw
