// Queues of firings that are ready, and the table by which workers choose among them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include "frame.hpp"
#include "rules.hpp"

namespace amphw {

// A policy's table as Python gives it. Lower priorities come first.
struct PolicyTable {
    std::vector<int32_t> priority;  // by queue
    std::vector<int64_t> min_rows;  // by queue: with fewer rows it waits until nothing else can run
    Order order = Order::Age;
};

// The table that workers go by. It is edited entry by entry while they read it, so that a worker may for a moment
// see some of each; any mixture is a valid policy.
class Policy {
public:
    explicit Policy(const PolicyTable& table) : priority_(table.priority.size()), min_rows_(table.min_rows.size()) {
        *this = table;
    }
    Policy& operator=(const PolicyTable& table) {
        for (size_t q = 0; q < priority_.size(); q++) {
            priority_[q].store(table.priority[q], std::memory_order_relaxed);
            min_rows_[q].store(table.min_rows[q], std::memory_order_relaxed);
        }
        order_.store(table.order, std::memory_order_relaxed);
        return *this;
    }
    bool fits(const PolicyTable& table) const {
        return table.priority.size() == priority_.size() && table.min_rows.size() == priority_.size();
    }
    int32_t priority(int32_t q) const { return priority_[q].load(std::memory_order_relaxed); }
    int64_t min_rows(int32_t q) const { return min_rows_[q].load(std::memory_order_relaxed); }
    Order order() const { return order_.load(std::memory_order_relaxed); }

private:
    std::vector<std::atomic<int32_t>> priority_;
    std::vector<std::atomic<int64_t>> min_rows_;
    std::atomic<Order> order_{Order::Age};
};

// Firings of one unit and direction. Those of the instance that was pumped first are served first (`by_age`), so
// that instances finish one after another; else in the order of arrival.
class Queue {
public:
    std::atomic<size_t> size{0};
    std::atomic<int64_t> rows{0};
    std::atomic<uint64_t> oldest{std::numeric_limits<uint64_t>::max()};   // age of the oldest instance in it
    std::atomic<uint64_t> arrival{std::numeric_limits<uint64_t>::max()};  // of the first to be served

    void push(const Task* tasks, size_t n, bool by_age) {
        std::lock_guard lock(mutex_);
        tasks_.insert(tasks_.end(), tasks, tasks + n);
        summarise(tasks, n, by_age);
    }

    // Up to `most` firings, and none after they have `enough` rows together.
    void pop(std::vector<Task>& out, size_t most, int64_t enough, bool by_age) {
        std::lock_guard lock(mutex_);
        const auto earlier = [by_age](const Task& a, const Task& b) {
            if (by_age && a.age != b.age) return a.age < b.age;
            return a.arrival < b.arrival;
        };
        const bool all = tasks_.size() <= most && rows.load(std::memory_order_relaxed) <= enough;
        if (!all) {
            const size_t some = std::min(most, tasks_.size());
            std::partial_sort(tasks_.begin(), tasks_.begin() + some, tasks_.end(), earlier);
        }
        size_t n = 0;
        for (int64_t taken = 0; n < tasks_.size() && takes_more(n, taken, most, enough); n++) taken += tasks_[n].rows;
        out.assign(tasks_.begin(), tasks_.begin() + n);
        tasks_.erase(tasks_.begin(), tasks_.begin() + n);
        rows.store(0);
        oldest.store(NEVER);
        first_age_ = arrival_ = NEVER;
        summarise(tasks_.data(), tasks_.size(), by_age);
    }

private:
    static constexpr uint64_t NEVER = std::numeric_limits<uint64_t>::max();

    // Takes these tasks into account in what workers read without the lock.
    void summarise(const Task* tasks, size_t n, bool by_age) {
        int64_t total = rows.load();
        uint64_t age = oldest.load();
        for (const Task* t = tasks; t < tasks + n; t++) {
            total += t->rows;
            age = std::min(age, t->age);
            const uint64_t first_age = by_age ? t->age : 0;
            if (first_age < first_age_ || (first_age == first_age_ && t->arrival < arrival_)) {
                first_age_ = first_age;
                arrival_ = t->arrival;
            }
        }
        rows.store(total);
        oldest.store(age);
        arrival.store(arrival_);
        size.store(tasks_.size());
    }

    std::mutex mutex_;
    std::vector<Task> tasks_;
    uint64_t first_age_ = NEVER, arrival_ = NEVER;
};

}  // namespace amphw
