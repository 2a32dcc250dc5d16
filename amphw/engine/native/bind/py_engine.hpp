// The engine as Python sees it. Calls that may take long let go of the interpreter's lock.
#pragma once

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/instance.hpp"
#include "describe.hpp"
#include "engine.hpp"

namespace amphw {

namespace nb = nanobind;

using FloatArray = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using FloatInput = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using RowNumbers = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline const Kernels& chosen_kernels() {
    const Kernels* found = kernels();
    if (found == nullptr) throw nb::value_error("this machine does not run the kernels that AMPHW_ISA names");
    return *found;
}

class PyEngine {
public:
    PyEngine(nb::dict graph, nb::dict schema, nb::list rules, nb::dict options)
        : schema_(read_schema(schema)), instances_(schema), sinks_(nb::cast<nb::list>(options["sinks"])),
          kernels_(chosen_kernels()), engine_(read_graph(graph), read_rules(rules), read_options(options), kernels_) {}

    // 0: pumped; 1: it breaks the schema, its structure leaves a domain or its data is short: Python says how;
    // 2: a fault on the way; 3: no room in the shared memory.
    int submit(int32_t slot, int64_t generation, int64_t number, int32_t mode, nb::dict attrs, nb::dict tables,
               nb::dict data) {
        if (!instances_.read(number, attrs, tables) || !instances_.read_data(data)) return 1;
        nb::gil_scoped_release release;
        const InstanceReader& i = instances_;
        if (!conforms(schema_, i.structure)) return 1;
        switch (engine_.submit(slot, generation, number, Mode(mode), i.structure, i.data, i.widths, i.heights)) {
            case Engine::Submitted::Pumped: return 0;
            case Engine::Submitted::Refused: return 1;
            case Engine::Submitted::NoRoom: return 3;
            default: return 2;
        }
    }

    // (bytes to train, bytes to infer) that an instance reserves; (-1, -1) where its structure leaves a domain.
    std::pair<int64_t, int64_t> planned_bytes(int64_t number, nb::dict attrs, nb::dict tables) {
        if (!instances_.read(number, attrs, tables)) return {-1, -1};
        nb::gil_scoped_release release;
        return engine_.planned_bytes(instances_.structure);
    }

    // A structure's plan as lists, unit by unit, for tests; None where it leaves a domain. Not kept.
    nb::object plan(int64_t number, nb::dict attrs, nb::dict tables) {
        if (!instances_.read(number, attrs, tables)) return nb::none();
        const std::shared_ptr<const Plan> plan = build_plan(engine_.graph(), instances_.structure);
        if (plan == nullptr) return nb::none();
        nb::list out;
        for (const UnitPlan& u : plan->units) out.append(listed(u));
        return out;
    }

    // ([(slot, generation, number, mode, {sink: {label: sum}}, {sink: rows}, [(unit, values by label)])], stuck)
    nb::tuple poll(double timeout) {
        bool stuck = false;
        std::vector<Retired> retired;
        {
            nb::gil_scoped_release release;
            retired = engine_.poll(timeout, &stuck);
        }
        nb::list out;
        for (const Retired& r : retired) {
            nb::dict all_sums, rows;
            nb::list values;
            for (const SinkReport& s : r.sinks) {
                const nb::tuple sink = nb::borrow<nb::tuple>(sinks_[size_t(s.unit)]);
                nb::dict sums;
                for (size_t k = 0; k < s.sums.size(); k++) sums[sink[k + 1]] = s.sums[k];
                all_sums[sink[0]] = sums;
                rows[sink[0]] = s.rows;
                if (!s.values.empty()) values.append(nb::make_tuple(s.unit, nb::cast(s.values)));
            }
            out.append(nb::make_tuple(r.slot, r.generation, r.number, int(r.mode), all_sums, rows, values));
        }
        return nb::make_tuple(out, stuck);
    }

    bool run(int32_t worker, double seconds) {
        nb::gil_scoped_release release;
        return engine_.run(worker, seconds);
    }

    void wait(int32_t worker, double seconds) {
        nb::gil_scoped_release release;
        engine_.wait(worker, seconds);
    }

    void update(int32_t unit, bool publish) {
        nb::gil_scoped_release release;
        engine_.update(unit, publish);
    }

