// Work in parts that whoever has time takes: a large reduction, which is one worker's, would hold up the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace amphw {

class SharedWork {
public:
    // work(0) .. work(n - 1), by this thread and all that `help` meanwhile; returns when all are done, or throws what
    // one of them has thrown. One caller at a time. opened: called once others may help.
    template <class Opened>
    void run(int32_t n, const std::function<void(int32_t)>& work, Opened opened) {
        {
            std::lock_guard lock(mutex_);
            work_ = &work;
            next_ = 0;
            parts_ = n;
            open_.store(true);
        }
        opened();
        while (help()) {
        }
        // What others are still at takes no longer than a part, unless the system has put them to sleep.
        for (;;) {
            {
                std::lock_guard lock(mutex_);
                if (busy_ == 0) break;
            }
            std::this_thread::yield();
        }
        std::lock_guard lock(mutex_);
        work_ = nullptr;  // nobody uses it any more, and nobody begins to: no part is left
        if (std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
    }

    // Whether there are parts that nobody has taken, a moment ago.
    bool open() const { return open_.load(std::memory_order_relaxed); }

    // Does a part of what is open. False: there is none left.
    bool help() {
        const std::function<void(int32_t)>* work;
        int32_t part;
        {
            std::lock_guard lock(mutex_);
            if (work_ == nullptr || next_ == parts_) return false;
            work = work_;
            part = next_++;
            open_.store(next_ < parts_);
            busy_++;  // under the same lock, so that `run` cannot return before the part is done
        }
        std::exception_ptr error;
        try {
            (*work)(part);
        } catch (...) {  // the caller of `run` hears of it, whoever did the part
            error = std::current_exception();
        }
        // What the part has written is seen by whoever finds `busy_` lowered.
        std::lock_guard lock(mutex_);
        busy_--;
        if (error == nullptr) return true;
        error_ = error;
        next_ = parts_;
        open_.store(false);
        return true;
    }

private:
    std::mutex mutex_;
    std::atomic<bool> open_{false};  // what the lock would say; workers look here first
    const std::function<void(int32_t)>* work_ = nullptr;  // of the caller of `run`, who waits for all that use it
    std::exception_ptr error_;
    int32_t next_ = 0, parts_ = 0, busy_ = 0;
};

}  // namespace amphw
