#include "parameters.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "blas.hpp"

namespace amphw {

int Rule::slots() const {
    switch (optimizer) {
        case Optimizer::Sgd: return 0;
        case Optimizer::Adam: return 2;
        default: return 1;
    }
}

double Rule::rate(int64_t updates) const {
    const double progress = double(updates) / std::max(1.0, schedule_steps);
    double factor = 1.0;
    if (schedule == 1) factor = std::pow(schedule_gamma, std::floor(progress));
    if (schedule == 2) factor = std::pow(schedule_gamma, progress);
    if (schedule == 3) factor = 0.5 * (1.0 + std::cos(M_PI * std::min(1.0, progress)));
    if (warmup > 0) factor *= std::min(1.0, double(updates + 1) / warmup);
    return lr * factor;
}

Parameters::Parameters(const UnitDesc& unit, const Rule& rule, const Kernels& kernels)
    : rule(rule), unit_(unit), kernels_(kernels), pack_(float_block(GRADIENT_PACK)) {
    for (const ParamDesc& p : unit.params) {
        Tensor t;
        t.desc = p;
        const int32_t rows = std::max(1, p.rows);
        t.layout = p.taken || p.blas || p.rows == 0 ? Layout::flat(rows, p.cols) : Layout::paneled(rows, p.cols, kernels.panel);
        // Untouched rows stay as they are under these rules, so updating the touched ones alone is the same.
        const bool memoryless = rule.optimizer == Optimizer::Sgd || rule.optimizer == Optimizer::Adagrad;
        t.sparse = p.taken && !p.multiplied && memoryless && rule.weight_decay == 0.0;
        for (Block& b : t.value) b = float_block(t.size());
        t.gradient = float_block(t.size());
        for (int s = 0; s < rule.slots(); s++) t.slot[s] = float_block(t.size());
        if (p.transposed && !p.blas) {
            t.transposed_layout = Layout::paneled(p.cols, p.rows, kernels.panel);
            for (Block& b : t.transposed) b = float_block(t.transposed_layout.size());
        }
        t.touched.assign(t.sparse ? rows : 0, 0);
        tensors_.push_back(std::move(t));
    }
    open_ = fresh(0);
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
    for (const ValueDesc& b : unit_.log_buffers) chunk->buffers.push_back(float_block(capacity * row_stride(b.width)));
    chunk->ints.assign(unit_.log_ints.size(), std::vector<int64_t>(capacity));
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
        if (open_->capacity < most) open_ = fresh(std::max(2 * WORTH_REDUCING, most + WORTH_REDUCING));
    }
    LogPlace place{open_.get(), open_->used};
    for (int s = 0; s < MAX_SPACES; s++) open_->used[s] += rows[s];
    open_->gradient_rows += rows[0];
    open_->writers++;
    interval_rows_ += rows[0];
    if (self_updating && interval_rows_ >= rule.interval)
        seal(true);
    else if (open_->gradient_rows >= WORTH_REDUCING)
        seal(false);
    return place;
}

