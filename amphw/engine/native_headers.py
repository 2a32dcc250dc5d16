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

from amphw.engine.tile_code import MAX_INT_ARGS, PhaseKind, Place
from amphw.engine.tile_operations import BY_COLUMN, PRIMITIVE_OPERATIONS, TEXTS, Op
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
    return {"operations.hpp": _operations(), "elementwise.hpp": _elementwise()}


def _operations() -> str:
    simple = {name: f for name, f in TEXTS.items() if ("Real", "f") not in f.parameters}
    constant = {name: f for name, f in TEXTS.items() if name not in simple}
    by_column = {name: TEXTS[PRIMITIVE_OPERATIONS[n]] for name, n in BY_COLUMN.items()}
    names = ", ".join(f'"{op.name}"' for op in Op)
    lines = [
        _HEAD.format(source="amphw/engine/tile_operations.py and tile_code.py"),
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
    lines = [
        _HEAD.format(source="amphw/ir/primitives and amphw/engine/tile_operations.py"),
        "namespace amphw::AMPHW_ISA {",
        "namespace {",
        "",
        *_functions([*HELPERS, *TEXTS.values()]),
        "}  // namespace",
        "}  // namespace amphw::AMPHW_ISA",
        "",
    ]
    return "\n".join(lines)


def _functions(functions: Iterable[Function]) -> Iterable[str]:
    for f in sorted_by_calls(functions):
        yield f.written(_translated, "[[maybe_unused]] inline")


def _translated(text: str) -> str:
    """Types and functions have their names in kernels_math.hpp; C's macros need the standard library."""
    text = re.sub(r"\bINFINITY\b", "__builtin_inff()", text)
    return re.sub(r"\bNAN\b", '__builtin_nanf("")', text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
