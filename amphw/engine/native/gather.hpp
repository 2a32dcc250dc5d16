// Where the rows are that a firing gathers: those of its operands, and the gradients that came back for its outputs.
#pragma once

#include <algorithm>

#include "frame.hpp"
#include "graph.hpp"
#include "slot.hpp"

namespace amphw {

// f(message, floats between its rows, rows) for each message of operand k, in order. A message's rows lie where its
// sender stored them; a source's in the instance's data array, which is not padded.
template <class F>
void each_received(const GraphDesc& graph, const Slot& slot, int32_t u, int32_t k, int32_t firing, F f) {
    const OperandDesc& operand = graph.units[u].operands[k];
    const UnitPlan& plan = slot.unit(u);
    const bool group = !plan.members[k].empty();
    const int32_t rows = group ? plan.operand_rows[k].of(firing) : plan.spaces[operand.space].of(firing);
    const OperandRef* refs = slot.operand(u, k);
    const auto [begin, end] = slot.positions(u, k, firing);
    for (int32_t position = begin; position < end; position++) {
        const OperandRef& ref = refs[position];
        f(ref, graph.units[ref.unit].is_source ? int64_t(operand.width) : row_stride(operand.width), rows);
    }
}

// f(first row, floats between rows, rows) for each of them.
template <class F>
void each_message(const GraphDesc& graph, const Slot& slot, int32_t u, int32_t k, int32_t firing, F f) {
    each_received(graph, slot, u, k, firing,
                  [&](const OperandRef& ref, int64_t stride, int32_t rows) { f(ref.rows, stride, rows); });
}

// f(route, first row) for each gradient that came back for an output, in the order of the sender's routes, so that
// their sum does not depend on who came first.
template <class F>
void each_returned(const GraphDesc& graph, const Slot& slot, int32_t u, int32_t output, int32_t firing, F f) {
    const UnitDesc& unit = graph.units[u];
    const UnitPlan& plan = slot.unit(u);
    const int32_t outcome = slot.outcome(unit, u, firing);
    for (int32_t i = plan.route_start[outcome]; i < plan.route_start[outcome + 1]; i++) {
        const Route& route = plan.routes[i];
        const UnitDesc& target = graph.units[route.target];
        if (route.output != output || !target.operands[route.operand].needs_gradient) continue;
        const int64_t first = slot.gradient_row(target, route.target, route.operand, route.firing, route.position);
        float* rows = slot.at<float>(slot.layout(route.target).gradients[route.operand]);
        f(route, rows + first * row_stride(unit.outputs[output].width));
    }
}

// f(first row, row) for each of them. row: of the output, which was sent alone; -1: all of them.
template <class F>
void each_gradient(const GraphDesc& graph, const Slot& slot, int32_t u, int32_t output, int32_t firing, F f) {
    each_returned(graph, slot, u, output, firing,
                  [&](const Route& route, float* first) { f(first, route.row); });
}

// f(number of the operand, or of the output, first row, floats between its rows, width, rows) for each message, or
// gradient, that a firing is brought by units for which `from` holds.
template <class From, class F>
void each_brought(const GraphDesc& graph, const Frame& frame, const Task& t, From from, F f) {
    const int32_t u = frame.unit;
    const UnitDesc& unit = graph.units[u];
    if (frame.kind != BACKWARD) {
        for (size_t k = 0; k < unit.operands.size(); k++)
            each_received(graph, *t.slot, u, int32_t(k), t.firing,
                          [&](const OperandRef& ref, int64_t stride, int32_t rows) {
                              if (from(ref.unit)) f(k, ref.rows, stride, unit.operands[k].width, rows);
                          });
        return;
    }
    for (size_t k = 0; k < unit.outputs.size(); k++) {
        const ValueDesc& o = unit.outputs[k];
        if (o.is_int) continue;
        const int32_t all = t.slot->unit(u).spaces[o.space].of(t.firing);
        each_returned(graph, *t.slot, u, int32_t(k), t.firing, [&](const Route& route, const float* first) {
            if (from(route.target)) f(k, first, row_stride(o.width), o.width, route.row < 0 ? all : 1);
        });
    }
}

// The same for what a firing sends, or returns, to units for which `to` holds; its outcome is known.
template <class To, class F>
void each_given(const GraphDesc& graph, const Frame& frame, const Task& t, To to, F f) {
    const int32_t u = frame.unit;
    const UnitDesc& unit = graph.units[u];
    const Slot& slot = *t.slot;
    const UnitPlan& plan = slot.unit(u);
    if (frame.kind != BACKWARD) {
        const int32_t outcome = slot.outcome(unit, u, t.firing);
        for (int32_t r = plan.route_start[outcome]; r < plan.route_start[outcome + 1]; r++) {
            const Route& route = plan.routes[r];
            const ValueDesc& o = unit.outputs[route.output];
            if (!to(route.target) || o.is_int) continue;
            const int64_t stride = row_stride(o.width), first = plan.spaces[o.space].start(t.firing);
            const float* all = slot.at<float>(slot.layout(u).outputs[route.output]);
            f(size_t(route.output), all + (first + std::max(route.row, 0)) * stride, stride, o.width,
              route.row < 0 ? plan.spaces[o.space].of(t.firing) : 1);
        }
        return;
    }
    for (size_t k = 0; k < unit.operands.size(); k++) {
        const OperandDesc& o = unit.operands[k];
        if (!o.needs_gradient) continue;
        const int64_t stride = row_stride(o.width);
        const OperandRef* refs = slot.operand(u, int32_t(k));
        const auto [begin, end] = slot.positions(u, int32_t(k), t.firing);
        const int32_t rows = o.shared                           ? 1
                             : plan.members[int64_t(k)].empty() ? plan.spaces[o.space].of(t.firing)
                                                                : plan.operand_rows[int64_t(k)].of(t.firing);
        for (int32_t position = begin; position < end; position++) {
            if (!to(refs[position].unit)) continue;
            const float* all = slot.at<float>(slot.layout(u).gradients[int64_t(k)]);
            f(k, all + slot.gradient_row(unit, u, int32_t(k), t.firing, position) * stride, stride, o.width, rows);
        }
    }
}

}  // namespace amphw
