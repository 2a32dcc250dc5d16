#include "plan.hpp"

#include <algorithm>
#include <cstring>

#include "key_space.hpp"
#include "bind/schema.hpp"
#include "slot.hpp"

namespace amphw {
namespace {

struct Failed {};  // plan.py explains what is wrong

// What is left of the sender's outcomes after a path's steps.
struct Walk {
    Columns columns;
    List<int32_t> sender;

    int64_t size() const { return columns.size; }
};

// Where one path leads: a route for each of some of the sender's outcomes.
struct Found {
    List<int32_t> sender;
    List<Route> routes;
};

// Makes a plan whose lists lie in the arena.
class Builder {
public:
    Builder(const GraphDesc& graph, const Structure& structure, Arena& arena)
        : graph_(graph), structure_(structure), arena_(arena) {}

    List<UnitPlan> build() {
        spaces_.reserve(graph_.units.size());
        const List<UnitPlan> units = arena_.list<UnitPlan>(int64_t(graph_.units.size()), UnitPlan());
        for (size_t u = 0; u < graph_.units.size(); u++) units[int64_t(u)] = unit(graph_.units[u]);
        for (size_t u = 0; u < graph_.units.size(); u++) routes(u, units);
        return units;
    }

private:
    // Of states that all occur.
    Value evaluated(const Expr& e, const Columns& columns) {
        Evaluator evaluate(structure_, arena_);
        const Value v = evaluate(e, columns);
        if (evaluate.trouble != Trouble::None) throw Failed();
        return v;
    }

    // A number of rows, states or messages. Sums of two never leave 64 bits that way.
    static int64_t bounded(int64_t n) {
        if (n < 0 || n > MOST_ROWS) throw Failed();
        return n;
    }

    Counts counts_of(const Value& v, int64_t n) {
        int64_t total = 0;
        bool same = true;
        for (int64_t i = 0; i < n; i++) {
            total = bounded(total + bounded(v.at(i)));
            same = same && v.at(i) == v.at(0);
        }
        if (same) return {n == 0 ? 0 : int32_t(v.at(0)), {}, total};
        return {-1, starts_of(v, n), total};
    }

    List<int32_t> starts_of(const Value& v, int64_t n) {
        const List<int32_t> out = arena_.list<int32_t>(n + 1);
        out[0] = 0;
        for (int64_t i = 0; i < n; i++) out[i + 1] = out[i] + int32_t(v.at(i));
        return out;
    }

    UnitPlan unit(const UnitDesc& u) {
        spaces_.emplace_back(u.fields, structure_, arena_);
        const KeySpace& space = spaces_.back();
        if (!space.valid()) throw Failed();
        const Columns& states = space.columns();
        const int64_t n = space.size(), operands = int64_t(u.operands.size());
        UnitPlan out;
        out.firings = int32_t(n);
        out.need = arena_.list<int32_t>(n, 0);
        out.spaces = arena_.list<Counts>(int64_t(u.spaces.size()));
        for (size_t s = 0; s < u.spaces.size(); s++)
            out.spaces[int64_t(s)] = counts_of(evaluated(u.spaces[s], states), n);
        out.operand_rows = arena_.list<Counts>(operands);
        out.members = arena_.list<List<int32_t>>(operands, List<int32_t>());
        for (int64_t k = 0; k < operands; k++) {
            const OperandDesc& o = u.operands[k];
            out.operand_rows[k] = counts_of(evaluated(o.rows, states), n);
            if (o.count.empty()) {
                for (int32_t& need : out.need) need++;
                continue;
            }
            const Value count = evaluated(o.count, states);
            int64_t total = 0;
            for (int64_t i = 0; i < n; i++) {
                const int64_t each = bounded(count.at(i));
                total = bounded(total + each);
                out.need[i] = int32_t(bounded(out.need[i] + each));
            }
            out.members[k] = starts_of(count, n);
        }
        out.rows = arena_.list<Columns>(int64_t(u.spaces.size()), Columns());
        for (const auto& [e, s] : u.ints)
            if (out.rows[s].fields.empty()) out.rows[s] = states_of_rows(states, out.spaces[s]);
        return out;
    }

    // The states of a unit's rows in one space; the last column is the row's number within its message.
    Columns states_of_rows(const Columns& states, const Counts& counts) {
        Columns out{arena_.list<const int64_t*>(states.fields.size() + 1), counts.total};
        const List<int64_t> number = arena_.list<int64_t>(counts.total);
        for (int32_t i = 0; i < states.size; i++)
            for (int32_t r = 0; r < counts.of(i); r++) number[counts.start(i) + r] = r;
        for (int64_t f = 0; f < states.fields.size(); f++) {
            const List<int64_t> wide = arena_.list<int64_t>(counts.total);
            for (int32_t i = 0; i < states.size; i++)
                std::fill_n(wide.begin() + counts.start(i), counts.of(i), states.fields[f][i]);
            out.fields[f] = wide.values;
        }
        out.fields.back() = number.values;
        return out;
    }

