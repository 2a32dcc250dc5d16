// A frame's attention, one message after another.
#include <algorithm>

#include "frame.hpp"

namespace amphw {
void FrameRunner::attend(const Phase& p) {
    segments_.resize(std::max(segments_.size(), p.a.size()));
    for (size_t i = 0; i < p.a.size(); i++) {
        const int32_t rows = rows_[code_->bases[p.a[i].at.base].space];
        segments_[i].resize(std::max<size_t>(segments_[i].size(), rows));
        float* const* from = bases_.data() + p.a[i].at.base * capacity_;
        for (int32_t r = 0; r < rows; r++) segments_[i][r] = from[r] + p.a[i].at.offset;
    }
    results_.resize(std::max<size_t>(results_.size(), rows_[p.space]));
    float* const* to = bases_.data() + p.d.base * capacity_;
    for (int32_t r = 0; r < rows_[p.space]; r++) results_[r] = to[r] + p.d.offset;
    const bool of_keys = p.kind == PhaseKind::AttendKeys;
    const std::vector<Span>&queries = spans_[of_keys ? p.source : p.space], &keys = spans_[of_keys ? p.space : p.source];
    Attention a{};
    a.heads = p.heads;
    a.width = p.a[1].width;
    a.value_width = p.a[2].width;
    for (size_t m = 0; m < queries.size(); m++) {
        const Span &of_query = queries[m], &of_key = keys[m];
        a.queries = of_query.count;
        a.keys = of_key.count;
        a.q = segments_[0].data() + of_query.at;
        a.k = segments_[1].data() + of_key.at;
        a.v = segments_[2].data() + of_key.at;
        if (p.a.size() > 3) {  // of the gradients
            a.d = segments_[3].data() + of_query.at;
            a.numbers = segments_[4].data() + of_query.at;
        }
        a.seen = p.ints < 0 ? nullptr : integer_rows_[p.ints] + of_query.at;
        a.out = results_.data() + (of_keys ? of_key : of_query).at;
        const size_t most = size_t(std::max(a.queries, a.keys)), room = size_t(a.room_floats());
        compared_.resize(std::max(compared_.size(), most));
        mixed_.resize(std::max(mixed_.size(), most));
        if (scores_.size() < room * sizeof(float)) scores_ = float_block(int64_t(room));
        a.from = compared_.data();
        a.to = mixed_.data();
        a.room = scores_.floats();
        if (p.kind == PhaseKind::Attend)
            kernels_.attend(a);
        else
            (of_keys ? kernels_.attend_keys : kernels_.attend_queries)(a);
    }
}

}  // namespace amphw
