// The engine's side of an external executor: it is handed described frames and parts of logs, and says how far it is.
#include <algorithm>
#include <cstring>

#include "clock.hpp"
#include "engine.hpp"

namespace amphw {
namespace {

constexpr int32_t UPDATE_WORDS = 16;  // behind a job's header, for the numbers of an update

EngineError no_room(int32_t unit, const std::string& what, DeviceMemory& memory) {
    return EngineError(Failure::Memory, unit, -1, -1, 0, 0,
                       "no room for " + what + " (" + std::to_string(memory.used()) + " of " +
                           std::to_string(memory.size()) + " bytes are taken)");
}

}  // namespace

const ExternalFrame* Engine::take(int32_t worker) {
    Frame frame;
    if (failed_.load()) return nullptr;
    if (!next(worker, frame)) {
        std::lock_guard lock(mutex_);
        if (!done_.empty()) news_.notify_all();  // the host may have something to add
        return nullptr;
    }
    if (!memory_->has_room(room_for(frame))) {
        Queue& queue = queues_[frame.unit * KINDS + frame.kind];
        const auto put_back = [&](size_t first) {
            queue.push(frame.tasks.data() + first, frame.tasks.size() - first, options_.by_age);
            frame.tasks.resize(first);
        };
        if (memory_->busy()) {  // there may be room once something has ended
            put_back(0);
            return nullptr;
        }
        trim();
        while (frame.tasks.size() > 1 && !memory_->has_room(room_for(frame))) put_back(frame.tasks.size() / 2);
    }
    return describe(worker, frame);
}

// So much that the log's next chunk and the tables find room; an estimate, for nothing has changed so far.
size_t Engine::room_for(const Frame& frame) const {
    const UnitDesc& unit = graph_.units[frame.unit];
    size_t rows = 0;  // of the space that has most
    for (size_t s = 0; s < unit.spaces.size(); s++) {
        size_t all = 0;
        for (const Task& t : frame.tasks) all += size_t(t.slot->unit(frame.unit).spaces[int64_t(s)].of(t.firing));
        rows = std::max(rows, all);
    }
    size_t floats = 0;
    for (const Code* code : {&unit.forward, &unit.inference, &unit.backward}) {
        size_t all = 0;
        for (const Base& b : code->bases) all += size_t(row_stride(b.width)) + 2;
        floats = std::max(floats, all);
    }
    return (rows + 2 * WORTH_REDUCING) * floats * 8;
}

void Engine::trim() {
    for (const auto& p : parameters_) {
        if (p == nullptr) continue;
        std::lock_guard lock(p->mutex);
        p->trim();
    }
}

const ExternalFrame* Engine::describe(int32_t worker, Frame& frame) {
    size_t rows = 0;
    for (const Task& t : frame.tasks) rows += size_t(t.rows);
    const int32_t u = frame.unit;
    try {
        begin(frame);
        External& e = external_[frame.number];
        e.described.worker = worker;
        e.described.frame = std::move(frame);
        tables_->describe(e.described);
        {
            std::lock_guard lock(crossed_mutex_);
            crossed_[options_.regions[u]].first += e.described.incoming.payload;
        }
        e.work = memory_->begin_work();
        return &e.described;
    } catch (const std::bad_alloc&) {
        throw no_room(u, "a frame of " + std::to_string(rows) + " rows", *memory_);
    }
}

bool Engine::commit(int64_t number) {
    const auto found = external_.find(number);
    if (found == external_.end())  // the log of a replay may say anything
        throw EngineError(Failure::Replay, -1, -1, -1, 0, 0, "the end of a frame that has not begun");
    External& e = found->second;
    Frame& frame = e.described.frame;
    const int64_t tasks = int64_t(frame.tasks.size());
    Worker& w = *workers_[e.described.worker];
    count_staleness(w, frame);
    if (frame.kind != BACKWARD) {
        decide(e.described);
        if (frame.kind == FORWARD && graph_.units[frame.unit].labels > 0) check_losses(frame);
    }
    {
        std::lock_guard lock(w.mutex);
        w.counters.frames++;
    }
    hand_on(w, frame, Messages::Staying);
    // Of the others the instance may retire, and its slot be used again, before this frame's messages leave.
    const std::vector<size_t> left = w.left;
    if (frame.log.chunk != nullptr) {
        Parameters& p = *parameters_[frame.unit];
        std::lock_guard lock(p.mutex);
        p.written(frame.log);
    }
    for (size_t i = 0; i < left.size(); i++) {
        frame.tasks[i] = frame.tasks[left[i]];
        if (!frame.outcomes.empty()) frame.outcomes[i] = frame.outcomes[left[i]];
    }
    frame.tasks.resize(left.size());
    if (!replaying_) pending_.fetch_sub(tasks - int64_t(left.size()));
    return !left.empty();
}

void Engine::sent(int64_t number) {
    ExternalFrame& e = external_.at(number).described;
    commit(*workers_[e.worker], e.frame, Messages::Leaving);
    if (!replaying_) pending_.fetch_sub(int64_t(e.frame.tasks.size()));
}

Crossing Engine::leaving(int64_t number) {
    const Frame& frame = external(number).frame;
    Crossing found = tables_->leaving(frame);
    std::lock_guard lock(crossed_mutex_);
    crossed_[options_.regions[frame.unit]].second += found.payload;
    return found;
}

std::map<int32_t, std::pair<int64_t, int64_t>> Engine::crossed() {
    std::lock_guard lock(crossed_mutex_);
    return crossed_;
}

void Engine::ended(int64_t number, int32_t worker, double seconds) {
    const auto found = external_.find(number);
    int64_t work = number;  // of a reduction, which nothing else is kept of
    if (number > 0) {
        work = found->second.work;
        external_.erase(found);
    } else {
        work = -number;
    }
    memory_->end_work(work);
    if (worker < 0) return;
    Worker& w = *workers_[worker];
    std::lock_guard lock(w.mutex);
    w.counters.busy += seconds;
}

// A firing's outcome, from the integers that the frame has made.
void Engine::decide(ExternalFrame& e) {
    Frame& frame = e.frame;
    const UnitDesc& unit = graph_.units[frame.unit];
    frame.outcomes.clear();
    if (unit.choices.empty()) return;
    const Code& code = frame.kind == FORWARD ? unit.forward : unit.inference;
    const auto* words = reinterpret_cast<const int32_t*>(options_.shared);
    for (const Task& t : frame.tasks) frame.outcomes.push_back(t.firing);
    for (size_t f = 0; f < unit.decided.size(); f++) {
        const int32_t slot = code.int_outputs[unit.decided[f]];
        const auto* values = reinterpret_cast<const int64_t*>(words + e.slots[slot]);
        int64_t row = 0;
        for (size_t i = 0; i < frame.tasks.size(); i++) {
            const Task& t = frame.tasks[i];
            const int32_t count = t.slot->unit(frame.unit).spaces[code.int_spaces[slot]].of(t.firing);
            if (count > 0) amphw::decide(frame, unit, i, f, values[row]);
            row += count;
        }
    }
}

// Copies an instance's data arrays into the shared memory, where `data` then points.
void Engine::keep_data(Slot& slot, std::vector<const float*>& data, const std::vector<int64_t>& widths,
                       const std::vector<int64_t>& rows) {
    int64_t floats = 0;
    for (size_t d = 0; d < data.size(); d++) floats += widths[d] * rows[d];
    slot.data = Block();  // work that has begun may still read the last instance's
    if (floats == 0) return;
    slot.data = Block(size_t(floats + 64) * sizeof(float), memory_.get());
    float* to = slot.data.floats();
    for (size_t d = 0; d < data.size(); d++) {
        const int64_t n = widths[d] * rows[d];
        if (n > 0) std::memcpy(to, data[d], size_t(n) * sizeof(float));
        data[d] = to;
        to += n;
    }
}

std::pair<int32_t, int32_t> Engine::data_of(int32_t slot) {
    const Block& data = slots_.at(slot)->data;
    return {memory_->place(data.bytes()), int32_t(data.size() / 4)};
}

// --- updates ----------------------------------------------------------------------------------------------------

const ReductionJob* Engine::take_reduction(int32_t unit) {
    Parameters& p = *parameters_[unit];
    std::unique_ptr<LogChunk> chunk;
    {
        std::lock_guard lock(p.mutex);
        chunk = p.claim();
    }
    if (chunk == nullptr) return nullptr;
    p.accumulated += chunk->gradient_rows;
    const size_t buffers = chunk->buffers.size(), ints = chunk->ints.size();
    const int32_t words = int32_t(MAX_SPACES + buffers + ints + 15) / 16 * 16;
    Block header;
    try {
        header = Block(size_t(words + UPDATE_WORDS) * 4, memory_.get());
    } catch (const std::bad_alloc&) {
        throw no_room(unit, "a sum of gradients", *memory_);
    }
    Reduction& r = reductions_[unit];
    r.header = std::move(header);
    auto* to = reinterpret_cast<int32_t*>(r.header.bytes());
    for (int s = 0; s < MAX_SPACES; s++) to[s] = int32_t(chunk->used[s]);
    for (size_t b = 0; b < buffers; b++) to[MAX_SPACES + b] = memory_->place(chunk->buffers[b].bytes());
    for (size_t i = 0; i < ints; i++) to[MAX_SPACES + buffers + i] = memory_->place(chunk->ints[i].bytes());
    r.job = {-memory_->begin_work(), unit, memory_->place(to), words, chunk->used, chunk->due, p.accumulated, p.version()};
    r.chunk = std::move(chunk);
    return &r.job;
}

void Engine::reduced(int32_t unit) {
    Parameters& p = *parameters_[unit];
    Reduction r = std::move(reductions_.at(unit));
    reductions_.erase(unit);
    if (r.job.due) {
        std::unique_lock log(log_mutex_, std::defer_lock);
        if (options_.log) log.lock();
        const bool publishes = p.publish_unchanged();
        record({EventType::Reduced, unit, 0, 0, {}});
        Worker& w = *workers_.back();
        {
            std::lock_guard lock(w.mutex);
            w.counters.updates += publishes;
        }
        for (Slot* slot : r.chunk->waiting) settle(*slot, 1);
    }
    std::lock_guard lock(p.mutex);
    p.release(std::move(r.chunk));
}

void Engine::seal(int32_t unit, bool publish) {
    Parameters& p = *parameters_[unit];
    std::unique_lock log(log_mutex_, std::defer_lock);
    if (options_.log) log.lock();
    std::lock_guard lock(p.mutex);
    p.seal(publish);
    record({EventType::Seal, unit, int64_t(publish ? Cause::Update : Cause::Sum), 0, {}});
}

}  // namespace amphw
