"""The arithmetic's functions in C++, compiled, beside the same functions on integers."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amphw.rtl.numbers.arithmetic import narrow, round_shift, saturate
from amphw.rtl.verilated.expression import function, select

FORMULAS: dict[str, Callable[[Any, Callable[[Any, Any, Any], Any]], Any]] = {
    "saturate_16": lambda x, select: saturate(x, 16, select),
    "saturate_32": lambda x, select: saturate(x, 32, select),
    "saturate_36": lambda x, select: saturate(x, 36, select),
    "round_1": lambda x, select: round_shift(x, 1),
    "round_12": lambda x, select: round_shift(x, 12),
    "narrow": lambda x, select: narrow(x, 12, 16, select),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("expression")
    made = [function(name, lambda x, f=f: f(x, select)) for name, f in FORMULAS.items()]
    exported = [line.replace("static inline", 'extern "C"') for line in made]
    (folder / "made.cpp").write_text("#include <cstdint>\n" + "\n".join(exported))
    command = ["g++", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "made.so", "made.cpp"]
    subprocess.run(command, cwd=Path(folder), check=True)
    return ctypes.CDLL(str(folder / "made.so"))


@pytest.mark.parametrize("name", FORMULAS)
def test_it_computes_what_the_definition_does(compiled: ctypes.CDLL, name: str) -> None:
    made, draw = getattr(compiled, name), random.Random(name)
    made.argtypes, made.restype = [ctypes.c_int64], ctypes.c_int64
    edges = [sign * (1 << bits) + by for bits in range(48) for sign in (-1, 1) for by in (-1, 0, 1)]
    numbers = [*edges, *(draw.randrange(-(1 << 48), 1 << 48) >> draw.randrange(48) for _ in range(10_000))]
    expected = [int(FORMULAS[name](x, lambda c, a, b: a if c else b)) for x in numbers]
    assert [made(x) for x in numbers] == expected
    assert len(set(expected)) > 1000
