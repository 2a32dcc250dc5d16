// What goes wrong inside the engine, with what Python needs to say it well.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "generated/numbers.hpp"

namespace amphw {

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
