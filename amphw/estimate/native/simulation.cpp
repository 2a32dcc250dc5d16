#include "simulation.hpp"

#include <algorithm>

namespace amphw::simulated {

Simulation::Simulation(Network network, std::vector<Shape> shapes, std::vector<int32_t> order, int32_t keys,
                       int64_t slices)
    : net_(std::move(network)), shapes_(std::move(shapes)), order_(std::move(order)), keys_(keys),
      keep_(size_t(slices)) {
    const size_t nodes = size_t(net_.units) * net_.replicas, devices = net_.devices.size();
    for (auto* of : {&tally_.serial, &tally_.reducing, &tally_.busy}) of->resize(nodes);
    for (auto* of : {&tally_.unit_frames, &tally_.unit_firings, &tally_.updates, &tally_.stale_rows, &tally_.stale})
        of->resize(nodes);
    for (auto* of : {&tally_.device_busy, &tally_.device_routing}) of->resize(devices);
    for (auto* of : {&tally_.held, &tally_.most_held, &tally_.most_queued}) of->resize(devices);
    for (auto* of : {&tally_.link_busy, &tally_.link_waited}) of->resize(net_.links.size());
    for (auto* of : {&tally_.link_messages, &tally_.link_bytes, &tally_.link_most_queued})
        of->resize(net_.links.size());
    queues_.resize(nodes * KINDS);
    filled_.resize(devices);
    queued_.resize(devices);
    shared_.resize(devices);
    routers_.resize(devices);
    workers_of_.resize(devices);
    links_.resize(net_.links.size());
    for (size_t l = 0; l < links_.size(); l++) links_[l].credits = net_.links[l].credits;
    for (size_t n = 0; n < nodes; n++)
        logs_.push_back(net_.interval[n % net_.units] > 0 ? std::make_unique<Log>() : nullptr);
    at(0.0, What::Act, HOST);
    for (size_t d = 0; d < devices; d++)
        for (int32_t w = 0; w < net_.devices[d].workers; w++) {
            workers_of_[d].push_back(int32_t(workers_.size()));
            at(0.0, What::Act, int32_t(workers_.size()));
            workers_.emplace_back().device = int32_t(d);
        }
    for (int32_t k = 0; k < keys_; k++) free_.push_back(k % net_.replicas);
}

// --- events ---------------------------------------------------------------------------------------------------

void Simulation::at(double time, What what, int32_t who, int32_t message) {
    events_.push({time, number_++, what, who, message});
}

const Tally& Simulation::run(int64_t retired, int64_t messages) {
    while (tally_.retired < retired && tally_.messages < messages) {
        if (events_.empty()) throw std::runtime_error("no worker has anything to do");
        const Event event = events_.top();
        events_.pop();
        if (event.what == What::Act && event.who != HOST && workers_[event.who].owed > 0.0) {
            Worker& w = workers_[event.who];
            at(event.time + w.owed, What::Act, event.who);
            w.until += w.owed;
            w.owed = 0.0;
            continue;
        }
        tally_.us = event.time;
        switch (event.what) {
        case What::Act: act(event.who); break;
        case What::Sent: links_[event.who].busy = false; begin_sending(event.who); break;
        case What::Credit: links_[event.who].credits++; begin_sending(event.who); break;
        case What::Arrive: {
            const Message message = messages_[event.message];
            unused_.push_back(event.message);
            arrive(message.to, message.kind, message.bytes);
            flush(message.kind);
            break;
        }
        case What::Routed: routed(event.who); break;
        case What::Look:
            if (event.message == sleeps_) wake(HOST);
            break;
        }
    }
    told_ = tally_;
    for (const Worker& w : workers_) told_.device_busy[w.device] -= std::max(0.0, w.until - tally_.us);
    return told_;
}

void Simulation::act(int32_t who) {
    const double spent = who == HOST ? host() : work(who);
    if (spent != SLEEP) at(tally_.us + spent, What::Act, who);
}

void Simulation::wake(int32_t who) {
    bool& asleep = who == HOST ? host_asleep_ : workers_[who].asleep;
    if (!asleep) return;
    asleep = false;
    at(tally_.us, What::Act, who);
}

// --- the host -------------------------------------------------------------------------------------------------

double Simulation::host() {
    if (submitting_ >= 0) submit(pumped_++, submitting_);
    submitting_ = -1;
    double spent = net_.host;
    if (free_.empty()) {
        if (done_.empty() && !host_slept_) {
            host_slept_ = host_asleep_ = true;
            slept_at_ = tally_.us;
            sleeps_++;
            return SLEEP;
        }
        const bool slept = host_slept_;
        host_slept_ = false;
        free_.insert(free_.end(), done_.begin(), done_.end());
        done_.clear();
        if (free_.empty()) return host();
        if (slept) spent += net_.waking;
    }
    submitting_ = free_.front();
    free_.pop_front();
    steal(spent);
    tally_.host += spent;
    return spent;
}

void Simulation::submit(int64_t number, int32_t replica) {
    if (free_instances_.empty()) {
        instances_.push_back(std::make_unique<Instance>());
        free_instances_.push_back(instances_.back().get());
    }
    Instance& i = *free_instances_.back();
    free_instances_.pop_back();
    i.shape = &shapes_[order_[number % int64_t(order_.size())]];
    i.age = number;
    i.replica = replica;
    i.begun = tally_.us;
    i.left = i.shape->need;
    i.missing.assign(i.shape->firings(), 0);
    i.version.assign(i.shape->firings(), 0);
    i.kept.assign(i.shape->firings(), 0);
    const int32_t first = int32_t(i.shape->first.size()), from = int32_t(net_.devices.size());
    i.outstanding = 1 + first;  // 1: so that it cannot retire before it is pumped
    const int32_t kind = net_.trains ? FORWARD : INFER;
    for (int32_t k = 0; k < first; k++) send(from, {&i, i.shape->first[k]}, kind, i.shape->first_bytes[k]);
    flush(kind);
    settle(&i, 1);
}

// The operating system runs the host where a worker would have run.
void Simulation::steal(double spent) {
    if (net_.shared < 0) return;
    std::vector<int32_t> running;
    for (int32_t w : workers_of_[net_.shared])
        if (!workers_[w].asleep) running.push_back(w);
    if (int32_t(running.size()) < net_.processors) return;
    victim_++;
    workers_[running[victim_ % int64_t(running.size())]].owed += spent;
    tally_.stolen += spent;
}

// --- workers --------------------------------------------------------------------------------------------------

double Simulation::work(int32_t who) {
    Worker& w = workers_[who];
    if (w.step == Step::Served) {
        const bool overlaps = net_.devices[w.device].overlaps;
        const std::shared_ptr<Chunk> chunk = w.frame.chunk;
        if (overlaps) {
            routers_[w.device].frames.push_back(w.frame);
            route(w.device);
        } else {
            commit(w.frame, w.again);
        }
        if (chunk != nullptr) {
            chunk->writers--;
            const double spent = reduce(w, w.frame.node);
            if (spent != SLEEP) return spent;
        }
    } else if (w.step == Step::Part) {
        Log& log = *logs_[w.part_of];
        log.under_way--;
        if (log.left > 0) return part(w, w.part_of);
        if (reduced(w.part_of)) {
            const double spent = reduce(w, w.part_of);
            if (spent != SLEEP) return spent;
        }
    }
    if (!w.again.tasks.empty()) {
        w.frame = std::move(w.again);
        w.again = {};
        return serve(who);
    }
    w.step = Step::Look;
    if (!shared_[w.device].empty()) return part(w, *shared_[w.device].begin());
    if (net_.devices[w.device].overlaps ? take(w) : look(w.device, w.frame)) return serve(who);
    if (!done_.empty()) wake(HOST);
    w.asleep = true;
    return SLEEP;
}

// What the device does next.
bool Simulation::look(int32_t device, Frame& frame) {
    Choice choice(net_.policy.order);
    for (int32_t q : filled_[device]) {
        const Waiting& queue = queues_[q];
        const int32_t of = (q / KINDS % net_.units) * KINDS + q % KINDS;  // in the tables, which replicas share
        const Ready& next = queue.heap.front();
        choice.offer(q, queue.rows, net_.policy.min_rows[of], net_.policy.priority[of], next.age, next.arrival,
                     net_.depth[of / KINDS]);
    }
    const int32_t best = choice.queue();
    if (best < 0) return false;
    frame = {};
    frame.node = best / KINDS;
    frame.kind = best % KINDS;
    pop(queues_[best], net_.devices[device], frame);
    queued_[device] -= int64_t(frame.tasks.size());
    if (queues_[best].heap.empty()) filled_[device].erase(best);
    return true;
}

void Simulation::pop(Waiting& queue, const Device& device, Frame& frame) {
    int64_t taken = 0;
    while (!queue.heap.empty() &&
           takes_more(frame.tasks.size(), taken, size_t(device.frame_cap), device.frame_rows)) {
        std::pop_heap(queue.heap.begin(), queue.heap.end());
        frame.tasks.push_back(queue.heap.back().firing);
        taken += queue.heap.back().rows;
        queue.heap.pop_back();
    }
    queue.rows -= taken;
}

double Simulation::serve(int32_t who) {
    Worker& w = workers_[who];
    Frame& f = w.frame;
    const int32_t unit = f.node % net_.units, number = unit * KINDS + f.kind;
    Log* log = logs_[f.node].get();
    f.rows = 0;
    double computing = 0.0;
    for (const Firing& t : f.tasks) {
        const int32_t rows = t.instance->shape->rows[t.at];
        f.rows += rows;
        computing += t.instance->shape->added(f.kind, t.at);
        if (log == nullptr) continue;
        if (f.kind == BACKWARD) {
            tally_.stale_rows[f.node] += rows;
            tally_.stale[f.node] += int64_t(log->version - t.instance->version[t.at]) * rows;
        } else {
            t.instance->version[t.at] = log->version;
        }
    }
    f.chunk = nullptr;
    if (log != nullptr && f.kind == BACKWARD) {
        f.chunk = log->open;
        f.chunk->rows += f.rows;
        f.chunk->writers++;
        log->since += f.rows;
        f.chunk->due = interval_due(log->since, net_.interval[unit]);
        if (closes_chunk(f.chunk->due, f.chunk->rows, WORTH_REDUCING)) {
            log->sealed.push_back(f.chunk);
            log->open = std::make_shared<Chunk>();
        }
        if (f.chunk->due) {
            log->since = 0;
            for (const Firing& t : f.tasks) {
                t.instance->outstanding++;
                f.chunk->waiting.push_back(t.instance);
            }
        }
    }
    computing += net_.frame[number].of(f.rows);
    const double delivering = net_.delivery[number].of(f.rows);
    const double spent = net_.devices[w.device].overlaps ? computing : computing + delivering;
    tally_.frames++;
    tally_.rows += f.rows;
    tally_.computing += computing;
    tally_.delivering += delivering;
    tally_.unit_frames[f.node]++;
    tally_.unit_firings[f.node] += int64_t(f.tasks.size());
    tally_.busy[f.node] += spent;
    occupy(w, spent);
    if (slices_.size() < keep_) slices_.push_back({w.device, who, f.node, f.kind, tally_.us, spent, f.rows});
    w.step = Step::Served;
    return spent;
}

// Begins to reduce the node's next chunk; SLEEP if there is none, or somebody is at it or still writes it.
double Simulation::reduce(Worker& w, int32_t node) {
    const int32_t unit = node % net_.units;
    Log& log = *logs_[node];
    if (log.reducing || log.sealed.empty() || log.sealed.front()->writers > 0) return SLEEP;
    log.reducing = true;
    log.begun = tally_.us;
    log.reduced = log.sealed.front();
    log.sealed.pop_front();
    const bool due = log.reduced->due;
    const int32_t workers = net_.devices[w.device].workers;
    const double sum = double(log.reduced->rows) * net_.reduce[unit], update = due ? net_.update[unit] : 0.0;
    const bool sums = worth_sharing(workers, log.reduced->rows * net_.products[unit], SHARED_PRODUCTS);
    const bool updates = due && worth_sharing(workers, net_.numbers[unit], SHARED_NUMBERS);
    const double spent = sum + update, together = (sums ? sum : 0.0) + (updates ? update : 0.0);
    log.version += due;
    tally_.updates[node] += due;
    tally_.serial[node] += spent;
    log.left = sums || updates ? net_.parts[unit] : 1;
    log.part = together / log.left;
    log.alone = spent - together;
    if (log.left > 1) {
        shared_[w.device].insert(node);
        for (int32_t other : workers_of_[w.device]) wake(other);
    }
    return part(w, node);
}

void Simulation::occupy(Worker& w, double spent) {
    tally_.device_busy[w.device] += spent;
    w.until = tally_.us + spent;
}

// The next part of what the node reduces.
double Simulation::part(Worker& w, int32_t node) {
    Log& log = *logs_[node];
    const double spent = log.part + log.alone;  // the first part is that of the one who began
    log.alone = 0.0;
    log.under_way++;
    if (--log.left == 0) shared_[w.device].erase(node);
    occupy(w, spent);
    w.step = Step::Part;
    w.part_of = node;
    return spent;
}

// Ends the reduction once its last part is done. The engine's worker that began it waits for that, this one goes on.
bool Simulation::reduced(int32_t node) {
    Log& log = *logs_[node];
    if (log.under_way > 0) return false;
    const std::shared_ptr<Chunk> chunk = std::move(log.reduced);
    log.reduced = nullptr;
    log.reducing = false;
    tally_.reducing[node] += tally_.us - log.begun;
    for (Instance* i : chunk->waiting) settle(i, 1);
    return true;
}

}  // namespace amphw::simulated
