// The extension module amphw.cpu_runtime._native.
#include "bind.hpp"

namespace amphw {

// Gives way to the engine's own definition where that is linked in.
__attribute__((weak)) void bind_engine(nanobind::module_&) {}

}  // namespace amphw

NB_MODULE(_native, m) {
    m.doc() = "The native data plane of the CPU device.";
    amphw::bind_kernels(m);
    amphw::bind_engine(m);
}
