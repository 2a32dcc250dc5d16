// The data plane: instances in flight, queues, workers, delivery, retirement. No Python in here.
//
// A worker takes a frame from a queue, runs it without any lock, then delivers: joins are atomic counters, the
// arrival that completes a firing queues it. Gradients return the same way. An instance whose messages are all
// accounted for retires.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "external.hpp"
#include "queue.hpp"
#include "shared_work.hpp"
#include "sleepers.hpp"

namespace amphw {

struct Options {
    int32_t workers;
    bool self_updating;  // else nodes wait for `update`
    bool log;
    bool by_age;  // queues serve the oldest instance first
    size_t frame_cap;
    int64_t frame_rows;
    int64_t report_batch;  // instances that retire before the host is woken, unless nothing else runs
    PolicyTable policy;
    std::vector<std::vector<int32_t>> served;  // by worker: its queues
    std::vector<double> sleep;                 // by unit: seconds a message
    bool trace;
    int64_t plan_bytes;
    // Memory shared with external executors, which compute the frames of their units and hold their parameters; null:
    // there are none.
    char* shared = nullptr;
    size_t shared_bytes = 0;
    // By unit: the worker through which an external executor gets its frames, whose units together are a region. -1: a
    // unit that is computed here, or handed out to a part.
    std::vector<int32_t> regions;
    // By unit that a part computes: the part's worker, where the part keeps what its units send each other and joins it
    // itself. Of such units the engine does the bookkeeping alone, and hands out just what others have sent. -1: every
    // other unit.
    std::vector<int32_t> joining;
    // By unit, and the devices that there are not on which some of them sleep.
    std::vector<SleptUnit> slept;
    std::vector<SleepDevice> sleepers;
};

// One event of the service order; `keys` are (instance number, mode, firing).
struct Event {
    EventType type;
    int64_t a = 0, b = 0, c = 0;
    std::vector<std::array<int64_t, 3>> keys;
};

struct TraceSlice {
    int32_t worker, unit, kind;  // kind 3: an update
    double begin_us, duration_us;
    int64_t rows, flow_in, number;  // flow_in -1: none
};

struct SinkReport {
    int32_t unit;
    int64_t rows = 0;
    std::vector<double> sums;
    std::vector<std::vector<float>> values;  // in Predict mode: rows of each label in state order
};

struct Retired {
    int32_t slot;
    int64_t generation, number;
    Mode mode;
    std::vector<SinkReport> sinks;
};

// A frame that a part has. leaves: by output, backward by operand, whether any row of it goes elsewhere; empty where all
// messages come through the engine.
struct HandedOut {
    int32_t worker = 0;
    Frame frame;
    std::vector<uint8_t> leaves;
};

struct Counters {
    int64_t forward = 0, backward = 0, frames = 0, updates = 0;
    double busy = 0.0;
    std::map<int32_t, std::map<int64_t, int64_t>> staleness;  // by unit: rows by versions behind
};

class Engine {
public:
    Engine(GraphDesc graph, std::vector<std::optional<Rule>> rules, Options options, const Kernels& kernels);

    // --- the host's side ---
    // Refused: the structure leaves a declared domain or data is short, which plan.py then explains.
    // NoRoom: not in the memory shared with an external executor; once something has retired there may be.
    enum class Submitted { Pumped, Refused, Failed, NoRoom };
    Submitted submit(int32_t slot, int64_t generation, int64_t number, Mode mode, const Structure& structure,
                     std::vector<const float*> data, const std::vector<int64_t>& data_widths,
                     const std::vector<int64_t>& data_rows);
    // What has retired; waits for it up to `timeout` seconds. stuck: nothing can move any more.
    std::vector<Retired> poll(double timeout, bool* stuck);
    void update(int32_t unit, bool publish);  // reduce what is logged, on behalf of the host
    // See `Parameters`; these hold. While frames run they are called by one thread, beside the one that submits.
    void move(int32_t unit, const std::vector<const float*>& moves);
    std::pair<int64_t, int64_t> told(int32_t unit, const std::vector<float*>& sums);
    void receive(int32_t unit, const std::vector<ReceivedRange>& ranges);
    Counters counters();
    std::vector<double> busy();
    std::vector<TraceSlice> trace();
    std::vector<Event> events();
    void stop_waiting();  // wakes everybody
    void fail(const EngineError& error);
    int64_t in_flight() const { return in_flight_.load(); }
    std::vector<Slot*> active();
    Slot* slot(int32_t index);
    Parameters* parameters(int32_t unit) { return parameters_[unit].get(); }
    std::optional<EngineError> failure();
    int64_t slot_bytes() const;
    std::pair<int64_t, int64_t> planned_bytes(const Structure& structure);
    const GraphDesc& graph() const { return graph_; }