int64_t Parameters::seal(bool due) {
    if (due) interval_rows_ = 0;
    if (!due && open_->used == SpaceRows{}) return sealed_chunks_;
    open_->due = due;
    const int64_t capacity = open_->capacity;
    sealed_.push_back(std::move(open_));
    open_ = fresh(capacity);
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
        if (term.kind == TermDesc::Matmul) {
            const int64_t ldx = row_stride(unit_.log_buffers[term.x].width);
            const float* x = chunk.buffers[term.x].floats();
            if (t.desc.blas)
                blas_gradient(x, ldx, d, ldd, rows, t.gradient.floats(), t.layout);
            else
                kernels_.gradient(x, ldx, d, ldd, rows, t.gradient.floats(), t.layout, pack_.floats());
        } else if (term.kind == TermDesc::Sum) {
            kernels_.add_columns(d, ldd, rows, t.desc.cols, t.gradient.floats());
        } else {
            const std::vector<int64_t>& index = chunk.ints[term.ints];
            for (int32_t r = 0; r < rows; r++) {
                const int32_t row = int32_t(index[r]);
                kernels_.add(t.gradient.floats() + t.layout.offset(row, 0), d + r * ldd, t.desc.cols);
                if (t.sparse && !t.touched[row]) {
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
    for (const Tensor& t : tensors_) {
        bool finite = true;
        if (t.sparse)
            for (int32_t row : t.touched_rows)
                finite = finite && kernels_.finite(t.gradient.floats() + t.layout.offset(row, 0), t.desc.cols);
        else
            finite = kernels_.finite(t.gradient.floats(), t.size());
        if (!finite) {
            *bad = &t.desc.name;
            return -1;
        }
    }
    const int from = current_.load(), to = spare();
    for (Tensor& t : tensors_) {
        double scale = rule.mean ? 1.0 / double(accumulated) : 1.0;
        if (rule.clip > 0.0) {
            const double norm = scale * std::sqrt(kernels_.sum_squares(t.gradient.floats(), t.size()));
            if (norm > rule.clip) scale *= rule.clip / norm;
        }
        step(t, from, to, scale);
    }
    accumulated = 0;
    return to;
}

void Parameters::step(Tensor& t, int from, int to, double scale) {
    const int64_t n = version_.load();
    Update u{};
    u.optimizer = rule.optimizer;
    u.scale = float(scale);
    u.weight_decay = float(rule.weight_decay);
    u.rate = float(rule.rate(n));
    u.momentum = float(rule.momentum);
    u.beta1 = float(rule.beta1);
    u.beta2 = float(rule.beta2);
    u.eps = float(rule.eps);
    u.bias_correction = float(std::sqrt(1.0 - std::pow(rule.beta2, double(n + 1))) /
                              (1.0 - std::pow(rule.beta1, double(n + 1))));
    const auto run = [&](int64_t at, int64_t count) {
        u.n = count;
        u.w = t.value[from].floats() + at;
        u.out = t.value[to].floats() + at;
        u.g = t.gradient.floats() + at;
        u.slot0 = t.slot[0].floats() + at;
        u.slot1 = t.slot[1].floats() + at;
        kernels_.update(u);
    };
    if (!t.sparse) {
        run(0, t.size());
        if (t.has_transposed())
            kernels_.transpose(t.value[to].floats(), t.layout, t.transposed[to].floats(), t.transposed_layout);
        return;
    }
    const int64_t width = t.layout.cols_padded;
    for (int32_t row : t.missed[to])
        std::memcpy(t.value[to].floats() + row * width, t.value[from].floats() + row * width, width * sizeof(float));
    t.missed[to].clear();
    for (int32_t row : t.touched_rows) {
        run(row * width, width);
        t.touched[row] = 0;
    }
    for (int b = 0; b < VERSIONS; b++)
        if (b != to) t.missed[b].insert(t.missed[b].end(), t.touched_rows.begin(), t.touched_rows.end());
    t.touched_rows.clear();
}

// --- exchange with Python -------------------------------------------------------------------------------------

void Parameters::load(int32_t param, const float* values, const float* gradient, const float* const* slots) {
    Tensor& t = tensors_[param];
    const int buffer = current_.load();
    for (int32_t r = 0; r < t.layout.rows; r++)
        for (int32_t c = 0; c < t.layout.cols; c++) {
            const int64_t to = t.layout.offset(r, c), from = int64_t(r) * t.layout.cols + c;
            t.value[buffer].floats()[to] = values[from];
            t.gradient.floats()[to] = gradient[from];
            for (int s = 0; s < rule.slots(); s++) t.slot[s].floats()[to] = slots[s][from];
        }
    if (t.has_transposed())
        kernels_.transpose(t.value[buffer].floats(), t.layout, t.transposed[buffer].floats(), t.transposed_layout);
    if (!t.sparse) return;
    t.touched_rows.clear();
    for (int b = 0; b < VERSIONS; b++) t.missed[b].clear();
    for (int32_t r = 0; r < t.layout.rows; r++) {
        const float* g = t.gradient.floats() + t.layout.offset(r, 0);
        t.touched[r] = std::any_of(g, g + t.layout.cols, [](float x) { return x != 0.0f; });
        if (t.touched[r]) t.touched_rows.push_back(r);
        for (int b = 0; b < VERSIONS; b++)
            if (b != buffer) t.missed[b].push_back(r);
    }
}

void Parameters::loaded(int64_t version, int64_t rows) {
    version_.store(version);
    versions_[current_.load()].store(version);
    accumulated = interval_rows_ = rows;
}

void Parameters::store(int32_t param, float* values, float* gradient, float* const* slots) const {
    const Tensor& t = tensors_[param];
    const float* w = t.value[current_.load()].floats();
    for (int32_t r = 0; r < t.layout.rows; r++)
        for (int32_t c = 0; c < t.layout.cols; c++) {
            const int64_t from = t.layout.offset(r, c), to = int64_t(r) * t.layout.cols + c;
            values[to] = w[from];
            gradient[to] = t.gradient.floats()[from];
            for (int s = 0; s < rule.slots(); s++) slots[s][to] = t.slot[s].floats()[from];
        }
}

}  // namespace amphw
