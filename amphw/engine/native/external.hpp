// Frames for an executor outside the engine, such as a device with kernels of its own: where everything is that a frame
// reads and writes, as tables of places in the shared memory. amphw/opencl/abi.py says how they lie there.
//
// All units of one executor are a region. What they send each other stays in its memory; `incoming` and `Crossing`
// say which rows pass the region's border, and have to be copied where the executor has a memory of its own.
#pragma once

#include <array>
#include <vector>

#include "frame.hpp"

namespace amphw {

constexpr int32_t HEADER_STARTS = 1 + MAX_SPACES;               // header word: each space's first rows by message
constexpr int32_t HEADER_TABLES = HEADER_STARTS + MAX_SPACES;  // header word: each base's table

// Gradients that several messages brought, to be summed before the frame: in `place` words are the number of rows, the
// width, the floats from row to row, and the places of: the first entry of each row and the end; entries; the sums.
struct SumJob {
    int32_t place, rows, width;
};

// Words that lie one behind the other: rows of one array, with what is between them.
struct Words {
    int32_t place, count;
};

// Rows that pass a region's border. payload: bytes of the messages, each counted as often as it is sent.
struct Crossing {
    std::vector<Words> words;  // each place once
    int64_t payload = 0;
};

struct ExternalFrame {
    int32_t worker = 0;
    Frame frame;
    Block block;
    int32_t place = 0;         // of the header, in words
    int32_t words = 0;         // from there that the device must be given
    int32_t made = 0, made_words = 0;  // where integers are that the code makes
    std::array<int32_t, MAX_SPACES> rows{};
    std::vector<SumJob> sums;
    Crossing incoming;            // what it reads of other regions and of the engine's own units
    std::vector<int32_t> slots;   // place of each integer slot
};

// A part of a node's log that is to be reduced; due: parameters are to be updated afterwards.
struct ReductionJob {
    int64_t number;  // below 0, for `ended`
    int32_t unit, place, words;
    SpaceRows rows;
    bool due;
    int64_t gradient_rows, version;  // that the node's gradient then comprises; of the parameters
};

class FrameTables {
public:
    // regions: by unit, as in `Options`.
    FrameTables(const GraphDesc& graph, const std::vector<int32_t>& regions, DeviceMemory& memory);

    // Fills in all but `frame` and `worker`. Throws EngineError on an index outside a table, bad_alloc without room.
    void describe(ExternalFrame& out);
    // What a frame's messages bring to units of other regions and of the engine; it has been committed.
    Crossing leaving(const Frame& frame) const;
    // What the host reads of a loss.
    Crossing reported(const Frame& frame) const;
    // A row of zeros and one of ones, in floats; the device must be given them once.
    std::pair<int32_t, int32_t> constants() const { return {memory_.place(constants_.bytes()), int32_t(constants_.size() / 4)}; }

private:
    struct Sums {
        std::vector<int32_t> starts, entries;
        bool needed = false;
    };

    void check_integers() const;
    void check(int32_t slot, int32_t limit, const char* what) const;
    void check_rows(int32_t slot, int32_t over, const char* what) const;
    void gather_gradients(const Base& b, Sums& out);
    void point(size_t base, int32_t* table);
    void point_operand(const Base& b, int32_t task, int32_t* table);
    // Whether messages between the units cross the region's border; a source has none.
    bool beyond(int32_t unit, int32_t other) const {
        return !graph_.units[other].is_source && regions_[other] != regions_[unit];
    }
    Crossing incoming() const;
    void add_rows(Crossing& to, const float* first, int64_t stride, int32_t width, int32_t rows) const;
    template <class F>
    void each_message(int32_t space, F f) const;

    const GraphDesc& graph_;
    const std::vector<int32_t>& regions_;
    DeviceMemory& memory_;
    int32_t row_of_ones_ = 0;
    Block constants_;
    // the frame at hand
    ExternalFrame* out_ = nullptr;
    const UnitDesc* unit_ = nullptr;
    const Code* code_ = nullptr;
    std::vector<Sums> sums_;  // by base
};

}  // namespace amphw
