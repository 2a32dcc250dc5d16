// How messages get from device to device, and what they make ready.
#include <algorithm>
#include <cmath>

#include "simulation.hpp"

namespace amphw::simulated {

constexpr double LOOK_AGAIN_US = 1e6 * LOOK_AGAIN;

// The unit that delivers and fetches does one thing at a time; what has been computed goes first.
void Simulation::route(int32_t device) {
    Router& router = routers_[device];
    if (router.busy) return;
    router.fetches = router.frames.empty();
    if (router.fetches && (router.there || !look(device, router.fetched))) return;
    router.busy = true;
    const Frame& f = router.fetches ? router.fetched : router.frames.front();
    const Line& line = (router.fetches ? net_.fetch : net_.delivery)[(f.node % net_.units) * KINDS + f.kind];
    const double spent = line.of(f.rows);
    tally_.device_routing[device] += spent;
    at(tally_.us + spent, What::Routed, device);
}

void Simulation::routed(int32_t device) {
    Router& router = routers_[device];
    router.busy = false;
    if (router.fetches) {
        router.there = true;
        for (int32_t w : workers_of_[device]) wake(w);
    } else {
        Frame frame = std::move(router.frames.front()), again;
        router.frames.pop_front();
        commit(frame, again);
        if (!again.tasks.empty()) {  // they go backward as any others that are ready
            for (const Firing& f : again.tasks) ready_.push_back(f);
            flush(BACKWARD);
        }
    }
    route(device);
}

// What has been fetched; then the next is.
bool Simulation::take(Worker& w) {
    Router& router = routers_[w.device];
    if (!router.there) return false;
    w.frame = std::move(router.fetched);
    router.there = false;
    route(w.device);
    return true;
}

// Sends what a frame has made. again: firings that go backward at once.
void Simulation::commit(Frame& frame, Frame& again) {
    const int32_t from = net_.device_of[frame.node];
    for (const Firing& f : frame.tasks) {
        Instance& i = *f.instance;
        const Shape& s = *i.shape;
        if (frame.kind == BACKWARD) {
            const int32_t first = s.origins.starts[f.at], last = s.origins.starts[f.at + 1];
            for (int32_t k = first; k < last; k++) send(from, {&i, s.origins.values[k]}, BACKWARD, s.origin_bytes[k]);
            tally_.messages += s.returned[f.at] - (last - first);  // to sources, which take nothing of it
            tally_.held[from] -= i.kept[f.at];
            continue;
        }
        const int32_t begin = s.targets.starts[f.at], end = s.targets.starts[f.at + 1];
        i.missing[f.at] = end - begin;
        i.outstanding += end - begin;
        for (int32_t k = begin; k < end; k++)
            send(from, {&i, s.targets.values[k]}, frame.kind, s.target_bytes[k]);
        if (frame.kind == INFER) tally_.held[from] -= i.kept[f.at];
        if (begin == end && frame.kind == FORWARD) again.tasks.push_back(f);
    }
    flush(frame.kind);
    if (frame.kind != FORWARD)
        for (const Firing& f : frame.tasks) settle(f.instance, f.instance->shape->returned[f.at]);
    again.node = frame.node;
    again.kind = BACKWARD;
}

void Simulation::send(int32_t from, Firing to, int32_t kind, int32_t bytes) {
    tally_.messages++;
    const int32_t devices = int32_t(net_.devices.size());
    const int32_t number = net_.link_of[size_t(from) * devices + device(to)];
    if (number < 0) return arrive(to, kind, bytes);
    LinkState& link = links_[number];
    (kind == BACKWARD ? link.backward : link.forward).push_back({to, kind, bytes, tally_.us});
    const int64_t waiting = int64_t(link.forward.size() + link.backward.size());
    tally_.link_most_queued[number] = std::max(tally_.link_most_queued[number], waiting);
    begin_sending(number);
}

void Simulation::begin_sending(int32_t number) {
    LinkState& link = links_[number];
    const Link& of = net_.links[number];
    if (link.busy) return;
    const bool back = !link.backward.empty();
    if (!back && (link.forward.empty() || (of.credits > 0 && link.credits == 0))) return;
    std::deque<Message>& queue = back ? link.backward : link.forward;
    const Message message = queue.front();
    queue.pop_front();
    link.busy = true;
    const double spent = (double(message.bytes) + of.overhead) * of.us_per_byte;
    tally_.link_busy[number] += spent;
    tally_.link_waited[number] += tally_.us - message.sent;
    tally_.link_messages[number]++;
    tally_.link_bytes[number] += int64_t(double(message.bytes) + of.overhead);
    if (unused_.empty()) {
        unused_.push_back(int32_t(messages_.size()));
        messages_.emplace_back();
    }
    const int32_t slot = unused_.back();
    unused_.pop_back();
    messages_[slot] = message;
    at(tally_.us + spent, What::Sent, number);
    at(tally_.us + spent + of.latency, What::Arrive, number, slot);
    if (!back && of.credits > 0) {
        link.credits--;
        at(tally_.us + spent + 2.0 * of.latency, What::Credit, number);
    }
}

// What is complete is put into `ready_`, for `flush`.
void Simulation::arrive(Firing to, int32_t kind, int32_t bytes) {
    Instance& i = *to.instance;
    if (kind != BACKWARD) {
        const int32_t d = device(to);
        i.kept[to.at] += bytes;
        tally_.held[d] += bytes;
        tally_.most_held[d] = std::max(tally_.most_held[d], tally_.held[d]);
    }
    int32_t& left = kind == BACKWARD ? i.missing[to.at] : i.left[to.at];
    if (--left == 0) ready_.push_back(to);
}

void Simulation::flush(int32_t kind) {
    touched_.clear();
    for (const Firing& f : ready_) {
        const int32_t n = node(f), d = net_.device_of[n], rows = f.instance->shape->rows[f.at];
        Waiting& queue = queues_[n * KINDS + kind];
        if (queue.heap.empty()) filled_[d].insert(n * KINDS + kind);
        queue.heap.push_back({net_.by_age ? f.instance->age : 0, ++arrivals_, f, rows});
        std::push_heap(queue.heap.begin(), queue.heap.end());
        queue.rows += rows;
        tally_.most_queued[d] = std::max(tally_.most_queued[d], ++queued_[d]);
        if (std::find(touched_.begin(), touched_.end(), d) == touched_.end()) touched_.push_back(d);
    }
    ready_.clear();
    for (int32_t d : touched_) {
        if (net_.devices[d].overlaps)
            route(d);
        else
            for (int32_t w : workers_of_[d]) wake(w);
    }
}

void Simulation::settle(Instance* i, int32_t messages) {
    i->outstanding -= messages;
    if (i->outstanding > 0) return;
    const double latency = tally_.us - i->begun;
    tally_.retired++;
    tally_.counted += i->shape->size;
    tally_.latency += latency;
    tally_.most_latency = std::max(tally_.most_latency, latency);
    done_.push_back(i->replica);
    free_instances_.push_back(i);
    if (int32_t(done_.size()) >= net_.report_batch)
        wake(HOST);
    else if (host_asleep_ && done_.size() == 1 && net_.shared >= 0)
        at(slept_at_ + LOOK_AGAIN_US * std::ceil((tally_.us - slept_at_) / LOOK_AGAIN_US), What::Look, HOST, sleeps_);
}

}  // namespace amphw::simulated
