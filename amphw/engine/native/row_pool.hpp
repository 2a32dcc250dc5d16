// Some rows of a table, found by their numbers: room for these rows, however many the table has.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory.hpp"

namespace amphw {

class RowPool {
public:
    // width: floats from one row to the next.
    explicit RowPool(int32_t width = 0) : width_(width) { spread(); }

    const std::vector<int32_t>& numbers() const { return numbers_; }  // of the rows, by slot
    float* at(int32_t slot) const { return values_.floats() + int64_t(slot) * width_; }

    // The slot of a row; -1: it is not here.
    int32_t find(int64_t row) const {
        for (uint32_t i = first(row);; i = (i + 1) & mask_) {
            const int32_t slot = slots_[i];
            if (slot < 0 || numbers_[slot] == row) return slot;
        }
    }

    // The same of a row that is made where it is not here, of zeros.
    int32_t add(int32_t row) {
        const int32_t found = find(row);
        if (found >= 0) return found;
        const int32_t slot = int32_t(numbers_.size());
        if (slot == capacity()) move(2 * int64_t(slot) + 16);
        numbers_.push_back(row);
        if (2 * numbers_.size() > slots_.size())
            spread();
        else
            enter(slot);
        std::memset(at(slot), 0, size_t(width_) * sizeof(float));
        return slot;
    }

    // No rows; the room stays.
    void clear() {
        numbers_.clear();
        std::fill(slots_.begin(), slots_.end(), -1);
    }

    // No rows, and room for `count`, or up to twice as many where there is that much already.
    void reset(int64_t count) {
        numbers_.clear();
        if (capacity() < count || capacity() > 2 * count) {
            numbers_ = std::vector<int32_t>();  // `= {}` would keep the room
            move(count);
        }
        numbers_.reserve(size_t(count));
        spread();
    }

    size_t bytes() const { return values_.size() + sizeof(int32_t) * (numbers_.capacity() + slots_.capacity()); }

private:
    int64_t capacity() const { return width_ == 0 ? 0 : int64_t(values_.size() / (width_ * sizeof(float))); }

    uint32_t first(int64_t row) const { return (uint32_t(row) * 2654435769u) >> shift_; }

    void enter(int32_t slot) {
        uint32_t i = first(numbers_[slot]);
        while (slots_[i] >= 0) i = (i + 1) & mask_;
        slots_[i] = slot;
    }

    // Half of the places or more stay free, also of the rows that there is room for, so that a search is short.
    void spread() {
        const size_t places = std::bit_ceil(std::max<size_t>(4, 2 * std::max<size_t>(numbers_.size(), size_t(capacity()))));
        if (places != slots_.size()) slots_ = std::vector<int32_t>(places);
        std::fill(slots_.begin(), slots_.end(), -1);
        mask_ = uint32_t(places - 1);
        shift_ = 32 - std::countr_zero(places);
        for (int32_t slot = 0; slot < int32_t(numbers_.size()); slot++) enter(slot);
    }

    void move(int64_t rows) {
        Block room = float_block(rows * width_);
        if (!numbers_.empty()) std::memcpy(room.bytes(), values_.bytes(), numbers_.size() * width_ * sizeof(float));
        values_ = std::move(room);
    }

    int32_t width_;
    std::vector<int32_t> numbers_;
    std::vector<int32_t> slots_;  // by hash: a slot, or -1; where it is another row's, the next one
    uint32_t mask_ = 0;
    int shift_ = 0;
    Block values_;
};

}  // namespace amphw
