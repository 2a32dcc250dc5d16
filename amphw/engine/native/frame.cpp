#include "frame.hpp"

#include <algorithm>
#include <cmath>

#include "clock.hpp"
#include "gather.hpp"

namespace amphw {
namespace {

constexpr int32_t TILE_ROWS = 64;  // small enough for a tile's rows to stay in the second-level cache

float* store(const Slot& slot, int64_t offset, int64_t row, int32_t width) {
    return slot.at<float>(offset) + row * row_stride(width);
}

}  // namespace

FrameRunner::FrameRunner(const GraphDesc& graph, const Kernels& kernels) : graph_(graph), kernels_(kernels), bf16_(bf16_chosen()) {
    int32_t widest = 0;
    for (const UnitDesc& u : graph.units)
        for (const Code* code : {&u.forward, &u.inference, &u.backward})
            for (const Base& b : code->bases) widest = std::max(widest, b.width);
    for (int value : {0, 1}) constants_[value].assign(widest, float(value));
}

void FrameRunner::run(Frame& frame, Parameters* parameters) {
    other_ = {};
    begin(frame, parameters);
    tiles();
}

double FrameRunner::run_at_once(Frame& forward, Frame& backward, Parameters* parameters) {
    seconds_ = 0.0;
    begin(backward, parameters);
    other_ = {frame_, code_, done_};
    begin(forward, parameters);
    tiles();
    return seconds_;
}

void FrameRunner::begin(Frame& frame, Parameters* parameters) {
    frame_ = &frame;
    unit_ = &graph_.units[frame.unit];
    parameters_ = parameters;
    code_ = frame.kind == BACKWARD ? &unit_->backward : frame.kind == FORWARD ? &unit_->forward : &unit_->inference;
    done_ = {};
    frame.outcomes.clear();
    if (!unit_->choices.empty() && frame.kind != BACKWARD) {
        for (const Task& t : frame.tasks) frame.outcomes.push_back(t.firing);
    }
}

void FrameRunner::tiles() {
    const bool anywhere = !code_->factors.empty() && (other_.code == nullptr || !other_.code->factors.empty());
    if (anywhere && !unit_->grouped)
        tiles_of_rows();
    else
        tiles_of_messages();
}

int64_t FrameRunner::rows_of(int32_t task, int32_t space) const {
    const Task& t = frame_->tasks[task];
    return t.slot->unit(frame_->unit).spaces[space].of(t.firing);
}

// Rows of space 0 are independent of each other, so a tile may end in the middle of a message.
void FrameRunner::tiles_of_rows() {
    const std::vector<int32_t>& factors = code_->factors;
    const int32_t most = std::max(1, TILE_ROWS / *std::max_element(factors.begin(), factors.end()));
    for (int s = 0; s < MAX_SPACES; s++) {
        rows_[s] = 0;
        spans_[s].clear();
    }
    int32_t filled = 0;
    const auto run = [&] {
        for (size_t s = 0; s < factors.size(); s++) rows_[s] = filled * factors[s];
        each_tile();
        for (size_t s = 0; s < factors.size(); s++) spans_[s].clear();
        filled = 0;
    };
    for (int32_t i = 0; i < int32_t(frame_->tasks.size()); i++) {
        const int64_t rows = rows_of(i, 0);
        for (int64_t first = 0; first < rows;) {
            const int32_t count = int32_t(std::min<int64_t>(rows - first, most - filled));
            for (size_t s = 0; s < factors.size(); s++)
                spans_[s].push_back({i, first * factors[s], count * factors[s], filled * factors[s]});
            first += count;
            filled += count;
            if (filled == most) run();
        }
    }
    if (filled > 0) run();
}

// Rows of a message meet, so a tile holds whole messages, as many as fit.
void FrameRunner::tiles_of_messages() {
    const int32_t n = int32_t(frame_->tasks.size());
    const int32_t spaces = int32_t(unit_->spaces.size());
    for (int32_t begin = 0; begin < n;) {
        for (int32_t s = 0; s < spaces; s++) {
            spans_[s].clear();
            rows_[s] = 0;
        }
        int32_t end = begin;
        for (; end < n; end++) {
            bool fits = true;
            for (int32_t s = 0; s < spaces; s++) fits = fits && rows_[s] + rows_of(end, s) <= TILE_ROWS;
            if (!fits && end > begin) break;
            for (int32_t s = 0; s < spaces; s++) {
                const int32_t count = int32_t(rows_of(end, s));
                spans_[s].push_back({end, 0, count, rows_[s]});
                rows_[s] += count;
            }
        }
        each_tile();
        begin = end;
    }
}

void FrameRunner::each_tile() {
    tile();
    if (other_.frame == nullptr) return;
    const auto begun = Clock::now();
    turn();
    tile();
    turn();
    seconds_ += std::chrono::duration<double>(Clock::now() - begun).count();
}

void FrameRunner::turn() {
    std::swap(frame_, other_.frame);
    std::swap(code_, other_.code);
    std::swap(done_, other_.done);
}

void FrameRunner::tile() {
    int64_t most = TILE_ROWS;
    for (int32_t rows : rows_) most = std::max<int64_t>(most, rows);
    if (most > capacity_) {
        capacity_ = most;
        scratch_.clear();
        saved_.clear();
    }
    const size_t bases = code_->bases.size(), slots = code_->int_operands.size();
    bases_.resize(std::max(bases_.size(), bases * capacity_));
    integers_.resize(std::max(integers_.size(), slots * capacity_));
    integer_rows_.resize(slots);
    for (size_t s = 0; s < slots; s++) {
        integer_rows_[s] = integers_.data() + s * capacity_;
        if (code_->int_operands[s] >= 0) gather_integers(s);
    }
    for (size_t b = 0; b < bases; b++) {
        const Base& base = code_->bases[b];
        if (base.place != Place::ParamRow || code_->int_operands[base.ints] >= 0) point(b);
    }
    for (const Phase& p : code_->phases) {
        for (int32_t base : p.late) point(size_t(base));
        if (p.kind == PhaseKind::Gemm) {
            gemm(p);
        } else if (p.kind == PhaseKind::Rows) {
            const char* wrong = kernels_.rows(p.code.data(), int32_t(p.code.size()), bases_.data(), capacity_,
                                              integer_rows_.data(), 0, rows_[p.space]);
            if (wrong != nullptr) fail(spans_[p.space].front().task, wrong);
        } else if (p.kind == PhaseKind::Attend || p.kind == PhaseKind::AttendQueries || p.kind == PhaseKind::AttendKeys) {
            attend(p);
        } else {
            move_rows(p);
        }
    }
    if (!frame_->outcomes.empty()) decide();
    if (frame_->kind == BACKWARD && frame_->log.chunk != nullptr) log_integers();
    for (int s = 0; s < MAX_SPACES; s++) done_[s] += rows_[s];
}

void FrameRunner::fail(int32_t task, const char* text) {
    const Task& t = frame_->tasks[task];
    throw EngineError(Failure::Index, frame_->unit, t.slot->index, t.firing, 0, 0, text);
}

// --- where rows are -------------------------------------------------------------------------------------------

float* FrameRunner::scratch(std::vector<Block>& blocks, size_t number, int64_t stride) {
    if (blocks.size() <= number) blocks.resize(number + 1);
    const size_t bytes = size_t(capacity_ * stride) * sizeof(float);
    if (blocks[number].size() < bytes) blocks[number] = Block(bytes);
    return blocks[number].floats();
}

void FrameRunner::point(size_t base) {
    const Base& b = code_->bases[base];
    float** out = bases_.data() + base * capacity_;
    const int64_t stride = row_stride(b.width);
    const int32_t rows = rows_[b.space], u = frame_->unit;
    const auto sequence = [&](float* first, int64_t step) {
        for (int32_t r = 0; r < rows; r++) out[r] = first + r * step;
    };
    switch (b.place) {
        case Place::Scratch: return sequence(scratch(scratch_, base, stride), stride);
        case Place::Saved:
            if (other_.frame == nullptr) break;
            return sequence(scratch(saved_, b.index, stride), stride);
        case Place::Constant: return sequence(constants_[b.index].data(), 0);
        case Place::Param:
            return sequence(parameters_->tensor(b.index).value[frame_->buffer].floats(), 0);
        case Place::Log:
            return sequence(frame_->log.chunk->buffers[b.index].floats() +
                                (frame_->log.first[b.space] + done_[b.space]) * stride,
                            stride);
        case Place::ParamRow: {
            const Tensor& t = parameters_->tensor(b.index);
            if (t.pooled) return point_pooled(t, b, out);
            const float* table = t.value[frame_->buffer].floats();
            for (int32_t r = 0; r < rows; r++) {
                const int64_t row = integer_rows_[b.ints][r];
                if (row < 0 || row >= t.layout.rows) fail(spans_[b.space].front().task, "take");
                out[r] = const_cast<float*>(table) + row * t.layout.cols_padded;
            }
            return;
        }
        default: break;
    }
    for (const Span& s : spans_[b.space]) {
        const Task& t = frame_->tasks[s.task];
        if (b.place == Place::Operand) {
            point_operand(b, s, out + s.at);
            continue;
        }
        if (b.place == Place::OutputGradient) {
            point_gradient(b, base, s, out + s.at);
            continue;
        }
        const UnitLayout& layout = t.slot->layout(u);
        const int64_t offset = b.place == Place::Output  ? layout.outputs[b.index]
                               : b.place == Place::Saved ? layout.saved[b.index]
                                                         : layout.gradients[b.index];
        float* first = store(*t.slot, offset, t.slot->unit(u).spaces[b.space].start(t.firing) + s.first, b.width);
        for (int32_t r = 0; r < s.count; r++) out[s.at + r] = first + r * stride;
    }
}

// Rows of a table of which those alone are here that this frame's instances may read.
void FrameRunner::point_pooled(const Tensor& t, const Base& b, float** out) {
    for (int32_t r = 0; r < rows_[b.space]; r++) {
        const int64_t row = integer_rows_[b.ints][r];
        const int32_t slot = t.rows.find(row);
        if (slot < 0) {
            if (row < 0 || row >= t.layout.rows) fail(spans_[b.space].front().task, "take");
            const Task& task = frame_->tasks[spans_[b.space].front().task];
            throw EngineError(Failure::Absent, frame_->unit, task.slot->index, task.firing, row, 0, t.desc.name);
        }
        out[r] = t.rows.at(slot);
    }
}

void FrameRunner::point_operand(const Base& b, const Span& s, float** out) {
    const Task& t = frame_->tasks[s.task];
    const bool group = !t.slot->unit(frame_->unit).members[b.index].empty();
    each_message(graph_, *t.slot, frame_->unit, b.index, t.firing, [&](float* first, int64_t stride, int32_t rows) {
        if (!group) first += s.first * stride;
        for (int32_t r = 0; r < (group ? rows : s.count); r++) *out++ = first + r * stride;
    });
}

// The gradient of an output: what came back for its routes, summed in their order.
void FrameRunner::point_gradient(const Base& b, size_t base, const Span& s, float** out) {
    const Task& t = frame_->tasks[s.task];
    const Slot& slot = *t.slot;
    const int32_t u = frame_->unit;
    const int64_t stride = row_stride(b.width);
    if (unit_->labels > 0) {
        for (int32_t r = 0; r < s.count; r++) out[r] = constants_[b.index == 0].data();
        return;
    }
    const auto each = [&](auto f) { each_gradient(graph_, slot, u, b.index, t.firing, f); };
    float* whole = nullptr;
    int found = 0;
    each([&](float* first, int32_t row) {
        found++;
        whole = row < 0 ? first : nullptr;
    });
    if (found == 0) {
        for (int32_t r = 0; r < s.count; r++) out[r] = constants_[0].data();
        return;
    }
    if (found == 1 && whole != nullptr) {
        for (int32_t r = 0; r < s.count; r++) out[r] = whole + (s.first + r) * stride;
        return;
    }
    float* sum = scratch(scratch_, base, stride) + s.at * stride;
    const size_t bytes = size_t(s.count * stride) * sizeof(float);
    bool begun = false;
    const auto begin = [&](const float* first) {
        begun = true;
        first == nullptr ? std::memset(sum, 0, bytes) : std::memcpy(sum, first, bytes);
    };
    each([&](const float* first, int32_t row) {
        if (row < 0 && !begun) {
            begin(first + s.first * stride);
            return;
        }
        if (!begun) begin(nullptr);
        if (row < 0)
            kernels_.add(sum, first + s.first * stride, s.count * stride);
        else if (row >= s.first && row < s.first + s.count)
            kernels_.add(sum + (row - s.first) * stride, first, b.width);
    });
    for (int32_t r = 0; r < s.count; r++) out[r] = sum + r * stride;
}

void FrameRunner::gather_integers(size_t slot) {
    const int32_t operand = code_->int_operands[slot], space = code_->int_spaces[slot], u = frame_->unit;
    for (const Span& s : spans_[space]) {
        const Task& t = frame_->tasks[s.task];
        const int64_t first = t.slot->unit(u).spaces[space].start(t.firing) + s.first;
        const int64_t* from = t.slot->at<int64_t>(t.slot->layout(u).ints[operand]) + first;
        std::copy(from, from + s.count, integer_rows_[slot] + s.at);
    }
}

// --- phases ---------------------------------------------------------------------------------------------------

void FrameRunner::move_rows(const Phase& p) {
    float* const* to = bases_.data() + p.d.base * capacity_;
    float* const* from = bases_.data() + p.from.base * capacity_;
    const size_t bytes = size_t(p.width) * sizeof(float);
    const auto zero = [&](float* row) { std::memset(row, 0, bytes); };
    if (p.kind == PhaseKind::ScatterRows)
        for (int32_t r = 0; r < rows_[p.space]; r++) zero(to[r] + p.d.offset);
    for (size_t m = 0; m < spans_[p.space].size(); m++) {
        const Span& d = spans_[p.space][m];
        const Span& a = spans_[p.source][m];
        const auto source = [&](int64_t r) { return from[a.at + r] + p.from.offset; };
        const auto target = [&](int64_t r) { return to[d.at + r] + p.d.offset; };
        switch (p.kind) {
            case PhaseKind::SumRows:
            case PhaseKind::MaxRows:
                if (a.count == 0) {
                    zero(target(0));
                    break;
                }
                std::memcpy(target(0), source(0), bytes);
                for (int32_t r = 1; r < a.count; r++) {
                    if (p.kind == PhaseKind::SumRows) {
                        kernels_.add(target(0), source(r), p.width);
                        continue;
                    }
                    for (int32_t c = 0; c < p.width; c++) {
                        const float x = source(r)[c], y = target(0)[c];
                        target(0)[c] = x > y || std::isnan(x) ? x : y;
                    }
                }
                break;
            case PhaseKind::SpreadRows:
                for (int32_t r = 0; r < d.count; r++) std::memcpy(target(r), source(0), bytes);
                break;
            case PhaseKind::GatherRows:
                for (int32_t r = 0; r < d.count; r++) {
                    const int64_t row = integer_rows_[p.ints][d.at + r];
                    if (row < 0 || row >= a.count) fail(d.task, "gather_rows");
                    std::memcpy(target(r), source(row), bytes);
                }
                break;
            case PhaseKind::ScatterRows:
                for (int32_t r = 0; r < a.count; r++) {
                    const int64_t row = integer_rows_[p.ints][a.at + r];
                    if (row < 0 || row >= d.count) fail(d.task, "scatter_rows");
                    kernels_.add(target(row), source(r), p.width);
                }
                break;
            case PhaseKind::Patches:
                for (int32_t r = 0; r < a.count; r++)
                    kernels_.patches(p.windows, source(r), to + d.at + int64_t(r) * (d.count / a.count), p.d.offset);
                break;
            case PhaseKind::Unpatch:
                for (int32_t r = 0; r < d.count; r++)
                    kernels_.unpatch(p.windows, from + a.at + int64_t(r) * (a.count / d.count), p.from.offset, target(r));
                break;
            default: break;
        }
    }
}

// A firing's outcome: its address, then what it decided, as the plan numbers them.
void FrameRunner::decide() {
    for (size_t f = 0; f < unit_->decided.size(); f++) {
        const int32_t slot = code_->int_outputs[unit_->decided[f]];
        for (const Span& s : spans_[code_->int_spaces[slot]]) {
            if (s.first != 0 || s.count == 0) continue;
            amphw::decide(*frame_, *unit_, size_t(s.task), f, integer_rows_[slot][s.at]);
        }
    }
}

void FrameRunner::log_integers() {
    for (size_t i = 0; i < unit_->log_ints.size(); i++) {
        const auto [slot, space] = unit_->log_ints[i];
        auto* to = reinterpret_cast<int64_t*>(frame_->log.chunk->ints[i].bytes()) + frame_->log.first[space] +
                   done_[space];
        std::copy_n(integer_rows_[slot], rows_[space], to);
    }
}

}  // namespace amphw
