// Scheduling and frames. instances.cpp has what happens to an instance, updates.cpp what becomes of gradients,
// replay.cpp runs that go by a log.
#include "engine.hpp"

#include <algorithm>
#include <thread>

#include "clock.hpp"
#include "kernels/denormals.hpp"

namespace amphw {
namespace {

constexpr int YIELDS_BEFORE_SLEEP = 20;

}  // namespace

Engine::Worker::Worker(const GraphDesc& graph, const Kernels& kernels)
    : runner(graph, kernels), ready(graph.units.size() * KINDS) {}

Engine::Engine(GraphDesc graph, std::vector<std::optional<Rule>> rules, Options options, const Kernels& kernels)
    : policy(options.policy), graph_(marked(std::move(graph), options)), options_(std::move(options)), kernels_(kernels),
      planner_(graph_, options_.plan_bytes), shared_(graph_.units.size()), queues_(graph_.units.size() * KINDS),
      sleepers_(options_.slept, options_.sleepers) {
    if (options_.shared != nullptr) {
        memory_ = std::make_unique<DeviceMemory>(options_.shared, options_.shared_bytes);
        tables_ = std::make_unique<FrameTables>(graph_, options_.regions, *memory_);
    }
    for (size_t u = 0; u < graph_.units.size(); u++) {
        DeviceMemory* const device = options_.regions[u] >= 0 ? memory_.get() : nullptr;
        parameters_.push_back(rules[u] ? std::make_unique<Parameters>(graph_.units[u], *rules[u], kernels_, device)
                                       : nullptr);
    }
    for (int32_t w = 0; w <= options_.workers; w++) workers_.push_back(std::make_unique<Worker>(graph_, kernels_));
    helps_.resize(size_t(options_.workers));
    for (size_t w = 0; w < helps_.size(); w++)
        for (int32_t q : options_.served[w]) {
            const int32_t u = q / KINDS;
            // What is computed elsewhere is summed elsewhere, and what sleeps has no sums.
            const bool here = parameters_[u] != nullptr && options_.regions[u] < 0 && !sleepers_.has(u);
            if (q % KINDS == BACKWARD && here) helps_[w].push_back(u);
        }
    for (size_t u = 0; u < parameters_.size(); u++) {
        if (parameters_[u] == nullptr) continue;
        const auto serves = [&](const std::vector<int32_t>& units) {
            return std::find(units.begin(), units.end(), int32_t(u)) != units.end();
        };
        parameters_[u]->workers = int32_t(std::count_if(helps_.begin(), helps_.end(), serves));
    }
}

// --- workers --------------------------------------------------------------------------------------------------

bool Engine::run(int32_t worker, double seconds) {
    const FlushDenormals flush;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    Frame& frame = workers_[worker]->frame;
    bool worked = false;
    int yields = 0;
    try {
        while (!failed_.load(std::memory_order_relaxed)) {
            if ((sleepers_.any() && hand_on_due(worker)) || (may_help(worker) && help(worker))) {
                worked = true;
                yields = 0;
            } else if (next(worker, frame)) {
                worked = true;
                yields = 0;
                const int64_t n = int64_t(frame.tasks.size());
                begin(frame);
                if (sleepers_.has(frame.unit)) {
                    lay_down(*workers_[worker], frame);
                } else {
                    serve(worker, frame);
                    pending_.fetch_sub(n);
                }
            } else {
                if (yields == 0) {
                    std::lock_guard lock(mutex_);
                    if (!done_.empty()) news_.notify_all();  // the host may have something to add
                }
                if (in_flight_.load() == 0 || ++yields > YIELDS_BEFORE_SLEEP) break;
                if (sleepers_.any() && rest(worker, std::chrono::duration<double>(end.time_since_epoch()).count())) {
                    worked = true;
                    yields = 1;
                } else {
                    std::this_thread::yield();
                }
            }
            if (Clock::now() > end) break;
        }
    } catch (const EngineError& error) {
        fail(error);
    } catch (const std::exception& error) {
        fail(EngineError(Failure::Internal, frame.unit, -1, -1, 0, 0, error.what()));
    }
    return worked;
}

void Engine::wait(int32_t worker, double seconds) {
    std::unique_lock lock(mutex_);
    idle_.fetch_add(1);
    bool any = failed_.load();
    const double now = sleep_clock();
    const auto drives = [&](int32_t w) {
        return std::find(options_.regions.begin(), options_.regions.end(), w) != options_.regions.end();
    };
    const bool outside = drives(worker);  // one thread drives all external executors
    for (int32_t w = 0; w < options_.workers; w++) {
        if (w != worker && !(outside && drives(w))) continue;
        for (int32_t q : options_.served[w]) any = any || ready(q, now);
    }
    // What has been laid down, or opened, by now may not have been told: nobody was known to be idle.
    any = any || may_help(worker) || (sleepers_.any() && sleepers_.next(now) != Sleepers::NEVER);
    if (!any) {
        if (!done_.empty()) news_.notify_all();
        work_.wait_for(lock, std::chrono::duration<double>(seconds));
    }
    idle_.fetch_sub(1);
}

bool Engine::next(int32_t worker, Frame& frame) {
    const Order order = policy.order();
    for (;;) {
        Choice choice(order);
        const double now = sleepers_.any() ? sleep_clock() : 0.0;
        for (int32_t q : options_.served[worker]) {
            if (!ready(q, now)) continue;
            const Queue& queue = queues_[q];
            choice.offer(q, queue.rows.load(), policy.min_rows(q), policy.priority(q), int64_t(queue.oldest.load()),
                         int64_t(queue.arrival.load()), graph_.units[q / KINDS].depth);
        }
        const int32_t best = choice.queue();
        if (best < 0) return false;
        queues_[best].pop(frame.tasks, options_.frame_cap, options_.frame_rows, options_.by_age);
        if (frame.tasks.empty()) continue;  // another worker was faster
        frame.unit = best / KINDS;
        frame.kind = Kind(best % KINDS);
        return true;
    }
}

void Engine::make_ready(Worker& w, int32_t unit, Kind kind, Slot& slot, int32_t firing) {
    if (replaying_) {
        ready_.insert({&slot, unit, kind, firing});
        return;
    }
    const int32_t rows = slot.unit(unit).spaces[0].of(firing);
    w.ready[unit * KINDS + kind].push_back({&slot, firing, rows, slot.age, arrivals_.fetch_add(1)});
}

void Engine::push_ready(Worker& w) {
    int filled = 0;
    for (size_t q = 0; q < w.ready.size(); q++) {
        std::vector<Task>& tasks = w.ready[q];
        if (tasks.empty()) continue;
        pending_.fetch_add(int64_t(tasks.size()));
        queues_[q].push(tasks.data(), tasks.size(), options_.by_age);
        tasks.clear();
        filled++;
    }
    if (filled == 0 || idle_.load() == 0) return;
    std::lock_guard lock(mutex_);
    // A worker of its own nodes may not be the one that a single notification wakes.
    work_.notify_all();
}

// --- frames ---------------------------------------------------------------------------------------------------

// Pins the version and the rows of the log that the frame uses.
void Engine::begin(Frame& frame) {
    Parameters* p = parameters_[frame.unit].get();
    SpaceRows rows{};
    for (const Task& t : frame.tasks) {
        const UnitPlan& plan = t.slot->unit(frame.unit);
        for (const auto& [u, firing] : t.slot->faulty)
            if (u == frame.unit && firing == t.firing)
                throw EngineError(Failure::Index, frame.unit, t.slot->index, t.firing);
        for (int64_t s = 0; s < plan.spaces.size(); s++) rows[s] += plan.spaces[s].of(t.firing);
    }
    frame.rows = rows[0];
    frame.log = {};
    frame.buffer = -1;
    frame.outcomes.clear();
    bool due = false;  // the node's interval is complete with this frame
    std::unique_lock log(log_mutex_, std::defer_lock);
    if (options_.log) log.lock();
    frame.number = frames_.fetch_add(1) + 1;
    if (p != nullptr) {
        frame.buffer = p->pin();
        frame.version = p->version_of(frame.buffer);
        if (frame.kind == BACKWARD) {
            std::lock_guard lock(p->mutex);
            frame.log = p->reserve(rows, options_.self_updating);
            due = frame.log.due;
            if (due) {
                // They retire only once the update is published: with one key in flight, the next instance sees it.
                for (const Task& t : frame.tasks) {
                    t.slot->outstanding.fetch_add(1);
                    frame.log.chunk->waiting.push_back(t.slot);
                }
            }
        }
    }
    if (!options_.log) return;
    Event event{EventType::Start, frame.number, frame.unit, frame.kind, {}};
    for (const Task& t : frame.tasks) event.keys.push_back({t.slot->number, int64_t(t.slot->mode), t.firing});
    record(std::move(event));
    if (due) record({EventType::Seal, frame.unit, int64_t(Cause::Interval), 0, {}});
}

void Engine::compute(Worker& w, Frame& frame) {
    Parameters* p = parameters_[frame.unit].get();
    {
        const Pinned pinned(p, frame.buffer);
        if (sleepers_.has(frame.unit))
            blank(frame);
        else if (frame.kind != BACKWARD || graph_.units[frame.unit].has_backward)
            w.runner.run(frame, p);
        if (frame.kind == FORWARD && graph_.units[frame.unit].labels > 0) check_losses(frame);
    }
    count_staleness(w, frame);
}

void Engine::count_staleness(Worker& w, const Frame& frame) {
    if (parameters_[frame.unit] == nullptr || frame.kind != BACKWARD) return;
    std::lock_guard lock(w.mutex);
    std::map<int64_t, int64_t>& histogram = w.counters.staleness[frame.unit];
    for (const Task& t : frame.tasks)
        histogram[frame.version - t.slot->at<int32_t>(t.slot->layout(frame.unit).version)[t.firing]] += t.rows;
}

void Engine::serve(int32_t worker, Frame& frame) {
    if (graph_.units[frame.unit].at_once && frame.kind == FORWARD) return serve_at_once(worker, frame);
    Worker& w = *workers_[worker];
    const auto begun = Clock::now();
    const int64_t flow = options_.trace ? origin(frame) : -1;
    compute(w, frame);
    if (options_.sleep[frame.unit] > 0.0)
        std::this_thread::sleep_for(std::chrono::duration<double>(options_.sleep[frame.unit] * double(frame.tasks.size())));
    count_served(worker, frame, microseconds(begun), std::chrono::duration<double>(Clock::now() - begun).count(), flow);
    commit(w, frame);
    logged(w, worker, frame);
    if (w.again.empty()) return;
    frame.tasks.swap(w.again);
    w.again.clear();
    frame.kind = BACKWARD;
    begin(frame);
    serve(worker, frame);
}

void Engine::count_served(int32_t worker, const Frame& frame, double begun_us, double seconds, int64_t flow) {
    Worker& w = *workers_[worker];
    std::lock_guard lock(w.mutex);
    w.counters.frames++;
    w.counters.busy += seconds;
    if (!options_.trace) return;
    w.slices.push_back({worker, frame.unit, frame.kind, begun_us, seconds * 1e6, frame.rows, flow, frame.number});
}

void Engine::logged(Worker& w, int32_t worker, const Frame& frame) {
    if (frame.log.chunk == nullptr) return;
    Parameters& p = *parameters_[frame.unit];
    {
        std::lock_guard lock(p.mutex);
        p.written(frame.log);
    }
    reduce_due(&w, worker, frame.unit);
}

void Engine::commit(Worker& w, Frame& frame, Messages which) {
    std::unique_lock log(log_mutex_, std::defer_lock);
    if (options_.log) {
        log.lock();
        if (which != Messages::Leaving) record({EventType::End, frame.number, 0, 0, {}});
    }
    w.left.clear();
    if (frame.kind == BACKWARD)
        commit_backward(w, frame, which);
    else
        commit_forward(w, frame, which);
    push_ready(w);
}

void Engine::hand_on(Worker& w, Frame& frame, Messages which) {
    commit(w, frame, which);
    for (const Task& t : w.again) make_ready(w, frame.unit, BACKWARD, *t.slot, t.firing);
    w.again.clear();
    push_ready(w);
}

void Engine::commit_forward(Worker& w, Frame& frame, Messages which) {
    const int32_t u = frame.unit;
    const UnitDesc& unit = graph_.units[u];
    const bool owns = parameters_[u] != nullptr, first = which != Messages::Leaving;
    if (first) count_sent(w, frame);
    for (size_t i = 0; i < frame.tasks.size(); i++) {
        Slot& slot = *frame.tasks[i].slot;
        const int32_t firing = frame.tasks[i].firing;
        const UnitPlan& plan = slot.unit(u);
        const UnitLayout& layout = slot.layout(u);
        int32_t outcome = firing;
        if (!unit.choices.empty()) outcome = frame.outcomes[i];
        if (!unit.choices.empty() && first) slot.at<int32_t>(layout.outcome)[firing] = outcome;
        for (const Fault& fault : plan.faults)
            if (fault.outcome == outcome)
                throw EngineError(Failure::Fault, u, slot.index, firing, fault.trap);
        const int32_t begin = plan.route_start[outcome], end = plan.route_start[outcome + 1];
        const bool trains = slot.trains();
        if (trains && first) {
            std::atomic_ref(slot.missing(u)[firing]).store(end - begin);
            if (owns) slot.at<int32_t>(layout.version)[firing] = int32_t(frame.version);
            if (options_.trace) slot.at<int64_t>(layout.frame)[firing] = frame.number;
        }
        // Those that leave later count as well: until they are back, or consumed, the instance stays.
        if (first) slot.outstanding.fetch_add(end - begin);
        for (int32_t r = begin; r < end; r++) {
            const Route& route = plan.routes[r];
            if (!among(which, u, route.target)) {
                if (w.left.empty() || w.left.back() != i) w.left.push_back(i);
                continue;
            }
            const ValueDesc& output = unit.outputs[route.output];
            const int64_t row = plan.spaces[output.space].start(firing) + std::max(route.row, 0);
            deliver(w, slot, route, slot.at<float>(layout.outputs[route.output]) + row * row_stride(output.width), u,
                    firing);
        }
        if (!first) continue;
        if (!trains) {
            int64_t consumed = 0;
            for (size_t k = 0; k < unit.operands.size(); k++) {
                const auto [first, last] = slot.positions(u, int32_t(k), firing);
                consumed += last - first;
            }
            settle(slot, consumed);
        } else if (begin == end) {
            w.again.push_back(frame.tasks[i]);  // a sink, or a firing that sends nothing, goes backward at once
        }
    }
}

// Before they are sent: an instance may retire while its last sender still delivers.
void Engine::count_sent(Worker& w, const Frame& frame) {
    int64_t sent = 0;
    for (size_t i = 0; i < frame.tasks.size(); i++) {
        const Task& t = frame.tasks[i];
        if (!t.slot->trains()) continue;
        const UnitPlan& plan = t.slot->unit(frame.unit);
        const int32_t outcome = frame.outcomes.empty() ? t.firing : frame.outcomes[i];
        sent += plan.route_start[outcome + 1] - plan.route_start[outcome];
    }
    std::lock_guard lock(w.mutex);
    w.counters.forward += sent;
}

void Engine::deliver(Worker& w, Slot& slot, const Route& route, float* rows, int32_t unit, int32_t firing) {
    if (route.firing < 0 || route.position < 0)
        throw EngineError(Failure::Outside, unit, slot.index, firing, route.target);
    OperandRef& ref = slot.operand(route.target, route.operand)[route.position];
    if (std::atomic_ref(ref.rows).exchange(rows) != nullptr)
        throw EngineError(Failure::Twice, unit, slot.index, firing, route.target, route.operand);
    ref.unit = unit;
    ref.firing = firing;
    std::atomic_ref left(slot.left(route.target)[route.firing]);
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1)
        make_ready(w, route.target, slot.trains() ? FORWARD : INFER, slot, route.firing);
}

