// Work in parts that threads take as they like. Prints what was done twice or not at all, and how many parts were done
// by the one whose work it was, and by others.
//
// Numbers are plain: the thread sanitizer sees whether whoever goes on after `run` has really waited for all of them.
#include "shared_work.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace amphw;

int main(int argc, char** argv) {
    const double seconds = std::atof(argv[1]);
    const int helpers = std::atoi(argv[2]);
    constexpr int32_t PARTS = 16, NUMBERS = 256;
    SharedWork shared;
    std::atomic<bool> stop{false};
    std::atomic<long> helped{0};
    std::atomic<int> open{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < helpers; i++)
        threads.emplace_back([&] {
            while (!stop.load())
                if (open.load() > 0 && shared.help()) helped++;
        });
    std::vector<long> numbers(PARTS * NUMBERS, 0);
    long wrong = 0, runs = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
        const std::function<void(int32_t)> work = [&](int32_t part) {
            for (int32_t k = 0; k < NUMBERS; k++) numbers[part * NUMBERS + k]++;
        };
        shared.run(PARTS, work, [&] { open++; }, [&] { open--; });
        runs++;
        for (long n : numbers) wrong += n != runs;
    }
    stop = true;
    for (std::thread& t : threads) t.join();
    std::printf("%ld %ld %ld\n", wrong, runs * PARTS - helped.load(), helped.load());
    return 0;
}
