// What happens to an instance: it is pumped, its messages are counted, it retires. And what the host asks.
#include <chrono>
#include <cstring>

#include "engine.hpp"

namespace amphw {
namespace {

float NO_PAYLOAD[16] = {};  // rows of width 0 have to lie somewhere

}  // namespace

Engine::Submitted Engine::submit(int32_t index, int64_t generation, int64_t number, Mode mode,
                                 const Structure& structure, std::vector<const float*> data,
                                 const std::vector<int64_t>& data_widths, const std::vector<int64_t>& data_rows) {
    std::shared_ptr<const Plan> plan = planner_.plan(structure);
    if (plan == nullptr) return Submitted::Refused;
    for (size_t u = 0; u < graph_.units.size(); u++) {
        const int32_t d = graph_.units[u].data;
        if (d >= 0 && data_rows[d] < plan->units[u].data_rows) return Submitted::Refused;
    }
    std::unique_ptr<Slot>& owner = slots_[index];
    if (owner == nullptr) owner = std::make_unique<Slot>();
    Slot& slot = *owner;
    slot.index = index;
    slot.generation = generation;
    slot.number = number;
    slot.mode = mode;
    slot.plan = std::move(plan);
    const int64_t bytes = slot.trains() ? slot.plan->train_bytes : slot.plan->infer_bytes;
    // Frames and logs need room as well. Without instances in flight there are none, and one may take what it needs.
    if (memory_ != nullptr && in_flight_.load() > 0 && !replaying_) {
        size_t needed = size_t(bytes);
        for (size_t d = 0; d < data.size(); d++) needed += size_t(data_widths[d] * data_rows[d]) * sizeof(float);
        if (memory_->used() + needed > memory_->size() / 4 * 3) return Submitted::NoRoom;
    }
    try {
        // An external executor may still be at work on the last instance, in a memory that was laid out otherwise.
        if (int64_t(slot.memory.size()) < bytes || memory_ != nullptr) {
            slot.memory = Block();
            slot.memory = Block(size_t(bytes), memory_.get());
        }
        if (memory_ != nullptr) keep_data(slot, data, data_widths, data_rows);
    } catch (const std::bad_alloc&) {
        if (memory_ == nullptr) throw;
        return Submitted::NoRoom;
    }
    slot.age = ages_.fetch_add(1) + 1;
    slot.faulty.clear();
    for (size_t u = 0; u < graph_.units.size(); u++) {
        if (graph_.units[u].is_source) continue;
        const UnitPlan& p = slot.unit(int32_t(u));
        std::copy(p.need.begin(), p.need.end(), slot.left(int32_t(u)));
        for (int64_t k = 0; k < p.members.size(); k++)
            std::memset(slot.operand(int32_t(u), int32_t(k)), 0, size_t(p.positions(k)) * sizeof(OperandRef));
    }
    if (!integers(slot, structure)) return Submitted::Refused;
    slot.active = true;
    in_flight_.fetch_add(1);
    Worker& w = *workers_.back();
    std::unique_lock log(log_mutex_, std::defer_lock);
    if (options_.log) log.lock();
    record({EventType::Submit, number, int64_t(mode), 0, {}});
    slot.outstanding.store(1);  // so that it cannot retire before it is pumped
    try {
        pump(w, slot, data, data_widths);
    } catch (const EngineError& error) {
        fail(error);  // the instance is half pumped: there is no way to go on
        return Submitted::Failed;
    }
    push_ready(w);
    settle(slot, 1);
    return Submitted::Pumped;
}

// A state of a row need not occur, so a read outside a table counts only if its firing runs.
bool Engine::integers(Slot& slot, const Structure& structure) {
    Arena& arena = Arena::here();
    const Arena::Scope scope(arena);
    Evaluator evaluate(structure, arena);
    for (size_t u = 0; u < graph_.units.size(); u++) {
        const UnitDesc& unit = graph_.units[u];
        const UnitPlan& plan = slot.unit(int32_t(u));
        for (size_t k = 0; k < unit.ints.size(); k++) {
            const auto& [e, space] = unit.ints[k];
            const Columns& rows = plan.rows[space];
            const List<uint8_t> outside = arena.list<uint8_t>(rows.size, 0);
            const Value v = evaluate(e, rows, outside.values);
            int64_t* to = slot.at<int64_t>(slot.layout(int32_t(u)).ints[k]);
            for (int64_t r = 0; r < rows.size; r++) to[r] = v.at(r);
            for (int32_t i = 0; evaluate.marked && i < plan.firings; i++)
                for (int32_t r = 0; r < plan.spaces[space].of(i); r++)
                    if (outside[plan.spaces[space].start(i) + r]) slot.faulty.push_back({int32_t(u), i});
        }
    }
    return evaluate.trouble == Trouble::None;
}

void Engine::pump(Worker& w, Slot& slot, const std::vector<const float*>& data, const std::vector<int64_t>& widths) {
    for (size_t u = 0; u < graph_.units.size(); u++) {
        const UnitDesc& unit = graph_.units[u];
        if (!unit.is_source) continue;
        const UnitPlan& plan = slot.unit(int32_t(u));
        if (!plan.faults.empty())
            throw EngineError(Failure::Fault, int32_t(u), slot.index, 0, plan.faults[0].trap);
        slot.outstanding.fetch_add(int64_t(plan.routes.size()));
        if (slot.trains()) {
            std::lock_guard lock(w.mutex);
            w.counters.forward += int64_t(plan.routes.size());
        }
        for (int64_t r = 0; r < plan.routes.size(); r++) {
            const Route& route = plan.routes[r];
            float* rows = NO_PAYLOAD;
            if (unit.data >= 0 && widths[unit.data] > 0)
                rows = const_cast<float*>(data[unit.data]) +
                       (plan.data[r].first + std::max(route.row, 0)) * widths[unit.data];
            deliver(w, slot, route, rows, int32_t(u), 0);
        }
    }
}

void Engine::settle(Slot& slot, int64_t messages) {
    if (slot.outstanding.fetch_sub(messages, std::memory_order_acq_rel) == messages) retire(slot);
}

void Engine::retire(Slot& slot) {
    Retired out{slot.index, slot.generation, slot.number, slot.mode, {}};
    for (size_t u = 0; u < graph_.units.size(); u++) {
        const UnitDesc& unit = graph_.units[u];
        if (unit.labels == 0) continue;
        const UnitPlan& plan = slot.unit(int32_t(u));
        SinkReport report;
        report.unit = int32_t(u);
        report.sums.assign(unit.labels, 0.0);
        if (slot.mode == Mode::Predict) report.values.resize(unit.labels);
        bool any = false;
        for (int32_t i = 0; i < plan.firings; i++) {
            if (plan.need[i] == 0 || std::atomic_ref(slot.left(int32_t(u))[i]).load() != 0) continue;  // did not fire
            any = true;
            for (int32_t k = 0; k < unit.labels; k++) {
                const ValueDesc& o = unit.outputs[k];
                const Counts& counts = plan.spaces[o.space];
                if (k == 0) report.rows += counts.of(i);
                const int64_t stride = row_stride(o.width);
                const float* rows =
                    slot.at<float>(slot.layout(int32_t(u)).outputs[k]) + counts.start(i) * stride;
                for (int32_t r = 0; r < counts.of(i); r++)
                    for (int32_t c = 0; c < o.width; c++) {
                        report.sums[k] += rows[r * stride + c];
                        if (slot.mode == Mode::Predict) report.values[k].push_back(rows[r * stride + c]);
                    }
            }
        }
        if (any) out.sinks.push_back(std::move(report));
    }
    record({EventType::Retire, slot.number, int64_t(slot.mode), 0, {}});
    slot.active = false;
    if (memory_ != nullptr) {  // others may be waiting for the room
        slot.memory = Block();
        slot.data = Block();
    }
    std::lock_guard lock(mutex_);
    done_.push_back(std::move(out));
    in_flight_.fetch_sub(1);
    // Waking the host for each of many costs more than it brings; `poll` looks again soon enough.
    if (int64_t(done_.size()) >= options_.report_batch) news_.notify_all();
}

void Engine::check_losses(const Frame& frame) {
    const UnitDesc& unit = graph_.units[frame.unit];
    const ValueDesc& o = unit.outputs[0];
    const int64_t stride = row_stride(o.width);
    for (const Task& t : frame.tasks) {
        const Counts& counts = t.slot->unit(frame.unit).spaces[o.space];
        const float* rows =
            t.slot->at<float>(t.slot->layout(frame.unit).outputs[0]) + counts.start(t.firing) * stride;
        for (int32_t r = 0; r < counts.of(t.firing); r++)
            if (!kernels_.finite(rows + r * stride, 1)) throw EngineError(Failure::Loss, frame.unit, t.slot->index, t.firing);
    }
}

// --- the host's questions -------------------------------------------------------------------------------------

std::vector<Retired> Engine::poll(double timeout, bool* stuck) {
    std::unique_lock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout);
    while (timeout > 0.0 && done_.empty() && !failure_ && std::chrono::steady_clock::now() < end)
        news_.wait_for(lock, std::chrono::duration<double>(std::min(timeout, LOOK_AGAIN)));
    *stuck = false;
    if (done_.empty() && in_flight_.load() > 0 && !replaying_ && !failure_) {
        lock.unlock();
        const bool rest = at_rest();
        lock.lock();
        *stuck = rest && done_.empty() && in_flight_.load() > 0 && !failure_;
    }
    std::vector<Retired> out;
    out.swap(done_);
    return out;
}

