#include "parameters.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "kernels/blas.hpp"
#include "rules.hpp"

namespace amphw {

double Rule::rate(int64_t updates) const {
    const double progress = double(updates) / std::max(1.0, schedule_steps);
    return lr * schedule_factor(schedule, progress, schedule_gamma) * warmup_factor(double(updates + 1), warmup);
}

Parameters::Parameters(const UnitDesc& unit, const Rule& rule, const Kernels& kernels, DeviceMemory* device)
    : rule(rule), unit_(unit), kernels_(kernels), device_(device) {
    if (device == nullptr) {
        pack_ = float_block(GRADIENT_PACK);
        for (const ParamDesc& p : unit.params) add_tensor(p);
        for (const FoldDesc& fold : unit.folds) add_table(fold);
    }
    state = first_state(rule.optimizer);
    open_ = fresh(0);
}

void Parameters::add_tensor(const ParamDesc& p) {
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
    // Untouched rows stay as they are under these rules, so updating the touched ones alone is the same.
    t.sparse = t.tracked && memoryless(rule.optimizer) && rule.weight_decay == 0.0;
    if (t.has_transposed()) t.transposed_layout = Layout::paneled(p.cols, transposed_rows, kernels_.panel);
    tensors_.push_back(std::move(t));
}

void Parameters::add_table(const FoldDesc& fold) {
    Tensor t;
    t.layout = Layout::flat(unit_.params[fold.table].rows, unit_.params[fold.weight].cols);
    t.desc = {"", t.layout.rows, t.layout.cols, false, false, true, false};
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

void Parameters::publish_external() {
    if (accumulated == 0) return;
    accumulated = 0;
    publish(current_.load());
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

// --- reduction ------------------------------------------------------------------------------------------------

void Parameters::reduce(const LogChunk& chunk) {
    for (const TermDesc& term : unit_.terms) {
        Tensor& t = tensors_[term.param];
        const ValueDesc& dz = unit_.log_buffers[term.d];
        const int32_t rows = int32_t(chunk.used[dz.space]);
        const float* d = chunk.buffers[term.d].floats();
        const int64_t ldd = row_stride(dz.width);
        if (rows == 0) continue;
        if (term.kind == TermKind::Matmul) {
            const int64_t ldx = row_stride(unit_.log_buffers[term.x].width);
            const int32_t width = unit_.log_buffers[term.x].width;
            const float* x = chunk.buffers[term.x].floats();
            if (t.desc.blas)
                blas_gradient(x, ldx, d, ldd, rows, t.gradient.floats(), t.layout);
            else
                kernels_.gradient(x, ldx, width, d, ldd, rows, t.gradient.floats(), t.layout, term.first_row,
                                  pack_.floats());
        } else if (term.kind == TermKind::Sum) {
            kernels_.add_columns(d, ldd, rows, t.desc.cols, t.gradient.floats());
        } else if (const auto* index = reinterpret_cast<const int64_t*>(chunk.ints[term.ints].bytes()); t.pooled) {
            for (int32_t r = 0; r < rows; r++)
                kernels_.add(t.gradient_rows.at(t.gradient_rows.add(int32_t(index[r]))), d + r * ldd, t.desc.cols);
        } else {
            for (int32_t r = 0; r < rows; r++) {
                const int32_t row = int32_t(index[r]);
                kernels_.add(t.gradient.floats() + t.layout.offset(row, 0), d + r * ldd, t.desc.cols);
                if (t.tracked && !t.touched[row]) {
                    t.touched[row] = 1;
                    t.touched_rows.push_back(row);
                }
            }
        }
    }
    accumulated += chunk.gradient_rows;
}

int Parameters::prepare(const std::string** bad) {
    if (accumulated == 0) return -1;
    const int32_t n = int32_t(unit_.params.size());
    for (int32_t i = 0; i < n; i++) add_folded(i, tensors_[i].gradient.floats(), pack_.floats());
    clear_folded();
    uint32_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t found = largest(tensors_[i]);
        most = std::max(most, found);
        if (found >= NOT_FINITE && *bad == nullptr) *bad = &tensors_[i].desc.name;
    }
    const int64_t number = noted_.load();
    largest_[number % LATELY].store(std::bit_cast<float>(most) * float(scale()));
    noted_.store(number + 1);
    if (*bad != nullptr) return -1;
    const int from = current_.load(), to = spare();
    Update u = arguments(version_.load(), state);
    u.weight_decay = float(rule.weight_decay);
    for (int32_t i = 0; i < n; i++) {
        Tensor& t = tensors_[i];
        if (t.pooled) {
            clear_gradient(t);
            continue;
        }
        double factor = scale();
        if (rule.clip > 0.0) {
            const double norm = factor * std::sqrt(kernels_.sum_squares(t.gradient.floats(), t.size()));
            if (norm > rule.clip) factor *= rule.clip / norm;
        }
        u.scale = float(factor);
        if (tells_) note_told(t, float(factor / scale()));
        step(t, from, to, u);
    }
    make_tables(to);
    told_rows_ += accumulated;
    told_updates_++;
    accumulated = 0;
    return to;
}

Update Parameters::arguments(int64_t updates, State& state) const {
    Update u{};
    u.optimizer = rule.optimizer;
    numbers_of(rule.optimizer, rule.settings, rule.rate(updates), double(updates + 1), state, u.numbers);
    return u;
}

uint32_t Parameters::largest(const Tensor& t) const {
    if (!t.tracked) return kernels_.largest(t.gradient.floats(), t.size());
    uint32_t most = 0;
    for (int32_t row : t.pooled ? t.gradient_rows.numbers() : t.touched_rows)
        most = std::max(most, kernels_.largest(gradient_row(t, row), t.desc.cols));
    return most;
}

std::vector<float> Parameters::lately() const {
    const int64_t end = noted_.load();
    std::vector<float> out;
    for (int64_t number = std::max<int64_t>(0, end - LATELY); number < end; number++)
        out.push_back(largest_[number % LATELY].load());
    return out;
}

void Parameters::step(Tensor& t, int from, int to, Update u) {
    const auto run = [&](int64_t at, int64_t count) {
        u.n = count;
        u.w = t.value[from].floats() + at;
        u.out = t.value[to].floats() + at;
        u.g = t.gradient.floats() + at;
        for (int s = 0; s < rule.slots(); s++) u.slots[s] = t.slot[s].floats() + at;
        kernels_.update(u);
    };
    if (!t.sparse) {
        if (t.kept)
            std::memcpy(t.value[to].bytes(), t.value[from].bytes(), t.value[from].size());
        else
            run(0, t.size());
        transpose(t, to);
        if (t.kept) clear_gradient(t);
        untouched(t);
        return;
    }
    catch_up(t, from, to);
    const int64_t width = t.layout.cols_padded;
    if (!t.kept)
        for (int32_t row : t.touched_rows) run(row * width, width);
    for (int b = 0; b < VERSIONS; b++)
        if (b != to) t.missed[b].insert(t.missed[b].end(), t.touched_rows.begin(), t.touched_rows.end());
    if (t.kept) clear_gradient(t);
    untouched(t);
}

// What a buffer of a sparse table has missed.
void Parameters::catch_up(Tensor& t, int from, int to) {
    const int64_t width = t.layout.cols_padded;
    for (int32_t row : t.missed[to])
        std::memcpy(t.value[to].floats() + row * width, t.value[from].floats() + row * width, width * sizeof(float));
    t.missed[to].clear();
}

// The other buffers of a sparse table have missed what was written into a row of this one.
void Parameters::miss(Tensor& t, int to, int32_t row) {
    for (int b = 0; b < VERSIONS; b++)
        if (b != to) t.missed[b].push_back(row);
}

void Parameters::transpose(Tensor& t, int buffer) {
    if (t.has_transposed())
        kernels_.transpose(t.value[buffer].floats(), t.layout, t.transposed_row, t.transposed[buffer].floats(),
                           t.transposed_layout);
}

// --- folded tables --------------------------------------------------------------------------------------------

void Parameters::make_tables(int buffer) {
    for (size_t f = 0; f < unit_.folds.size(); f++) {
        const FoldDesc& fold = unit_.folds[f];
        const Tensor &e = tensors_[fold.table], &w = tensors_[fold.weight], &table = tensors_[unit_.params.size() + f];
        std::vector<const float*> a;
        std::vector<float*> c;
        for (int32_t r = 0; r < e.layout.rows; r++) {
            a.push_back(e.value[buffer].floats() + e.layout.offset(r, 0));
            c.push_back(table.value[buffer].floats() + table.layout.offset(r, 0));
        }
        const float* const* segments[] = {a.data()};
        Gemm g{};
        g.b = w.value[buffer].floats();
        g.layout = &w.layout;
        g.bias = fold.bias < 0 ? nullptr : tensors_[fold.bias].value[buffer].floats();
        g.segments = 1;
        g.a = segments;
        g.widths = &e.layout.cols;
        g.c = c.data();
        g.rows = e.layout.rows;
        g.first_row = fold.first_row;
        kernels_.gemm(g);
    }
}

// What the gradients of folded tables contribute to a parameter's: of T = E W + b, dT W' to E, E' dT to W, and the sum
// of dT's rows to b.
void Parameters::add_folded(int32_t param, float* gradient, float* pack) const {
    const int buffer = current_.load();
    for (size_t f = 0; f < unit_.folds.size(); f++) {
        const FoldDesc& fold = unit_.folds[f];
        if (param != fold.table && param != fold.weight && param != fold.bias) continue;
        const Tensor &e = tensors_[fold.table], &w = tensors_[fold.weight], &table = tensors_[unit_.params.size() + f];
        const float* d = table.gradient.floats();
        const int64_t ldd = table.layout.cols_padded;
        const int32_t rows = e.layout.rows;
        if (param == fold.bias) {
            kernels_.add_columns(d, ldd, rows, table.layout.cols, gradient);
        } else if (param == fold.weight) {
            kernels_.gradient(e.value[buffer].floats(), e.layout.cols_padded, e.layout.cols, d, ldd, rows, gradient,
                              w.layout, fold.first_row, pack);
        } else {
            const Layout layout = Layout::paneled(w.layout.cols, e.layout.cols, kernels_.panel);
            const Block transposed = float_block(layout.size());
            kernels_.transpose(w.value[buffer].floats(), w.layout, fold.first_row, transposed.floats(), layout);
            std::vector<const float*> a;
            std::vector<float*> c;
            for (int32_t r = 0; r < rows; r++) {
                a.push_back(d + r * ldd);
                c.push_back(gradient + e.layout.offset(r, 0));
            }
            const float* const* segments[] = {a.data()};
            Gemm g{};
            g.b = transposed.floats();
            g.layout = &layout;
            g.accumulate = true;
            g.segments = 1;
            g.a = segments;
            g.widths = &w.layout.cols;
            g.c = c.data();
            g.rows = rows;
            kernels_.gemm(g);
        }
    }
}

void Parameters::clear_folded() {
    for (size_t i = unit_.params.size(); i < tensors_.size(); i++)
        std::memset(tensors_[i].gradient.bytes(), 0, tensors_[i].gradient.size());
}

}  // namespace amphw
