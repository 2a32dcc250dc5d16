// The extension module amphw.engine._native.
#include "bind.hpp"

NB_MODULE(_native, m) {
    m.doc() = "The native data plane of the CPU device.";
    amphw::bind_kernels(m);
    amphw::bind_engine(m);
}
