// Working memory for what lives no longer than a function: handed out piece by piece, taken back at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace amphw {

// An array that somebody else owns.
template <class T>
struct List {
    T* values = nullptr;
    int64_t count = 0;

    T& operator[](int64_t i) const { return values[i]; }
    T* begin() const { return values; }
    T* end() const { return values + count; }
    T& back() const { return values[count - 1]; }
    int64_t size() const { return count; }
    bool empty() const { return count == 0; }
};

class Arena {
    static constexpr int64_t MOST_BYTES = int64_t(1) << 48;  // what no machine has; sums of sizes stay far below 2^63

public:
    // The calling thread's.
    static Arena& here() {
        thread_local Arena arena;
        return arena;
    }

    // n values, not initialised. Throws bad_alloc where there cannot be so many.
    template <class T>
    List<T> list(int64_t n) {
        static_assert(std::is_trivially_destructible_v<T>);
        if (n < 0 || n > MOST_BYTES / int64_t(sizeof(T))) throw std::bad_alloc();
        return {reinterpret_cast<T*>(bytes(n * int64_t(sizeof(T)))), n};
    }

    template <class T>
    List<T> list(int64_t n, T value) {
        const List<T> out = list<T>(n);
        std::fill(out.begin(), out.end(), value);
        return out;
    }

    // Takes back, at the end of a block, what was handed out within it.
    class Scope {
    public:
        explicit Scope(Arena& arena) : arena_(arena), chunk_(arena.chunk_), used_(arena.used_) {}
        Scope(const Scope&) = delete;
        ~Scope() {
            arena_.chunk_ = chunk_;
            arena_.used_ = used_;
        }

    private:
        Arena& arena_;
        size_t chunk_;
        int64_t used_;
    };

private:
    struct Chunk {
        std::unique_ptr<char[]> bytes;
        int64_t size;
    };

    char* bytes(int64_t n) {
        n = (n + 15) / 16 * 16;
        while (chunk_ < chunks_.size() && chunks_[chunk_].size - used_ < n) {
            chunk_++;
            used_ = 0;
        }
        if (chunk_ == chunks_.size()) {
            const int64_t size = std::max(n, int64_t(1) << 18);
            chunks_.push_back({std::unique_ptr<char[]>(new char[size]), size});
            used_ = 0;
        }
        used_ += n;
        return chunks_[chunk_].bytes.get() + used_ - n;
    }

    std::vector<Chunk> chunks_;
    size_t chunk_ = 0;
    int64_t used_ = 0;
};

}  // namespace amphw
