// Instances as Python has them, read in place as the engine takes them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

#include "expr.hpp"

namespace amphw {

namespace nb = nanobind;

// An array's memory while it is looked at; the array itself is kept by the caller. Raises in Python where it is not
// contiguous.
class Looked {
public:
    explicit Looked(nb::handle array) {
        if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) throw nb::python_error();
    }
    Looked(const Looked&) = delete;
    ~Looked() { PyBuffer_Release(&buffer); }

    Py_buffer buffer;
};

// A table's numbers as 64-bit integers, whatever its type; `room` holds them for as long as they are needed.
inline TableView read_table(nb::handle array, std::vector<int64_t>& room) {
    const Looked looked(array);
    const Py_buffer& a = looked.buffer;
    TableView view;
    view.dimensions = int32_t(a.ndim);
    if (view.dimensions > 4) throw nb::value_error("a table of more than 4 dimensions");
    size_t n = 1;
    for (int32_t d = 0; d < view.dimensions; d++) {
        view.shape[d] = int64_t(a.shape[d]);
        n *= size_t(a.shape[d]);
    }
    const auto convert = [&](auto* values) {
        room.resize(n + 1);  // never empty, so that the view has a place
        for (size_t i = 0; i < n; i++) room[i] = int64_t(values[i]);
        view.values = room.data();
    };
    const char type = a.format[0];  // of the struct module; none before it: native order
    const bool is_signed = std::strchr("bhilq", type) != nullptr;
    if (type == 0 || (!is_signed && std::strchr("BHILQ", type) == nullptr))
        throw nb::type_error("a table that holds no integers in native byte order");
    switch (a.itemsize) {
        case 1: is_signed ? convert((const int8_t*)a.buf) : convert((const uint8_t*)a.buf); break;
        case 2: is_signed ? convert((const int16_t*)a.buf) : convert((const uint16_t*)a.buf); break;
        case 4: is_signed ? convert((const int32_t*)a.buf) : convert((const uint32_t*)a.buf); break;
        default:
            if (is_signed && n > 0)
                view.values = (const int64_t*)a.buf;
            else
                convert((const uint64_t*)a.buf);
    }
    return view;
}

// Reads instances of one schema, one after another. `described` is what `describe_schema` says.
class InstanceReader {
public:
    explicit InstanceReader(nb::handle described)
        : attrs_(described["attrs"]), tables_(described["table_names"]), data_(described["data"]) {
        for (nb::handle d : data_) names_.push_back(nb::borrow<nb::tuple>(d));
        rooms_.resize(nb::len(tables_));
    }

    // False where it has not just what the schema names. Throws where it is of a form that is not read in place; Python
    // then converts it, or says what is wrong.
    bool read(int64_t number, const nb::dict& attrs, const nb::dict& tables) {
        structure.attrs.clear();
        structure.tables.clear();
        if (nb::len(attrs) != nb::len(attrs_) || nb::len(tables) != rooms_.size()) return false;
        for (nb::handle name : attrs_) {
            const nb::handle found = PyDict_GetItem(attrs.ptr(), name.ptr());
            if (!found.is_valid()) return false;
            int64_t value;
            if (!nb::try_cast(found, value)) throw nb::type_error("an attribute that is no integer");
            structure.attrs.push_back(value);
        }
        structure.attrs.push_back(number);
        size_t i = 0;
        for (nb::handle name : tables_) {
            const nb::handle found = PyDict_GetItem(tables.ptr(), name.ptr());
            if (!found.is_valid()) return false;
            structure.tables.push_back(read_table(found, rooms_[i++]));
        }
        return true;
    }

    // The same of its data arrays, whose memory the caller keeps while the instance is in flight.
    bool read_data(const nb::dict& arrays) {
        data.clear();
        widths.clear();
        heights.clear();
        if (nb::len(arrays) != names_.size()) return false;
        for (const nb::tuple& each : names_) {
            const nb::handle found = PyDict_GetItem(arrays.ptr(), each[0].ptr());
            if (!found.is_valid()) return false;
            const Looked looked(found);
            const Py_buffer& a = looked.buffer;
            if (a.ndim != 2 || std::strcmp(a.format, "f") != 0) throw nb::type_error("no rows of float32");
            if (a.shape[1] != nb::cast<int64_t>(each[1])) return false;
            data.push_back(static_cast<const float*>(a.buf));
            widths.push_back(a.shape[1]);
            heights.push_back(a.shape[0]);
        }
        return true;
    }

    Structure structure;
    std::vector<const float*> data;
    std::vector<int64_t> widths, heights;

private:
    nb::list attrs_, tables_, data_;
    std::vector<nb::tuple> names_;  // of data arrays, with their widths
    std::vector<std::vector<int64_t>> rooms_;
};

}  // namespace amphw