    Policy policy;
    // Whether nothing is in flight and nothing logged: the parameters are complete, and may be written.
    bool settled();

    // --- a worker's side ---
    bool run(int32_t worker, double seconds);
    void wait(int32_t worker, double seconds);

    // --- an external executor's side; external_engine.cpp ---
    // The next frame for a worker, described: the executor computes it. Null: there is none. Throws EngineError.
    const ExternalFrame* take(int32_t worker);
    // Its messages to units of the region may go on: what reads them comes behind it in the executor's order. True:
    // others leave the region, which `sent` hands on.
    bool commit(int64_t number);
    // What leaves the region is where its readers look for it.
    void sent(int64_t number);
    Crossing leaving(int64_t number);   // counts what it finds as sent from there
    Crossing reported(int64_t number) const { return tables_->reported(external(number).frame); }
    // By region: bytes of the messages that have passed its border, to it and from it.
    std::map<int32_t, std::pair<int64_t, int64_t>> crossed();
    // Its memory may be used again: the work is done, in so many seconds.
    void ended(int64_t number, int32_t worker, double seconds);
    const ExternalFrame& external(int64_t number) const { return external_.at(number).described; }
    // The next part of a node's log to reduce. Null: there is none. After `reduced` its update counts as published.
    const ReductionJob* take_reduction(int32_t unit);
    void reduced(int32_t unit);
    void seal(int32_t unit, bool publish);
    void trim();  // give back memory that is only kept for later
    const ExternalFrame* replay_take(int64_t number, int32_t unit, Kind kind, std::vector<Task> tasks);
    int64_t origin_of(int64_t number) const { return origin(external(number).frame); }
    std::pair<int32_t, int32_t> constants() const { return tables_->constants(); }
    std::pair<int32_t, int32_t> data_of(int32_t slot);  // place and words of an instance's data arrays

    // --- a part's side: something outside that computes its nodes' frames and has their parameters; parts.cpp ---
    // The next frame for a worker, none of whose nodes run here. Null: there is none. Throws EngineError.
    const HandedOut* hand_out(int32_t worker);
    const HandedOut* replay_hand_out(int64_t number, int32_t unit, Kind kind, std::vector<Task> tasks);
    // Copies rows of all its firings, one after another: of an operand; of the sum of what came back for an output.
    void copy_operand(const Frame& frame, int32_t operand, float* to) const;
    void copy_gradient(const Frame& frame, int32_t output, float* to) const;
    // Whether a part that joins for itself computes the unit.
    bool joins(int32_t unit) const { return options_.joining[unit] >= 0; }
    // Of each message of an operand, whether the part is handed it; rows: of those, together.
    std::vector<uint8_t> brought(const Frame& frame, int32_t operand, int64_t* rows) const;
    void copy_integers(const Frame& frame, int32_t operand, int64_t* to) const;
    int64_t rows_of(const Frame& frame, int32_t space) const;
    // What the part has computed: outputs of a frame forward, gradients of operands backward. Null: not wanted.
    // decided: by decided field, a value for each firing.
    void bring_back(int64_t number, const std::vector<const float*>& rows, const std::vector<const int64_t*>& decided);
    // Its messages go on. begun, seconds: for traces and statistics.
    void handed_back(int64_t number, double begun_us, double seconds);

    // --- units that sleep; sleepers.cpp ---
    SleptRows slept_rows(int32_t unit) { return sleepers_.rows(unit); }
    double sleeper_idle(int32_t device) { return sleepers_.idle(device); }