    // Every firing with everything that it may decide; expressions are lenient from here on, since states that
    // never occur may read outside a table.
    Walk outcomes(const UnitDesc& u, const KeySpace& space) {
        const int64_t choices = u.decisions(), n = bounded(space.size() * choices), decided = int64_t(u.choices.size());
        const List<const int64_t*>& fields = space.columns().fields;
        Walk walk{{arena_.list<const int64_t*>(fields.size() + decided), n}, arena_.list<int32_t>(n)};
        for (int64_t f = 0; f < fields.size(); f++) {
            if (choices == 1) {
                walk.columns.fields[f] = fields[f];
                continue;
            }
            const List<int64_t> wide = arena_.list<int64_t>(n);
            for (int64_t i = 0; i < n; i++) wide[i] = fields[f][i / choices];
            walk.columns.fields[f] = wide.values;
        }
        int64_t below = choices;
        for (int64_t k = 0; k < decided; k++) {
            below /= u.choices[k];
            const List<int64_t> column = arena_.list<int64_t>(n);
            for (int64_t i = 0; i < n; i++) column[i] = i / below % u.choices[k];
            walk.columns.fields[fields.size() + k] = column.values;
        }
        for (int64_t i = 0; i < n; i++) walk.sender[i] = int32_t(i);
        return walk;
    }

    Value lenient(const Expr& e, const Walk& walk) {
        Evaluator evaluate(structure_, arena_);
        const List<uint8_t> marks = arena_.list<uint8_t>(walk.size(), 0);
        const Value v = evaluate(e, walk.columns, marks.values);
        if (evaluate.trouble != Trouble::None) throw Failed();
        for (int64_t i = 0; evaluate.marked && i < walk.size(); i++)
            if (marks[i]) outside_[walk.sender[i]] = 1;
        return v;
    }

    const int64_t* column(const Value& v, int64_t n) {
        return v.scalar() ? arena_.list<int64_t>(n, v.number).values : v.column;
    }

    // The states that a guard lets through; or copies, numbered in a new column.
    Walk after(const Step& step, const Walk& walk) {
        const Value v = lenient(step.expr, walk);
        const auto copies = [&](int64_t i) {
            return step.expands ? std::max<int64_t>(v.at(i), 0) : int64_t(v.at(i) != 0);
        };
        int64_t n = 0;
        for (int64_t i = 0; i < walk.size(); i++) n = bounded(n + bounded(copies(i)));
        if (!step.expands && n == walk.size()) return walk;
        const int64_t fields = walk.columns.fields.size();
        const List<int32_t> from = arena_.list<int32_t>(n);
        const List<int64_t> number = arena_.list<int64_t>(step.expands ? n : 0);
        int64_t at = 0;
        for (int64_t i = 0; i < walk.size(); i++)
            for (int64_t k = 0, m = copies(i); k < m; k++, at++) {
                from[at] = int32_t(i);
                if (step.expands) number[at] = k;
            }
        Walk out{{arena_.list<const int64_t*>(fields + step.expands), n}, arena_.list<int32_t>(n)};
        for (int64_t f = 0; f < fields; f++) {
            const List<int64_t> picked = arena_.list<int64_t>(n);
            for (int64_t i = 0; i < n; i++) picked[i] = walk.columns.fields[f][from[i]];
            out.columns.fields[f] = picked.values;
        }
        if (step.expands) out.columns.fields.back() = number.values;
        for (int64_t i = 0; i < n; i++) out.sender[i] = walk.sender[from[i]];
        return out;
    }

