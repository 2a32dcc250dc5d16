// Who computes, sends and waits when, without computing it: events of a network of devices.
//
// Which queue is served, what makes a frame and when an update is due are the engine's own rules, engine/native/
// rules.hpp; when gradients are reduced and an instance retires follows engine.cpp. Not simulated: that workers slow each
// other down in caches and at locks, and that a worker takes time to wake.
#pragma once

#include <deque>
#include <memory>
#include <queue>
#include <set>
#include <stdexcept>
#include <string>

#include "network.hpp"

namespace amphw::simulated {

// What has happened so far. Microseconds. stolen: by a host without a processor of its own.
struct Tally {
    double us = 0.0, computing = 0.0, delivering = 0.0, host = 0.0, stolen = 0.0;
    int64_t retired = 0, counted = 0, frames = 0, rows = 0, messages = 0;
    // By replica and unit. serial: what workers spent on reducing and updating, one after another or together;
    // reducing: while one of them did; busy: computing and delivering.
    std::vector<double> serial, reducing, busy;
    std::vector<int64_t> unit_frames, unit_firings, updates, stale_rows, stale;  // stale: versions times rows
    std::vector<double> device_busy, device_routing;                             // by device
    std::vector<double> link_busy, link_waited;                                  // by link
    std::vector<int64_t> link_messages, link_bytes;
    std::vector<int64_t> held, most_held, most_queued, link_most_queued;  // bytes and firings by device; messages
    double latency = 0.0, most_latency = 0.0;                             // of retired instances, summed; the longest
};

struct Slice {
    int32_t device, worker, unit, kind;
    double begin, duration;
    int64_t rows;
};

class Simulation {
public:
    // keys: in flight, shared by the replicas. order: of shapes, repeated. slices: frames that are kept for a picture.
    Simulation(Network network, std::vector<Shape> shapes, std::vector<int32_t> order, int32_t keys, int64_t slices);

    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    // Goes on until so many instances have retired in all, or so many messages have crossed.
    const Tally& run(int64_t retired, int64_t messages);
    // Up to the time at which `run` ended: of what devices are at, as much as they have done.
    const Tally& tally() const { return told_; }
    const std::vector<Slice>& slices() const { return slices_; }

private:
    struct Instance {
        const Shape* shape = nullptr;
        int64_t age = 0;
        int32_t replica = 0, outstanding = 0;
        double begun = 0.0;
        std::vector<int32_t> left, missing, version, kept;
    };
    struct Firing {
        Instance* instance;
        int32_t at;
    };
    struct Ready {
        int64_t age, arrival;
        Firing firing;
        int32_t rows;
        bool operator<(const Ready& o) const { return age != o.age ? age > o.age : arrival > o.arrival; }  // a heap's
    };
    struct Waiting {
        std::vector<Ready> heap;
        int64_t rows = 0;
    };
    // Logged gradient rows that are reduced together. waiting: they retire only after the update.
    struct Chunk {
        int64_t rows = 0;
        int32_t writers = 0;
        bool due = false;
        std::vector<Instance*> waiting;
    };
    // A node's gradient log as engine/native/parameters.cpp has it, but for the chunks' capacity.
    struct Log {
        std::shared_ptr<Chunk> open = std::make_shared<Chunk>();
        std::deque<std::shared_ptr<Chunk>> sealed;
        bool reducing = false;
        // What is being reduced, since when; how long a part of it takes, and what one worker does alone; the parts that
        // are left and under way.
        std::shared_ptr<Chunk> reduced;
        double begun = 0.0, part = 0.0, alone = 0.0;
        int32_t left = 0, under_way = 0;
        int64_t since = 0;
        int32_t version = 0;
    };
    struct Frame {
        int32_t node = -1, kind = 0;  // node: replica * units + unit
        std::vector<Firing> tasks;
        std::shared_ptr<Chunk> chunk;
        int64_t rows = 0;
    };
    enum class Step { Look, Served, Part };
    struct Worker {
        int32_t device = 0;
        Step step = Step::Look;
        Frame frame, again;
        int32_t part_of = -1;  // node whose log it reduces a part of
        double owed = 0.0, until = 0.0;  // until: when what it is at ends
        bool asleep = false;
    };
    struct Message {
        Firing to;
        int32_t kind, bytes;
        double sent;
    };
    struct LinkState {
        std::deque<Message> forward, backward;
        bool busy = false;
        int32_t credits = 0;
    };
    // frames: to be delivered. there: what is `fetched` may be computed.
    struct Router {
        std::deque<Frame> frames;
        Frame fetched;
        bool busy = false, fetches = false, there = false;
    };
    enum class What { Act, Sent, Arrive, Credit, Routed, Look };
    struct Event {
        double time;
        int64_t order;
        What what;
        int32_t who;  // worker, HOST, link or device
        int32_t message;  // or the host's sleep in which it looks again
        bool operator<(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
    };
    static constexpr int32_t HOST = -1;
    static constexpr double SLEEP = -1.0;