void Engine::commit_backward(Worker& w, Frame& frame, Messages which) {
    const int32_t u = frame.unit;
    const int32_t operands = int32_t(graph_.units[u].operands.size());
    w.returned.clear();
    for (size_t i = 0; i < frame.tasks.size(); i++) {
        const Task& t = frame.tasks[i];
        Slot& slot = *t.slot;
        w.returned.push_back(0);
        for (int32_t k = 0; k < operands; k++) {
            const auto [begin, end] = slot.positions(u, k, t.firing);
            const OperandRef* refs = slot.operand(u, k);
            for (int32_t position = begin; position < end; position++) {
                const OperandRef& origin = refs[position];
                const bool source = graph_.units[origin.unit].is_source;
                if (source ? which == Messages::Leaving : !among(which, u, origin.unit)) {
                    if (!source && (w.left.empty() || w.left.back() != i)) w.left.push_back(i);
                    continue;
                }
                w.returned.back()++;
                if (source) continue;
                std::atomic_ref missing(slot.missing(origin.unit)[origin.firing]);
                if (missing.fetch_sub(1, std::memory_order_acq_rel) == 1)
                    make_ready(w, origin.unit, BACKWARD, slot, origin.firing);
            }
        }
    }
    // Counted before anything retires: whoever has drained the engine finds as many back as went out.
    {
        std::lock_guard lock(w.mutex);
        for (int64_t n : w.returned) w.counters.backward += n;
    }
    for (size_t i = 0; i < frame.tasks.size(); i++)
        if (w.returned[i] > 0) settle(*frame.tasks[i].slot, w.returned[i]);
}

// Number of the frame that produced the first operand, for a trace's arrows.
int64_t Engine::origin(const Frame& frame) const {
    if (frame.kind != FORWARD || graph_.units[frame.unit].operands.empty()) return -1;
    const Task& t = frame.tasks.front();
    const auto [begin, end] = t.slot->positions(frame.unit, 0, t.firing);
    if (begin == end) return -1;
    const OperandRef& ref = t.slot->operand(frame.unit, 0)[begin];
    if (graph_.units[ref.unit].is_source) return -1;
    return t.slot->at<int64_t>(t.slot->layout(ref.unit).frame)[ref.firing];
}

}  // namespace amphw
