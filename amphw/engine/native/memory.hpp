// Float arrays on cache lines.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace amphw {

// Zeroed, aligned memory of `bytes`; large blocks ask for huge pages, which saves address translation.
class Block {
public:
    Block() = default;
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
    ~Block() { std::free(data_); }

    char* bytes() const { return static_cast<char*>(data_); }
    float* floats() const { return static_cast<float*>(data_); }
    size_t size() const { return bytes_; }

private:
    void swap(Block& other) {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }

    void* data_ = nullptr;
    size_t bytes_ = 0;
};

inline Block float_block(int64_t n) { return Block(size_t(n) * sizeof(float)); }

}  // namespace amphw
