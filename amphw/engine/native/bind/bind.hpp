// What the extension module is put together from.
#pragma once

#include <nanobind/nanobind.h>

namespace amphw {

void bind_kernels(nanobind::module_& m);
void bind_attention(nanobind::module_& kernels);
void bind_engine(nanobind::module_& m);
void bind_simulation(nanobind::module_& m);
void bind_peak(nanobind::module_& m);

}  // namespace amphw
