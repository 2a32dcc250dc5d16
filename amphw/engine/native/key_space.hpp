// The states of one unit in one instance, enumerated and addressed densely: amphw.ir.state.KeySpace in C++.
#pragma once

#include <algorithm>
#include <vector>

#include "graph.hpp"

namespace amphw {

class KeySpace {
public:
    // Everything lies in the arena. Not valid with an extent outside its domain, or more states than MOST_ROWS.
    KeySpace(const std::vector<FieldDesc>& fields, const Structure& structure, Arena& arena)
        : arena_(arena), steps_(arena.list<Step>(int64_t(fields.size()))) {
        columns_.size = 1;
        int64_t done = 0;
        for (const FieldDesc& f : fields) {
            Evaluator evaluate(structure, arena);
            const Value extent = evaluate(f.extent, columns_);
            const int64_t n = columns_.size;
            const List<int64_t> starts = arena.list<int64_t>(n + 1);
            starts[0] = 0;
            bool uniform = n > 0;
            valid_ = valid_ && evaluate.trouble == Trouble::None;
            for (int64_t i = 0; valid_ && i < n; i++) {
                const int64_t e = extent.at(i);
                valid_ = e >= 0 && e <= std::min(f.bound, MOST_ROWS);
                uniform = uniform && e == extent.at(0);
                starts[i + 1] = starts[i] + e;
                valid_ = valid_ && starts[i + 1] <= MOST_ROWS;
            }
            if (!valid_) return;
            steps_[done++] = {uniform ? extent.at(0) : -1, starts};
            extend(starts, uniform);
        }
    }

    bool valid() const { return valid_; }
    int64_t size() const { return columns_.size; }
    const Columns& columns() const { return columns_; }

    // Addresses of n states, given by column; -2 (OUT_OF_DOMAIN) for one outside.
    List<int64_t> address(const List<const int64_t*>& fields, int64_t n) const {
        const List<int64_t> at = arena_.list<int64_t>(n, 0);
        for (int64_t f = 0; f < steps_.size(); f++) {
            const List<int64_t>& starts = steps_[f].starts;
            const int64_t width = steps_[f].width;
            const int64_t* values = fields[f];
            if (width >= 0) {
                for (int64_t i = 0; i < n; i++)
                    at[i] = at[i] < 0 || values[i] < 0 || values[i] >= width ? -2 : at[i] * width + values[i];
                continue;
            }
            for (int64_t i = 0; i < n; i++) {
                if (at[i] < 0) continue;
                const int64_t limit = starts.size() <= 1 ? 0 : starts[at[i] + 1] - starts[at[i]];
                at[i] = values[i] < 0 || values[i] >= limit ? -2 : starts[at[i]] + values[i];
            }
        }
        return at;
    }

private:
    struct Step {
        int64_t width;  // the extent, where it is the same for all states before; else -1
        List<int64_t> starts;
    };

    void extend(const List<int64_t>& starts, bool uniform) {
        const int64_t n = starts.back(), before = starts.size() - 1;
        const List<int64_t> fresh = arena_.list<int64_t>(n);
        for (int64_t i = 0; i < before; i++)
            for (int64_t k = starts[i]; k < starts[i + 1]; k++) fresh[k] = k - starts[i];
        columns_.size = n;
        if (!uniform || before != n) {  // else every state has one successor
            for (int64_t f = 0; f < columns_.fields.size(); f++) {
                const List<int64_t> wide = arena_.list<int64_t>(n);
                for (int64_t i = 0; i < before; i++)
                    std::fill(wide.begin() + starts[i], wide.begin() + starts[i + 1], columns_.fields[f][i]);
                columns_.fields[f] = wide.values;
            }
        }
        columns_ = columns_.with(arena_, fresh.values);
    }

    Arena& arena_;
    bool valid_ = true;
    Columns columns_;
    List<Step> steps_;
};

}  // namespace amphw