    void routes(size_t index, const List<UnitPlan>& units) {
        const UnitDesc& u = graph_.units[index];
        UnitPlan& out = units[int64_t(index)];
        const int64_t n = bounded(int64_t(out.firings) * u.decisions());
        int64_t messages = 0;
        const List<Found> found = arena_.list<Found>(int64_t(u.paths.size()));
        const List<int32_t> fault = arena_.list<int32_t>(n, -2);  // -2: none, -1: outside a table, else the trap
        outside_ = arena_.list<uint8_t>(n, 0);
        walks_.assign(1, outcomes(u, spaces_[index]));
        for (size_t p = 0; p < u.paths.size(); p++) {
            const PathDesc& path = u.paths[p];
            walks_.resize(path.shared + 1);
            for (size_t s = path.shared; s < path.steps.size(); s++) walks_.push_back(after(path.steps[s], walks_.back()));
            messages = bounded(messages + walks_.back().size());
            found[int64_t(p)] = deliver(path, walks_.back(), units[path.target]);
            if (u.is_source) source_rows(u, walks_.back(), out);
        }
        for (int64_t i = 0; i < n; i++)
            if (outside_[i]) fault[i] = -1;
        for (size_t t = 0; t < u.traps.size(); t++) {
            Walk walk = walks_.front();
            for (const Step& step : u.traps[t].steps) walk = after(step, walk);
            for (int32_t outcome : walk.sender) fault[outcome] = int32_t(t);
        }
        out.faults = arena_.list<Fault>(n - std::count(fault.begin(), fault.end(), -2));
        for (int64_t i = 0, k = 0; i < n; i++)
            if (fault[i] != -2) out.faults[k++] = {int32_t(i), fault[i]};
        sort(found, n, out);
    }

    // Routes of one outcome stand together, in the order of the paths: the order in which gradients are summed.
    void sort(const List<Found>& found, int64_t outcomes, UnitPlan& out) {
        out.route_start = arena_.list<int32_t>(outcomes + 1, 0);
        for (const Found& path : found)
            for (int32_t sender : path.sender) out.route_start[sender + 1]++;
        for (int64_t i = 0; i < outcomes; i++) out.route_start[i + 1] += out.route_start[i];
        out.routes = arena_.list<Route>(out.route_start.back());
        const List<int32_t> next = arena_.list<int32_t>(outcomes + 1);
        std::copy(out.route_start.begin(), out.route_start.end(), next.begin());
        for (const Found& path : found)
            for (int64_t i = 0; i < path.sender.size(); i++) out.routes[next[path.sender[i]]++] = path.routes[i];
    }

    Found deliver(const PathDesc& p, const Walk& walk, const UnitPlan& target) {
        const int64_t n = walk.size();
        const List<const int64_t*> key = arena_.list<const int64_t*>(int64_t(p.key.size()));
        for (size_t k = 0; k < p.key.size(); k++) key[int64_t(k)] = column(lenient(p.key[k], walk), n);
        const List<int64_t> firing = spaces_[p.target].address(key, n);
        const Value member = p.member.empty() ? Value() : lenient(p.member, walk);
        const List<int32_t>& starts = target.members[p.operand];
        const int64_t* row = p.row_column < 0 ? nullptr : walk.columns.fields[p.row_column];
        const List<Route> out = arena_.list<Route>(n);
        for (int64_t i = 0; i < n; i++) {
            int64_t position = firing[i];
            if (!starts.empty() && firing[i] >= 0) {
                const int64_t room = starts[firing[i] + 1] - starts[firing[i]], at = member.at(i);
                position = at < 0 || at >= room ? OUT_OF_DOMAIN : starts[firing[i]] + at;
            }
            out[i] = Route{p.target, int32_t(firing[i]), int32_t(position), row == nullptr ? -1 : int32_t(row[i]),
                           int16_t(p.operand), int16_t(p.output)};
        }
        return {walk.sender, out};
    }

    // A source has one firing, so its routes keep their order, which is that of the paths.
    void source_rows(const UnitDesc& u, const Walk& walk, UnitPlan& out) {
        const KeySpace emitted(u.emitted, structure_, arena_);
        if (!emitted.valid()) throw Failed();
        const Counts rows = counts_of(evaluated(u.emitted_rows, emitted.columns()), emitted.size());
        const List<int64_t> address = emitted.address(walk.columns.fields, walk.size());
        const List<DataRows> all = arena_.list<DataRows>(out.data.size() + walk.size());
        std::copy(out.data.begin(), out.data.end(), all.begin());
        for (int64_t i = 0; i < walk.size(); i++) {
            if (address[i] < 0) throw Failed();
            const DataRows each{int32_t(rows.start(int32_t(address[i]))), rows.of(int32_t(address[i]))};
            all[out.data.size() + i] = each;
            out.data_rows = std::max(out.data_rows, int64_t(each.first) + each.count);
        }
        out.data = all;
    }

