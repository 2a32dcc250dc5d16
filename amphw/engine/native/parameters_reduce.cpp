// What a sealed part of the log becomes: a sum of gradients, and at the interval's end the next version.
//
// One worker at a time reduces a node's log, but others may help it: both the sums and the update fall into parts of the
// parameters that have nothing to do with one another. A number is computed in the same way whoever does it, and in
// however many parts, so that results do not depend on it.
#include <bit>
#include <cmath>
#include <cstring>

#include "parameters.hpp"
#include "rules.hpp"

namespace amphw {
namespace {

// Multiplications and numbers of a part: some 20 microseconds, beside which taking it is nothing.
constexpr int64_t PART_PRODUCTS = 1 << 20, PART_NUMBERS = 1 << 14;

// Whether an update is divided by rows: of a matrix that is one panel, and has no transpose that goes by columns.
bool by_rows(const Tensor& t) { return t.layout.panel >= t.layout.cols && !t.has_transposed(); }

}  // namespace

void one_by_one(int32_t n, const std::function<void(int32_t)>& work) {
    for (int32_t i = 0; i < n; i++) work(i);
}

// Sums are divided by the columns of panels; updates as well, or by rows.
void Parameters::divide() {
    sums_.clear();
    steps_.clear();
    products_ = numbers_ = 0;
    const auto add = [](std::vector<Part>& parts, int32_t param, int32_t end, int64_t step) {
        for (int64_t first = 0; first < end; first += step)
            parts.push_back({param, {int32_t(first), int32_t(std::min<int64_t>(end, first + step))}});
    };
    for (int32_t i = 0; i < int32_t(tensors_.size()); i++) {
        const Tensor& t = tensors_[i];
        const Layout& layout = t.layout;
        const auto panels = [&](int64_t columns) {
            return std::max<int64_t>(1, columns / layout.panel) * layout.panel;
        };
        const int64_t by_column = WORTH_REDUCING * std::max(1, layout.rows);
        const bool whole = layout.panel >= layout.cols || t.desc.bf16;
        add(sums_, i, layout.cols, whole ? layout.cols : panels(PART_PRODUCTS / by_column));
        products_ += whole ? 0 : int64_t(layout.rows) * layout.cols;
        if (size_t(i) >= unit_.params.size()) continue;  // a folded table, which is made anew
        if (t.sparse || t.kept || t.pooled) {  // few rows change, or none
            steps_.push_back({i, {0, by_rows(t) ? layout.rows : layout.cols}});
            continue;
        }
        if (by_rows(t))
            add(steps_, i, layout.rows, std::max<int64_t>(1, PART_NUMBERS / layout.cols_padded));
        else
            add(steps_, i, layout.cols, panels(PART_NUMBERS / layout.rows_padded));
        numbers_ += layout.size();
    }
}

// Of the gradient, what a part of `steps_` is about: contiguous numbers.
std::pair<int64_t, int64_t> Parameters::numbers(const Part& part) const {
    const Layout& layout = tensors_[part.param].layout;
    if (by_rows(tensors_[part.param]))
        return {int64_t(part.range.first) * layout.cols_padded, int64_t(part.range.end) * layout.cols_padded};
    const bool last = part.range.end == layout.cols;
    return {layout.offset(0, part.range.first), last ? layout.size() : layout.offset(0, part.range.end)};
}

// --- sums -----------------------------------------------------------------------------------------------------

void Parameters::reduce(const LogChunk& chunk, const Each& each) {
    const bool together = worth_sharing(workers, chunk.gradient_rows * products_, SHARED_PRODUCTS);
    (together ? each : Each(one_by_one))(int32_t(sums_.size()), [&](int32_t i) { reduce_part(chunk, sums_[i]); });
    accumulated += chunk.gradient_rows;
}

void Parameters::reduce_part(const LogChunk& chunk, const Part& part) {
    Tensor& t = tensors_[part.param];
    for (const TermDesc& term : unit_.terms) {
        if (term.param != part.param) continue;
        const ValueDesc& dz = unit_.log_buffers[term.d];
        const int32_t rows = int32_t(chunk.used[dz.space]);
        const float* d = chunk.buffers[term.d].floats();
        const int64_t ldd = row_stride(dz.width);
        if (rows == 0) continue;
        if (term.kind == TermKind::Matmul) {
            add_product(t, term, chunk, d, ldd, rows, part.range);
        } else if (term.kind == TermKind::Sum) {
            kernels_.add_columns(d, ldd, rows, t.desc.cols, t.gradient.floats());
        } else {
            add_rows(part.param, reinterpret_cast<const int64_t*>(chunk.ints[term.ints].bytes()), d, ldd, rows);
        }
    }
}

// Each row of d is added to the row of the table that it was looked up by. Of a folded table it is one side of a product,
// and is rounded where that is of bfloat16.
void Parameters::add_rows(int32_t param, const int64_t* index, const float* d, int64_t ldd, int32_t rows) {
    Tensor& t = tensors_[param];
    const int64_t fold = param - int64_t(unit_.params.size());
    const bool rounds = fold >= 0 && tensors_[unit_.folds[fold].weight].desc.bf16;
    std::vector<float> rounded(rounds ? t.desc.cols : 0);
    for (int32_t r = 0; r < rows; r++) {
        const int32_t row = int32_t(index[r]);
        float* g = t.tracked ? t.gradient_rows.at(t.gradient_rows.add(row))
                             : t.gradient.floats() + t.layout.offset(row, 0);
        const float* from = d + r * ldd;
        if (rounds) {
            bf16_->round(from, t.desc.cols, rounded.data());
            from = rounded.data();
        }
        kernels_.add(g, from, t.desc.cols);
    }
}

// --- updates --------------------------------------------------------------------------------------------------

int Parameters::prepare(const std::string** bad, const Each& shared) {
    if (accumulated == 0) return -1;
    const Each& each = worth_sharing(workers, numbers_, SHARED_NUMBERS) ? shared : Each(one_by_one);
    const int32_t n = int32_t(unit_.params.size());
    for (int32_t i = 0; i < n; i++) add_folded(i, tensors_[i].gradient.floats());
    clear_folded();
    measure(each);
    note_largest(bad);
    if (*bad != nullptr) return -1;
    const int from = current_.load(), to = spare();
    Update u = arguments(version_.load(), state);
    u.weight_decay = float(rule.weight_decay);
    std::vector<float> factors;
    for (int32_t i = 0; i < n; i++) {
        double factor = scale();
        if (rule.clip > 0.0) {
            const double norm = factor * std::sqrt(tensors_[i].squares);
            if (norm > rule.clip) factor *= rule.clip / norm;
        }
        factors.push_back(float(factor));
        if (tells_ && !tensors_[i].pooled) note_told(tensors_[i], float(factor / scale()));
    }
    each(int32_t(steps_.size()), [&](int32_t i) {
        Update mine = u;
        mine.scale = factors[steps_[i].param];
        step(steps_[i], from, to, mine);
    });
    for (int32_t i = 0; i < n; i++) stepped(tensors_[i], to);
    make_tables(to);
    told_rows_ += accumulated;
    told_updates_++;
    accumulated = 0;
    return to;
}

// The largest magnitude in each gradient and, for a rule that clips, the sum of its squares. Of a table that is only
// looked up, the rows that have a gradient say both.
void Parameters::measure(const Each& each) {
    std::vector<uint32_t> largest(steps_.size(), 0);
    std::vector<double> squares(steps_.size(), 0.0);
    each(int32_t(steps_.size()), [&](int32_t i) {
        const Tensor& t = tensors_[steps_[i].param];
        if (t.tracked) return;
        const auto [first, end] = numbers(steps_[i]);
        largest[i] = kernels_.largest(t.gradient.floats() + first, end - first);
        if (rule.clip > 0.0) squares[i] = kernels_.sum_squares(t.gradient.floats() + first, end - first);
    });
    for (size_t i = 0; i < unit_.params.size(); i++) {
        Tensor& t = tensors_[i];
        t.largest = 0;
        t.squares = 0.0;
        if (!t.tracked) continue;
        for (size_t k = 0; k < t.gradient_rows.numbers().size(); k++) {
            const float* g = t.gradient_rows.at(int32_t(k));
            t.largest = std::max(t.largest, kernels_.largest(g, t.desc.cols));
            if (rule.clip > 0.0) t.squares += kernels_.sum_squares(g, t.desc.cols);
        }
    }
    for (size_t i = 0; i < steps_.size(); i++) {
        Tensor& t = tensors_[steps_[i].param];
        t.largest = std::max(t.largest, largest[i]);
        t.squares += squares[i];
    }
}

void Parameters::note_largest(const std::string** bad) {
    uint32_t most = 0;
    for (size_t i = 0; i < unit_.params.size(); i++) {
        most = std::max(most, tensors_[i].largest);
        if (tensors_[i].largest >= NOT_FINITE && *bad == nullptr) *bad = &tensors_[i].desc.name;
    }
    const int64_t number = noted_.load();
    largest_[number % LATELY].store(std::bit_cast<float>(most) * float(scale()));
    noted_.store(number + 1);
}

Update Parameters::arguments(int64_t updates, State& state) const {
    Update u{};
    u.optimizer = rule.optimizer;
    numbers_of(rule.optimizer, rule.settings, rule.rate(updates), double(updates + 1), state, u.numbers);
    return u;
}

std::vector<float> Parameters::lately() const {
    const int64_t end = noted_.load();
    std::vector<float> out;
    for (int64_t number = std::max<int64_t>(0, end - LATELY); number < end; number++)
        out.push_back(largest_[number % LATELY].load());
    return out;
}

// A part of a matrix and of its transpose. What is not updated number by number, `stepped` does.
void Parameters::step(const Part& part, int from, int to, const Update& u) {
    Tensor& t = tensors_[part.param];
    if (t.sparse && !t.pooled) return step_rows(t, from, to, u);
    if (t.kept || t.pooled) return;
    if (t.tracked) return step_all_rows(t, from, to, u, part.range);
    const auto [first, end] = numbers(part);
    step_numbers(t, from, to, u, first, end - first, t.gradient.floats() + first);
    if (!t.desc.bf16) make_copies(t, to, part.range);
}

void Parameters::step_numbers(Tensor& t, int from, int to, Update u, int64_t at, int64_t count, float* gradient) {
    u.n = count;
    u.w = t.value[from].floats() + at;
    u.out = t.value[to].floats() + at;
    u.g = gradient;
    for (int s = 0; s < rule.slots(); s++) u.slots[s] = t.slot[s].floats() + at;
    kernels_.update(u);
}

// Of a table of which only touched rows change.
void Parameters::step_rows(Tensor& t, int from, int to, const Update& u) {
    catch_up(t, from, to);
    const int64_t width = t.layout.cols_padded;
    const std::vector<int32_t>& rows = t.gradient_rows.numbers();
    for (size_t k = 0; k < rows.size() && !t.kept; k++)
        step_numbers(t, from, to, u, rows[k] * width, width, t.gradient_rows.at(int32_t(k)));
    for (int b = 0; b < VERSIONS; b++)
        if (b != to) t.missed[b].insert(t.missed[b].end(), rows.begin(), rows.end());
}

// Of a table whose rows change without a gradient as well, which is zeros then. The kernel leaves zeros behind.
void Parameters::step_all_rows(Tensor& t, int from, int to, const Update& u, Range rows) {
    const int64_t width = t.layout.cols_padded;
    std::vector<float> zeros(width, 0.0f);
    for (int32_t row = rows.first; row < rows.end; row++) {
        const int32_t slot = t.gradient_rows.find(row);
        step_numbers(t, from, to, u, row * width, width, slot < 0 ? zeros.data() : t.gradient_rows.at(slot));
    }
}

// After all parts of an update.
void Parameters::stepped(Tensor& t, int to) {
    if (t.kept && !t.sparse && !t.pooled) {
        const Block& now = t.value[current_.load()];
        std::memcpy(t.value[to].bytes(), now.bytes(), now.size());
    }
    if (!t.sparse && !t.pooled && (t.kept || t.desc.bf16)) make_copies(t, to, {0, t.layout.cols});
    if (t.kept || t.tracked) clear_gradient(t);
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

}  // namespace amphw
