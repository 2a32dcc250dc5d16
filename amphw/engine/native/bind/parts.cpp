// The Python face of what a part of the graph outside of the engine is handed.
#include "bind/py_engine.hpp"

namespace amphw {
namespace {

// An array that numpy owns, filled by `fill`.
template <class T, class F>
nb::object array(std::vector<size_t> shape, F fill) {
    size_t n = 1;
    for (size_t s : shape) n *= s;
    std::unique_ptr<T[]> values(new T[n]);
    fill(values.get());
    T* const held = values.release();
    const nb::capsule owner(held, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(held, shape.size(), shape.data(), owner));
}

// (number, unit, kind, slots, firings, [rows of each firing, by space], [rows of operands, or backward what came back
// for outputs; None for integers], [integer operands]; and of a part that joins for itself [of operands, whether it is
// brought each message], and whether anything leaves of each output, or backward operand)
nb::object handed(PyEngine& e, const HandedOut* out) {
    if (out == nullptr) return nb::none();
    const Frame* const f = &out->frame;
    const Engine& engine = e.engine();
    const UnitDesc& unit = engine.graph().units[f->unit];
    const size_t n = f->tasks.size();
    const auto each = [&](auto what) {
        return array<int32_t>({n}, [&](int32_t* to) {
            for (size_t i = 0; i < n; i++) to[i] = what(f->tasks[i]);
        });
    };
    const auto flags = [](const std::vector<uint8_t>& values) {
        return array<uint8_t>({values.size()}, [&](uint8_t* to) { std::copy(values.begin(), values.end(), to); });
    };
    const bool joins = engine.joins(f->unit);
    nb::list spaces, rows, ints, came;
    std::vector<size_t> total(unit.spaces.size());
    for (size_t s = 0; s < unit.spaces.size(); s++) {
        total[s] = size_t(engine.rows_of(*f, int32_t(s)));
        spaces.append(each([&](const Task& t) { return t.slot->unit(f->unit).spaces[int64_t(s)].of(t.firing); }));
    }
    if (f->kind == BACKWARD) {
        for (size_t k = 0; k < unit.outputs.size(); k++) {
            if (unit.outputs[k].is_int)
                rows.append(nb::none());
            else
                rows.append(array<float>({total[unit.outputs[k].space], size_t(unit.outputs[k].width)},
                                         [&](float* to) { engine.copy_gradient(*f, int32_t(k), to); }));
        }
    } else {
        for (size_t k = 0; k < unit.operands.size(); k++) {
            int64_t n_rows = int64_t(total[unit.operands[k].space]);
            if (joins) {
                n_rows = 0;
                came.append(flags(engine.brought(*f, int32_t(k), &n_rows)));
            }
            rows.append(array<float>({size_t(n_rows), size_t(unit.operands[k].width)},
                                     [&](float* to) { engine.copy_operand(*f, int32_t(k), to); }));
        }
    }
    for (size_t k = 0; k < unit.ints.size(); k++)
        ints.append(array<int64_t>({total[unit.ints[k].second]},
                                   [&](int64_t* to) { engine.copy_integers(*f, int32_t(k), to); }));
    return nb::make_tuple(f->number, f->unit, int(f->kind), each([](const Task& t) { return t.slot->index; }),
                          each([](const Task& t) { return t.firing; }), spaces, rows, ints, came,
                          joins ? flags(out->leaves) : nb::object(nb::list()));
}

nb::object hand_out(PyEngine& e, int32_t worker) {
    const HandedOut* found = nullptr;
    e.guarded([&] { found = e.engine().hand_out(worker); });
    return handed(e, found);
}

nb::object replay_hand_out(PyEngine& e, int64_t number, int32_t unit, int32_t kind,
                           std::vector<std::pair<int32_t, int32_t>> keys) {
    std::vector<Task> tasks;
    for (const auto& [slot, firing] : keys) tasks.push_back({e.engine().slot(slot), firing, 0, 0, 0});
    const HandedOut* found = nullptr;
    e.guarded([&] { found = e.engine().replay_hand_out(number, unit, Kind(kind), std::move(tasks)); });
    return handed(e, found);
}

void bring_back(PyEngine& e, int64_t number, std::vector<std::optional<FloatInput>> rows,
                std::vector<nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>> decided) {
    std::vector<const float*> from;
    for (const auto& r : rows) from.push_back(r ? r->data() : nullptr);
    std::vector<const int64_t*> values;
    for (const auto& d : decided) values.push_back(d.data());
    e.guarded([&] { e.engine().bring_back(number, from, values); });
}

void handed_back(PyEngine& e, int64_t number, double begun_us, double seconds) {
    nb::gil_scoped_release release;
    e.guarded([&] { e.engine().handed_back(number, begun_us, seconds); });
}

}  // namespace

void bind_parts(nb::class_<PyEngine>& engine) {
    engine.def("hand_out", hand_out)
        .def("replay_hand_out", replay_hand_out)
        .def("bring_back", bring_back)
        .def("handed_back", handed_back);
}

}  // namespace amphw
