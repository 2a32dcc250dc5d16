// What the host does to parameters while frames run: copies of a node are brought together, and ranks exchange.
//
// Whoever does takes the place of the one who reduces. So no update is under way, and what changes values makes the
// next version as an update does, in a buffer that nobody reads; gradients that are logged meanwhile wait for their
// reduction.
#include <thread>

#include "engine.hpp"
#include "kernels/denormals.hpp"

namespace amphw {

void Engine::hold(int32_t unit, const std::function<void(Parameters&)>& act) {
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
    try {
        act(p);
        {
            std::lock_guard lock(p.mutex);
            p.let_go();
        }
        reduce_due(workers_.back().get(), -1, unit);  // what others could not meanwhile
    } catch (const EngineError& error) {
        fail(error);
    } catch (const std::exception& error) {
        fail(EngineError(Failure::Internal, unit, -1, -1, 0, 0, error.what()));
    }
}

void Engine::move(int32_t unit, const std::vector<const float*>& moves) {
    hold(unit, [&](Parameters& p) { p.move(moves); });
}

std::pair<int64_t, int64_t> Engine::told(int32_t unit, const std::vector<float*>& sums) {
    std::pair<int64_t, int64_t> counts{0, 0};
    hold(unit, [&](Parameters& p) { counts = p.take_told(sums); });
    return counts;
}

void Engine::receive(int32_t unit, const std::vector<ReceivedRange>& ranges) {
    hold(unit, [&](Parameters& p) { p.receive(ranges); });
}

}  // namespace amphw
