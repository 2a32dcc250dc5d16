// Work in parts that threads take as they like. Prints what was done twice or not at all, how many parts were done by
// the one whose work it was, how many by others, and how often what a part threw was heard of.
//
// Numbers are plain: the thread sanitizer sees whether whoever goes on after `run` has really waited for all of them.
#include "shared_work.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

using namespace amphw;

int main(int argc, char** argv) {
    const double seconds = std::atof(argv[1]);
    const int helpers = std::atoi(argv[2]);
    constexpr int32_t PARTS = 16, NUMBERS = 256;
    SharedWork shared;
    std::atomic<bool> stop{false};
    std::atomic<long> own{0}, helped{0};
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
    long thrown = 0;
    while (std::chrono::steady_clock::now() < end && (helped.load() < 1000 || runs < 1000)) {
        const std::function<void(int32_t)> fails = [&](int32_t part) {
            if (part == int32_t(runs % PARTS)) throw std::runtime_error("a part");
        };
        try {
            shared.run(PARTS, fails, [&] { open++; });
            wrong++;
        } catch (const std::runtime_error&) {
            thrown++;
        }
        open--;
        const std::function<void(int32_t)> work = [&, me = std::this_thread::get_id()](int32_t part) {
            own += std::this_thread::get_id() == me;
            for (int32_t k = 0; k < NUMBERS; k++) numbers[part * NUMBERS + k]++;
        };
        shared.run(PARTS, work, [&] { open++; });
        open--;
        runs++;
        for (long n : numbers) wrong += n != runs;
    }
    stop = true;
    for (std::thread& t : threads) t.join();
    std::printf("%ld %ld %ld %ld\n", wrong, own.load(), helped.load(), thrown);
    return 0;
}
