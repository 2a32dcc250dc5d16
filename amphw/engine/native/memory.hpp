// Float arrays on cache lines.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "device_memory.hpp"

namespace amphw {

// Zeroed, aligned memory of `bytes`; large blocks ask for huge pages, which saves address translation. Or a block of
// memory that is shared with an external executor, not zeroed.
class Block {
public:
    Block() = default;
    // Throws bad_alloc where there is no room. Without `device` it is memory of the process.
    Block(size_t bytes, DeviceMemory* device) : Block(device == nullptr ? bytes : 0) {
        if (device == nullptr) return;
        bytes_ = bytes;
        data_ = device->allocate(bytes);
        if (data_ == nullptr && bytes > 0) throw std::bad_alloc();
        device_ = device;
    }
    explicit Block(size_t bytes) : bytes_(bytes) {
        constexpr size_t HUGE_PAGE = size_t(2) << 20;
        const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
        const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
        if (rounded == 0) return;
        data_ = std::aligned_alloc(alignment, rounded);
        if (data_ == nullptr) throw std::bad_alloc();
        if (alignment == HUGE_PAGE) madvise(data_, rounded, MADV_HUGEPAGE);
        std::memset(data_, 0, rounded);
    }
    Block(Block&& other) noexcept { swap(other); }
    Block& operator=(Block&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Block() {
        if (device_ == nullptr)
            std::free(data_);
        else if (data_ != nullptr)
            device_->release(data_);
    }

    char* bytes() const { return static_cast<char*>(data_); }
    float* floats() const { return static_cast<float*>(data_); }
    size_t size() const { return bytes_; }

private:
    void swap(Block& other) {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(device_, other.device_);
    }

    DeviceMemory* device_ = nullptr;
    void* data_ = nullptr;
    size_t bytes_ = 0;
};

inline Block float_block(int64_t n, DeviceMemory* device = nullptr) {
    return Block(size_t(n) * sizeof(float), device);
}

// Working memory of one size, lent to as many threads as ask for it at a time, and kept for the next.
class Rooms {
public:
    explicit Rooms(int64_t floats = 0) : floats_(floats) {}

    // What a thread has until the end of a block.
    class Loan {
    public:
        explicit Loan(Rooms& rooms) : rooms_(rooms), room_(rooms.take()) {}
        Loan(const Loan&) = delete;
        ~Loan() { rooms_.give(std::move(room_)); }
        float* floats() const { return room_.floats(); }

    private:
        Rooms& rooms_;
        Block room_;
    };

private:
    Block take() {
        {
            std::lock_guard lock(mutex_);
            if (!free_.empty()) {
                Block room = std::move(free_.back());
                free_.pop_back();
                return room;
            }
            free_.reserve(++made_);  // so that `give` has a place for it, and cannot fail
        }
        return float_block(floats_);
    }
    void give(Block room) noexcept {
        std::lock_guard lock(mutex_);
        free_.push_back(std::move(room));
    }

    const int64_t floats_;
    std::mutex mutex_;
    std::vector<Block> free_;
    size_t made_ = 0;
};

}  // namespace amphw
