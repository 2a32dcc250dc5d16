"""Headers of messages: packed in Python, read back, and the same in C."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.errors import AmphwError
from amphw.rtl.isa.wire import FIELDS, HEADER_WORDS, Kind, c_header, pack, unpack

headers = st.fixed_dictionaries(
    {name: st.integers(0, (1 << bits) - 1) for name, bits in FIELDS if name != "kind"}
)


@given(kind=st.sampled_from(Kind), fields=headers)
def test_a_header_is_what_was_packed(kind: Kind, fields: dict[str, int]) -> None:
    words = pack(kind, **fields)
    assert len(words) == HEADER_WORDS
    assert unpack(words) == {"kind": kind, **fields}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(AmphwError, match=r"a message's 'slot' = 256 does not fit 8 bits"):
        pack(Kind.BEGIN, slot=256)
    with pytest.raises(AmphwError, match="a message has no field 'colour'"):
        pack(Kind.BEGIN, colour=1)


def test_the_c_header_agrees(tmp_path: Path) -> None:
    """A program in C packs a header; Python reads the same fields, and C reads what Python packed."""
    values = {name: (0x9E3779B1 * (k + 1)) & ((1 << bits) - 1) for k, (name, bits) in enumerate(FIELDS)}
    values["kind"] = int(Kind.FORWARD)
    assigned = " ".join(f".{name} = {value}u," for name, value in values.items())
    checks = " && ".join(f"back.{name} == h.{name}" for name in values)
    program = f"""
#include <stdio.h>
#include "amphw_wire.h"
int main(void) {{
    amphw_header h = {{ {assigned} }}, back;
    uint16_t words[AMPHW_HEADER_WORDS];
    amphw_pack(&h, words);
    amphw_unpack(&back, words);
    for (int i = 0; i < AMPHW_HEADER_WORDS; i++) printf("%u ", words[i]);
    printf("%d %d\\n", {checks}, AMPHW_KIND_FAULT);
    return 0;
}}
"""
    (tmp_path / "amphw_wire.h").write_text(c_header())
    (tmp_path / "main.c").write_text(program)
    subprocess.run(["gcc", "-Wall", "-Werror", "-o", "main", "main.c"], cwd=tmp_path, check=True)
    *words, same, fault = map(
        int, subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout.split()
    )
    assert unpack(words) == values
    assert same == 1
    assert fault == Kind.FAULT