    // --- replay: the log says what runs next ---
    void replay();
    void replay_start(int64_t number, int32_t unit, Kind kind, std::vector<Task> tasks);
    void replay_end(int64_t number);
    void replay_seal(int32_t unit, bool due);
    void replay_reduced(int32_t unit);

private:
    // Lets go of a version, also where the frame fails.
    struct Pinned {
        Pinned(Parameters* parameters, int buffer) : parameters(parameters), buffer(buffer) {}
        Pinned(const Pinned&) = delete;
        ~Pinned() {
            if (parameters != nullptr) parameters->unpin(buffer);
        }
        Parameters* parameters;
        int buffer;
    };
    struct Worker {
        explicit Worker(const GraphDesc& graph, const Kernels& kernels);
        FrameRunner runner;
        Frame frame, back;                     // back: of the same firings, where both run at once
        std::vector<std::vector<Task>> ready;  // by queue: firings that the frame at hand has completed
        std::vector<Task> again;               // firings that go backward at once
        std::vector<int64_t> returned;         // messages that each task of the frame returns
        std::vector<size_t> left;              // numbers of tasks whose messages have not all been handed on
        Counters counters;
        std::vector<TraceSlice> slices;
        std::mutex mutex;  // guards counters and slices against the host
    };

    // scheduling
    bool next(int32_t worker, Frame& frame);
    // Whether a frame of the queue may begin.
    bool ready(int32_t queue, double now) const {
        if (queues_[queue].size.load() == 0) return false;
        return !sleepers_.has(queue / KINDS) || sleepers_.accepts(queue / KINDS, now);
    }
    void push_ready(Worker& w);
    void make_ready(Worker& w, int32_t unit, Kind kind, Slot& slot, int32_t firing);
    Queue& queue(int32_t unit, Kind kind) { return queues_[unit * KINDS + kind]; }
    // frames
    void begin(Frame& frame);
    void serve(int32_t worker, Frame& frame);
    void compute(Worker& w, Frame& frame);
    // sinks; sinks.cpp
    static GraphDesc marked(GraphDesc graph, const Options& options);
    void serve_at_once(int32_t worker, Frame& frame);
    // Before the frame is delivered, so that whoever hears of a retired instance finds all its slices.
    void count_served(int32_t worker, const Frame& frame, double begun_us, double seconds, int64_t flow);
    // Which of a frame's messages are handed on: those that stay in its region and those that leave it have their own
    // time. A unit outside of all regions has them all at once.
    enum class Messages { All, Staying, Leaving };
    bool among(Messages which, int32_t unit, int32_t other) const {
        return which == Messages::All || (options_.regions[unit] == options_.regions[other]) == (which == Messages::Staying);
    }
    // Afterwards `w.left` has the tasks some of whose messages are left out.
    void commit(Worker& w, Frame& frame, Messages which = Messages::All);
    // The same for a frame that was computed elsewhere: what goes backward at once is queued rather than served.
    void hand_on(Worker& w, Frame& frame, Messages which);
    void commit_forward(Worker& w, Frame& frame, Messages which);
    void commit_backward(Worker& w, Frame& frame, Messages which);
    void count_sent(Worker& w, const Frame& frame);
    void deliver(Worker& w, Slot& slot, const Route& route, float* rows, int32_t unit, int32_t firing);
    void check_losses(const Frame& frame);
    int64_t origin(const Frame& frame) const;
    // A backward frame's rows are in the log.
    void logged(Worker& w, int32_t worker, const Frame& frame);
    // units that sleep; sleepers.cpp
    void blank(Frame& frame);
    void lay_down(Worker& w, Frame& frame);
    // Hand on a frame whose device is done with it -> whether there was one.
    bool hand_on_due(int32_t worker);
    // Without anything to do, wait for the next event of a device, and no longer than `until`. False: there is none.
    bool rest(int32_t worker, double until);
    // instances
    void pump(Worker& w, Slot& slot, const std::vector<const float*>& data, const std::vector<int64_t>& widths);
    bool integers(Slot& slot, const Structure& structure);
    void settle(Slot& slot, int64_t messages);
    void retire(Slot& slot);
    // updates
    void reduce_due(Worker* w, int32_t worker, int32_t unit);
    // Act in the place of the one who reduces, and reduce what has become due meanwhile. Nothing where it has failed.
    void hold(int32_t unit, const std::function<void(Parameters&)>& act);
    void reduce_chunk(Worker* w, int32_t worker, int32_t unit, std::unique_ptr<LogChunk> chunk);
    // A part of somebody else's reduction, of a unit that this worker serves. False: there is none.
    bool help(int32_t worker);
    bool may_help(int32_t worker) const;
    // external
    struct External {
        ExternalFrame described;
        int64_t work;  // number of the memory's
    };
    // Whether messages between the units stay with the part that computes both.
    bool joined(int32_t unit, int32_t other) const {
        return options_.joining[unit] >= 0 && options_.joining[unit] == options_.joining[other];
    }
    HandedOut& handed_out(int64_t number);
    void cross(const Frame& frame, std::vector<uint8_t>& leaves);
    const HandedOut* keep_handed_out(int32_t worker, Frame& frame);
    struct Reduction {
        std::unique_ptr<LogChunk> chunk;
        Block header;
        ReductionJob job;
    };
    size_t room_for(const Frame& frame) const;
    const ExternalFrame* describe(int32_t worker, Frame& frame);
    void decide(ExternalFrame& e);
    void keep_data(Slot& slot, std::vector<const float*>& data, const std::vector<int64_t>& widths,
                   const std::vector<int64_t>& rows);
    void count_staleness(Worker& w, const Frame& frame);
    // the rest
    Parameters& replayed_parameters(int32_t unit);
    void check_ready(int32_t unit, Kind kind, std::vector<Task>& tasks);
    void begin_replayed(int64_t number, Frame& frame);
    void record(Event event);
    bool at_rest();