// Whether nothing runs and nothing waits to be run: only a new instance could change that.
bool Engine::at_rest() {
    if (pending_.load() != 0) return false;
    for (const auto& p : parameters_) {
        if (p == nullptr) continue;
        std::lock_guard lock(p->mutex);
        if (!p->idle()) return false;
    }
    return pending_.load() == 0;
}

bool Engine::settled() {
    if (in_flight_.load() != 0) return false;
    for (const auto& p : parameters_) {
        if (p == nullptr) continue;
        std::lock_guard lock(p->mutex);
        if (!p->empty()) return false;
    }
    return true;
}

Counters Engine::counters() {
    Counters out;
    for (const auto& w : workers_) {
        std::lock_guard lock(w->mutex);
        out.forward += w->counters.forward;
        out.backward += w->counters.backward;
        out.frames += w->counters.frames;
        out.updates += w->counters.updates;
        for (const auto& [unit, histogram] : w->counters.staleness)
            for (const auto& [behind, rows] : histogram) out.staleness[unit][behind] += rows;
        const double busy = w->counters.busy;
        w->counters = Counters();
        w->counters.busy = busy;  // `busy` takes it
    }
    return out;
}

std::vector<double> Engine::busy() {
    std::vector<double> out;
    for (int32_t w = 0; w < options_.workers; w++) {
        std::lock_guard lock(workers_[w]->mutex);
        out.push_back(workers_[w]->counters.busy);
        workers_[w]->counters.busy = 0.0;
    }
    return out;
}

