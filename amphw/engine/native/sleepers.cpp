#include "sleepers.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine.hpp"

namespace amphw {
namespace {

// Frames that a device has in any case, the one that it is at included: so a worker that comes late does not leave it
// idle.
constexpr int AHEAD = 2;

// Seconds before the end of what a device has at which it takes further frames: longer than most frames of a worker,
// which has to be done with one before it can give a device another, and devices may be much faster than that.
constexpr double LEAD = 1e-4;

// Frames that a device with a link has at most, those on their way included.
constexpr int DEPTH = 64;

// Seconds before an event up to which a worker sleeps; for the rest it looks again and again, as a thread that sleeps
// wakes up late by about as much.
constexpr double SPIN = 5e-5;

double bytes_of(const SleptBytes& each, size_t firings, const SpaceRows& rows) {
    double bytes = each.firing * double(firings);
    for (size_t s = 0; s < each.row.size(); s++) bytes += each.row[s] * double(rows[s]);
    return bytes;
}

}  // namespace

Sleepers::Sleepers(std::vector<SleptUnit> units, const std::vector<SleepDevice>& devices)
    : units_(std::move(units)), counted_(units_.size()) {
    for (const SleepDevice& about : devices) devices_.push_back(std::make_unique<Device>(about));
}

bool Sleepers::later(const Waiting& a, const Waiting& b) {
    return a.due != b.due ? a.due > b.due : a.what.frame.number > b.what.frame.number;
}

void Sleepers::open(Device& d) {
    if (d.about.link)
        d.opens.store(d.frames < DEPTH ? d.to_free - LEAD : NEVER);
    else
        d.opens.store(d.frames < AHEAD ? 0.0 : d.free_at - LEAD);
}

bool Sleepers::take(Frame frame, const SpaceRows& rows, bool updates, double now) {
    const SleptUnit& unit = units_[size_t(frame.unit)];
    const int direction = frame.kind == BACKWARD;
    const size_t firings = frame.tasks.size();
    const double seconds =
        double(frame.rows) * unit.row_seconds[direction] + (updates ? unit.update_seconds : 0.0);
    std::lock_guard lock(mutex_);
    const double before = next(now);
    SleptRows& counted = counted_[size_t(frame.unit)];
    counted.firings[direction] += int64_t(firings);
    for (size_t s = 0; s < rows.size(); s++) counted.rows[direction][s] += rows[s];
    Device& d = device(frame.unit);
    double there = now;
    const auto crossing = [&](const SleptBytes& each) {
        return bytes_of(each, firings, rows) * d.about.link->byte_seconds;
    };
    if (d.about.link) {
        d.to_free = std::max(d.to_free, now) + crossing(unit.to[direction]);
        there = d.to_free + d.about.link->latency;
        d.idle += std::max(0.0, there - std::max(now, d.free_at));
    }
    d.free_at = std::max(d.free_at, there) + seconds;
    double due = d.free_at;
    if (d.about.link) {
        d.back_free = std::max(d.back_free, d.free_at) + crossing(unit.back[direction]);
        due = d.back_free + d.about.link->latency;
    }
    d.frames++;
    open(d);
    heap_.push_back({due, {std::move(frame), d.free_at - seconds, seconds}});
    std::push_heap(heap_.begin(), heap_.end(), later);
    due_.store(heap_.front().due);
    return next(now) < before;
}

void Sleepers::update(int32_t unit, double now) {
    std::lock_guard lock(mutex_);
    Device& d = device(unit);
    d.free_at = std::max(d.free_at, now) + units_[size_t(unit)].update_seconds;
    open(d);
}

std::optional<SleptFrame> Sleepers::due(double now) {
    if (due_.load(std::memory_order_relaxed) > now) return {};
    std::lock_guard lock(mutex_);
    if (heap_.empty() || heap_.front().due > now) return {};  // another worker was faster
    std::pop_heap(heap_.begin(), heap_.end(), later);
    SleptFrame found = std::move(heap_.back().what);
    heap_.pop_back();
    due_.store(heap_.empty() ? NEVER : heap_.front().due);
    Device& d = device(found.frame.unit);
    d.frames--;
    open(d);
    return found;
}

double Sleepers::next(double now) const {
    double first = due_.load();
    for (const auto& d : devices_)
        if (const double opens = d->opens.load(); opens > now) first = std::min(first, opens);
    return first;
}

SleptRows Sleepers::rows(int32_t unit) {
    std::lock_guard lock(mutex_);
    return counted_[size_t(unit)];
}

double Sleepers::idle(int32_t device) {
    std::lock_guard lock(mutex_);
    return devices_[size_t(device)]->idle;
}

// --- the engine's side ----------------------------------------------------------------------------------------

// What a unit that is not computed leaves: zeros for all that it sends, and of choices the first. They are written, as
// an instance's memory may hold anything; so what reads them reads numbers, as it would from a device.
void Engine::blank(Frame& frame) {
    const UnitDesc& unit = graph_.units[frame.unit];
    const auto clear = [&](const Task& t, int64_t offset, int32_t space, int32_t width) {
        const Counts& counts = t.slot->unit(frame.unit).spaces[space];
        const int64_t stride = row_stride(width);
        std::memset(t.slot->at<float>(offset) + counts.start(t.firing) * stride, 0,
                    size_t(counts.of(t.firing) * stride) * sizeof(float));
    };
    if (frame.kind == BACKWARD) {
        for (const Task& t : frame.tasks)
            for (size_t k = 0; k < unit.operands.size(); k++) {
                const OperandDesc& o = unit.operands[k];
                if (o.needs_gradient)
                    clear(t, t.slot->layout(frame.unit).gradients[int64_t(k)], o.shared ? 0 : o.space, o.width);
            }
        return;
    }
    frame.outcomes.clear();
    for (size_t i = 0; i < frame.tasks.size(); i++) {
        const Task& t = frame.tasks[i];
        for (size_t k = 0; k < unit.outputs.size(); k++) {
            const ValueDesc& o = unit.outputs[k];
            if (!o.is_int) clear(t, t.slot->layout(frame.unit).outputs[int64_t(k)], o.space, o.width);
        }
        if (unit.choices.empty()) continue;
        frame.outcomes.push_back(t.firing);
        for (size_t f = 0; f < unit.choices.size(); f++) amphw::decide(frame, unit, i, f, 0);
    }
}

void Engine::lay_down(Worker& w, Frame& frame) {
    SpaceRows rows{};
    for (const Task& t : frame.tasks) {
        const UnitPlan& plan = t.slot->unit(frame.unit);
        for (int64_t s = 0; s < plan.spaces.size(); s++) rows[size_t(s)] += plan.spaces[s].of(t.firing);
    }
    compute(w, frame);
    const bool updates = frame.log.chunk != nullptr && frame.log.due;
    const bool earlier = sleepers_.take(std::move(frame), rows, updates, sleep_clock());
    if (!earlier || idle_.load() == 0) return;
    std::lock_guard lock(mutex_);
    work_.notify_all();  // who rests until something later looks after it, also while this worker is at something longer
}

bool Engine::hand_on_due(int32_t worker) {
    std::optional<SleptFrame> found = sleepers_.due(sleep_clock());
    if (!found) return false;
    Worker& w = *workers_[worker];
    Frame& frame = w.frame = std::move(found->frame);
    const int64_t tasks = int64_t(frame.tasks.size());
    const int32_t as = sleepers_.worker(frame.unit);
    {
        // Before its messages go on, so that whoever hears of a retired instance finds all slices.
        const int64_t flow = options_.trace ? origin(frame) : -1;
        Worker& device = *workers_[as];
        std::lock_guard lock(device.mutex);
        device.counters.frames++;
        device.counters.busy += found->seconds;
        if (options_.trace)
            device.slices.push_back({as, frame.unit, frame.kind, found->began * 1e6, found->seconds * 1e6, frame.rows,
                                     flow, frame.number});
    }
    hand_on(w, frame, Messages::All);
    logged(w, worker, frame);
    pending_.fetch_sub(tasks);
    return true;
}

bool Engine::rest(int32_t worker, double until) {
    const double now = sleep_clock();
    const auto seconds = [&] { return std::min(sleepers_.next(now), until) - now - SPIN; };
    if (sleepers_.next(now) == Sleepers::NEVER) return false;
    if (seconds() <= 0.0) {
        std::this_thread::yield();
        return true;
    }
    std::unique_lock lock(mutex_);
    idle_.fetch_add(1);
    // What has become ready, or come to wait, by now may not have been told: nobody was known to be idle.
    bool any = failed_.load() || may_help(worker) || seconds() <= 0.0;
    for (int32_t q : options_.served[worker]) any = any || ready(q, now);
    if (!any) work_.wait_for(lock, std::chrono::duration<double>(seconds()));
    idle_.fetch_sub(1);
    return true;
}

}  // namespace amphw
