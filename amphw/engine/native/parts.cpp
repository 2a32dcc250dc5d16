// Frames of nodes that a part outside of the engine computes. The engine joins, routes and keeps the rows, as for its
// own nodes; rows are copied out for the part, and what it makes of them is copied in. A part keeps the parameters of
// its nodes, and whatever a firing leaves for the backward direction. Of a part that joins for itself (a circuit) the
// engine still counts who has sent and who has answered, in frames that carry just what has come from elsewhere; what
// its nodes send each other never leaves it.
#include <cstring>

#include "clock.hpp"
#include "engine.hpp"
#include "gather.hpp"

namespace amphw {

const HandedOut* Engine::hand_out(int32_t worker) {
    if (failed_.load()) return nullptr;
    Frame frame;
    if (!next(worker, frame)) {
        std::lock_guard lock(mutex_);
        if (!done_.empty()) news_.notify_all();  // the host may have something to add
        return nullptr;
    }
    return keep_handed_out(worker, frame);
}

const HandedOut* Engine::replay_hand_out(int64_t number, int32_t unit, Kind kind, std::vector<Task> tasks) {
    Frame frame;
    frame.unit = unit;
    frame.kind = kind;
    frame.tasks = std::move(tasks);
    begin_replayed(number, frame);
    return keep_handed_out(options_.workers, frame);
}

const HandedOut* Engine::keep_handed_out(int32_t worker, Frame& frame) {
    begin(frame);
    HandedOut out;
    out.worker = worker;
    if (options_.joining[frame.unit] >= 0) cross(frame, out.leaves);
    std::lock_guard lock(parts_mutex_);
    const int64_t number = frame.number;
    out.frame = std::move(frame);
    return &(handed_out_[number] = std::move(out));
}

// What comes from elsewhere is counted when it is handed out, and so is what will be given back: both are known by now.
void Engine::cross(const Frame& frame, std::vector<uint8_t>& leaves) {
    const UnitDesc& unit = graph_.units[frame.unit];
    if (!unit.choices.empty())
        throw EngineError(Failure::Internal, frame.unit, -1, -1, 0, 0, "a part that joins for itself has a node that decides");
    leaves.assign(frame.kind == BACKWARD ? unit.operands.size() : unit.outputs.size(), 0);
    const auto elsewhere = [&](int32_t other) { return !joined(frame.unit, other); };
    const auto bytes = [](int32_t width, int32_t rows) { return int64_t(rows) * width * int64_t(sizeof(float)); };
    std::pair<int64_t, int64_t> found;
    for (const Task& t : frame.tasks) {
        each_brought(graph_, frame, t, elsewhere, [&](size_t, const float*, int64_t, int32_t width, int32_t rows) {
            found.first += bytes(width, rows);
        });
        const auto waits = [&](int32_t other) { return elsewhere(other) && !graph_.units[other].is_source; };
        each_given(graph_, frame, t, waits, [&](size_t k, const float*, int64_t, int32_t width, int32_t rows) {
            leaves[k] = 1;
            found.second += bytes(width, rows);
        });
    }
    std::lock_guard lock(crossed_mutex_);
    auto& [to, back] = crossed_[options_.joining[frame.unit]];
    to += found.first;
    back += found.second;
}

HandedOut& Engine::handed_out(int64_t number) {
    std::lock_guard lock(parts_mutex_);
    const auto found = handed_out_.find(number);
    if (found == handed_out_.end())
        throw EngineError(Failure::Internal, 0, -1, -1, 0, 0, "a part returns a frame that it does not have");
    return found->second;
}

// --- copies ---------------------------------------------------------------------------------------------------------

int64_t Engine::rows_of(const Frame& frame, int32_t space) const {
    int64_t rows = 0;
    for (const Task& t : frame.tasks) rows += t.slot->unit(frame.unit).spaces[space].of(t.firing);
    return rows;
}

void Engine::copy_operand(const Frame& frame, int32_t operand, float* to) const {
    const int32_t width = graph_.units[frame.unit].operands[operand].width;
    for (const Task& t : frame.tasks)
        each_received(graph_, *t.slot, frame.unit, operand, t.firing,
                      [&](const OperandRef& ref, int64_t stride, int32_t rows) {
                          if (width == 0 || joined(frame.unit, ref.unit)) return;
                          for (int32_t r = 0; r < rows; r++, to += width)
                              std::memcpy(to, ref.rows + r * stride, size_t(width) * sizeof(float));
                      });
}

std::vector<uint8_t> Engine::brought(const Frame& frame, int32_t operand, int64_t* rows) const {
    std::vector<uint8_t> out;
    for (const Task& t : frame.tasks)
        each_received(graph_, *t.slot, frame.unit, operand, t.firing,
                      [&](const OperandRef& ref, int64_t, int32_t count) {
                          out.push_back(!joined(frame.unit, ref.unit));
                          *rows += out.back() ? count : 0;
                      });
    return out;
}

void Engine::copy_gradient(const Frame& frame, int32_t output, float* to) const {
    const UnitDesc& unit = graph_.units[frame.unit];
    const ValueDesc& o = unit.outputs[output];
    const int64_t stride = row_stride(o.width);
    const auto add = [&](float* sum, const float* row) {
        for (int32_t c = 0; c < o.width; c++) sum[c] += row[c];
    };
    for (const Task& t : frame.tasks) {
        const int32_t rows = t.slot->unit(frame.unit).spaces[o.space].of(t.firing);
        std::memset(to, 0, size_t(rows) * size_t(o.width) * sizeof(float));
        each_returned(graph_, *t.slot, frame.unit, output, t.firing, [&](const Route& route, const float* first) {
            if (joined(frame.unit, route.target)) return;
            if (route.row >= 0) {
                add(to + int64_t(route.row) * o.width, first);
                return;
            }
            for (int32_t r = 0; r < rows; r++) add(to + int64_t(r) * o.width, first + r * stride);
        });
        to += int64_t(rows) * o.width;
    }
}

void Engine::copy_integers(const Frame& frame, int32_t operand, int64_t* to) const {
    const int32_t space = graph_.units[frame.unit].ints[operand].second;
    for (const Task& t : frame.tasks) {
        const Counts& counts = t.slot->unit(frame.unit).spaces[space];
        const auto* from = t.slot->at<int64_t>(t.slot->layout(frame.unit).ints[operand]) + counts.start(t.firing);
        to = std::copy(from, from + counts.of(t.firing), to);
    }
}

void Engine::bring_back(int64_t number, const std::vector<const float*>& rows,
                        const std::vector<const int64_t*>& decided) {
    Frame& frame = handed_out(number).frame;
    const UnitDesc& unit = graph_.units[frame.unit];
    const auto store = [&](size_t k, int32_t space, int32_t width, auto offset) {
        const float* from = rows[k];
        for (const Task& t : frame.tasks) {
            const Counts& counts = t.slot->unit(frame.unit).spaces[space];
            float* to = t.slot->template at<float>(offset(t)) + counts.start(t.firing) * row_stride(width);
            for (int32_t r = 0; r < counts.of(t.firing); r++, from += width, to += row_stride(width))
                std::memcpy(to, from, size_t(width) * sizeof(float));
        }
    };
    if (frame.kind == BACKWARD) {
        for (size_t k = 0; k < rows.size(); k++) {
            const OperandDesc& o = unit.operands[k];
            if (rows[k] == nullptr || !o.needs_gradient || o.width == 0) continue;
            store(k, o.space, o.width, [&](const Task& t) { return t.slot->layout(frame.unit).gradients[k]; });
        }
        return;
    }
    for (size_t k = 0; k < rows.size(); k++) {
        const ValueDesc& o = unit.outputs[k];
        if (rows[k] == nullptr || o.is_int || o.width == 0) continue;
        store(k, o.space, o.width, [&](const Task& t) { return t.slot->layout(frame.unit).outputs[k]; });
    }
    frame.outcomes.clear();
    if (unit.choices.empty()) return;
    for (size_t i = 0; i < frame.tasks.size(); i++) {
        frame.outcomes.push_back(frame.tasks[i].firing);
        for (size_t f = 0; f < decided.size(); f++) amphw::decide(frame, unit, i, f, decided[f][i]);
    }
}

void Engine::handed_back(int64_t number, double begun_us, double seconds) {
    HandedOut& out = handed_out(number);
    Worker& w = *workers_[out.worker];
    Frame& frame = out.frame;
    const int64_t tasks = int64_t(frame.tasks.size());
    if (frame.kind == FORWARD && graph_.units[frame.unit].labels > 0) check_losses(frame);
    {
        // Before its messages go on, so that whoever hears of a retired instance finds all slices.
        const int64_t flow = options_.trace ? origin(frame) : -1;
        std::lock_guard lock(w.mutex);
        w.counters.frames++;
        w.counters.busy += seconds;
        if (options_.trace)
            w.slices.push_back({out.worker, frame.unit, frame.kind, begun_us, seconds * 1e6, frame.rows, flow, number});
    }
    hand_on(w, frame, Messages::All);
    if (!replaying_) pending_.fetch_sub(tasks);
    std::lock_guard lock(parts_mutex_);
    handed_out_.erase(number);
}

}  // namespace amphw
