#include "device_memory.hpp"

#include <limits>

namespace amphw {

DeviceMemory::DeviceMemory(char* base, size_t bytes) : base_(base), bytes_(bytes) {
    if (bytes > FIRST + BEHIND) free_[FIRST] = bytes - FIRST - BEHIND;
}

std::map<size_t, size_t>::iterator DeviceMemory::fitting(size_t bytes) {
    auto at = free_.begin();
    while (at != free_.end() && at->second < bytes) ++at;
    return at;
}

void* DeviceMemory::allocate(size_t bytes) {
    const size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (rounded == 0) return nullptr;
    std::lock_guard lock(mutex_);
    const auto at = fitting(rounded);
    if (at == free_.end()) return nullptr;
    const auto [offset, size] = *at;
    free_.erase(at);
    if (size > rounded) free_[offset + rounded] = size - rounded;
    taken_[offset] = rounded;
    used_ += rounded;
    return base_ + offset;
}

void DeviceMemory::release(void* block) {
    const size_t offset = size_t(static_cast<char*>(block) - base_);
    std::lock_guard lock(mutex_);
    if (running_.empty())
        give_back(offset);
    else
        leaving_.push_back({begun_, offset});
}

void DeviceMemory::give_back(size_t offset) {
    const auto taken = taken_.find(offset);
    size_t size = taken->second;
    taken_.erase(taken);
    used_ -= size;
    auto after = free_.lower_bound(offset);
    if (after != free_.end() && after->first == offset + size) {
        size += after->second;
        after = free_.erase(after);
    }
    if (after != free_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == offset) {
            before->second += size;
            return;
        }
    }
    free_[offset] = size;
}

int64_t DeviceMemory::begin_work() {
    std::lock_guard lock(mutex_);
    running_.insert(++begun_);
    return begun_;
}

void DeviceMemory::end_work(int64_t number) {
    std::lock_guard lock(mutex_);
    running_.erase(number);
    const int64_t oldest = running_.empty() ? std::numeric_limits<int64_t>::max() : *running_.begin();
    while (!leaving_.empty() && leaving_.front().first < oldest) {
        give_back(leaving_.front().second);
        leaving_.pop_front();
    }
}

int32_t DeviceMemory::place(const void* at) const {
    const char* byte = static_cast<const char*>(at);
    return byte < base_ || byte >= base_ + bytes_ ? 0 : int32_t((byte - base_) / 4);
}

bool DeviceMemory::has_room(size_t bytes) {
    std::lock_guard lock(mutex_);
    return fitting(bytes) != free_.end();
}

bool DeviceMemory::busy() {
    std::lock_guard lock(mutex_);
    return !running_.empty();
}

size_t DeviceMemory::used() {
    std::lock_guard lock(mutex_);
    return used_;
}

}  // namespace amphw
