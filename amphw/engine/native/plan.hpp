// Plans: what an instance's structure makes of the graph, as integer tables. The C++ form of plan.py.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "generated/numbers.hpp"
#include "graph.hpp"

namespace amphw {

constexpr int32_t OUT_OF_DOMAIN = -2;

// Where one message goes: target's firing, position in the operand, and the one row sent (-1: all).
struct Route {
    int32_t target, firing, position, row;
    int16_t operand, output;
};

// A count for each firing: one number where all agree, else a table, with prefix sums.
struct Counts {
    int32_t uniform = 0;   // -1: ragged
    List<int32_t> starts;  // ragged: [n + 1]
    int64_t total = 0;

    int32_t of(int32_t i) const { return uniform >= 0 ? uniform : starts[i + 1] - starts[i]; }
    int64_t start(int32_t i) const { return uniform >= 0 ? int64_t(i) * uniform : starts[i]; }
};

// Offsets into a slot's memory, in bytes; -1 where the mode does not need it.
struct UnitLayout {
    int64_t left = -1, missing = -1, version = -1, outcome = -1, frame = -1;
    List<int64_t> x, outputs, saved, gradients, ints;
};

struct Fault {
    int32_t outcome, trap;  // trap -1: a read outside a table
};

struct DataRows {
    int32_t first, count;
};

struct UnitPlan {
    int32_t firings = 0;
    List<int32_t> need;
    List<Counts> spaces;
    List<List<int32_t>> members;  // by operand: first position of each firing; empty: no group
    List<Counts> operand_rows;    // rows of one message
    List<int32_t> route_start;    // by outcome
    List<Route> routes;
    List<DataRows> data;    // source: of each route
    int64_t data_rows = 0;  // source: rows that its data array must have
    List<Fault> faults;
    List<Columns> rows;  // by space: the state of every row, and its number; where integer operands need it
    UnitLayout train, infer;

    int64_t positions(int64_t operand) const { return members[operand].empty() ? firings : members[operand].back(); }
};

struct Plan {
    List<UnitPlan> units;
    int64_t train_bytes = 0, infer_bytes = 0;
    std::unique_ptr<char[]> block;  // all lists are in here
    int64_t own_bytes = 0;          // of the block
    uint64_t last_use = 0;
};

// Builds plans and keeps those of recent structures, up to `keep_bytes`.
class Planner {
public:
    Planner(const GraphDesc& graph, int64_t keep_bytes) : graph_(graph), keep_bytes_(keep_bytes) {}

    // Null where the instance leaves a declared domain or breaks an axiom: Python then says how.
    std::shared_ptr<const Plan> plan(const Structure& structure);

private:
    bool signature(const Structure& structure);
    void forget();

    const GraphDesc& graph_;
    int64_t keep_bytes_, kept_bytes_ = 0;
    uint64_t clock_ = 0;
    std::string key_;
    std::unordered_map<std::string, std::shared_ptr<Plan>> plans_;
};

std::shared_ptr<Plan> build_plan(const GraphDesc& graph, const Structure& structure);

}  // namespace amphw
