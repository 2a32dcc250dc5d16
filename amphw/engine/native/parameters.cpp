#include "parameters.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "rules.hpp"

namespace amphw {

namespace {

// The scratch of the largest gradient, in floats.
int64_t packing_floats(const UnitDesc& unit) {
    int64_t floats = GRADIENT_PACK;
    for (const TermDesc& term : unit.terms)
        if (term.kind == TermKind::Matmul && unit.params[term.param].bf16)
            floats = std::max(floats, gradient_room(unit.log_buffers[term.x].width));
    return floats;
}

}  // namespace

double Rule::rate(int64_t updates) const {
    const double progress = double(updates) / std::max(1.0, schedule_steps);
    return lr * schedule_factor(schedule, progress, schedule_gamma) * warmup_factor(double(updates + 1), warmup);
}

Parameters::Parameters(const UnitDesc& unit, const Rule& rule, const Kernels& kernels, DeviceMemory* device)
    : rule(rule), unit_(unit), kernels_(kernels), bf16_(bf16_chosen()), device_(device),
      packing_(packing_floats(unit)) {
    if (device == nullptr) {
        for (const ParamDesc& p : unit.params) add_tensor(p);
        for (const FoldDesc& fold : unit.folds) add_table(fold);
        divide();
    }
    state = first_state(rule.optimizer);
    open_ = fresh(0);
}

void Parameters::add_tensor(const ParamDesc& p) {
    if (p.bf16 && bf16_ == nullptr) throw std::invalid_argument("products of bfloat16, which this machine does not run");
    Tensor t;
    t.desc = p;
    const int32_t param = int32_t(tensors_.size()), rows = std::max(1, p.rows);
    const bool flat = p.taken || p.blas || p.rows == 0;
    t.layout = flat ? Layout::flat(rows, p.cols) : Layout::paneled(rows, p.cols, kernels_.panel);
    int32_t transposed_rows = p.rows;
    bool folded = false;
    for (const FoldDesc& fold : unit_.folds) {
        folded = folded || fold.table == param;
        if (fold.weight != param) continue;
        // Nothing is sent back to the embedding, so the backward direction multiplies with the other rows alone.
        const int32_t taken = unit_.params[fold.table].cols;
        transposed_rows -= taken;
        t.transposed_row = fold.first_row == 0 ? taken : 0;
    }
    t.tracked = p.taken && !p.multiplied && !folded;
    if (t.tracked) t.gradient_rows = RowPool(t.layout.cols_padded);
    // Untouched rows stay as they are under these rules, so updating the touched ones alone is the same.
    t.sparse = t.tracked && memoryless(rule.optimizer) && rule.weight_decay == 0.0;
    if (t.has_transposed()) t.transposed_layout = Layout::paneled(p.cols, transposed_rows, kernels_.panel);
    if (p.bf16 && transposed_.size() < size_t(t.transposed_layout.size()) * sizeof(float))
        transposed_ = float_block(t.transposed_layout.size());
    tensors_.push_back(std::move(t));
}

void Parameters::add_table(const FoldDesc& fold) {
    Tensor t;
    t.layout = Layout::flat(unit_.params[fold.table].rows, unit_.params[fold.weight].cols);
    t.desc = {"", t.layout.rows, t.layout.cols, false, false, true, false, false};
    for (Block& b : t.value) b = float_block(t.size());
    t.gradient = float_block(t.size());
    tensors_.push_back(std::move(t));
}

// --- versions -------------------------------------------------------------------------------------------------

int Parameters::pin() {
    for (;;) {
        const int buffer = current_.load();
        pins_[buffer].fetch_add(1);
        // A version published in between may already be overwriting this buffer.
        if (current_.load() == buffer) return buffer;
        pins_[buffer].fetch_sub(1);
    }
}

int Parameters::spare() const {
    for (;;) {
        // Round robin, so that no buffer falls far behind.
        for (int i = 1; i < VERSIONS; i++) {
            const int buffer = (current_.load() + i) % VERSIONS;
            if (pins_[buffer].load() == 0) return buffer;
        }
        std::this_thread::yield();
    }
}

void Parameters::publish(int buffer) {
    versions_[buffer].store(version_.fetch_add(1) + 1);
    current_.store(buffer);
}

bool Parameters::publish_unchanged() {
    if (accumulated == 0) return false;
    accumulated = 0;
    publish(current_.load());
    return true;
}

// --- the log --------------------------------------------------------------------------------------------------

std::unique_ptr<LogChunk> Parameters::fresh(int64_t capacity) {
    for (auto it = pool_.begin(); it != pool_.end(); ++it) {
        if ((*it)->capacity < capacity) continue;
        std::unique_ptr<LogChunk> chunk = std::move(*it);
        pool_.erase(it);
        return chunk;
    }
    auto chunk = std::make_unique<LogChunk>();
    chunk->capacity = capacity;
    for (const ValueDesc& b : unit_.log_buffers) chunk->buffers.push_back(float_block(capacity * row_stride(b.width), device_));
    for (size_t i = 0; i < unit_.log_ints.size(); i++)
        chunk->ints.push_back(Block(size_t(capacity) * sizeof(int64_t), device_));
    return chunk;
}

LogPlace Parameters::reserve(const SpaceRows& rows, bool self_updating) {
    int64_t most = 0, used = 0;
    for (int s = 0; s < MAX_SPACES; s++) {
        most = std::max(most, rows[s]);
        used = std::max(used, open_->used[s]);
    }
    if (used + most > open_->capacity) {
        seal(false);
        if (open_->capacity < most) {
            try {
                open_ = fresh(std::max(2 * WORTH_REDUCING, most + WORTH_REDUCING));
            } catch (const std::bad_alloc&) {
                open_ = fresh(most);
            }
        }
    }
    LogPlace place{open_.get(), open_->used};
    for (int s = 0; s < MAX_SPACES; s++) open_->used[s] += rows[s];
    open_->gradient_rows += rows[0];
    open_->writers++;
    interval_rows_ += rows[0];
    const bool due = self_updating && interval_due(interval_rows_, rule.interval);
    if (closes_chunk(due, open_->gradient_rows, WORTH_REDUCING)) seal(due);
    place.due = due;
    return place;
}

int64_t Parameters::seal(bool due) {
    if (due) interval_rows_ = 0;
    if (!due && open_->used == SpaceRows{} && open_->writers == 0) return sealed_chunks_;
    std::unique_ptr<LogChunk> next;
    try {
        next = fresh(open_->capacity);
    } catch (const std::bad_alloc&) {
        next = fresh(0);  // `reserve` looks for room again, once there is something to log
    }
    open_->due = due;
    sealed_.push_back(std::move(open_));
    open_ = std::move(next);
    return ++sealed_chunks_;
}

std::unique_ptr<LogChunk> Parameters::claim() {
    if (reducing_ || sealed_.empty() || sealed_.front()->writers != 0) return nullptr;
    reducing_ = true;
    std::unique_ptr<LogChunk> chunk = std::move(sealed_.front());
    sealed_.pop_front();
    return chunk;
}

void Parameters::release(std::unique_ptr<LogChunk> chunk) {
    reducing_ = false;
    released_++;
    chunk->used = {};
    chunk->gradient_rows = 0;
    chunk->due = false;
    chunk->waiting.clear();
    if (pool_.size() < 4) pool_.push_back(std::move(chunk));
}

}  // namespace amphw
