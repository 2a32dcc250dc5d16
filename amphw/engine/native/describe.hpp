// Reads the plain data that amphw/engine/lowering/describe.py makes of a lowered graph.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "engine.hpp"
#include "bind/schema.hpp"

namespace amphw {

GraphDesc read_graph(nanobind::handle description);
SchemaDesc read_schema(nanobind::handle description);
std::optional<Rule> read_rule(nanobind::handle rule);  // None: the unit has no parameters
PolicyTable read_policy(nanobind::handle table);

}  // namespace amphw