    const GraphDesc& graph_;
    const Structure& structure_;
    Arena& arena_;
    std::vector<KeySpace> spaces_;
    std::vector<Walk> walks_;   // after each step of the path at hand
    List<uint8_t> outside_;     // by outcome of the unit at hand
};

// Hands out a slot's memory, every store on a cache line.
int64_t reserve(int64_t& bytes, int64_t size) {
    const int64_t at = bytes;
    bytes += (size + 63) / 64 * 64;
    return at;
}

constexpr int64_t X_BYTES = sizeof(OperandRef);

// `what` of each in order, as a list in the arena.
template <class T, class F>
List<int64_t> laid(Arena& arena, const std::vector<T>& each, F what) {
    const List<int64_t> out = arena.list<int64_t>(int64_t(each.size()));
    for (size_t k = 0; k < each.size(); k++) out[int64_t(k)] = what(each[k], int64_t(k));
    return out;
}

int64_t lay_out(const GraphDesc& graph, const List<UnitPlan>& units, bool train, Arena& arena) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < units.size(); i++) {
        const UnitDesc& u = graph.units[i];
        UnitPlan& p = units[i];
        UnitLayout& at = train ? p.train : p.infer;
        if (u.is_source) continue;
        const auto store = [&](const ValueDesc& v, int64_t = 0) {
            return reserve(bytes, p.spaces[v.space].total * row_stride(v.width) * int64_t(sizeof(float)));
        };
        at.left = reserve(bytes, p.firings * 4);
        if (!u.choices.empty()) at.outcome = reserve(bytes, p.firings * 4);
        at.x = laid(arena, u.operands,
                    [&](const OperandDesc&, int64_t k) { return reserve(bytes, p.positions(k) * X_BYTES); });
        at.outputs = laid(arena, u.outputs, [&](const ValueDesc& v, int64_t) { return v.is_int ? -1 : store(v); });
        at.ints = laid(arena, u.ints,
                       [&](const auto& each, int64_t) { return reserve(bytes, p.spaces[each.second].total * 8); });
        if (!train) continue;
        at.missing = reserve(bytes, p.firings * 4);
        at.version = reserve(bytes, p.firings * 4);
        at.frame = reserve(bytes, p.firings * 8);
        if (!u.at_once) at.saved = laid(arena, u.saved, store);
        at.gradients = laid(arena, u.operands, [&](const OperandDesc& o, int64_t) {
            return o.needs_gradient ? store({o.width, o.shared ? 0 : o.space}) : -1;
        });
    }
    return bytes;
}

// Copies lists one after the other into a block; without one it only counts.
struct Packer {
    char* block = nullptr;
    int64_t bytes = 0;

    template <class T>
    void operator()(List<T>& list) {
        if (block != nullptr) {
            auto* to = reinterpret_cast<std::remove_const_t<T>*>(block + bytes);
            std::copy(list.begin(), list.end(), to);
            list.values = to;
        }
        bytes += (list.size() * int64_t(sizeof(T)) + 15) / 16 * 16;
    }

    void operator()(List<Counts>& all) {
        operator()<Counts>(all);
        for (Counts& c : all) (*this)(c.starts);
    }

    void operator()(UnitLayout& at) {
        for (List<int64_t>* each : {&at.x, &at.outputs, &at.saved, &at.gradients, &at.ints}) (*this)(*each);
    }

    void operator()(List<Columns>& all) {
        operator()<Columns>(all);
        for (Columns& columns : all) {
            (*this)(columns.fields);
            for (const int64_t*& column : columns.fields) {
                List<const int64_t> whole{column, columns.size};
                (*this)(whole);
                column = whole.values;
            }
        }
    }

    void operator()(List<UnitPlan>& units) {
        operator()<UnitPlan>(units);
        for (UnitPlan& u : units) {
            (*this)(u.need);
            (*this)(u.spaces);
            (*this)(u.members);
            for (List<int32_t>& starts : u.members) (*this)(starts);
            (*this)(u.operand_rows);
            (*this)(u.route_start);
            (*this)(u.routes);
            (*this)(u.data);
            (*this)(u.faults);
            (*this)(u.rows);
            (*this)(u.train);
            (*this)(u.infer);
        }
    }
};

}  // namespace

std::shared_ptr<Plan> build_plan(const GraphDesc& graph, const Structure& structure) {
    Arena& arena = Arena::here();
    const Arena::Scope scope(arena);
    for (const AxiomDesc& axiom : graph.axioms)
        if (!holds(axiom, structure)) return nullptr;
    try {
        auto plan = std::make_shared<Plan>();
        plan->units = Builder(graph, structure, arena).build();
        plan->train_bytes = lay_out(graph, plan->units, true, arena);
        plan->infer_bytes = lay_out(graph, plan->units, false, arena);
        Packer size;
        size(plan->units);
        plan->own_bytes = size.bytes;
        plan->block.reset(new char[size.bytes]);
        Packer pack{plan->block.get()};
        pack(plan->units);
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
    const Arena::Scope scope(Arena::here());
    Evaluator evaluate(structure, Arena::here());
    for (const Expr& e : graph_.signature) {
        const int64_t v = evaluate.number(e);
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
