#include "plan.hpp"

#include <algorithm>
#include <limits>

#include "key_space.hpp"
#include "slot.hpp"

namespace amphw {
namespace {

struct Failed {};  // plan.py explains what is wrong

constexpr int64_t MOST_ROWS = std::numeric_limits<int32_t>::max();  // rows are numbered with 32 bits; as in plan.py

std::vector<int64_t> evaluated(const Expr& e, const Columns& columns, const Structure& structure) {
    Evaluator evaluate(structure);
    Value v = evaluate(e, columns);
    if (evaluate.trouble != Trouble::None) throw Failed();
    if (v.scalar) return std::vector<int64_t>(columns.size, v.number);
    return std::move(v.column);
}

Counts counts_of(const std::vector<int64_t>& values) {
    Counts out;
    int64_t total = 0;
    for (int64_t v : values) {
        if (v < 0 || v > MOST_ROWS || (total += v) > MOST_ROWS) throw Failed();
    }
    const bool same = std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; });
    if (same) {
        out.uniform = values.empty() ? 0 : int32_t(values[0]);
        out.total = int64_t(values.size()) * out.uniform;
        return out;
    }
    out.uniform = -1;
    out.starts.reserve(values.size() + 1);
    for (int64_t v : values) {
        out.starts.push_back(int32_t(out.total));
        out.total += v;
    }
    out.starts.push_back(int32_t(out.total));
    return out;
}

// What is left of the sender's outcomes after a path's steps.
struct Walk {
    Columns columns;
    std::vector<int32_t> sender;
    std::vector<uint8_t> outside;  // rows of `columns` that read outside a table, in the latest evaluation
};

class Builder {
public:
    Builder(const GraphDesc& graph, const Structure& structure) : graph_(graph), structure_(structure) {}

    std::shared_ptr<Plan> build() {
        auto plan = std::make_shared<Plan>();
        for (const UnitDesc& u : graph_.units) plan->units.push_back(unit(u));
        for (size_t u = 0; u < graph_.units.size(); u++) routes(u, *plan);
        return plan;
    }

private:
    UnitPlan unit(const UnitDesc& u) {
        spaces_.emplace_back(u.fields, structure_);
        KeySpace& space = spaces_.back();
        if (!space.valid()) throw Failed();
        UnitPlan out;
        const int64_t n = space.size();
        out.firings = int32_t(n);
        out.need.assign(n, 0);
        for (const Expr& e : u.spaces) out.spaces.push_back(counts_of(evaluated(e, space.columns(), structure_)));
        for (const OperandDesc& o : u.operands) {
            out.operand_rows.push_back(counts_of(evaluated(o.rows, space.columns(), structure_)));
            out.members.emplace_back();
            if (o.count.empty()) {
                for (int32_t& need : out.need) need++;
                continue;
            }
            int32_t total = 0;
            const std::vector<int64_t> count = evaluated(o.count, space.columns(), structure_);
            for (int64_t i = 0; i < n; i++) {
                if (count[i] < 0) throw Failed();
                out.members.back().push_back(total);
                out.need[i] += int32_t(count[i]);
                total += int32_t(count[i]);
            }
            out.members.back().push_back(total);
        }
        out.rows.resize(u.spaces.size());
        for (const auto& [e, s] : u.ints)
            if (out.rows[s].fields.empty()) out.rows[s] = states_of_rows(space.columns(), out.spaces[s]);
        return out;
    }

    // The states of a unit's rows in one space; the last column is the row's number within its message.
    static Columns states_of_rows(const Columns& states, const Counts& counts) {
        Columns out;
        out.size = counts.total;
        auto number = std::make_shared<std::vector<int64_t>>();
        for (int64_t i = 0; i < states.size; i++)
            for (int32_t r = 0; r < counts.of(int32_t(i)); r++) number->push_back(r);
        for (const Column& c : states.fields) {
            if (counts.uniform == 1) {
                out.fields.push_back(c);
                continue;
            }
            auto wide = std::make_shared<std::vector<int64_t>>();
            for (int64_t i = 0; i < states.size; i++) wide->insert(wide->end(), counts.of(int32_t(i)), (*c)[i]);
            out.fields.push_back(wide);
        }
        out.fields.push_back(number);
        return out;
    }

