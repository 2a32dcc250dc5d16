// _native.simulation: the simulated network for amphw/estimate/play/simulation.py, which says what the figures are.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.hpp"
#include "simulation.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace amphw {
namespace {

using namespace simulated;

nb::dict as_dict(const Tally& t) {
    nb::dict d;
    d["us"] = t.us;
    d["computing"] = t.computing;
    d["delivering"] = t.delivering;
    d["host"] = t.host;
    d["stolen"] = t.stolen;
    d["retired"] = t.retired;
    d["counted"] = t.counted;
    d["frames"] = t.frames;
    d["rows"] = t.rows;
    d["messages"] = t.messages;
    d["latency"] = t.latency;
    d["serial"] = t.serial;
    d["reducing"] = t.reducing;
    d["busy"] = t.busy;
    d["unit_frames"] = t.unit_frames;
    d["unit_firings"] = t.unit_firings;
    d["updates"] = t.updates;
    d["stale_rows"] = t.stale_rows;
    d["stale"] = t.stale;
    d["device_busy"] = t.device_busy;
    d["device_routing"] = t.device_routing;
    d["link_busy"] = t.link_busy;
    d["link_waited"] = t.link_waited;
    d["link_messages"] = t.link_messages;
    d["link_bytes"] = t.link_bytes;
    return d;
}

nb::dict most(const Tally& t) {
    nb::dict d;
    d["held"] = t.most_held;
    d["queued"] = t.most_queued;
    d["link_queued"] = t.link_most_queued;
    d["latency"] = t.most_latency;
    return d;
}

nb::list slices(const Simulation& s) {
    nb::list found;
    for (const Slice& x : s.slices())
        found.append(nb::make_tuple(x.device, x.worker, x.unit, x.kind, x.begin, x.duration, x.rows));
    return found;
}

}  // namespace

void bind_simulation(nb::module_& parent) {
    nb::module_ m = parent.def_submodule("simulation", "Devices and links simulated in time; nothing is computed.");
    nb::class_<Line>(m, "Line")
        .def(nb::init<double, double>(), "fixed"_a, "per_row"_a);
    nb::class_<Lists>(m, "Lists")
        .def(nb::init<std::vector<int32_t>, std::vector<int32_t>>(), "starts"_a, "values"_a);
    nb::class_<Shape>(m, "Shape")
        .def(nb::init<>())
        .def_rw("unit", &Shape::unit)
        .def_rw("rows", &Shape::rows)
        .def_rw("need", &Shape::need)
        .def_rw("returned", &Shape::returned)
        .def_rw("targets", &Shape::targets)
        .def_rw("origins", &Shape::origins)
        .def_rw("target_bytes", &Shape::target_bytes)
        .def_rw("origin_bytes", &Shape::origin_bytes)
        .def_rw("first", &Shape::first)
        .def_rw("first_bytes", &Shape::first_bytes)
        .def_rw("ahead", &Shape::ahead)
        .def_rw("back", &Shape::back)
        .def_rw("size", &Shape::size);
    nb::class_<Device>(m, "Device")
        .def(nb::init<int32_t, int32_t, int32_t, bool>(), "workers"_a, "frame_cap"_a, "frame_rows"_a, "overlaps"_a);
    nb::class_<Link>(m, "Link")
        .def(nb::init<double, double, double, int32_t>(), "latency"_a, "us_per_byte"_a, "overhead"_a, "credits"_a);
    nb::class_<Network>(m, "Network")
        .def(nb::init<>())
        .def_rw("units", &Network::units)
        .def_rw("replicas", &Network::replicas)
        .def_rw("devices", &Network::devices)
        .def_rw("device_of", &Network::device_of)
        .def_rw("link_of", &Network::link_of)
        .def_rw("links", &Network::links)
        .def_rw("frame", &Network::frame)
        .def_rw("delivery", &Network::delivery)
        .def_rw("fetch", &Network::fetch)
        .def_rw("reduce", &Network::reduce)
        .def_rw("update", &Network::update)
        .def_rw("interval", &Network::interval)
        .def_rw("products", &Network::products)
        .def_rw("numbers", &Network::numbers)
        .def_rw("parts", &Network::parts)
        .def_rw("depth", &Network::depth)
        .def_prop_rw("priority", [](const Network& n) { return n.policy.priority; },
                     [](Network& n, std::vector<int32_t> v) { n.policy.priority = std::move(v); })
        .def_prop_rw("min_rows", [](const Network& n) { return n.policy.min_rows; },
                     [](Network& n, std::vector<int64_t> v) { n.policy.min_rows = std::move(v); })
        .def_prop_rw("order", [](const Network& n) { return int32_t(n.policy.order); },
                     [](Network& n, int32_t order) { n.policy.order = Order(order); })
        .def_rw("by_age", &Network::by_age)
        .def_rw("host", &Network::host)
        .def_rw("waking", &Network::waking)
        .def_rw("shared", &Network::shared)
        .def_rw("processors", &Network::processors)
        .def_rw("report_batch", &Network::report_batch)
        .def_rw("trains", &Network::trains);
    nb::class_<Simulation>(m, "Simulation")
        .def(nb::init<Network, std::vector<Shape>, std::vector<int32_t>, int32_t, int64_t>(), "network"_a, "shapes"_a,
             "order"_a, "keys"_a, "slices"_a)
        .def("run", [](Simulation& s, int64_t retired, int64_t messages) {
            {
                nb::gil_scoped_release release;
                s.run(retired, messages);
            }
            return as_dict(s.tally());
        }, "retired"_a, "messages"_a)
        .def("most", [](const Simulation& s) { return most(s.tally()); })
        .def("slices", &slices);
}

}  // namespace amphw