std::vector<TraceSlice> Engine::trace() {
    std::vector<TraceSlice> out;
    for (const auto& w : workers_) {
        std::lock_guard lock(w->mutex);
        out.insert(out.end(), w->slices.begin(), w->slices.end());
        w->slices.clear();
    }
    return out;
}

std::vector<Event> Engine::events() {
    std::lock_guard lock(log_mutex_);
    std::vector<Event> out;
    out.swap(events_);
    return out;
}

// Callers hold `log_mutex_` if there is a log.
void Engine::record(Event event) {
    if (options_.log) events_.push_back(std::move(event));
}

void Engine::fail(const EngineError& error) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_.emplace(error);
    failed_.store(true);
    news_.notify_all();
    work_.notify_all();
}

std::optional<EngineError> Engine::failure() {
    std::lock_guard lock(mutex_);
    return failure_;
}

void Engine::stop_waiting() {
    std::lock_guard lock(mutex_);
    work_.notify_all();
    news_.notify_all();
}

Slot* Engine::slot(int32_t index) {
    auto found = slots_.find(index);
    return found == slots_.end() ? nullptr : found->second.get();
}

std::vector<Slot*> Engine::active() {
    std::vector<Slot*> out;
    for (const auto& [index, slot] : slots_)
        if (slot->active) out.push_back(slot.get());
    return out;
}

int64_t Engine::slot_bytes() const {
    int64_t bytes = 0;
    for (const auto& [index, slot] : slots_) bytes += int64_t(slot->memory.size());
    return bytes;
}

std::pair<int64_t, int64_t> Engine::planned_bytes(const Structure& structure) {
    const std::shared_ptr<const Plan> plan = planner_.plan(structure);
    if (plan == nullptr) return {-1, -1};
    return {plan->train_bytes, plan->infer_bytes};
}

}  // namespace amphw
