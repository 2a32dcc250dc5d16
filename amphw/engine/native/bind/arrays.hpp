// Numpy arrays as the kernels take them, for what binds the kernels one by one.
#pragma once

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "kernels/kernels.hpp"

namespace amphw {

namespace nb = nanobind;

// Arrays of which rows may lie apart, but whose columns lie side by side.
using Floats1 = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats2 = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
using Ints2 = nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline const Kernels& named(const std::string& isa) {
    const Kernels* found = kernels(isa.c_str());
    if (!found) throw std::invalid_argument("this machine does not run the kernels '" + isa + "'");
    return *found;
}

inline float* row(const Floats2& a, size_t r) {
    if (a.shape(1) > 1 && a.stride(1) != 1) throw std::invalid_argument("columns of an array must lie side by side");
    return a.data() + int64_t(r) * a.stride(0);
}

}  // namespace amphw