    // Every firing with everything that it may decide; expressions are lenient from here on, since states that
    // never occur may read outside a table.
    Walk outcomes(const UnitDesc& u, const KeySpace& space) {
        Walk walk;
        const int64_t choices = u.decisions(), n = space.size() * choices;
        for (const Column& c : space.columns().fields) {
            if (choices == 1) {
                walk.columns.fields.push_back(c);
                continue;
            }
            auto wide = std::make_shared<std::vector<int64_t>>(n);
            for (int64_t i = 0; i < n; i++) (*wide)[i] = (*c)[i / choices];
            walk.columns.fields.push_back(wide);
        }
        int64_t below = choices;
        for (int32_t c : u.choices) {
            below /= c;
            auto column = std::make_shared<std::vector<int64_t>>(n);
            for (int64_t i = 0; i < n; i++) (*column)[i] = i / below % c;
            walk.columns.fields.push_back(column);
        }
        walk.columns.size = n;
        walk.sender.resize(n);
        for (int64_t i = 0; i < n; i++) walk.sender[i] = int32_t(i);
        return walk;
    }

    std::vector<int64_t> lenient(const Expr& e, const Walk& walk) {
        Evaluator evaluate(structure_);
        marks_.assign(walk.columns.size, 0);
        Value v = evaluate(e, walk.columns, &marks_);
        if (evaluate.trouble != Trouble::None) throw Failed();
        for (int64_t i = 0; i < walk.columns.size; i++)
            if (marks_[i]) outside_[walk.sender[i]] = 1;
        if (v.scalar) return std::vector<int64_t>(walk.columns.size, v.number);
        return std::move(v.column);
    }

    // `counts[i]` copies of row i; numbered in a new column where `number`.
    void repeat(Walk& walk, const std::vector<int64_t>& counts, bool number) {
        int64_t n = 0;
        for (int64_t c : counts) n += std::max<int64_t>(c, 0);
        const bool all = !number && n == walk.columns.size;
        if (all) return;
        std::vector<int32_t> from, copy;
        from.reserve(n);
        for (size_t i = 0; i < counts.size(); i++)
            for (int64_t k = 0; k < counts[i]; k++) {
                from.push_back(int32_t(i));
                if (number) copy.push_back(int32_t(k));
            }
        for (Column& c : walk.columns.fields) {
            auto picked = std::make_shared<std::vector<int64_t>>(n);
            for (int64_t i = 0; i < n; i++) (*picked)[i] = (*c)[from[i]];
            c = picked;
        }
        if (number) walk.columns.fields.push_back(std::make_shared<std::vector<int64_t>>(copy.begin(), copy.end()));
        std::vector<int32_t> sender(n);
        for (int64_t i = 0; i < n; i++) sender[i] = walk.sender[from[i]];
        walk.sender = std::move(sender);
        walk.columns.size = n;
    }