    // None, or (failure, unit, slot, firing, detail, extra, text).
    nb::object failure() {
        const std::optional<EngineError> e = engine_.failure();
        if (!e) return nb::none();
        return nb::make_tuple(int(e->failure), e->unit, e->slot, e->firing, e->detail, e->extra, e->text);
    }

    // {unit: largest magnitudes in the gradients of its last updates}
    nb::dict gradients() {
        nb::dict out;
        for (size_t unit = 0; unit < engine_.graph().units.size(); unit++)
            if (const Parameters* p = engine_.parameters(int32_t(unit))) out[nb::int_(unit)] = nb::cast(p->lately());
        return out;
    }

    // {unit: (parts in which workers may reduce its log together, multiplications in them for each row, numbers of an
    // update)}
    std::map<int32_t, std::tuple<int32_t, int64_t, int64_t>> reduction_parts() {
        std::map<int32_t, std::tuple<int32_t, int64_t, int64_t>> out;
        for (size_t unit = 0; unit < engine_.graph().units.size(); unit++)
            if (const Parameters* p = engine_.parameters(int32_t(unit)); p != nullptr) out[int32_t(unit)] = p->parts();
        return out;
    }

    // (forward, backward, frames, updates, {unit: {versions behind: rows}}, busy seconds by worker)
    nb::tuple statistics() {
        const std::vector<double> busy = engine_.busy();
        const Counters c = engine_.counters();
        nb::dict staleness;
        for (const auto& [unit, histogram] : c.staleness) {
            nb::dict h;
            for (const auto& [behind, rows] : histogram) h[nb::int_(behind)] = rows;
            staleness[nb::int_(unit)] = h;
        }
        return nb::make_tuple(c.forward, c.backward, c.frames, c.updates, staleness, nb::cast(busy));
    }

    nb::list trace() {
        nb::list out;
        for (const TraceSlice& s : engine_.trace())
            out.append(nb::make_tuple(s.worker, s.unit, s.kind, s.begin_us, s.duration_us, s.rows, s.flow_in, s.number));
        return out;
    }

    // (type, a, b, c, keys) by event
    nb::list events() {
        nb::list out;
        for (const Event& e : engine_.events()) {
            nb::list keys;
            for (const auto& k : e.keys) keys.append(nb::make_tuple(k[0], k[1], k[2]));
            out.append(nb::make_tuple(int(e.type), e.a, e.b, e.c, nb::tuple(keys)));
        }
        return out;
    }

    // [(slot, instance number, unit, firing, messages still missing, [(operand, position in it)])]
    nb::list pending() {
        nb::list out;
        for (Slot* slot : engine_.active())
            for (size_t u = 0; u < engine_.graph().units.size(); u++) {
                if (engine_.graph().units[u].is_source) continue;
                const UnitPlan& plan = slot->unit(int32_t(u));
                for (int32_t i = 0; i < plan.firings; i++) {
                    const int32_t left = slot->left(int32_t(u))[i];
                    if (left <= 0 || left >= plan.need[i]) continue;
                    nb::list missing;
                    for (int64_t k = 0; k < plan.members.size(); k++) {
                        const auto [begin, end] = slot->positions(int32_t(u), int32_t(k), i);
                        for (int32_t p = begin; p < end; p++)
                            if (slot->operand(int32_t(u), int32_t(k))[p].rows == nullptr) {
                                missing.append(k);
                                break;
                            }
                    }
                    out.append(nb::make_tuple(slot->index, slot->number, u, i, left, missing));
                }
            }
        return out;
    }

