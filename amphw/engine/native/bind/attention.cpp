// The kernels of attention on numpy arrays.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/bind.hpp"

using namespace nanobind::literals;

namespace amphw {
namespace {

using Ints1 = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<float*> rows_of(const Floats2& a) {
    std::vector<float*> rows;
    for (size_t r = 0; r < a.shape(0); r++) rows.push_back(row(a, r));
    return rows;
}

void attend(const std::string& isa, const std::string& primitive, int32_t heads, const std::vector<Floats2>& operands,
            const std::optional<Ints1>& seen, const Floats2& out) {
    const Kernels& k = named(isa);
    const bool forward = primitive == "attend";
    if (!forward && primitive != "attend_queries" && primitive != "attend_keys")
        throw std::invalid_argument("no primitive of attention: '" + primitive + "'");
    if (operands.size() != (forward ? 3 : 5))
        throw std::invalid_argument("attention is of queries, keys and values; its gradients are of two more");
    std::vector<std::vector<float*>> rows;
    for (const Floats2& each : operands) rows.push_back(rows_of(each));
    rows.resize(5);
    const std::vector<float*> results = rows_of(out);
    Attention a{};
    a.heads = heads;
    a.width = int32_t(operands[1].shape(1));
    a.value_width = int32_t(operands[2].shape(1));
    a.queries = int32_t(operands[0].shape(0));
    a.keys = int32_t(operands[1].shape(0));
    a.q = rows[0].data();
    a.k = rows[1].data();
    a.v = rows[2].data();
    a.d = rows[3].data();
    a.numbers = rows[4].data();
    a.seen = seen ? seen->data() : nullptr;
    a.out = results.data();
    std::vector<const float*> from(size_t(std::max(a.queries, a.keys)));
    std::vector<float*> to(from.size());
    std::vector<float> room(size_t(a.room_floats()));
    a.from = from.data();
    a.to = to.data();
    a.room = room.data();
    (forward ? k.attend : primitive == "attend_queries" ? k.attend_queries : k.attend_keys)(a);
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attend", attend, "isa"_a, "primitive"_a, "heads"_a, "operands"_a, "seen"_a.none(), "out"_a,
          "out = attend, attend_queries or attend_keys of one message's rows.");
}

}  // namespace amphw
