// The engine's rules of order, apart from what it does by them: the simulation of networks, `estimate/native`, goes
// by the same ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "generated/numbers.hpp"

namespace amphw {

// Which of the queues that hold something is served. Of those that have the rows they wait for, it is the one of
// the lowest priority, then the first in `order`, then the furthest downstream; where none has them, the fullest.
class Choice {
public:
    explicit Choice(Order order) : order_(order) {}

    // least: rows that the queue waits for. age, arrival: of what is served first in it. depth: of its unit.
    void offer(int32_t queue, int64_t rows, int64_t least, int32_t priority, int64_t age, int64_t arrival,
               int32_t depth) {
        if (rows > most_) {
            most_ = rows;
            fullest_ = queue;
        }
        if (rows < least) return;
        const int64_t among = order_ == Order::Age ? age : order_ == Order::Arrival ? arrival : -rows;
        const std::array<int64_t, 3> rank{priority, among, -int64_t(depth)};
        if (best_ >= 0 && !(rank < rank_)) return;
        best_ = queue;
        rank_ = rank;
    }

    // -1 if none was offered.
    int32_t queue() const { return best_ >= 0 ? best_ : fullest_; }

private:
    Order order_;
    int32_t best_ = -1, fullest_ = -1;
    int64_t most_ = -1;
    std::array<int64_t, 3> rank_{};
};

// Whether a frame of so many firings and rows takes one more: up to `most` firings, and none after `enough` rows.
inline bool takes_more(size_t firings, int64_t rows, size_t most, int64_t enough) {
    return firings < most && rows < enough;
}

// Whether a node's update is due: its interval is complete with these rows since the last one. An interval of 0 is
// none.
inline bool interval_due(int64_t since, int64_t interval) { return interval > 0 && since >= interval; }

// Whether the chunk of a gradient log that has so many rows now is closed, to become one sum.
inline bool closes_chunk(bool due, int64_t rows, int64_t worth_reducing) { return due || rows >= worth_reducing; }

// Seconds. Workers wake the host for several reports at once, or when they run dry; it finds a single one after this
// time.
inline constexpr double LOOK_AGAIN = 1e-3;

// Whether workers do something together that takes so much work: the more there are, the sooner one of them alone would
// hold up the others, and the sooner that outweighs what waiting for the last part costs. whole: the work that two share.
inline bool worth_sharing(int32_t workers, int64_t work, int64_t whole) {
    return workers > 1 && work >= 2 * whole / workers;
}

// Multiplications of a sum of gradients, and numbers of an update, that two workers share.
constexpr int64_t SHARED_PRODUCTS = int64_t(1) << 25, SHARED_NUMBERS = int64_t(1) << 19;

}  // namespace amphw
