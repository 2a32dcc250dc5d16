#include "bind/schema.hpp"

#include "key_space.hpp"

namespace amphw {

bool holds(const AxiomDesc& axiom, const Structure& structure) {
    Arena& arena = Arena::here();
    const Arena::Scope scope(arena);
    const KeySpace space(axiom.over, structure, arena);
    if (!space.valid()) return false;
    const Columns& states = space.columns();
    Evaluator evaluate(structure, arena);
    // Reads outside a table count only where the axiom applies.
    const List<uint8_t> outside = arena.list<uint8_t>(states.size, 0), outside_where = arena.list<uint8_t>(states.size, 0);
    const Value where = axiom.where.empty() ? Value{1} : evaluate(axiom.where, states, outside_where.values);
    const Value left = evaluate(axiom.left, states, outside.values);
    const Value right = evaluate(axiom.right, states, outside.values);
    for (int64_t i = 0; i < states.size; i++) {
        if (outside_where[i]) return false;
        if (where.at(i) != 0 && (outside[i] || left.at(i) != right.at(i))) return false;
    }
    return evaluate.trouble == Trouble::None;
}

bool conforms(const SchemaDesc& schema, const Structure& structure) {
    for (size_t a = 0; a < schema.attr_limits.size(); a++)
        if (schema.attr_limits[a] >= 0 && (structure.attrs[a] < 0 || structure.attrs[a] > schema.attr_limits[a]))
            return false;
    const Arena::Scope scope(Arena::here());
    Evaluator evaluate(structure, Arena::here());
    for (size_t t = 0; t < schema.tables.size(); t++) {
        const TableCheck& check = schema.tables[t];
        const TableView& view = structure.tables[t];
        if (view.dimensions != int32_t(check.shape.size())) return false;
        int64_t n = 1;
        for (int32_t d = 0; d < view.dimensions; d++) {
            if (view.shape[d] != evaluate.number(check.shape[d])) return false;
            n *= view.shape[d];
        }
        const int64_t high = evaluate.number(check.high);
        for (int64_t i = 0; i < n; i++)
            if (view.values[i] < check.low || view.values[i] >= high) return false;
    }
    return evaluate.trouble == Trouble::None;
}

}  // namespace amphw
