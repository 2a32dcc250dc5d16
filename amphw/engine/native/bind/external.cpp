// The Python face of what an external executor is handed.
#include "bind/py_engine.hpp"

namespace amphw {
namespace {

// [(place, words)]
nb::list words(const Crossing& c) {
    nb::list out;
    for (const Words& w : c.words) out.append(nb::make_tuple(w.place, w.count));
    return out;
}

// (number, unit, kind, place, words, rows by space, messages, [(place, rows, width) of a sum], [(place, words) that
// the executor must have of others])
nb::object frame(const ExternalFrame* f) {
    if (f == nullptr) return nb::none();
    nb::list sums;
    for (const SumJob& s : f->sums) sums.append(nb::make_tuple(s.place, s.rows, s.width));
    nb::list rows;
    for (int32_t n : f->rows) rows.append(n);
    return nb::make_tuple(f->frame.number, f->frame.unit, int(f->frame.kind), f->place, f->words, rows,
                          int64_t(f->frame.tasks.size()), sums, words(f->incoming));
}

nb::object take(PyEngine& e, int32_t worker) {
    const ExternalFrame* found = nullptr;
    e.guarded([&] {
        nb::gil_scoped_release release;
        found = e.engine().take(worker);
    });
    return frame(found);
}

nb::object replay_take(PyEngine& e, int64_t number, int32_t unit, int32_t kind,
                       std::vector<std::pair<int32_t, int32_t>> keys) {
    std::vector<Task> tasks;
    for (const auto& [slot, firing] : keys) tasks.push_back({e.engine().slot(slot), firing, 0, 0, 0});
    const ExternalFrame* found = nullptr;
    e.guarded([&] { found = e.engine().replay_take(number, unit, Kind(kind), std::move(tasks)); });
    return frame(found);
}

// [(place, words)] that the host reads before it commits: integers that the frame has made, and losses.
nb::list reported(PyEngine& e, int64_t number) {
    const ExternalFrame& f = e.engine().external(number);
    nb::list out = words(e.engine().reported(number));
    if (f.made_words > 0) out.append(nb::make_tuple(f.made, f.made_words));
    return out;
}

bool commit(PyEngine& e, int64_t number) {
    bool left = false;
    e.guarded([&] { left = e.engine().commit(number); });
    return left;
}

// (number, place, words, rows by space, due, gradient rows, version), or None.
nb::object take_reduction(PyEngine& e, int32_t unit) {
    const ReductionJob* j = nullptr;
    e.guarded([&] { j = e.engine().take_reduction(unit); });
    if (j == nullptr) return nb::none();
    nb::list rows;
    for (int64_t n : j->rows) rows.append(n);
    return nb::make_tuple(j->number, j->place, j->words, rows, j->due, j->gradient_rows, j->version);
}

}  // namespace

void bind_external(nb::class_<PyEngine>& engine) {
    engine.def("take", take)
        .def("replay_take", replay_take)
        .def("reported", reported)
        .def("commit", commit)
        .def("leaving", [](PyEngine& e, int64_t number) { return words(e.engine().leaving(number)); })
        .def("sent", [](PyEngine& e, int64_t number) { e.guarded([&] { e.engine().sent(number); }); })
        .def("crossed", [](PyEngine& e) { return e.engine().crossed(); })
        .def("ended", [](PyEngine& e, int64_t n, int32_t worker, double s) { e.engine().ended(n, worker, s); })
        .def("take_reduction", take_reduction)
        .def("reduced", [](PyEngine& e, int32_t unit) { e.engine().reduced(unit); })
        .def("seal", [](PyEngine& e, int32_t unit, bool publish) { e.engine().seal(unit, publish); })
        .def("trim", [](PyEngine& e) { e.engine().trim(); })
        .def("constants", [](PyEngine& e) { return e.engine().constants(); })
        .def("data_of", [](PyEngine& e, int32_t slot) { return e.engine().data_of(slot); })
        .def("origin", [](PyEngine& e, int64_t number) { return e.engine().origin_of(number); });
}

}  // namespace amphw