    void steps(Walk& walk, const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            std::vector<int64_t> v = lenient(step.expr, walk);
            if (!step.expands)
                for (int64_t& x : v) x = x != 0;
            repeat(walk, v, step.expands);
        }
    }

    void routes(size_t index, Plan& plan) {
        const UnitDesc& u = graph_.units[index];
        UnitPlan& out = plan.units[index];
        const int64_t n = int64_t(out.firings) * u.decisions();
        std::vector<std::pair<int32_t, Route>> found;  // (sender's outcome, route), path by path
        std::vector<std::pair<int32_t, int32_t>> data;
        data_rows_ = 0;
        std::vector<int32_t> fault(n, -2);  // -2: none, -1: outside a table, else the trap
        for (const PathDesc& p : u.paths) {
            Walk walk = outcomes(u, spaces_[index]);
            outside_.assign(n, 0);
            steps(walk, p.steps);
            deliver(p, walk, plan.units[p.target], found);
            if (u.is_source) source_rows(u, walk, data);
            for (int64_t i = 0; i < n; i++)
                if (outside_[i]) fault[i] = -1;
        }
        for (size_t t = 0; t < u.traps.size(); t++) {
            Walk walk = outcomes(u, spaces_[index]);
            outside_.assign(n, 0);
            steps(walk, u.traps[t].steps);
            for (int32_t outcome : walk.sender) fault[outcome] = int32_t(t);
        }
        for (int64_t i = 0; i < n; i++)
            if (fault[i] != -2) out.faults.push_back({int32_t(i), fault[i]});
        // Routes of one outcome stand together, in the order of the paths: the order in which gradients are summed.
        out.route_start.assign(n + 1, 0);
        for (const auto& [sender, route] : found) out.route_start[sender + 1]++;
        for (int64_t i = 0; i < n; i++) out.route_start[i + 1] += out.route_start[i];
        std::vector<int32_t> next(out.route_start.begin(), out.route_start.end());
        out.routes.resize(found.size());
        for (size_t i = 0; i < found.size(); i++) out.routes[next[found[i].first]++] = found[i].second;
        out.data_rows = data_rows_;
        out.data = std::move(data);  // a source has one firing, so its routes keep their order
    }

    void deliver(const PathDesc& p, const Walk& walk, const UnitPlan& target,
                 std::vector<std::pair<int32_t, Route>>& found) {
        std::vector<std::vector<int64_t>> key;
        for (const Expr& e : p.key) key.push_back(lenient(e, walk));
        const std::vector<int64_t> firing = spaces_[p.target].address(key, walk.columns.size);
        std::vector<int64_t> member;
        if (!p.member.empty()) member = lenient(p.member, walk);
        const std::vector<int32_t>& starts = target.members[p.operand];
        for (int64_t i = 0; i < walk.columns.size; i++) {
            int64_t position = firing[i];
            if (!starts.empty() && firing[i] >= 0) {
                const int64_t room = starts[firing[i] + 1] - starts[firing[i]];
                position = member[i] < 0 || member[i] >= room ? OUT_OF_DOMAIN : starts[firing[i]] + member[i];
            }
            const int64_t row = p.row_column < 0 ? -1 : (*walk.columns.fields[p.row_column])[i];
            found.push_back({walk.sender[i], Route{p.target, int32_t(firing[i]), int32_t(position), int32_t(row),
                                                   int16_t(p.operand), int16_t(p.output)}});
        }
    }

    void source_rows(const UnitDesc& u, const Walk& walk, std::vector<std::pair<int32_t, int32_t>>& data) {
        KeySpace emitted(u.emitted, structure_);
        if (!emitted.valid()) throw Failed();
        const Counts rows = counts_of(evaluated(u.emitted_rows, emitted.columns(), structure_));
        std::vector<std::vector<int64_t>> key;
        for (size_t f = 0; f < u.emitted.size(); f++) key.push_back(*walk.columns.fields[f]);
        const std::vector<int64_t> address = emitted.address(key, walk.columns.size);
        for (int64_t a : address) {
            if (a < 0) throw Failed();
            data.push_back({int32_t(rows.start(int32_t(a))), rows.of(int32_t(a))});
            data_rows_ = std::max(data_rows_, rows.start(int32_t(a)) + rows.of(int32_t(a)));
        }
    }

    const GraphDesc& graph_;
    const Structure& structure_;
    std::vector<KeySpace> spaces_;
    std::vector<uint8_t> outside_;  // by outcome of the unit at hand
    std::vector<uint8_t> marks_;
    int64_t data_rows_ = 0;  // of the source at hand
};

// Hands out a slot's memory, every store on a cache line.
int64_t reserve(int64_t& bytes, int64_t size) {
    const int64_t at = bytes;
    bytes += (size + 63) / 64 * 64;
    return at;
}

constexpr int64_t X_BYTES = sizeof(OperandRef);

