// Frames of sinks. Nobody answers what a sink computes, so its backward frame has the firings of its forward frame, and
// follows at once. Both then run tile by tile: what backward needs of forward, such as the scores of a large vocabulary,
// is scratch of the worker and no part of the instance's memory.
//
// For everyone else they are two frames. The log says that the first has ended before the second begins, and each reads
// the parameters that were published when it began.
#include "clock.hpp"
#include "engine.hpp"

namespace amphw {

// Not where others compute them, or nobody does. Those of a replayed log may come apart (`replay`).
GraphDesc Engine::marked(GraphDesc graph, const Options& options) {
    for (size_t u = 0; u < graph.units.size(); u++) {
        UnitDesc& unit = graph.units[u];
        const bool sleeps = options.sleep[u] > 0.0 || (u < options.slept.size() && options.slept[u].device >= 0);
        unit.at_once = unit.labels > 0 && unit.has_backward && options.regions[u] < 0 && !sleeps;
    }
    return graph;
}

void Engine::replay() {
    replaying_ = true;
    for (UnitDesc& unit : graph_.units) unit.at_once = false;
}

void Engine::serve_at_once(int32_t worker, Frame& frame) {
    Worker& w = *workers_[worker];
    Parameters* p = parameters_[frame.unit].get();
    const auto begun = Clock::now();
    const int64_t flow = options_.trace ? origin(frame) : -1;
    Frame& back = w.back;
    double backward = 0.0;
    {
        const Pinned before(p, frame.buffer);
        commit(w, frame);  // it delivers nothing
        back.unit = frame.unit;
        back.kind = BACKWARD;
        back.tasks.swap(w.again);
        w.again.clear();
        begin(back);
        const Pinned after(p, back.buffer);
        backward = w.runner.run_at_once(frame, back, p);
        check_losses(frame);
    }
    count_staleness(w, back);
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    count_served(worker, frame, microseconds(begun), seconds - backward, flow);
    count_served(worker, back, microseconds(begun) + (seconds - backward) * 1e6, backward, -1);
    commit(w, back);
    logged(w, worker, back);
}

}  // namespace amphw
