// Memory that an external executor shares with the engine: one region, handed out block by block.
//
// What is released may still be read or written by work that the executor has begun. So a block becomes free only when
// all work that had begun before its release has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

namespace amphw {

class DeviceMemory {
public:
    DeviceMemory(char* base, size_t bytes);

    // Aligned to ALIGNMENT, not initialised; null where there is no room.
    void* allocate(size_t bytes);
    void release(void* block);

    int64_t begin_work();
    void end_work(int64_t number);

    // Words of 4 bytes from the start of the region; 0 for what lies elsewhere, which nobody may read.
    int32_t place(const void* at) const;
    bool has_room(size_t bytes);
    bool busy();  // whether work has begun that has not ended, behind which blocks may become free
    size_t used();
    size_t size() const { return bytes_; }

private:
    static constexpr size_t ALIGNMENT = 128;
    static constexpr size_t FIRST = 128;  // place 0 means nowhere
    static constexpr size_t BEHIND = 128;  // of no block: kernels read the last columns of a row as a whole vector

    void give_back(size_t offset);
    std::map<size_t, size_t>::iterator fitting(size_t bytes);

    char* const base_;
    const size_t bytes_;
    std::mutex mutex_;
    std::map<size_t, size_t> free_;             // size by offset
    std::unordered_map<size_t, size_t> taken_;  // size by offset
    std::set<int64_t> running_;
    std::deque<std::pair<int64_t, size_t>> leaving_;  // last work begun before the release; offset
    int64_t begun_ = 0;
    size_t used_ = 0;
};

}  // namespace amphw
