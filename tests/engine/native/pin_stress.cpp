// Readers pin versions while one thread publishes them as fast as it can. Prints what was read wrongly, and how often.
//
// Each update negates every number, so a version holds either +1 or -1 throughout: a reader that sees both, or a
// sign that is not its version's, reads a buffer that is being written. Few numbers and few readers, so that versions
// follow one another: what is looked for is a reader interrupted between its look at the current buffer and its pin.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "parameters.hpp"

namespace amphw {

// The arithmetic is the test's own: nothing but the parameters is under test, and little else is compiled.
namespace generic {
extern const Kernels table{};
extern const Bf16 bf16{};
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels table{};
extern const Bf16 bf16{};
}
namespace avx512 {
extern const Kernels table{};
extern const Bf16 bf16{};
}
namespace avx512bf16 {
extern const Bf16 bf16{};
}
#endif
void blas_gradient(const float*, int64_t, const float*, int64_t, int32_t, float*, const Layout&) {}

}  // namespace amphw

using namespace amphw;

int main(int argc, char** argv) {
    const double seconds = std::atof(argv[1]);
    const int readers = std::atoi(argv[2]);
    constexpr int32_t WIDTH = 32;
    Kernels kernels{};
    kernels.panel = WIDTH;
    kernels.largest = [](const float*, int64_t) -> uint32_t { return 0; };
    kernels.update = [](const Update& u) {
        for (int64_t i = 0; i < u.n; i++) u.out[i] = -u.w[i];
    };
    UnitDesc unit{};
    unit.params = {{"w", 0, WIDTH, false, false, false, false}};
    Rule rule{};
    rule.interval = 1;
    rule.optimizer = Optimizer::Sgd;
    Parameters parameters(unit, rule, kernels, nullptr);
    const std::vector<float> ones(WIDTH, 1.0f), zeros(WIDTH, 0.0f);
    parameters.load(0, ones.data(), zeros.data(), nullptr);
    parameters.loaded(0, 0, State{});

    std::atomic<bool> stop{false};
    std::atomic<long> reads{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < readers; i++)
        threads.emplace_back([&] {
            while (!stop.load()) {
                const int buffer = parameters.pin();
                const float expected = parameters.version_of(buffer) % 2 ? -1.0f : 1.0f;
                const volatile float* w = parameters.tensor(0).value[buffer].floats();
                bool good = true;
                for (int32_t k = 0; k < WIDTH; k++) good = good && w[k] == expected;
                parameters.unpin(buffer);
                reads++;
                wrong += !good;
            }
        });
    long updates = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (wrong == 0 && std::chrono::steady_clock::now() < end) {
        const std::string* bad = nullptr;
        parameters.accumulated = 1;
        parameters.publish(parameters.prepare(&bad));
        updates++;
    }
    stop = true;
    for (std::thread& t : threads) t.join();
    std::printf("%ld %ld %ld\n", wrong.load(), reads.load(), updates);
}
