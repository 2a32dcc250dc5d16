// A run that goes by the log of another one: one thread, the same frames, the same bits.
//
// The log may be that of another graph or of other instances. What it asks for is done only if the run at hand has
// come to the same point: a frame's firings must be ready, and a node whose log is sealed must have parameters.
#include "kernels/denormals.hpp"
#include "engine.hpp"

namespace amphw {
namespace {

EngineError unlike(std::string text) {
    return EngineError(Failure::Replay, -1, -1, -1, 0, 0, std::move(text));
}

}  // namespace

void Engine::check_ready(int32_t unit, Kind kind, std::vector<Task>& tasks) {
    if (tasks.empty()) throw unlike("a frame without firings, or a second time");
    for (Task& t : tasks) {
        if (ready_.erase({t.slot, unit, kind, t.firing}) == 0)
            throw EngineError(Failure::Replay, unit, t.slot->index, t.firing, kind);
        t.rows = t.slot->unit(unit).spaces[0].of(t.firing);
    }
}

void Engine::begin_replayed(int64_t number, Frame& frame) {
    if (number != frames_.load() + 1) throw unlike("frames in another order");
    check_ready(frame.unit, frame.kind, frame.tasks);
}

const ExternalFrame* Engine::replay_take(int64_t number, int32_t unit, Kind kind, std::vector<Task> tasks) {
    Frame frame;
    frame.unit = unit;
    frame.kind = kind;
    frame.tasks = std::move(tasks);
    begin_replayed(number, frame);
    return describe(options_.workers, frame);
}

void Engine::replay_start(int64_t number, int32_t unit, Kind kind, std::vector<Task> tasks) {
    const FlushDenormals flush;
    if (replayed_.contains(number)) throw unlike("a frame without firings, or a second time");
    check_ready(unit, kind, tasks);
    Frame& frame = replayed_[number];
    frame.unit = unit;
    frame.kind = kind;
    frame.tasks = std::move(tasks);
    begin(frame);
    compute(*workers_.back(), frame);
    if (frame.log.chunk == nullptr) return;
    Parameters& p = *parameters_[unit];
    std::lock_guard lock(p.mutex);
    p.written(frame.log);
}

void Engine::replay_end(int64_t number) {
    auto found = replayed_.find(number);
    if (found == replayed_.end()) throw unlike("the end of a frame that has not begun");
    Worker& w = *workers_.back();
    commit(w, found->second);
    for (const Task& t : w.again) ready_.insert({t.slot, found->second.unit, BACKWARD, t.firing});
    w.again.clear();
    replayed_.erase(found);
}

Parameters& Engine::replayed_parameters(int32_t unit) {
    if (unit < 0 || size_t(unit) >= parameters_.size() || parameters_[unit] == nullptr)
        throw unlike("an update of a node without parameters");
    return *parameters_[unit];
}

void Engine::replay_seal(int32_t unit, bool due) {
    Parameters& p = replayed_parameters(unit);
    {
        std::lock_guard lock(p.mutex);
        p.seal(due);
    }
    if (!due && options_.regions[unit] < 0) replay_reduced(unit);
}

// Sums are the same whenever they are taken, as long as the order is; the version appears where the log says.
void Engine::replay_reduced(int32_t unit) {
    const FlushDenormals flush;
    Parameters& p = replayed_parameters(unit);
    for (;;) {
        std::unique_ptr<LogChunk> chunk;
        {
            std::lock_guard lock(p.mutex);
            chunk = p.claim();
        }
        if (chunk == nullptr) return;
        const bool due = chunk->due;
        reduce_chunk(workers_.back().get(), -1, unit, std::move(chunk));
        if (due) return;
    }
}

}  // namespace amphw
