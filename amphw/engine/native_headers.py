"""What Python and the C++ engine share, written for C++: enumerators, names, texts of operations.

    python -m amphw.engine.native_headers FOLDER

`CMakeLists.txt` runs this when it builds the engine. `fingerprint` is in what it writes, so that an engine
that was built from other definitions is refused rather than run (`amphw.cpu_runtime.planes`).
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from textwrap import dedent, indent

from amphw.engine.numbering import (
    WORTH_REDUCING,
    Cause,
    EventType,
    ExprOp,
    Failure,
    FrameKind,
    Order,
    TermKind,
)
from amphw.engine.tiles.code import MAX_INT_ARGS, PhaseKind, Place
from amphw.engine.tiles.operations import BY_COLUMN, TEXTS, Op, camel
from amphw.ir.device import Mode
from amphw.ir.optimizers import OPTIMIZERS, SCHEDULES, SETTINGS, WARMUP, Optimizer
from amphw.ir.primitives.kernel_text import HELPERS, Function, sorted_by_calls

_HEAD = """// Written by amphw/engine/native_headers.py from {source}; change those.
#pragma once
"""


def headers() -> dict[str, str]:
    """By file name its text."""
    texts = _shared()
    mark = f'constexpr const char GENERATED_FROM[] = "{fingerprint()}";'
    texts["operations.hpp"] = texts["operations.hpp"].replace("// FINGERPRINT", mark)
    return texts


@cache
def fingerprint() -> str:
    """Of all that is written but comments: 16 hexadecimal digits."""
    code = re.sub("//.*", "", "".join(_shared().values()))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def write(folder: Path) -> None:
    """Bring the folder up to date. A file that says the same already keeps its time: nothing is rebuilt."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in headers().items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _shared() -> dict[str, str]:
    return {
        "numbers.hpp": _numbers_shared(),
        "operations.hpp": _operations(),
        "elementwise.hpp": _elementwise(),
        "optimizers.hpp": _optimizers(),
        "steps.hpp": _steps(),
    }


def _numbers_shared() -> str:
    kinds = ", ".join(kind.name for kind in FrameKind)
    lines = [
        _HEAD.format(source="amphw/engine/numbering.py and amphw/ir/device.py"),
        "#include <cstdint>",
        "",
        "namespace amphw {",
        "",
        f"constexpr int64_t WORTH_REDUCING = {WORTH_REDUCING};  // rows of a gradient log",
        f"enum Kind : int32_t {{ {kinds}, KINDS }};",
        f"enum ExprOp : int64_t {{ {', '.join(op.name for op in ExprOp)} }};",
        f"enum class Mode : int32_t {{ {', '.join(mode.name.capitalize() for mode in Mode)} }};",
        *(_enumerators(kind) for kind in (Order, Failure, EventType, Cause, TermKind)),
        "}  // namespace amphw",
        "",
    ]
    return "\n".join(lines)


def _operations() -> str:
    simple = {name: f for name, f in TEXTS.items() if ("Real", "f") not in f.parameters}
    constant = {name: f for name, f in TEXTS.items() if name not in simple}
    by_column = {name: TEXTS[camel(n)] for name, n in BY_COLUMN.items()}
    names = ", ".join(f'"{op.name}"' for op in Op)
    lines = [
        _HEAD.format(source="amphw/engine/tiles/operations.py and code.py"),
        "#include <cstdint>",
        "",
        "namespace amphw {",
        "",
        "// FINGERPRINT",
        "",
        *(_enumerators(kind) for kind in (Place, Op, PhaseKind)),
        f"constexpr const char* OP_NAMES[] = {{{names}}};",
        "",
        f"constexpr int MAX_INT_ARGS = {MAX_INT_ARGS};",
        "",
        "}  // namespace amphw",
        "",
        "// X(enumerator, function) for each elementwise operation, with a constant, with a column for all.",
        _listed("AMPHW_ELEMENTWISE", simple),
        _listed("AMPHW_WITH_CONSTANT", constant),
        _listed("AMPHW_BY_COLUMN", by_column),
        "",
    ]
    return "\n".join(lines)


def _enumerators(kind: type[IntEnum]) -> str:
    assert [e.value for e in kind] == list(range(len(kind))), kind
    return f"enum class {kind.__name__} : int32_t {{ {', '.join(e.name for e in kind)} }};\n"


def _listed(macro: str, functions: Mapping[str, Function]) -> str:
    return f"#define {macro}(X) " + " ".join(f"X({name}, {f.name})" for name, f in functions.items())


def _elementwise() -> str:
    source = "amphw/ir/primitives and amphw/engine/tiles/operations.py"
    return _for_each_instruction_set(source, [*_functions([*HELPERS, *TEXTS.values()])])


def _for_each_instruction_set(source: str, parts: Iterable[str]) -> str:
    lines = [
        _HEAD.format(source=source),
        "namespace amphw::AMPHW_ISA {",
        "namespace {",
        "",
        *parts,
        "}  // namespace",
        "}  // namespace amphw::AMPHW_ISA",
        "",
    ]
    return "\n".join(lines)


def _functions(functions: Iterable[Function]) -> Iterable[str]:
    """Inline whatever their size: a loop over the columns that calls one for each vector takes longer."""
    for f in sorted_by_calls(functions):
        yield f.written(_translated, "[[maybe_unused, gnu::always_inline]] inline")


