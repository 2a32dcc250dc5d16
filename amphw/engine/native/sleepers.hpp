// Devices that there are not: they compute nothing, and every frame takes as long as they would need for it.
//
// Each has a clock, which says from when on it is free, and serves one frame after another. A worker forms the frame as
// it forms its own and gives it to the device; the frame is then in a heap, by the time at which it is done, until a
// worker finds that it is due and hands its messages on.
#pragma once

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "frame.hpp"

namespace amphw {

// A link to a device: frames take their time on the way, in each direction one after another.
struct SleepLink {
    double byte_seconds, latency;
};

// What crosses a link with a frame: bytes for each firing, and for each row by space.
struct SleptBytes {
    double firing = 0.0;
    std::vector<double> row;
};

struct SleepDevice {
    int32_t worker;  // as which its frames are counted and traced
    std::optional<SleepLink> link;
};

// What a unit takes on its device. Of two directions the first is forward.
struct SleptUnit {
    int32_t device = -1;  // -1: the unit is computed, and has none of the rest
    double row_seconds[2] = {}, update_seconds = 0.0;
    SleptBytes to[2], back[2];
};

// What a unit's frames have had, by direction.
struct SleptRows {
    int64_t firings[2] = {};
    SpaceRows rows[2] = {};
};

// A frame that a device is done with, which began then and took so long.
struct SleptFrame {
    Frame frame;
    double began, seconds;
};

// Seconds of the clock that devices go by.
inline double sleep_clock() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Several threads call these.
class Sleepers {
public:
    static constexpr double NEVER = std::numeric_limits<double>::infinity();

    Sleepers(std::vector<SleptUnit> units, const std::vector<SleepDevice>& devices);

    bool any() const { return !devices_.empty(); }
    bool has(int32_t unit) const { return any() && units_[size_t(unit)].device >= 0; }
    int32_t worker(int32_t unit) const { return device(unit).about.worker; }

    // Whether the unit's device takes another frame: it has few, or will soon be done with them, or its link soon be
    // free. Taken any earlier, a frame would lack firings that are ready by then, and go before others that are more
    // urgent.
    bool accepts(int32_t unit, double now) const { return device(unit).opens.load(std::memory_order_relaxed) <= now; }
    // A frame with so many rows of each space that sets out now. updates: parameters are updated at its end. True:
    // `next` says an earlier time than before.
    bool take(Frame frame, const SpaceRows& rows, bool updates, double now);
    // The unit's parameters are updated, after all that the device has.
    void update(int32_t unit, double now);
    // A frame that is done, if there is one: whoever gets it hands its messages on.
    std::optional<SleptFrame> due(double now);
    // When the next frame is due or the next device accepts one again, whichever comes first.
    double next(double now) const;

    SleptRows rows(int32_t unit);
    // Seconds for which a device with a link had nothing to do while a frame was on its way to it.
    double idle(int32_t device);

private:
    struct Device {
        explicit Device(const SleepDevice& about) : about(about) {}
        const SleepDevice about;
        double free_at = 0.0, to_free = 0.0, back_free = 0.0;  // of the device, and of both ways of its link
        double idle = 0.0;
        int frames = 0;
        std::atomic<double> opens{0.0};  // when it accepts a frame
    };
    struct Waiting {
        double due;
        SleptFrame what;
    };
    const Device& device(int32_t unit) const { return *devices_[size_t(units_[size_t(unit)].device)]; }
    Device& device(int32_t unit) { return *devices_[size_t(units_[size_t(unit)].device)]; }
    void open(Device& d);
    static bool later(const Waiting& a, const Waiting& b);

    const std::vector<SleptUnit> units_;
    std::vector<std::unique_ptr<Device>> devices_;
    std::mutex mutex_;  // of the rest, and of the devices but `opens`
    std::vector<SleptRows> counted_;  // by unit
    std::vector<Waiting> heap_;
    std::atomic<double> due_{NEVER};  // of the first in the heap: workers look here without the lock
};

}  // namespace amphw
