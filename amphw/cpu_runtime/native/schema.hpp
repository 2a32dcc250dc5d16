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

struct AxiomCheck {
    std::vector<FieldDesc> over;
    Expr left, right, where;  // where may be empty
};

struct SchemaDesc {
    std::vector<int64_t> attr_limits;  // by attribute; -1: not declared (the instance's number)
    std::vector<TableCheck> tables;
    std::vector<AxiomCheck> axioms;
};

bool conforms(const SchemaDesc& schema, const Structure& structure);

}  // namespace amphw
