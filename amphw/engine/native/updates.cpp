// What becomes of logged gradients: chunks are reduced, versions published.
#include <algorithm>
#include <thread>

#include "clock.hpp"
#include "kernels/denormals.hpp"
#include "engine.hpp"

namespace amphw {
namespace {

// One more for as long as this lives, also where something is thrown.
struct Counted {
    explicit Counted(std::atomic<int>& number) : number(number) { number.fetch_add(1); }
    ~Counted() { number.fetch_sub(1); }
    std::atomic<int>& number;
};

}  // namespace

void Engine::reduce_due(Worker* w, int32_t worker, int32_t unit) {
    if (replaying_) return;
    Parameters& p = *parameters_[unit];
    for (;;) {
        std::unique_ptr<LogChunk> chunk;
        {
            std::lock_guard lock(p.mutex);
            chunk = p.claim();
        }
        if (chunk == nullptr) return;
        reduce_chunk(w, worker, unit, std::move(chunk));
    }
}

void Engine::reduce_chunk(Worker* w, int32_t worker, int32_t unit, std::unique_ptr<LogChunk> chunk) {
    Parameters& p = *parameters_[unit];
    const auto begun = Clock::now();
    const bool sleeps = sleepers_.has(unit);  // its gradients are rows that count and have no values
    const Each each = [&](int32_t n, const std::function<void(int32_t)>& work) {
        if (n == 1 || replaying_) return one_by_one(n, work);
        const Counted counted(sharing_);
        shared_[unit].run(n, work, [&] {
            if (idle_.load() == 0) return;
            std::lock_guard lock(mutex_);
            work_.notify_all();
        });
    };
    if (sleeps)
        p.accumulated += chunk->gradient_rows;
    else
        p.reduce(*chunk, each);
    if (chunk->due) {
        const std::string* bad = nullptr;
        const int buffer = sleeps ? -1 : p.prepare(&bad, each);
        if (bad != nullptr) throw EngineError(Failure::Gradient, unit, -1, -1, 0, 0, *bad);
        std::unique_lock log(log_mutex_, std::defer_lock);
        if (options_.log) log.lock();
        const bool published = sleeps ? p.publish_unchanged() : buffer >= 0;
        if (buffer >= 0) p.publish(buffer);
        record({EventType::Reduced, unit, 0, 0, {}});
        if (w != nullptr) {
            std::lock_guard lock(w->mutex);
            w->counters.updates += published;
        }
        for (Slot* slot : chunk->waiting) settle(*slot, 1);
    }
    const bool due = chunk->due;
    {
        std::lock_guard lock(p.mutex);
        p.release(std::move(chunk));
    }
    if (w == nullptr) return;
    const auto ended = Clock::now();
    std::lock_guard lock(w->mutex);
    if (worker >= 0 && worker < options_.workers)
        w->counters.busy += std::chrono::duration<double>(ended - begun).count();
    if (due && options_.trace)
        w->slices.push_back({worker, unit, 3, microseconds(begun), microseconds(ended) - microseconds(begun), 0, -1, -1});
}

bool Engine::may_help(int32_t worker) const {
    if (sharing_.load(std::memory_order_relaxed) == 0) return false;
    return std::any_of(helps_[worker].begin(), helps_[worker].end(), [&](int32_t u) { return shared_[u].open(); });
}

bool Engine::help(int32_t worker) {
    const auto begun = Clock::now();
    for (int32_t unit : helps_[worker]) {
        if (!shared_[unit].help()) continue;
        Worker& w = *workers_[worker];
        std::lock_guard lock(w.mutex);
        w.counters.busy += std::chrono::duration<double>(Clock::now() - begun).count();
        return true;
    }
    return false;
}

void Engine::update(int32_t unit, bool publish) {
    const FlushDenormals flush;
    Parameters& p = *parameters_[unit];
    const int64_t before = p.version();
    int64_t wanted;
    {
        std::unique_lock log(log_mutex_, std::defer_lock);
        if (options_.log) log.lock();
        std::lock_guard lock(p.mutex);
        wanted = p.seal(publish);
        record({EventType::Seal, unit, int64_t(publish ? Cause::Update : Cause::Sum), 0, {}});
    }
    // Frames that are still writing, or a worker that reduces, finish first.
    while (!failed_.load()) {
        try {
            reduce_due(workers_.back().get(), -1, unit);
        } catch (const EngineError& error) {
            fail(error);
            return;
        }
        std::unique_lock lock(p.mutex);
        if (p.released() >= wanted) break;
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (publish && sleepers_.has(unit) && p.version() > before) sleepers_.update(unit, sleep_clock());
}

}  // namespace amphw
