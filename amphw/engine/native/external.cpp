#include "external.hpp"

#include <algorithm>

#include "gather.hpp"

namespace amphw {
namespace {

constexpr int32_t SLACK = 64;  // floats behind a constant row, which kernels read in whole vectors

int64_t aligned(int64_t words, int64_t to) { return (words + to - 1) / to * to; }

}  // namespace

FrameTables::FrameTables(const GraphDesc& graph, const std::vector<int32_t>& regions, DeviceMemory& memory)
    : graph_(graph), regions_(regions), memory_(memory) {
    int32_t widest = 1;
    for (const UnitDesc& u : graph.units)
        for (const Code* code : {&u.forward, &u.inference, &u.backward})
            for (const Base& b : code->bases) widest = std::max(widest, b.width);
    row_of_ones_ = int32_t(aligned(widest + SLACK, 32));
    constants_ = float_block(2 * row_of_ones_, &memory);
    std::fill_n(constants_.floats(), row_of_ones_, 0.0f);
    std::fill_n(constants_.floats() + row_of_ones_, row_of_ones_, 1.0f);
}

// f(number of the task, the frame's first row of it, rows) for each message.
template <class F>
void FrameTables::each_message(int32_t space, F f) const {
    const Frame& frame = out_->frame;
    int32_t at = 0;
    for (size_t i = 0; i < frame.tasks.size(); i++) {
        const Task& t = frame.tasks[i];
        const int32_t count = t.slot->unit(frame.unit).spaces[space].of(t.firing);
        f(int32_t(i), at, count);
        at += count;
    }
}

void FrameTables::describe(ExternalFrame& out) {
    out_ = &out;
    Frame& frame = out.frame;
    unit_ = &graph_.units[frame.unit];
    code_ = frame.kind == BACKWARD  ? &unit_->backward
            : frame.kind == FORWARD ? &unit_->forward
                                    : &unit_->inference;
    const size_t spaces = unit_->spaces.size(), bases = code_->bases.size(), slots = code_->int_operands.size();
    const size_t logged = frame.kind == BACKWARD ? unit_->log_ints.size() : 0;
    const int32_t messages = int32_t(frame.tasks.size());
    out.rows.fill(0);
    for (size_t s = 0; s < spaces; s++)
        each_message(int32_t(s), [&](int32_t, int32_t, int32_t count) { out.rows[s] += count; });
    check_integers();

    // Sizes first: header, starts, tables, sums, given integers; then what the device makes.
    sums_.resize(std::max(sums_.size(), bases));
    const int64_t header = aligned(HEADER_TABLES + int64_t(bases + slots + logged), 32);
    int64_t words = header;
    const auto place = [&](int64_t n, int64_t alignment = 1) {
        words = aligned(words, alignment);
        const int64_t at = words;
        words += n;
        return at;
    };
    std::vector<int64_t> starts, tables(bases, -1), sum_at(bases, -1), scratch(bases, -1), slot_at(slots);
    for (size_t s = 0; s < spaces; s++) starts.push_back(place(messages + 1));
    for (size_t b = 0; b < bases; b++) {
        const Base& base = code_->bases[b];
        if (base.place == Place::Param || base.place == Place::ParamRow) continue;
        tables[b] = place(out.rows[base.space]);
        if (base.place != Place::OutputGradient) continue;
        gather_gradients(base, sums_[b]);
        if (sums_[b].needed) sum_at[b] = place(int64_t(6 + sums_[b].starts.size() + sums_[b].entries.size()));
    }
    for (size_t s = 0; s < slots; s++)
        if (code_->int_operands[s] >= 0) slot_at[s] = place(2 * int64_t(out.rows[code_->int_spaces[s]]), 2);
    out.words = int32_t(words);
    const int64_t made = aligned(words, 2);
    for (size_t s = 0; s < slots; s++)
        if (code_->int_operands[s] < 0) slot_at[s] = place(2 * int64_t(out.rows[code_->int_spaces[s]]), 2);
    out.made_words = int32_t(std::max(words, made) - made);
    for (size_t b = 0; b < bases; b++) {
        const Base& base = code_->bases[b];
        if (base.place == Place::Scratch || sum_at[b] >= 0)
            scratch[b] = place(int64_t(out.rows[base.space]) * row_stride(base.width), 32);
    }
    out.block = Block(size_t(words + SLACK) * 4, &memory_);
    auto* const to = reinterpret_cast<int32_t*>(out.block.bytes());
    const int32_t origin = memory_.place(to);
    out.place = origin;
    out.made = origin + int32_t(made);

    std::fill_n(to, header, 0);
    to[0] = messages;
    for (size_t s = 0; s < spaces; s++) {
        to[1 + s] = out.rows[s];
        to[HEADER_STARTS + s] = origin + int32_t(starts[s]);
        int32_t* first = to + starts[s];
        each_message(int32_t(s), [&](int32_t i, int32_t at, int32_t) { first[i] = at; });
        first[messages] = out.rows[s];
    }
    out.sums.clear();
    out.incoming = incoming();
    for (size_t b = 0; b < bases; b++) {
        if (tables[b] < 0) continue;
        const Base& base = code_->bases[b];
        int32_t* table = to + tables[b];
        to[HEADER_TABLES + b] = origin + int32_t(tables[b]);
        const int32_t rows = out.rows[base.space], stride = int32_t(row_stride(base.width));
        if (scratch[b] >= 0)
            for (int32_t r = 0; r < rows; r++) table[r] = origin + int32_t(scratch[b]) + r * stride;
        else
            point(b, table);
        if (sum_at[b] < 0) continue;
        const Sums& sums = sums_[b];
        int32_t* job = to + sum_at[b];
        const int32_t place_of_starts = origin + int32_t(sum_at[b]) + 6;
        const int32_t job_words[6] = {rows, base.width, stride, place_of_starts,
                                      place_of_starts + int32_t(sums.starts.size()), origin + int32_t(scratch[b])};
        std::copy_n(job_words, 6, job);
        std::copy(sums.starts.begin(), sums.starts.end(), job + 6);
        std::copy(sums.entries.begin(), sums.entries.end(), job + 6 + sums.starts.size());
        out.sums.push_back({origin + int32_t(sum_at[b]), rows, base.width});
    }
    out.slots.resize(slots);
    for (size_t s = 0; s < slots; s++) {
        to[HEADER_TABLES + bases + s] = out.slots[s] = origin + int32_t(slot_at[s]);
        if (code_->int_operands[s] < 0) continue;
        auto* values = reinterpret_cast<int64_t*>(to + slot_at[s]);
        each_message(code_->int_spaces[s], [&](int32_t i, int32_t at, int32_t count) {
            const Task& t = frame.tasks[i];
            const int64_t first = t.slot->unit(frame.unit).spaces[code_->int_spaces[s]].start(t.firing);
            const auto* from = t.slot->at<int64_t>(t.slot->layout(frame.unit).ints[code_->int_operands[s]]) + first;
            std::copy(from, from + count, values + at);
        });
    }
    for (size_t i = 0; i < logged; i++)
        to[HEADER_TABLES + bases + slots + i] = memory_.place(
            frame.log.chunk->ints[i].bytes() + 8 * frame.log.first[unit_->log_ints[i].second]);
}

// --- where rows are ------------------------------------------------------------------------------------------------

void FrameTables::point(size_t base, int32_t* table) {
    const Base& b = code_->bases[base];
    const Frame& frame = out_->frame;
    const int32_t stride = int32_t(row_stride(b.width)), rows = out_->rows[b.space], u = frame.unit;
    if (b.place == Place::Constant) {
        std::fill_n(table, rows, memory_.place(constants_.bytes()) + (b.index == 0 ? 0 : row_of_ones_));
        return;
    }
    if (b.place == Place::Log) {
        const int32_t first = memory_.place(frame.log.chunk->buffers[b.index].bytes()) +
                              int32_t(frame.log.first[b.space]) * stride;
        for (int32_t r = 0; r < rows; r++) table[r] = first + r * stride;
        return;
    }
    if (b.place == Place::OutputGradient) {  // one message a row, or none
        const Sums& sums = sums_[base];
        for (int32_t r = 0; r < rows; r++)
            table[r] = sums.starts[r] == sums.starts[r + 1] ? memory_.place(constants_.bytes())
                                                            : sums.entries[sums.starts[r]];
        return;
    }
    each_message(b.space, [&](int32_t i, int32_t at, int32_t count) {
        const Task& t = frame.tasks[i];
        if (b.place == Place::Operand) {
            point_operand(b, i, table + at);
            return;
        }
        const UnitLayout& layout = t.slot->layout(u);
        const int64_t offset = b.place == Place::Output  ? layout.outputs[b.index]
                               : b.place == Place::Saved ? layout.saved[b.index]
                                                         : layout.gradients[b.index];
        const int32_t first =
            memory_.place(t.slot->at<float>(offset)) + int32_t(t.slot->unit(u).spaces[b.space].start(t.firing)) * stride;
        for (int32_t r = 0; r < count; r++) table[at + r] = first + r * stride;
    });
}

void FrameTables::point_operand(const Base& b, int32_t task, int32_t* table) {
    const Task& t = out_->frame.tasks[task];
    amphw::each_message(graph_, *t.slot, out_->frame.unit, b.index, t.firing,
                 [&](const float* first, int64_t stride, int32_t rows) {
                     const int32_t place = memory_.place(first);
                     for (int32_t r = 0; r < rows; r++) *table++ = place + r * int32_t(stride);
                 });
}

// For each row of an output the gradients that came back for it, in the order of the sender's routes.
void FrameTables::gather_gradients(const Base& b, Sums& out) {
    const Frame& frame = out_->frame;
    const int32_t u = frame.unit, rows = out_->rows[b.space], stride = int32_t(row_stride(b.width));
    out.needed = false;
    out.starts.assign(size_t(rows) + 1, 0);
    out.entries.clear();
    if (unit_->labels > 0) {  // a loss: ones for itself, zeros for what it only reports
        if (b.index != 0) return;
        for (int32_t r = 0; r <= rows; r++) out.starts[r] = r;
        out.entries.assign(size_t(rows), memory_.place(constants_.bytes()) + row_of_ones_);
        return;
    }
    each_message(b.space, [&](int32_t i, int32_t at, int32_t count) {
        struct Found {
            int32_t place, row;
        };
        std::vector<Found> found;
        each_gradient(graph_, *frame.tasks[i].slot, u, b.index, frame.tasks[i].firing,
                      [&](const float* first, int32_t row) { found.push_back({memory_.place(first), row}); });
        for (int32_t r = 0; r < count; r++) {
            const size_t before = out.entries.size();
            for (const Found& f : found) {
                if (f.row >= 0 && f.row != r) continue;
                out.entries.push_back(f.place + (f.row < 0 ? r * stride : 0));
            }
            out.needed = out.needed || out.entries.size() > before + 1;
            out.starts[at + r + 1] = int32_t(out.entries.size());
        }
    });
}

// --- the border --------------------------------------------------------------------------------------------------

void FrameTables::add_rows(Crossing& to, const float* first, int64_t stride, int32_t width, int32_t rows) const {
    if (rows == 0 || width == 0) return;
    to.words.push_back({memory_.place(first), int32_t(int64_t(rows - 1) * stride) + width});
    to.payload += int64_t(rows) * width * int64_t(sizeof(float));
}

namespace {

// Each place once, and what lies side by side in one piece.
void join(std::vector<Words>& words) {
    std::sort(words.begin(), words.end(), [](const Words& a, const Words& b) { return a.place < b.place; });
    size_t n = 0;
    for (const Words& w : words) {
        if (n > 0 && w.place <= words[n - 1].place + words[n - 1].count)
            words[n - 1].count = std::max(words[n - 1].count, w.place + w.count - words[n - 1].place);
        else
            words[n++] = w;
    }
    words.resize(n);
}

}  // namespace

// Data of sources is not among it: an executor has it since the instance was pumped.
Crossing FrameTables::incoming() const {
    const Frame& frame = out_->frame;
    Crossing found;
    for (const Task& t : frame.tasks)
        each_brought(graph_, frame, t, [&](int32_t other) { return beyond(frame.unit, other); },
                     [&](size_t, auto... rows) { add_rows(found, rows...); });
    join(found.words);
    return found;
}

Crossing FrameTables::leaving(const Frame& frame) const {
    Crossing found;
    for (const Task& t : frame.tasks)
        each_given(graph_, frame, t, [&](int32_t other) { return beyond(frame.unit, other); },
                   [&](size_t, auto... rows) { add_rows(found, rows...); });
    join(found.words);
    return found;
}

Crossing FrameTables::reported(const Frame& frame) const {
    const int32_t u = frame.unit;
    const UnitDesc& unit = graph_.units[u];
    Crossing found;
    for (const Task& t : frame.tasks)
        for (int32_t k = 0; k < unit.labels; k++) {
            const ValueDesc& o = unit.outputs[k];
            const Counts& counts = t.slot->unit(u).spaces[o.space];
            const int64_t stride = row_stride(o.width);
            const float* all = t.slot->at<float>(t.slot->layout(u).outputs[k]);
            add_rows(found, all + counts.start(t.firing) * stride, stride, o.width, counts.of(t.firing));
        }
    join(found.words);
    return found;
}

// --- integers --------------------------------------------------------------------------------------------------------

// What is known before the frame runs is checked here, where an error can name the firing.
void FrameTables::check_integers() const {
    for (const Base& b : code_->bases) {
        if (b.place != Place::ParamRow) continue;
        const int32_t n = int32_t(unit_->params.size());
        check(b.ints, unit_->params[b.index < n ? b.index : unit_->folds[b.index - n].table].rows, "take");
    }
    for (const Phase& p : code_->phases) {
        for (const Instr& i : p.code)
            if (i.op == Op::Pick || i.op == Op::Place) check(i.ints[0], i.n, i.op == Op::Pick ? "pick" : "place");
        if (p.kind == PhaseKind::GatherRows) check_rows(p.ints, p.source, "gather_rows");
        if (p.kind == PhaseKind::ScatterRows) check_rows(p.ints, p.space, "scatter_rows");
    }
}

void FrameTables::check(int32_t slot, int32_t limit, const char* what) const {
    if (code_->int_operands[slot] < 0) return;
    const Frame& frame = out_->frame;
    const int32_t space = code_->int_spaces[slot];
    each_message(space, [&](int32_t i, int32_t, int32_t count) {
        const Task& t = frame.tasks[i];
        const int64_t first = t.slot->unit(frame.unit).spaces[space].start(t.firing);
        const auto* v = t.slot->at<int64_t>(t.slot->layout(frame.unit).ints[code_->int_operands[slot]]) + first;
        for (int32_t r = 0; r < count; r++)
            if (v[r] < 0 || v[r] >= limit)
                throw EngineError(Failure::Index, frame.unit, t.slot->index, t.firing, 0, 0, what);
    });
}

void FrameTables::check_rows(int32_t slot, int32_t over, const char* what) const {
    if (slot < 0 || code_->int_operands[slot] < 0) return;
    const Frame& frame = out_->frame;
    const int32_t space = code_->int_spaces[slot];
    each_message(space, [&](int32_t i, int32_t, int32_t count) {
        const Task& t = frame.tasks[i];
        const UnitPlan& plan = t.slot->unit(frame.unit);
        const auto* v = t.slot->at<int64_t>(t.slot->layout(frame.unit).ints[code_->int_operands[slot]]) +
                        plan.spaces[space].start(t.firing);
        for (int32_t r = 0; r < count; r++)
            if (v[r] < 0 || v[r] >= plan.spaces[over].of(t.firing))
                throw EngineError(Failure::Index, frame.unit, t.slot->index, t.firing, 0, 0, what);
    });
}

}  // namespace amphw