    GraphDesc graph_;
    const Options options_;
    const Kernels& kernels_;
    Planner planner_;
    std::unique_ptr<DeviceMemory> memory_;  // of an external executor; whatever lies in it goes first
    std::unique_ptr<FrameTables> tables_;
    std::map<int64_t, External> external_;    // by number of the frame
    std::map<int32_t, std::pair<int64_t, int64_t>> crossed_;  // by worker: bytes to it and back
    std::mutex crossed_mutex_;
    std::map<int32_t, Reduction> reductions_;  // by unit
    std::mutex parts_mutex_;                   // of the next
    std::map<int64_t, HandedOut> handed_out_;  // by number of the frame
    std::vector<std::unique_ptr<Parameters>> parameters_;  // by unit
    std::vector<SharedWork> shared_;  // by unit: its reduction under way
    std::vector<std::vector<int32_t>> helps_;  // by worker: units whose reductions it may help
    std::atomic<int> sharing_{0};  // reductions under way in parts: workers look here first
    std::vector<Queue> queues_;
    Sleepers sleepers_;
    std::vector<std::unique_ptr<Worker>> workers_;  // the last one is the host's
    std::map<int32_t, std::unique_ptr<Slot>> slots_;
    std::atomic<uint64_t> ages_{0}, arrivals_{0};
    std::atomic<int64_t> frames_{0}, in_flight_{0};
    std::atomic<int64_t> pending_{0};  // firings queued or being served
    std::atomic<int> idle_{0};         // workers that have nothing to do
    std::atomic<bool> failed_{false};
    std::mutex mutex_;  // done_, failure_, sleeping
    std::condition_variable work_, news_;
    std::vector<Retired> done_;
    std::optional<EngineError> failure_;
    std::mutex log_mutex_;  // orders what the log says
    std::vector<Event> events_;
    bool replaying_ = false;
    std::map<int64_t, Frame> replayed_;                                 // frames begun, by their number in the log
    std::set<std::tuple<Slot*, int32_t, int32_t, int32_t>> ready_;  // while replaying: slot, unit, kind, firing
};

}  // namespace amphw
