// What is simulated: instances whose firings are known, and a network of devices that serve them.
#pragma once

#include <cstdint>
#include <vector>

#include "queue.hpp"

namespace amphw::simulated {

// Microseconds: fixed + per_row * rows.
struct Line {
    double fixed = 0.0, per_row = 0.0;
    double of(int64_t rows) const { return fixed + per_row * double(rows); }
};

// Lists of whole numbers, one behind the other; list k is [starts[k], starts[k + 1]).
struct Lists {
    std::vector<int32_t> starts, values;
};

// The firings of an instance. By firing: its unit, rows, the messages that it needs, those that it returns; the
// firings that it sends to with the bytes of each message, and those that it returns gradients to; ahead and back:
// microseconds that it adds to its frame, forward and backward, none if empty. first: what the sources send to.
struct Shape {
    std::vector<int32_t> unit, rows, need, returned;
    Lists targets, origins;
    std::vector<int32_t> target_bytes, origin_bytes, first, first_bytes;
    std::vector<double> ahead, back;
    int64_t size = 1;  // what the model counts
    int32_t firings() const { return int32_t(unit.size()); }
    double added(int32_t kind, int32_t at) const {
        const std::vector<double>& of = kind == BACKWARD ? back : ahead;
        return of.empty() ? 0.0 : of[at];
    }
};

// workers share the queues of its nodes. overlaps: a unit of the device's own delivers what a frame has computed
// and fetches the next, one thing at a time, while the worker computes the frame between them.
struct Device {
    int32_t workers = 1, frame_cap = 64, frame_rows = 512;
    bool overlaps = false;
};

// One direction of a link. Microseconds; overhead: bytes that each message is longer by. credits: forward messages
// that may be on their way and not yet acknowledged, 0 for any number; gradients need none, and go first.
struct Link {
    double latency = 0.0, us_per_byte = 0.0, overhead = 0.0;
    int32_t credits = 0;
};

// By unit and kind: frame, delivery, fetch, priority and min_rows. By unit: depth, reduce (a gradient row), update,
// interval (gradient rows between updates, 0 without parameters), parts (in which workers may reduce a log
// together) with the products of a row in them and the numbers of an update. device_of: by replica and unit. link_of: by
// device and device, -1 where what is sent is there at once; the last row is the host's, which submits. shared: the
// device on whose processors the host runs, -1 if it has its own; processors: how many it has. host: microseconds of
// an instance; waking: more for the first one after it has slept.
struct Network {
    int32_t units = 0, replicas = 1;
    std::vector<Device> devices;
    std::vector<int32_t> device_of, link_of;
    std::vector<Link> links;
    std::vector<Line> frame, delivery, fetch;
    std::vector<double> reduce, update;
    std::vector<int64_t> interval, products, numbers;
    std::vector<int32_t> parts;
    std::vector<int32_t> depth;
    PolicyTable policy;
    bool by_age = true;
    double host = 0.0, waking = 0.0;
    int32_t shared = -1, processors = 0;
    int32_t report_batch = 1;
    bool trains = true;
};

}  // namespace amphw::simulated