def _translated(text: str) -> str:
    """Types and functions have their names in kernels/math.hpp; C's macros need the standard library."""
    text = re.sub(r"\bINFINITY\b", "__builtin_inff()", text)
    return re.sub(r"\bNAN\b", '__builtin_nanf("")', text)


# --- optimisers -------------------------------------------------------------------------------------


def _optimizers() -> str:
    rows = OPTIMIZERS.values()
    names = ", ".join(f'"{name}"' for name in OPTIMIZERS)
    lines = [
        _HEAD.format(source="amphw/ir/optimizers.py"),
        "#include <algorithm>",
        "#include <array>",
        "#include <cmath>",
        "#include <cstdint>",
        "",
        "namespace amphw {",
        "",
        f"enum class Optimizer : int32_t {{ {', '.join(map(camel, OPTIMIZERS))} }};",
        f"constexpr const char* OPTIMIZER_NAMES[] = {{{names}}};",
        "",
        f"constexpr int MAX_SLOTS = {max(row.slots for row in rows)};",
        f"constexpr int MAX_NUMBERS = {max(len(row.numbers) for row in rows)};",
        f"using Settings = std::array<double, {len(SETTINGS)}>;  // {', '.join(SETTINGS)}",
        f"using State = std::array<double, {max(1, *(len(row.state) for row in rows))}>;",
        "",
        _by_optimizer("int slots_of", [str(row.slots) for row in rows]),
        _by_optimizer("bool memoryless", [str(row.memoryless).lower() for row in rows]),
        _by_optimizer("State first_state", [_braced(row.state.values()) for row in rows]),
        _schedule_factor(),
        "inline double warmup_factor(double n, double warmup) {",
        f"    return {_in_cpp(WARMUP)};",
        "}",
        "",
        "// What the kernel of an update is given. n: the update's number, from 1.",
        "inline void numbers_of(Optimizer optimizer, [[maybe_unused]] const Settings& settings, double rate,",
        "                       [[maybe_unused]] double n, [[maybe_unused]] State& state, float* out) {",
        *(f"    [[maybe_unused]] const double {name} = settings[{k}];" for k, name in enumerate(SETTINGS)),
        "    switch (optimizer) {",
        *(line for name, row in OPTIMIZERS.items() for line in _numbers(name, row)),
        "    }",
        "}",
        "",
        "}  // namespace amphw",
        "",
        f"#define AMPHW_OPTIMIZERS(X) {' '.join(f'X({camel(name)})' for name in OPTIMIZERS)}",
        "",
    ]
    return "\n".join(lines)


def _braced(values: Iterable[float]) -> str:
    return f"State{{{', '.join(map(str, values))}}}"


def _by_optimizer(signature: str, values: Iterable[str]) -> str:
    cases = (
        f"        case Optimizer::{camel(name)}: return {value};"
        for name, value in zip(OPTIMIZERS, values, strict=True)
    )
    head = f"constexpr {signature}(Optimizer optimizer) {{\n    switch (optimizer) {{"
    return "\n".join([head, *cases, "    }", "    return {};", "}\n"])


def _schedule_factor() -> str:
    head = "inline double schedule_factor(int32_t schedule, double progress, double gamma) {\n"
    head += "    switch (schedule) {"
    cases = (f"        case {k}: return {_in_cpp(text)};" for k, text in enumerate(SCHEDULES.values()))
    return "\n".join([head, *cases, "    }", "    return 1.0;", "}\n"])


def _numbers(name: str, row: Optimizer) -> Iterable[str]:
    yield f"        case Optimizer::{camel(name)}: {{"
    for k, scalar in enumerate(row.state):
        yield f"            double {scalar} = state[{k}];"
    known = {"rate", *row.state}
    for scalar, text in row.scalars.items():
        yield f"            {'' if scalar in known else 'const double '}{scalar} = {_in_cpp(text)};"
    for k, scalar in enumerate(row.state):
        yield f"            state[{k}] = {scalar};"
    for k, number in enumerate(row.numbers):
        yield f"            out[{k}] = float({number});"
    yield "            break;"
    yield "        }"


def _in_cpp(text: str) -> str:
    """An expression of a row: its functions are the standard library's, its numbers doubles."""
    text = re.sub(r"(?<![\w.])(\d+)(?![\w.])", r"\1.0", text)
    return re.sub(r"\b(sqrt|pow|floor|cos|min|max)\(", r"std::\1(", text)


def _steps() -> str:
    head = "template <Optimizer>\nstruct Step;\n"
    return _for_each_instruction_set("amphw/ir/optimizers.py", [head, *map(_step, OPTIMIZERS)])


def _step(name: str) -> str:
    """The kernel of an update as a function object that holds its numbers."""
    row, kind = OPTIMIZERS[name], f"Step<Optimizer::{camel(name)}>"
    numbers = row.numbers
    made = ", ".join(f"{number}(all(numbers[{k}]))" for k, number in enumerate(numbers))
    lines = [
        "template <>",
        f"struct {kind} {{",
        f"    Real {', '.join(numbers)};",
        f"    explicit Step(const float* numbers) : {made} {{}}",
        "    Real operator()(Real g, [[maybe_unused]] Real* slots) const {",
        *(f"        Real& slot{k} = slots[{k}];" for k in range(row.slots)),
        indent(dedent(row.kernel.body).strip(), "        "),
        "    }",
        "};",
        "",
    ]
    return _translated("\n".join(lines))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
