// One instance in flight: all its stores, in one block of memory that its plan lays out.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "memory.hpp"
#include "plan.hpp"

namespace amphw {

// Where an operand's rows are, and who sent them.
struct OperandRef {
    float* rows;
    int32_t unit, firing;
};

struct Slot {
    int32_t index = 0;
    int64_t generation = 0, number = 0;
    Mode mode = Mode::Train;
    uint64_t age = 0;  // how many instances were pumped up to this one
    std::shared_ptr<const Plan> plan;
    Block memory;
    Block data;  // copies of its data arrays, where an external executor is to read them
    std::atomic<int64_t> outstanding{0};  // messages that have not returned, or in inference not been consumed
    std::vector<std::pair<int32_t, int32_t>> faulty;  // (unit, firing) whose integers read outside a table
    std::atomic<bool> active{false};

    bool trains() const { return mode == Mode::Train; }
    const UnitPlan& unit(int32_t u) const { return plan->units[u]; }
    const UnitLayout& layout(int32_t u) const { return trains() ? plan->units[u].train : plan->units[u].infer; }

    template <class T>
    T* at(int64_t offset) const {
        return reinterpret_cast<T*>(memory.bytes() + offset);
    }
    int32_t* left(int32_t u) const { return at<int32_t>(layout(u).left); }
    int32_t* missing(int32_t u) const { return at<int32_t>(layout(u).missing); }
    OperandRef* operand(int32_t u, int32_t k) const { return at<OperandRef>(layout(u).x[k]); }

    // The sender's outcome: its firing and what it decided there.
    int32_t outcome(const UnitDesc& unit, int32_t u, int32_t firing) const {
        return unit.choices.empty() ? firing : at<int32_t>(layout(u).outcome)[firing];
    }

    // First gradient row of the message at `position` of operand k.
    int64_t gradient_row(const UnitDesc& unit, int32_t u, int32_t k, int32_t firing, int32_t position) const {
        const UnitPlan& p = plan->units[u];
        if (unit.operands[k].shared) return p.spaces[0].start(firing);
        const int64_t row = p.spaces[unit.operands[k].space].start(firing);
        if (p.members[k].empty()) return row;
        return row + int64_t(position - p.members[k][firing]) * p.operand_rows[k].of(firing);
    }

    // The positions that a firing's operand takes.
    std::pair<int32_t, int32_t> positions(int32_t u, int32_t k, int32_t firing) const {
        const List<int32_t>& members = plan->units[u].members[k];
        if (members.empty()) return {firing, firing + 1};
        return {members[firing], members[firing + 1]};
    }
};

}  // namespace amphw
