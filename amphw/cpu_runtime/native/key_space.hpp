// The states of one unit in one instance, enumerated and addressed densely: amphw.ir.state.KeySpace in C++.
#pragma once

#include <algorithm>
#include <vector>

#include "graph.hpp"

namespace amphw {

class KeySpace {
public:
    KeySpace(const std::vector<FieldDesc>& fields, const Structure& structure) {
        columns_.size = 1;
        for (const FieldDesc& f : fields) {
            Evaluator evaluate(structure);
            Value extent = evaluate(f.extent, columns_);
            if (evaluate.trouble != Trouble::None) valid_ = false;
            std::vector<int64_t> starts{0};
            bool uniform = true;
            for (int64_t i = 0; valid_ && i < columns_.size; i++) {
                const int64_t e = extent.at(i);
                if (e < 0 || e > f.bound) valid_ = false;
                uniform = uniform && e == extent.at(0);
                starts.push_back(starts.back() + e);
            }
            if (!valid_) return;
            extend(starts);
            steps_.push_back({uniform && starts.size() > 1 ? starts[1] : -1, std::move(starts)});
        }
    }

    bool valid() const { return valid_; }
    int64_t size() const { return columns_.size; }
    const Columns& columns() const { return columns_; }

    // Addresses of n states; -2 (OUT_OF_DOMAIN) for one outside.
    std::vector<int64_t> address(const std::vector<std::vector<int64_t>>& fields, int64_t n) const {
        std::vector<int64_t> at(n, 0);
        for (size_t f = 0; f < steps_.size(); f++) {
            const std::vector<int64_t>& starts = steps_[f].starts;
            const int64_t width = steps_[f].width;
            for (int64_t i = 0; i < n; i++) {
                if (at[i] < 0) continue;
                const int64_t v = fields[f][i];
                const bool empty = starts.size() <= 1;
                const int64_t limit = empty ? 0 : width >= 0 ? width : starts[at[i] + 1] - starts[at[i]];
                at[i] = v < 0 || v >= limit ? -2 : (width >= 0 ? at[i] * width : starts[at[i]]) + v;
            }
        }
        return at;
    }

private:
    struct Step {
        int64_t width;  // the extent, where it is the same for all states before; else -1
        std::vector<int64_t> starts;
    };

    void extend(const std::vector<int64_t>& starts) {
        const int64_t n = starts.back();
        auto fresh = std::make_shared<std::vector<int64_t>>();
        fresh->reserve(n);
        for (size_t i = 0; i + 1 < starts.size(); i++)
            for (int64_t v = 0; v < starts[i + 1] - starts[i]; v++) fresh->push_back(v);
        for (Column& c : columns_.fields) {
            auto wide = std::make_shared<std::vector<int64_t>>();
            wide->reserve(n);
            for (size_t i = 0; i + 1 < starts.size(); i++) wide->insert(wide->end(), starts[i + 1] - starts[i], (*c)[i]);
            c = wide;
        }
        columns_.fields.push_back(fresh);
        columns_.size = n;
    }

    bool valid_ = true;
    Columns columns_;
    std::vector<Step> steps_;
};

}  // namespace amphw
