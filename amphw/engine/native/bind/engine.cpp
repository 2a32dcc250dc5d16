// The engine's Python face.
#include "bind/bind.hpp"
#include "kernels/blas.hpp"
#include "bind/py_engine.hpp"

namespace amphw {

void bind_engine(nb::module_& m) {
    m.def("set_blas", [](uintptr_t address) { set_sgemm(reinterpret_cast<Sgemm>(address)); }, "cblas_sgemm's address");
    m.def("has_blas", [] { return sgemm() != nullptr; });
    m.def("time_blas_gemm", time_blas_gemm);
    m.def("time_blas_gradient", time_blas_gradient);
    nb::class_<PyEngine> engine(m, "Engine");
    engine.def(nb::init<nb::dict, nb::dict, nb::list, nb::dict>())
        .def("submit", &PyEngine::submit)
        .def("planned_bytes", &PyEngine::planned_bytes)
        .def("plan", &PyEngine::plan)
        .def("poll", &PyEngine::poll)
        .def("run", &PyEngine::run)
        .def("wait", &PyEngine::wait)
        .def("update", &PyEngine::update)
        .def("gradients", &PyEngine::gradients)
        .def("failure", &PyEngine::failure)
        .def("reduction_parts", &PyEngine::reduction_parts)
        .def("statistics", &PyEngine::statistics)
        .def("trace", &PyEngine::trace)
        .def("events", &PyEngine::events)
        .def("pending", &PyEngine::pending)
        .def("load_parameter", &PyEngine::load_parameter)
        .def("loaded", &PyEngine::loaded)
        .def("store_parameter", &PyEngine::store_parameter)
        .def("load_gradient", &PyEngine::load_gradient)
        .def("gave", &PyEngine::gave)
        .def("store_gradient", &PyEngine::store_gradient)
        .def("tracked", &PyEngine::tracked)
        .def("touched", &PyEngine::touched)
        .def("store_rows", &PyEngine::store_rows)
        .def("load_rows", &PyEngine::load_rows)
        .def("keep", &PyEngine::keep)
        .def("put", &PyEngine::put)
        .def("put_rows", &PyEngine::put_rows)
        .def("has_put", &PyEngine::has_put)
        .def("tell", &PyEngine::tell)
        .def("told", &PyEngine::told)
        .def("receive", &PyEngine::receive)
        .def("latest", &PyEngine::latest)
        .def("move", &PyEngine::move)
        .def("pool", &PyEngine::pool)
        .def("pulled", &PyEngine::pulled)
        .def("store_pulled", &PyEngine::store_pulled)
        .def("parameter_bytes", &PyEngine::parameter_bytes)
        .def("parameter_state", &PyEngine::parameter_state)
        .def("inspect", &PyEngine::inspect)
        .def("replay", &PyEngine::replay)
        .def("replay_start", &PyEngine::replay_start)
        .def("replay_end", &PyEngine::replay_end)
        .def("replay_seal", &PyEngine::replay_seal)
        .def("replay_reduced", &PyEngine::replay_reduced)
        .def("set_policy", &PyEngine::set_policy)
        .def("settled", &PyEngine::settled)
        .def("stop_waiting", &PyEngine::stop_waiting)
        .def("in_flight", &PyEngine::in_flight)
        .def("slept_rows", &PyEngine::slept_rows)
        .def("sleeper_idle", &PyEngine::sleeper_idle)
        .def("slot_bytes", &PyEngine::slot_bytes);
    bind_external(engine);
    bind_parts(engine);
    m.attr("WORTH_REDUCING") = WORTH_REDUCING;
    m.def("rate", [](nb::dict rule, int64_t updates) { return read_rule(rule)->rate(updates); },
          "Learning rate of update number `updates` (from 0) under a described rule.");
}

}  // namespace amphw