    void load_parameter(int32_t unit, int32_t param, FloatInput values, FloatInput gradient,
                        std::vector<FloatInput> slots) {
        std::vector<const float*> pointers;
        for (const FloatInput& s : slots) pointers.push_back(s.data());
        engine_.parameters(unit)->load(param, values.data(), gradient.data(), pointers.data());
    }
    void loaded(int32_t unit, int64_t version, int64_t rows, const std::vector<double>& state) {
        Parameters& p = *engine_.parameters(unit);
        State given{};
        std::copy_n(state.begin(), std::min(state.size(), given.size()), given.begin());
        p.loaded(version, rows, given);
    }
    void store_parameter(int32_t unit, int32_t param, FloatArray values, FloatArray gradient, std::vector<FloatArray> slots) {
        std::vector<float*> pointers;
        for (FloatArray& s : slots) pointers.push_back(s.data());
        engine_.parameters(unit)->store(param, values.data(), gradient.data(), pointers.data());
    }
    void load_gradient(int32_t unit, int32_t param, FloatInput gradient) {
        engine_.parameters(unit)->load_gradient(param, gradient.data());
    }
    void gave(int32_t unit, int64_t rows) { engine_.parameters(unit)->gave(rows); }
    void store_gradient(int32_t unit, int32_t param, FloatArray gradient) {
        engine_.parameters(unit)->store_gradient(param, gradient.data());
    }
    // Rows of a table, by their numbers. See `Parameters`.
    bool tracked(int32_t unit, int32_t param) { return engine_.parameters(unit)->tracked(param); }
    std::vector<int32_t> touched(int32_t unit, int32_t param) { return engine_.parameters(unit)->touched(param); }
    void store_rows(int32_t unit, int32_t param, RowNumbers rows, FloatArray gradient) {
        engine_.parameters(unit)->store_rows(param, rows.data(), int64_t(rows.shape(0)), gradient.data());
    }
    void load_rows(int32_t unit, int32_t param, RowNumbers rows, FloatInput gradient) {
        engine_.parameters(unit)->load_rows(param, rows.data(), int64_t(rows.shape(0)), gradient.data());
    }
    void keep(int32_t unit, int32_t param) { engine_.parameters(unit)->keep(param); }
    void put(int32_t unit, int32_t param, FloatInput values) { engine_.parameters(unit)->put(param, values.data()); }
    void put_rows(int32_t unit, int32_t param, RowNumbers rows, FloatInput values) {
        engine_.parameters(unit)->put_rows(param, rows.data(), int64_t(rows.shape(0)), values.data());
    }
    void pool(int32_t unit, int32_t param) { engine_.parameters(unit)->pool(param); }
    std::vector<int32_t> pulled(int32_t unit, int32_t param) { return engine_.parameters(unit)->pulled(param); }
    void store_pulled(int32_t unit, int32_t param, RowNumbers rows, FloatArray values) {
        engine_.parameters(unit)->store_pulled(param, rows.data(), int64_t(rows.shape(0)), values.data());
    }
    int64_t parameter_bytes(int32_t unit) { return engine_.parameters(unit)->bytes(); }
    void has_put(int32_t unit) { engine_.parameters(unit)->has_put(); }
    void tell(int32_t unit) { engine_.parameters(unit)->tell(); }
    // While frames run; see `Parameters`. moves: of all parameters of the unit.
    void latest(int32_t unit, int32_t param, FloatArray values) {
        engine_.parameters(unit)->latest(param, values.data());
    }
    void move(int32_t unit, std::vector<FloatInput> moves) {
        std::vector<const float*> pointers;
        for (const FloatInput& m : moves) pointers.push_back(m.data());
        nb::gil_scoped_release release;
        engine_.move(unit, pointers);
    }
    // (rows, updates); sums: of all parameters of the unit, written where there were updates.
    std::pair<int64_t, int64_t> told(int32_t unit, std::vector<FloatArray> sums) {
        std::vector<float*> pointers;
        for (const FloatArray& s : sums) pointers.push_back(s.data());
        nb::gil_scoped_release release;
        return engine_.told(unit, pointers);
    }
    // ranges: (parameter, first number, values, what they are multiplied by)
    void receive(int32_t unit, std::vector<std::tuple<int32_t, int64_t, FloatInput, float>> ranges) {
        std::vector<ReceivedRange> read;
        for (const auto& [param, first, values, scale] : ranges)
            read.push_back({param, first, int64_t(values.size()), values.data(), scale});
        nb::gil_scoped_release release;
        engine_.receive(unit, read);
    }
    // (version, rows in the gradient, the optimiser's scalars)
    std::tuple<int64_t, int64_t, std::vector<double>> parameter_state(int32_t unit) {
        const Parameters& p = *engine_.parameters(unit);
        return {p.version(), p.accumulated, std::vector<double>(p.state.begin(), p.state.end())};
    }

    // What a retired instance left in its slot: [(unit, direction, firing, values of each output or operand)].
    nb::list inspect(int32_t index) {
        nb::list out;
        Slot& slot = *engine_.slot(index);
        if (slot.memory.size() == 0) return out;  // given back when it retired
        for (size_t u = 0; u < engine_.graph().units.size(); u++) inspect_unit(slot, int32_t(u), out);
        return out;
    }

