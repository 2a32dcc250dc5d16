#include "describe.hpp"

#include <algorithm>

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace amphw {
namespace {

template <class T>
T item(nb::handle d, const char* key) {
    return nb::cast<T>(d[key]);
}

template <class F>
auto list(nb::handle items, F f) {
    std::vector<decltype(f(nb::handle()))> out;
    for (nb::handle i : items) out.push_back(f(i));
    return out;
}

Expr expr(nb::handle e) { return nb::cast<Expr>(e); }

FieldDesc field(nb::handle f) { return {expr(f["extent"]), item<int64_t>(f, "bound")}; }

Step step(nb::handle s) { return {item<bool>(s, "expands"), expr(s["expr"])}; }

PathDesc path(nb::handle p) {
    return {item<int32_t>(p, "output"), item<int32_t>(p, "target"), item<int32_t>(p, "operand"),
            list(p["steps"], step),     0, list(p["key"], expr),       expr(p["member"]),
            item<int32_t>(p, "row_column")};
}

std::vector<PathDesc> paths(nb::handle all) {
    std::vector<PathDesc> out = list(all, path);
    for (size_t p = 1; p < out.size(); p++) {
        const std::vector<Step>&mine = out[p].steps, &before = out[p - 1].steps;
        while (out[p].shared < std::min(mine.size(), before.size()) && mine[out[p].shared] == before[out[p].shared])
            out[p].shared++;
    }
    return out;
}

OperandDesc operand(nb::handle o) {
    return {item<int32_t>(o, "width"), item<int32_t>(o, "space"), item<bool>(o, "needs_gradient"), expr(o["rows"]),
            expr(o["count"]), item<bool>(o, "shared")};
}

ValueDesc value(nb::handle v) {
    return {item<int32_t>(v, "width"), item<int32_t>(v, "space"), item<bool>(v, "is_int")};
}

Ref ref(nb::handle r) { return {nb::cast<int32_t>(r.attr("base")), nb::cast<int32_t>(r.attr("offset"))}; }

template <class E>
E enumerator(nb::handle e) {
    return E(nb::cast<int32_t>(nb::int_(e)));
}

Base base(nb::handle b) {
    return {enumerator<Place>(b.attr("place")), nb::cast<int32_t>(b.attr("index")), nb::cast<int32_t>(b.attr("width")),
            nb::cast<int32_t>(b.attr("space")), nb::cast<int32_t>(b.attr("ints"))};
}

Instr instr(nb::handle i) {
    Instr out{};
    out.op = enumerator<Op>(i.attr("op"));
    out.n = nb::cast<int32_t>(i.attr("n"));
    out.d = ref(i.attr("d"));
    out.a = ref(i.attr("a"));
    out.b = ref(i.attr("b"));
    out.c = ref(i.attr("c"));
    out.f = nb::cast<float>(i.attr("f"));
    out.seed = nb::cast<int64_t>(i.attr("seed"));
    for (nb::handle slot : i.attr("ints")) {
        if (out.n_ints == MAX_INT_ARGS) throw nb::value_error("an instruction with too many integer operands");
        out.ints[out.n_ints++] = nb::cast<int32_t>(slot);
    }
    return out;
}

Phase phase(nb::handle p) {
    Phase out{};
    out.kind = enumerator<PhaseKind>(p.attr("kind"));
    out.space = nb::cast<int32_t>(p.attr("space"));
    out.code = list(p.attr("code"), instr);
    out.param = nb::cast<int32_t>(p.attr("param"));
    out.bias = nb::cast<int32_t>(p.attr("bias"));
    out.transposed = nb::cast<bool>(p.attr("transposed"));
    out.accumulate = nb::cast<bool>(p.attr("accumulate"));
    out.start = nb::cast<int32_t>(p.attr("start"));
    out.first_row = nb::cast<int32_t>(p.attr("first_row"));
    out.a = list(p.attr("a"), [](nb::handle s) {
        return Segment{ref(s.attr("at")), nb::cast<int32_t>(s.attr("width"))};
    });
    if (out.a.size() > 16) throw nb::value_error("a product of more than 16 segments");
    out.d = ref(p.attr("d"));
    out.width = nb::cast<int32_t>(p.attr("width"));
    out.from = ref(p.attr("from_"));
    out.source = nb::cast<int32_t>(p.attr("source"));
    out.ints = nb::cast<int32_t>(p.attr("ints"));
    out.heads = nb::cast<int32_t>(p.attr("heads"));
    const auto windows = nb::cast<std::vector<int32_t>>(nb::list(p.attr("windows")));
    if (windows.size() == 7)
        out.windows = {windows[0], windows[1], windows[2], windows[3], windows[4], windows[5], windows[6]};
    return out;
}

// Rows that the code itself chooses are known only once the phases before have run.
void find_late(Code& code) {
    const auto late = [&](int32_t base) {
        if (base < 0 || code.bases[base].place != Place::ParamRow) return false;
        return code.int_operands[code.bases[base].ints] < 0;
    };
    for (Phase& p : code.phases) {
        const auto add = [&](const Ref& r) {
            if (late(r.base)) p.late.push_back(r.base);
        };
        for (const Instr& i : p.code)
            for (const Ref& r : {i.a, i.b, i.c}) add(r);
        for (const Segment& s : p.a) add(s.at);
        add(p.from);
        add({p.start, 0});
    }
}

Code code(nb::handle c) {
    Code out;
    if (c.is_none()) return out;
    out.bases = list(c.attr("bases"), base);
    out.int_operands = nb::cast<std::vector<int32_t>>(nb::list(c.attr("int_operands")));
    out.int_spaces = nb::cast<std::vector<int32_t>>(nb::list(c.attr("int_spaces")));
    out.phases = list(c.attr("phases"), phase);
    out.int_outputs = nb::cast<std::vector<int32_t>>(nb::list(c.attr("int_outputs")));
    out.factors = nb::cast<std::vector<int32_t>>(nb::list(c.attr("factors")));
    find_late(out);
    return out;
}

ParamDesc param(nb::handle p) {
    return {item<std::string>(p, "name"), item<int32_t>(p, "rows"),      item<int32_t>(p, "cols"),
            item<bool>(p, "multiplied"),  item<bool>(p, "transposed"), item<bool>(p, "taken"),
            item<bool>(p, "blas"),        item<bool>(p, "bf16")};
}

UnitDesc unit(nb::handle u) {
    UnitDesc out{};
    out.name = item<std::string>(u, "name");
    out.depth = item<int32_t>(u, "depth");
    out.fields = list(u["fields"], field);
    out.choices = item<std::vector<int32_t>>(u, "choices");
    out.decided = item<std::vector<int32_t>>(u, "decided");
    out.spaces = list(u["spaces"], expr);
    if (out.spaces.size() > MAX_SPACES) throw nb::value_error("a program with more than 8 row spaces");
    out.operands = list(u["operands"], operand);
    out.outputs = list(u["outputs"], value);
    out.saved = list(u["saved"], value);
    out.ints = list(u["ints"], [](nb::handle i) { return std::pair(expr(i[0]), nb::cast<int32_t>(i[1])); });
    out.paths = paths(u["paths"]);
    out.traps = list(u["traps"], [](nb::handle t) { return TrapDesc{list(t, step)}; });
    out.labels = item<int32_t>(u, "labels");
    out.is_source = item<bool>(u, "is_source");
    out.emitted = list(u["emitted"], field);
    out.emitted_rows = expr(u["emitted_rows"]);
    out.data = item<int32_t>(u, "data");
    out.forward = code(u["forward"]);
    out.inference = code(u["inference"]);
    out.backward = code(u["backward"]);
    out.has_backward = !u["backward"].is_none();
    for (const OperandDesc& o : out.operands) out.grouped = out.grouped || !o.count.empty();
    out.log_buffers = list(u["log_buffers"], value);
    out.log_ints = item<std::vector<std::pair<int32_t, int32_t>>>(u, "log_ints");
    out.terms = list(u["terms"], [](nb::handle t) {
        return TermDesc{TermKind(nb::cast<int32_t>(t[0])), nb::cast<int32_t>(t[1]), nb::cast<int32_t>(t[2]),
                        nb::cast<int32_t>(t[3]), nb::cast<int32_t>(t[4]), nb::cast<int32_t>(t[5])};
    });
    out.params = list(u["params"], param);
    out.folds = list(u["folds"], [](nb::handle f) {
        return FoldDesc{nb::cast<int32_t>(f[0]), nb::cast<int32_t>(f[1]), nb::cast<int32_t>(f[2]),
                        nb::cast<int32_t>(f[3])};
    });
    return out;
}

}  // namespace

GraphDesc read_graph(nb::handle description) {
    GraphDesc out;
    out.units = list(description["units"], unit);
    out.signature = list(description["signature"], expr);
    out.signature_tables = item<std::vector<int32_t>>(description, "signature_tables");
    out.axioms = list(description["axioms"], [](nb::handle a) {
        return AxiomDesc{list(a["over"], field), expr(a["left"]), expr(a["right"]), expr(a["where"])};
    });
    return out;
}

SchemaDesc read_schema(nb::handle description) {
    SchemaDesc out;
    out.attr_limits = item<std::vector<int64_t>>(description, "attr_limits");
    out.tables = list(description["tables"], [](nb::handle t) {
        return TableCheck{list(t["shape"], expr), expr(t["high"]), item<int64_t>(t, "low")};
    });
    return out;
}

std::optional<Rule> read_rule(nb::handle r) {
    if (r.is_none()) return std::nullopt;
    Rule out{};
    out.interval = item<int64_t>(r, "interval");
    out.optimizer = Optimizer(item<int32_t>(r, "optimizer"));
    out.settings = item<Settings>(r, "settings");
    out.lr = item<double>(r, "lr");
    out.weight_decay = item<double>(r, "weight_decay");
    out.clip = item<double>(r, "clip");
    out.mean = item<bool>(r, "mean");
    out.schedule = item<int32_t>(r, "schedule");
    out.schedule_steps = item<double>(r, "schedule_steps");
    out.schedule_gamma = item<double>(r, "schedule_gamma");
    out.warmup = item<double>(r, "warmup");
    return out;
}

PolicyTable read_policy(nb::handle t) {
    return {item<std::vector<int32_t>>(t, "priority"), item<std::vector<int64_t>>(t, "min_rows"),
            Order(item<int32_t>(t, "order"))};
}

}  // namespace amphw
