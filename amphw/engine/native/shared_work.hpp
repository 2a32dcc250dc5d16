// Work in parts that whoever has time takes: a large reduction, which is one worker's, would hold up the others.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace amphw {

class SharedWork {
public:
    // work(0) .. work(n - 1), by this thread and all that `help` meanwhile; returns when all are done. One caller at a
    // time. opened, taken: called once others may help, and when there is nothing left for them.
    template <class Opened, class Taken>
    void run(int32_t n, const std::function<void(int32_t)>& work, Opened opened, Taken taken) {
        {
            std::lock_guard lock(mutex_);
            work_ = &work;
            next_ = 0;
            parts_ = n;
        }
        opened();
        while (help()) {
        }
        taken();
        // What others are still at takes no longer than a part, unless the system has put them to sleep.
        for (;;) {
            {
                std::lock_guard lock(mutex_);
                if (busy_ == 0) {
                    work_ = nullptr;
                    return;
                }
            }
            std::this_thread::yield();
        }
    }

    // Does a part of what is open. False: there is none left.
    bool help() {
        const std::function<void(int32_t)>* work;
        int32_t part;
        {
            std::lock_guard lock(mutex_);
            if (work_ == nullptr || next_ == parts_) return false;
            work = work_;
            part = next_++;
            busy_++;  // under the same lock, so that `run` cannot return before the part is done
        }
        (*work)(part);
        // What the part has written is seen by whoever finds `busy_` lowered.
        std::lock_guard lock(mutex_);
        busy_--;
        return true;
    }

private:
    std::mutex mutex_;
    const std::function<void(int32_t)>* work_ = nullptr;  // of the caller of `run`, who waits for all that use it
    int32_t next_ = 0, parts_ = 0, busy_ = 0;
};

}  // namespace amphw
