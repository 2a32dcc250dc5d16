// The parameters of one node: published versions, the log of gradient rows, and updates.
//
// Frames read one version, which they pin. Backward frames write their rows (a, dz) into the open chunk of the
// log. A full chunk, or one that completes the interval, is sealed; once its writers are done, one worker at a
// time reduces sealed chunks, in order, into the gradient, so every partial sum is taken exactly once. The chunk
// that completes an interval also makes the next version, in a buffer that nobody reads.
//
// Folded tables (FoldDesc) are made again for every version. Their gradient is kept apart, and becomes part of the
// gradients of E, W and b when these are wanted: at an update, or by Python. Until then E and W do not change.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "graph.hpp"
#include "kernels/bf16_table.hpp"
#include "generated/numbers.hpp"
#include "memory.hpp"
#include "row_pool.hpp"

namespace amphw {

struct Slot;

constexpr int VERSIONS = 3;            // the current one, the next one, and one that a late frame may still read
constexpr int MAX_SPACES = 8;          // row spaces of one program

using SpaceRows = std::array<int64_t, MAX_SPACES>;

// amphw.ir.update.UpdateRule.
struct Rule {
    int64_t interval;
    Optimizer optimizer;
    Settings settings;
    double lr, weight_decay, clip;
    bool mean;
    int32_t schedule;
    double schedule_steps, schedule_gamma, warmup;

    int slots() const { return slots_of(optimizer); }
    double rate(int64_t updates) const;
};

struct Tensor {
    ParamDesc desc;
    Layout layout, transposed_layout;
    int32_t transposed_row = 0;  // the transposed copy has the rows from here on, as many as its layout has columns
    // From the first `load` on; a tracked parameter's gradient is in `gradient_rows`.
    Block value[VERSIONS], transposed[VERSIONS], gradient, slot[MAX_SLOTS];
    uint32_t largest = 0;  // bit pattern of the gradient's largest magnitude, at an update
    double squares = 0.0;  // their sum, of a rule that clips
    // What products read where they are of bfloat16, in place of `value` and `transposed`.
    Block pairs[VERSIONS], transposed_pairs[VERSIONS];
    Block told;  // sums of what updates have applied, in the gradient's layout
    // Of a table that is only looked up, the rows that have a gradient are all that there is of it.
    bool tracked = false;
    RowPool gradient_rows;
    // Such a table is updated row by row where the update leaves rows without gradient alone. A buffer then misses
    // what was written into the others.
    bool sparse = false;
    std::vector<int32_t> missed[VERSIONS];
    bool kept = false;  // updates leave it as it is: somebody else makes them
    // Of such a table somebody else has the rows: here are those that were put last, and those that have a gradient,
    // and nothing of the arrays above.
    bool pooled = false;
    RowPool rows;

    // The own kernels multiply by the transposed matrix as by any other; a BLAS library transposes by itself.
    bool has_transposed() const { return desc.transposed && !desc.blas; }
    const uint32_t* pairs_of(bool transposed, int buffer) const {
        return reinterpret_cast<const uint32_t*>((transposed ? transposed_pairs : pairs)[buffer].bytes());
    }
    int64_t size() const { return layout.size(); }
};

// f(offset in the panels, index in a dense matrix, numbers) for each piece of a row that lies in one panel.
template <class F>
void each_piece(const Layout& layout, F f) {
    for (int32_t c = 0, width; c < layout.cols; c += width) {
        width = layout.width(c);
        for (int32_t r = 0; r < layout.rows; r++)
            f(layout.offset(r, c), int64_t(r) * layout.cols + c, std::min(width, layout.cols - c));
    }
}

struct LogChunk {
    std::vector<Block> buffers;
    std::vector<Block> ints;  // of 64 bits each
    SpaceRows used{};
    int64_t capacity = 0;       // rows of every space
    int64_t gradient_rows = 0;  // rows that count towards the interval
    int writers = 0;
    bool due = false;
    std::vector<Slot*> waiting;  // retire only once the update is published
};

// A backward frame's place in the log.
struct LogPlace {
    LogChunk* chunk = nullptr;
    SpaceRows first{};
    bool due = false;  // the frame completes the node's interval
};

// Of somebody else's gradient of a parameter `count` numbers, from number `first` of the dense matrix on. scale:
// what they are multiplied by first.
struct ReceivedRange {
    int32_t param;
    int64_t first, count;
    const float* values;
    float scale;
};

// Runs work(0) .. work(n - 1), in any order and on any threads, and returns when all are done.
using Each = std::function<void(int32_t n, const std::function<void(int32_t)>& work)>;
void one_by_one(int32_t n, const std::function<void(int32_t)>& work);

class Parameters {
public:
    // device: an external executor holds the values and reduces the log, which lies in that memory.
    Parameters(const UnitDesc& unit, const Rule& rule, const Kernels& kernels, DeviceMemory* device);