    void replay() { engine_.replay(); }
    // keys: (slot, firing)
    void replay_start(int64_t number, int32_t unit, int32_t kind, std::vector<std::pair<int32_t, int32_t>> keys) {
        std::vector<Task> tasks;
        for (const auto& [slot, firing] : keys) tasks.push_back({engine_.slot(slot), firing, 0, 0, 0});
        guarded([&] { engine_.replay_start(number, unit, Kind(kind), std::move(tasks)); });
    }
    void replay_end(int64_t number) {
        guarded([&] { engine_.replay_end(number); });
    }
    void replay_seal(int32_t unit, bool due) {
        guarded([&] { engine_.replay_seal(unit, due); });
    }
    void replay_reduced(int32_t unit) {
        guarded([&] { engine_.replay_reduced(unit); });
    }
    void set_policy(nb::dict table) {
        const PolicyTable read = read_policy(table);
        if (!engine_.policy.fits(read)) throw nb::value_error("a policy's table for another graph");
        engine_.policy = read;
    }
    bool settled() { return engine_.settled(); }
    void stop_waiting() { engine_.stop_waiting(); }
    int64_t in_flight() const { return engine_.in_flight(); }
    int64_t slot_bytes() const { return engine_.slot_bytes(); }
    // Of a unit that sleeps, by direction: (firings, rows by space)
    nb::list slept_rows(int32_t unit) {
        const SleptRows found = engine_.slept_rows(unit);
        nb::list out;
        for (int direction : {0, 1}) {
            nb::list rows;
            for (size_t s = 0; s < engine_.graph().units[unit].spaces.size(); s++) rows.append(found.rows[direction][s]);
            out.append(nb::make_tuple(found.firings[direction], rows));
        }
        return out;
    }
    double sleeper_idle(int32_t device) { return engine_.sleeper_idle(device); }
    Engine& engine() { return engine_; }

    // What goes wrong is told like a worker's errors.
    template <class F>
    void guarded(F f) {
        try {
            f();
        } catch (const EngineError& error) {
            engine_.fail(error);
        }
    }

private:
    static std::vector<std::optional<Rule>> read_rules(nb::list rules) {
        std::vector<std::optional<Rule>> out;
        for (nb::handle r : rules) out.push_back(read_rule(r));
        return out;
    }

    static Options read_options(nb::dict o) {
        Options out{};
        out.workers = nb::cast<int32_t>(o["workers"]);
        out.self_updating = nb::cast<bool>(o["self_updating"]);
        out.log = nb::cast<bool>(o["log"]);
        out.by_age = nb::cast<bool>(o["by_age"]);
        out.frame_cap = nb::cast<size_t>(o["frame_cap"]);
        out.frame_rows = nb::cast<int64_t>(o["frame_rows"]);
        out.report_batch = nb::cast<int64_t>(o["report_batch"]);
        out.policy = read_policy(o["policy"]);
        out.served = nb::cast<std::vector<std::vector<int32_t>>>(o["served"]);
        out.sleep = nb::cast<std::vector<double>>(o["sleep"]);
        out.trace = nb::cast<bool>(o["trace"]);
        out.plan_bytes = nb::cast<int64_t>(o["plan_bytes"]);
        if (o.contains("shared")) {
            const auto [address, bytes] = nb::cast<std::pair<uintptr_t, size_t>>(o["shared"]);
            out.shared = reinterpret_cast<char*>(address);
            out.shared_bytes = bytes;
        }
        out.regions = nb::cast<std::vector<int32_t>>(o["regions"]);
        out.joining = nb::cast<std::vector<int32_t>>(o["joining"]);
        for (nb::handle u : nb::cast<nb::list>(o["slept"])) out.slept.push_back(read_slept(u));
        for (nb::handle d : nb::cast<nb::list>(o["sleepers"])) {
            nb::tuple t = nb::cast<nb::tuple>(d);
            SleepDevice device{nb::cast<int32_t>(t[0]), {}};
            if (!t[1].is_none()) {
                const auto [byte_seconds, latency] = nb::cast<std::pair<double, double>>(t[1]);
                device.link = SleepLink{byte_seconds, latency};
            }
            out.sleepers.push_back(device);
        }
        return out;
    }

