// The check of an instance against its schema, the quick way: it only says whether all is well. Where it is not,
// amphw.ir.instance.Schema.check finds the words.
#pragma once

#include "graph.hpp"

namespace amphw {

struct TableCheck {
    std::vector<Expr> shape;
    Expr high;
    int64_t low;
};

struct SchemaDesc {
    std::vector<int64_t> attr_limits;  // by attribute; -1: not declared (the instance's number)
    std::vector<TableCheck> tables;
};

// Attributes and tables alone. Axioms are checked where a plan is made: it depends on all that they read.
bool conforms(const SchemaDesc& schema, const Structure& structure);
bool holds(const AxiomDesc& axiom, const Structure& structure);

}  // namespace amphw