    // --- versions ---
    int pin();  // number of the buffer to read
    void unpin(int buffer) { pins_[buffer].fetch_sub(1); }
    int64_t version() const { return version_.load(); }
    int64_t version_of(int buffer) const { return versions_[buffer].load(); }
    const Tensor& tensor(int32_t param) const { return tensors_[param]; }

    // --- the log; callers hold `mutex` ---
    std::mutex mutex;
    // Room for `rows` of each space. Seals the chunk if that completes the interval or fills it.
    LogPlace reserve(const SpaceRows& rows, bool self_updating);
    void written(const LogPlace& place) { place.chunk->writers--; }
    // Seals the open chunk if there is anything in it, or if it has to be `due`. Everything logged so far has been
    // reduced once `released()` has reached the result.
    int64_t seal(bool due);
    int64_t released() const { return released_; }
    // The next chunk to reduce, for exactly one caller; null if there is none or somebody is at it.
    std::unique_ptr<LogChunk> claim();
    void release(std::unique_ptr<LogChunk> chunk);
    void trim() { pool_.clear(); }  // memory that is kept for the next chunks
    bool idle() const { return !reducing_ && sealed_.empty() && open_->writers == 0; }
    bool empty() const { return idle() && open_->used == SpaceRows{}; }

    // --- reduction; by the one that claimed, `each` with the help of others. parameters_reduce.cpp ---
    void reduce(const LogChunk& chunk, const Each& each = one_by_one);
    // The next version from what was reduced -> its buffer, or -1 if there is nothing. On a gradient that is not
    // finite sets `bad` to its parameter and keeps the version.
    int prepare(const std::string** bad, const Each& each = one_by_one);
    // In how many parts a sum of gradients is taken, the multiplications in them for each row, and the numbers that an
    // update goes over.
    std::tuple<int32_t, int64_t, int64_t> parts() const { return {int32_t(sums_.size()), products_, numbers_}; }
    int32_t workers = 1;  // that may reduce it, one of them or together
    // The largest magnitude in the gradient of each of the last updates, as their rule had it before it was
    // clipped; oldest first. Anybody may ask at any time: an update that is under way may be missing.
    std::vector<float> lately() const;
    void publish(int buffer);
    // The same with values that are elsewhere, with an external executor, or stay as they are. False: there are no rows
    // to publish.
    bool publish_unchanged();

    // --- moves, while frames run; parameters_moves.cpp, parameters_told.cpp ---
    // The latest values of a parameter.
    void latest(int32_t param, float* values);
    // Whether nobody reduces, and nobody does until `let_go`; callers lock `mutex`.
    bool hold() { return !std::exchange(reducing_, true); }
    void let_go() { reducing_ = false; }
    // Add to the values, one array for each parameter; by the one that holds. The version keeps its number, by which
    // updates are counted.
    void move(const std::vector<const float*>& moves);
    // From now on updates sum up what they apply, for whoever takes it; nothing is in flight.
    void tell();
    // What updates have applied since the last call: rows and updates and, where there were any, the sum of the
    // gradients of each parameter; by the one that holds.
    std::pair<int64_t, int64_t> take_told(const std::vector<float*>& sums);
    // Updates with somebody else's gradients, of these ranges alone; by the one that holds. The version keeps its
    // number.
    void receive(const std::vector<ReceivedRange>& ranges);

    // --- exchange with Python; nothing is in flight ---
    int64_t accumulated = 0;  // rows in the gradient
    State state;              // the optimiser's scalars; whoever reduces moves them on
    void load(int32_t param, const float* values, const float* gradient, const float* const* slots);
    void loaded(int64_t version, int64_t rows, const State& state);
    void store(int32_t param, float* values, float* gradient, float* const* slots) const;
    // The gradient alone, which then comprises `rows`.
    void load_gradient(int32_t param, const float* gradient);
    void gave(int64_t rows);
    void store_gradient(int32_t param, float* gradient) const;
    // The same of rows of a table: those that have a gradient, ascending, and `count` rows in place of all that have.
    std::vector<int32_t> touched(int32_t param) const;
    bool tracked(int32_t param) const { return tensors_[param].tracked; }
    void store_rows(int32_t param, const int32_t* rows, int64_t count, float* gradient) const;
    void load_rows(int32_t param, const int32_t* rows, int64_t count, const float* gradient);
    // From now on updates leave the parameter alone; it changes by `put`, all of it or some of its rows.
    void keep(int32_t param);
    void put(int32_t param, const float* values);
    void put_rows(int32_t param, const int32_t* rows, int64_t count, const float* values);
    // Of a tracked parameter that is kept: let go of all rows, and of the gradient. From now on there are those that
    // the last `put_rows` has brought.
    void pool(int32_t param);
    std::vector<int32_t> pulled(int32_t param) const;  // which these are, ascending
    void store_pulled(int32_t param, const int32_t* rows, int64_t count, float* values) const;
    int64_t bytes() const;  // that all tensors take up
    void has_put() { make_tables(current_.load()); }