    // None, or (device, (seconds of a row forward, backward), of an update, (bytes to the device forward, backward),
    // (bytes back)); bytes: (of a firing, of a row by space)
    static SleptUnit read_slept(nb::handle described) {
        SleptUnit out;
        if (described.is_none()) return out;
        using Bytes = std::pair<double, std::vector<double>>;
        using Way = std::pair<Bytes, Bytes>;
        const auto [device, row, update, to, back] =
            nb::cast<std::tuple<int32_t, std::pair<double, double>, double, Way, Way>>(described);
        const auto bytes = [](const Bytes& each) { return SleptBytes{each.first, each.second}; };
        out.device = device;
        out.update_seconds = update;
        std::tie(out.row_seconds[0], out.row_seconds[1]) = row;
        out.to[0] = bytes(to.first), out.to[1] = bytes(to.second);
        out.back[0] = bytes(back.first), out.back[1] = bytes(back.second);
        return out;
    }

    static nb::dict listed(const UnitPlan& u) {
        const auto list = [](const auto& values, auto what) {
            nb::list out;
            for (const auto& v : values) out.append(what(v));
            return out;
        };
        const auto same = [](int32_t v) { return v; };
        const auto counts = [&](const Counts& c) {
            nb::list each;
            for (int32_t i = 0; i < u.firings; i++) each.append(c.of(i));
            return each;
        };
        nb::dict out;
        out["need"] = list(u.need, same);
        out["spaces"] = list(u.spaces, counts);
        out["operand_rows"] = list(u.operand_rows, counts);
        out["members"] = list(u.members, [&](const List<int32_t>& starts) { return list(starts, same); });
        out["route_start"] = list(u.route_start, same);
        out["routes"] = list(u.routes, [](const Route& r) {
            return nb::make_tuple(r.target, r.operand, r.firing, r.position, r.row, r.output);
        });
        out["data"] = list(u.data, [](const DataRows& d) { return nb::make_tuple(d.first, d.count); });
        out["faults"] = list(u.faults, [](const Fault& f) { return nb::make_tuple(f.outcome, f.trap); });
        return out;
    }

    void inspect_unit(Slot& slot, int32_t u, nb::list& out) {
        const UnitDesc& unit = engine_.graph().units[u];
        if (unit.is_source) return;
        const UnitPlan& plan = slot.unit(u);
        const UnitLayout& layout = slot.layout(u);
        const auto rows = [&](int64_t offset, int64_t first, int64_t count, int32_t width) {
            std::vector<float> values;
            for (int64_t r = first; offset >= 0 && r < first + count; r++) {
                const float* row = slot.at<float>(offset) + r * row_stride(width);
                values.insert(values.end(), row, row + width);
            }
            return values;
        };
        for (int32_t i = 0; i < plan.firings; i++) {
            if (plan.need[i] == 0 || slot.left(u)[i] != 0) continue;
            std::vector<std::vector<float>> forward, backward;
            for (size_t k = 0; k < unit.outputs.size(); k++) {
                const Counts& c = plan.spaces[unit.outputs[k].space];
                forward.push_back(rows(layout.outputs[k], c.start(i), c.of(i), unit.outputs[k].width));
            }
            for (size_t k = 0; slot.trains() && k < unit.operands.size(); k++) {
                const OperandDesc& o = unit.operands[k];
                const Counts& c = plan.spaces[o.space];
                backward.emplace_back();
                for (int32_t r = 0; r < c.of(i); r++) {
                    const int64_t at = o.shared ? plan.spaces[0].start(i) : c.start(i) + r;
                    const std::vector<float> row = rows(layout.gradients[k], at, 1, o.width);
                    backward.back().insert(backward.back().end(), row.begin(), row.end());
                }
            }
            out.append(nb::make_tuple(u, "forward", i, nb::cast(forward)));
            if (slot.trains()) out.append(nb::make_tuple(u, "backward", i, nb::cast(backward)));
        }
    }

    SchemaDesc schema_;
    InstanceReader instances_;
    nb::list sinks_;  // by unit: the name that a sink's figures are told under, and theirs; empty: no sink
    const Kernels& kernels_;
    Engine engine_;
};

void bind_external(nb::class_<PyEngine>& engine);
void bind_parts(nb::class_<PyEngine>& engine);

}  // namespace amphw