int64_t lay_out(const GraphDesc& graph, Plan& plan, bool train) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph.units.size(); i++) {
        const UnitDesc& u = graph.units[i];
        UnitPlan& p = plan.units[i];
        UnitLayout& at = train ? p.train : p.infer;
        if (u.is_source) continue;
        const auto store = [&](const ValueDesc& v) {
            return reserve(bytes, p.spaces[v.space].total * row_stride(v.width) * int64_t(sizeof(float)));
        };
        at.left = reserve(bytes, p.firings * 4);
        if (!u.choices.empty()) at.outcome = reserve(bytes, p.firings * 4);
        for (size_t k = 0; k < u.operands.size(); k++) at.x.push_back(reserve(bytes, p.positions(k) * X_BYTES));
        for (const ValueDesc& v : u.outputs) at.outputs.push_back(v.is_int ? -1 : store(v));
        for (const auto& [e, space] : u.ints) at.ints.push_back(reserve(bytes, p.spaces[space].total * 8));
        if (!train) continue;
        at.missing = reserve(bytes, p.firings * 4);
        at.version = reserve(bytes, p.firings * 4);
        at.frame = reserve(bytes, p.firings * 8);
        for (const ValueDesc& v : u.saved) at.saved.push_back(store(v));
        for (const OperandDesc& o : u.operands)
            at.gradients.push_back(o.needs_gradient ? store({o.width, o.space}) : -1);
    }
    return bytes;
}

int64_t bytes_of(const Plan& plan) {
    int64_t bytes = 0;
    for (const UnitPlan& u : plan.units) {
        bytes += sizeof(UnitPlan) + u.need.size() * 4 + u.route_start.size() * 4 + u.routes.size() * sizeof(Route);
        for (const Counts& c : u.spaces) bytes += c.starts.size() * 4;
        for (const auto& m : u.members) bytes += m.size() * 4;
        for (const Columns& c : u.rows) bytes += int64_t(c.fields.size()) * c.size * 8;
        bytes += int64_t(u.data.size()) * 8;
    }
    return bytes;
}

}  // namespace

std::shared_ptr<Plan> build_plan(const GraphDesc& graph, const Structure& structure) {
    try {
        std::shared_ptr<Plan> plan = Builder(graph, structure).build();
        plan->train_bytes = lay_out(graph, *plan, true);
        plan->infer_bytes = lay_out(graph, *plan, false);
        plan->own_bytes = bytes_of(*plan);
        return plan;
    } catch (const Failed&) {
        return nullptr;
    }
}

bool Planner::signature(const Structure& structure) {
    key_.clear();
    const auto append = [&](const int64_t* values, size_t n) {
        key_.append(reinterpret_cast<const char*>(values), n * sizeof(int64_t));
    };
    Columns one;
    one.size = 1;
    Evaluator evaluate(structure);
    for (const Expr& e : graph_.signature) {
        const int64_t v = evaluate(e, one).at(0);
        append(&v, 1);
    }
    for (int32_t t : graph_.signature_tables) {
        const TableView& view = structure.tables[t];
        append(view.shape, 4);
        int64_t n = view.values != nullptr;
        for (int32_t d = 0; d < view.dimensions; d++) n *= view.shape[d];
        append(view.values, size_t(n));
    }
    return evaluate.trouble == Trouble::None;
}

std::shared_ptr<const Plan> Planner::plan(const Structure& structure) {
    if (!signature(structure)) return nullptr;
    auto found = plans_.find(key_);
    if (found == plans_.end()) {
        std::shared_ptr<Plan> made = build_plan(graph_, structure);
        if (made == nullptr) return nullptr;
        kept_bytes_ += made->own_bytes + int64_t(key_.size());
        found = plans_.emplace(key_, std::move(made)).first;
        found->second->last_use = ++clock_;
        const std::shared_ptr<const Plan> plan = found->second;
        if (kept_bytes_ > keep_bytes_) forget();
        return plan;
    }
    found->second->last_use = ++clock_;
    return found->second;
}

// Drops the half of the plans that were used longest ago. Instances in flight hold on to theirs.
void Planner::forget() {
    std::vector<uint64_t> uses;
    for (const auto& [key, plan] : plans_) uses.push_back(plan->last_use);
    std::nth_element(uses.begin(), uses.begin() + uses.size() / 2, uses.end());
    const uint64_t middle = uses[uses.size() / 2];
    for (auto it = plans_.begin(); it != plans_.end();) {
        if (it->second->last_use < middle) {
            kept_bytes_ -= it->second->own_bytes + int64_t(it->first.size());
            it = plans_.erase(it);
        } else {
            ++it;
        }
    }
}

}  // namespace amphw