    void at(double time, What what, int32_t who, int32_t message = -1);
    void wake(int32_t who);
    void act(int32_t who);
    double host();
    double work(int32_t who);
    bool look(int32_t device, Frame& frame);
    bool take(Worker& w);
    double serve(int32_t who);
    double reduce(Worker& w, int32_t node);
    double part(Worker& w, int32_t node);
    void occupy(Worker& w, double spent);
    bool reduced(int32_t node);
    void commit(Frame& frame, Frame& again);
    void submit(int64_t number, int32_t replica);
    void steal(double spent);
    void route(int32_t device);
    void routed(int32_t device);
    void begin_sending(int32_t link);
    void send(int32_t from, Firing to, int32_t kind, int32_t bytes);
    void arrive(Firing to, int32_t kind, int32_t bytes);
    void flush(int32_t kind);
    void settle(Instance* instance, int32_t messages);
    void pop(Waiting& queue, const Device& device, Frame& frame);
    int32_t node(const Firing& f) const { return f.instance->replica * net_.units + f.instance->shape->unit[f.at]; }
    int32_t device(const Firing& f) const { return net_.device_of[node(f)]; }

    Network net_;
    std::vector<Shape> shapes_;
    std::vector<int32_t> order_;
    int32_t keys_;
    Tally tally_, told_;
    std::priority_queue<Event> events_;
    int64_t number_ = 0, arrivals_ = 0, pumped_ = 0;
    std::vector<Waiting> queues_;                // by node and kind
    std::vector<std::set<int32_t>> filled_;      // by device: its queues that are not empty
    std::vector<int64_t> queued_;                // by device: firings
    std::vector<std::set<int32_t>> shared_;      // by device: nodes of whose reductions parts are left
    std::vector<std::unique_ptr<Log>> logs_;     // by node
    std::vector<Worker> workers_;
    std::vector<std::vector<int32_t>> workers_of_;  // by device
    std::vector<LinkState> links_;
    std::vector<Router> routers_;
    std::vector<Message> messages_;  // on their way
    std::vector<int32_t> unused_;    // of them
    std::vector<Firing> ready_;
    std::vector<int32_t> touched_;  // devices that have got something to do
    std::deque<std::unique_ptr<Instance>> instances_;
    std::vector<Instance*> free_instances_;
    std::deque<int32_t> free_;     // replicas that have a key free, in the order of submission
    std::vector<int32_t> done_;    // replicas whose instances have retired
    bool host_asleep_ = false, host_slept_ = false;
    double slept_at_ = 0.0;  // since when the host sleeps, or did
    int32_t sleeps_ = 0;
    int32_t submitting_ = -1;
    int64_t victim_ = 0;
    size_t keep_;
    std::vector<Slice> slices_;
};

}  // namespace amphw::simulated
