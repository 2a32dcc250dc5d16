// The extension module amphw.engine._native.
#include "bind/bind.hpp"
#include "generated/operations.hpp"

NB_MODULE(_native, m) {
    m.doc() = "The native data plane of the CPU device, and its simulation.";
    m.attr("generated_from") = amphw::GENERATED_FROM;
    amphw::bind_kernels(m);
    amphw::bind_engine(m);
    amphw::bind_simulation(m);
    amphw::bind_peak(m);
}