    const Rule rule;

private:
    void add_tensor(const ParamDesc& p);
    void add_table(const FoldDesc& fold);
    void allocate(Tensor& t);
    // A part of a parameter: columns of panels or, of a flat matrix's numbers, rows.
    struct Part {
        int32_t param;
        Range range;
    };
    void divide();
    std::pair<int64_t, int64_t> numbers(const Part& part) const;
    void reduce_part(const LogChunk& chunk, const Part& part);
    void add_rows(int32_t param, const int64_t* index, const float* d, int64_t ldd, int32_t rows);
    void measure(const Each& each);
    void note_largest(const std::string** bad);
    void step(const Part& part, int from, int to, const Update& u);
    void step_numbers(Tensor& t, int from, int to, Update u, int64_t at, int64_t count, float* gradient);
    void step_rows(Tensor& t, int from, int to, const Update& u);
    void step_all_rows(Tensor& t, int from, int to, const Update& u, Range rows);
    void stepped(Tensor& t, int to);
    // What the kernel is given for all tensors of an update. updates: its number, from 0. state: moves on.
    Update arguments(int64_t updates, State& state) const;
    void note_told(Tensor& t, float clipping);
    void step_range(Tensor& t, int to, const ReceivedRange& range, Update u);
    void catch_up(Tensor& t, int from, int to);
    void miss(Tensor& t, int to, int32_t row);
    // Of whoever holds: a spare buffer with the present values -> which one; it becomes the current one.
    int copy();
    void replace(int to);
    void add(Tensor& t, int to, const float* move);
    // Of these columns; of a matrix of bfloat16 all.
    void make_copies(Tensor& t, int buffer, Range columns);
    // Adds x' @ d of a logged term's rows to these columns of its matrix's gradient.
    void add_product(Tensor& t, const TermDesc& term, const LogChunk& chunk, const float* d, int64_t ldd, int32_t rows,
                     Range columns);
    void make_tables(int buffer);
    void add_folded(int32_t param, float* gradient) const;
    void clear_folded();
    void clear_gradient(Tensor& t);
    void all_missed(Tensor& t);
    int spare() const;
    double scale() const { return rule.mean ? 1.0 / double(accumulated) : 1.0; }

    const UnitDesc& unit_;
    const Kernels& kernels_;
    const Bf16* const bf16_;  // null where no product is of bfloat16
    DeviceMemory* const device_;
    std::vector<Tensor> tensors_;  // of the parameters, then of the folded tables
    std::vector<Part> sums_, steps_;  // in which a reduction, and an update, are done
    int64_t products_ = 0;  // multiplications in parts for each row of the log
    int64_t numbers_ = 0;   // that an update goes over
    std::atomic<int> current_{0};
    std::atomic<int> pins_[VERSIONS] = {};
    std::atomic<int64_t> version_{0}, versions_[VERSIONS] = {};
    std::unique_ptr<LogChunk> fresh(int64_t capacity);
    std::unique_ptr<LogChunk> open_;
    std::deque<std::unique_ptr<LogChunk>> sealed_;
    std::vector<std::unique_ptr<LogChunk>> pool_;
    bool reducing_ = false;
    int64_t interval_rows_ = 0;
    bool tells_ = false;
    int64_t told_rows_ = 0, told_updates_ = 0;
    int64_t sealed_chunks_ = 0, released_ = 0;
    static constexpr int LATELY = 8;
    std::atomic<float> largest_[LATELY] = {};
    std::atomic<int64_t> noted_{0};  // updates that have an entry in `largest_`, each at its number modulo LATELY
    Block transposed_;  // a matrix, on its way into pairs
    mutable Rooms packing_;  // scratch of the kernels that take gradients
};

}  // namespace amphw
