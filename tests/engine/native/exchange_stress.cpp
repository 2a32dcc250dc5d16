// One thread updates as fast as it can, another takes what the updates have applied and applies gradients of its own,
// and readers read versions. Prints how often numbers were wrong, and how often there were updates and exchanges.
//
// All gradients are ones, and the rate is one: after u updates and r received ranges of all numbers every number is
// -(u + r), which is exact in floats. So a version whose numbers differ is one that was being written, and what is lost
// or counted twice is seen at the end.
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

namespace {

constexpr int32_t ROWS = 3, COLUMNS = 40, PANEL = 32;
constexpr int64_t SIZE = int64_t(ROWS) * COLUMNS;

// f() in the place of the one who reduces, as the engine lets a worker reduce and the host exchange.
template <class F>
void held(Parameters& p, F f) {
    for (;;) {
        {
            std::lock_guard lock(p.mutex);
            if (p.hold()) break;
        }
        std::this_thread::yield();
    }
    f();
    std::lock_guard lock(p.mutex);
    p.let_go();
}

// Mutexes are not fair: the other side might never get its turn.
void rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

}  // namespace

int main(int argc, char** argv) {
    const double seconds = std::atof(argv[1]);
    const int readers = std::atoi(argv[2]);
    Kernels kernels{};
    kernels.panel = PANEL;
    kernels.largest = [](const float*, int64_t) -> uint32_t { return 0; };
    kernels.update = [](const Update& u) {
        for (int64_t i = 0; i < u.n; i++) {
            u.out[i] = u.w[i] - u.scale * u.g[i];
            u.g[i] = 0;
        }
    };
    UnitDesc unit{};
    unit.params = {{"w", ROWS, COLUMNS, false, false, false, false}};
    Rule rule{};
    rule.interval = 1;
    rule.optimizer = Optimizer::Sgd;
    Parameters parameters(unit, rule, kernels, nullptr);
    const std::vector<float> ones(SIZE, 1.0f), zeros(SIZE, 0.0f);
    parameters.load(0, zeros.data(), zeros.data(), nullptr);
    parameters.loaded(0, 0, State{});
    parameters.tell();

    std::atomic<bool> stop{false};
    std::atomic<long> reads{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < readers; i++)
        threads.emplace_back([&] {
            std::vector<float> values(SIZE);
            while (!stop.load()) {
                parameters.latest(0, values.data());
                bool same = true;
                for (float v : values) same = same && v == values[0];
                reads++;
                wrong += !same;
            }
        });
    long updates = 0;
    threads.emplace_back([&] {
        while (!stop.load() && updates < (1 << 22)) {
            held(parameters, [&] {
                const std::string* bad = nullptr;
                parameters.load_gradient(0, ones.data());
                parameters.accumulated = 1;
                parameters.publish(parameters.prepare(&bad));
                updates++;
            });
            rest();
        }
    });
    long received = 0, told = 0;
    std::vector<float> sum(SIZE);
    const auto take = [&] {
        std::fill(sum.begin(), sum.end(), 0.0f);
        held(parameters, [&] {
            const auto [rows, count] = parameters.take_told({sum.data()});
            for (float v : sum) wrong += v != float(count);
            told += count;
        });
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (wrong == 0 && received < (1 << 22) && std::chrono::steady_clock::now() < end) {
        take();
        const int64_t cut = received % (SIZE + 1);
        held(parameters, [&] {
            parameters.receive({{0, 0, cut, ones.data(), 1.0f}, {0, cut, SIZE - cut, ones.data(), 1.0f}});
        });
        received++;
        rest();
    }
    stop = true;
    for (std::thread& t : threads) t.join();
    take();
    std::vector<float> values(SIZE);
    parameters.latest(0, values.data());
    for (float v : values) wrong += v != -float(updates + received);
    wrong += told != updates || parameters.version() != updates;
    std::printf("%ld %ld %ld %ld\n", wrong.load(), reads.load(), updates, received);
}
