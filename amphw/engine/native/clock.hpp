// The clock of traces and statistics.
#pragma once

#include <chrono>

namespace amphw {

using Clock = std::chrono::steady_clock;

inline double microseconds(Clock::time_point t) {
    return std::chrono::duration<double, std::micro>(t.time_since_epoch()).count();
}

}  // namespace amphw
