// What goes wrong inside the engine, with what Python needs to say it well.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace amphw {

enum class Failure : int32_t {
    Fault,         // an outcome that no route takes; detail: the trap, or -1 for a read outside a table
    Outside,       // a message to a state outside its domain; detail: the target unit
    Twice,         // one state at one port a second time; detail: the target unit, extra: the operand
    Index,         // a program reads outside a table; text may say more
    Decision,      // a decided field outside its extent; detail: number of the field, extra: the value
    Loss,          // a loss is not finite
    Gradient,      // a gradient is not finite; text: the parameter
    Internal,      // text says what
    Replay,        // the log asks for what the run at hand cannot do; unit: -1, text says what
    Memory,        // no room in the memory of an external executor; text says for what
};

struct EngineError : std::exception {
    EngineError(Failure failure, int32_t unit, int32_t slot, int32_t firing, int64_t detail = 0, int64_t extra = 0,
                std::string text = "")
        : failure(failure), unit(unit), slot(slot), firing(firing), detail(detail), extra(extra),
          text(std::move(text)) {}

    const char* what() const noexcept override { return "the engine failed"; }

    Failure failure;
    int32_t unit;
    int32_t slot;  // of the instance; -1: none
    int32_t firing;
    int64_t detail, extra;
    std::string text;
};

}  // namespace amphw
