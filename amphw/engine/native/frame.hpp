// Frames: a batch of firings of one unit and direction, run tile by tile.
#pragma once

#include <vector>

#include "errors.hpp"
#include "parameters.hpp"
#include "slot.hpp"

namespace amphw {

struct Task {
    Slot* slot;
    int32_t firing;
    int32_t rows;
    uint64_t age, arrival;  // of the instance; of the firing
};

struct Frame {
    int64_t number = 0;
    int32_t unit = 0;
    Kind kind = FORWARD;
    std::vector<Task> tasks;
    int buffer = -1;      // of the parameters that it reads; -1: the unit has none
    int64_t version = 0;  // that is in there
    LogPlace log;
    std::vector<int32_t> outcomes;  // of a unit that decides
    int64_t rows = 0;
};

// A decided field's value becomes part of the task's outcome, as the plan numbers them. Throws EngineError outside its
// extent.
inline void decide(Frame& frame, const UnitDesc& unit, size_t task, size_t field, int64_t value) {
    const Task& t = frame.tasks[task];
    if (value < 0 || value >= unit.choices[field])
        throw EngineError(Failure::Decision, frame.unit, t.slot->index, t.firing, int64_t(field), value);
    frame.outcomes[task] = frame.outcomes[task] * unit.choices[field] + int32_t(value);
}

// Runs frames of any unit; each worker has one, with the scratch that tiles need.
class FrameRunner {
public:
    FrameRunner(const GraphDesc& graph, const Kernels& kernels);

    // Gather, compute, scatter; parameters may be null. Throws EngineError.
    void run(Frame& frame, Parameters* parameters);
    // Two frames of the same firings: each tile goes forward and then backward, and what is saved in between is this
    // runner's scratch. Returns the seconds that backward has taken.
    double run_at_once(Frame& forward, Frame& backward, Parameters* parameters);

private:
    // Rows `first` .. `first + count - 1` of a task's rows, at rows `at` .. of the tile.
    struct Span {
        int32_t task;
        int64_t first;
        int32_t count, at;
    };

    // What a tile is computed for, and the rows of the tiles before it.
    struct Pass {
        Frame* frame = nullptr;
        const Code* code = nullptr;
        SpaceRows done{};
    };

    void begin(Frame& frame, Parameters* parameters);
    void tiles();
    void tiles_of_rows();
    void tiles_of_messages();
    void each_tile();
    void turn();
    void tile();
    void point(size_t base);
    void point_pooled(const Tensor& t, const Base& b, float** out);
    void point_operand(const Base& b, const Span& s, float** out);
    void point_gradient(const Base& b, size_t base, const Span& s, float** out);
    void gather_integers(size_t slot);
    void gemm(const Phase& p);
    void move_rows(const Phase& p);
    void attend(const Phase& p);
    void decide();
    void log_integers();
    int64_t rows_of(int32_t task, int32_t space) const;
    float* scratch(std::vector<Block>& blocks, size_t number, int64_t stride);
    [[noreturn]] void fail(int32_t task, const char* text);

    const GraphDesc& graph_;
    const Kernels& kernels_;
    const Bf16* const bf16_;

    Frame* frame_ = nullptr;
    const UnitDesc* unit_ = nullptr;
    const Code* code_ = nullptr;
    Parameters* parameters_ = nullptr;
    std::vector<Span> spans_[MAX_SPACES];
    int32_t rows_[MAX_SPACES] = {};  // of the tile
    SpaceRows done_{};               // rows of the tiles before it
    Pass other_;                     // of two frames at once the one that is not at hand
    double seconds_ = 0.0;           // that the backward one has taken
    int64_t capacity_ = 0;           // rows that the tables below have room for
    std::vector<float*> bases_;      // [base][row]
    std::vector<int64_t> integers_;  // [slot][row]
    std::vector<int64_t*> integer_rows_;
    std::vector<float*> results_;                 // destinations of a Gemm or of attention
    std::vector<std::vector<float*>> segments_;   // their operands
    std::vector<const float*> compared_;          // rows of a product within attention, and of its result
    std::vector<float*> mixed_;
    Block scores_;
    std::vector<Block> scratch_;  // by base
    std::vector<Block> saved_;    // by saved value, of two frames at once
    std::vector<float> blas_room_;
    std::vector<uint32_t> pairs_room_;
    std::vector<float> constants_[2];  // rows of zeros and of ones, as wide as any base
};

}  // namespace amphw
