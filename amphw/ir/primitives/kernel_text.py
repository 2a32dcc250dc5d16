"""What elementwise operations compute, in a C that executors translate: written once for all of them.

A text is an expression of a, b and c (and f, a constant of the instruction), or statements that end with a
`return`. Its types are Real, Int and Word: a vector of floats, or of integers of as many bits with and
without a sign; C's operators work lane by lane. A comparison gives a mask for `mask ? x : y`, both of which
are Real: `all(1.0f)` is a number in all lanes. Other operations' texts and `HELPERS` may be called by their
names, and what each executor brings along (`GIVEN`).

The C++ engine compiles the texts with vector extensions (`amphw.engine.native_headers`), the OpenCL device
for vectors and for single floats (`amphw.opencl.codegen.prelude`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import dedent, indent

TYPES = ("Real", "Int", "Word")

GIVEN = ("all", "as_Real", "as_Int", "as_Word", "square_root", "scaled")
"""Functions that every executor has in a form of its own.

as_Real, as_Int, as_Word: the same bits as another type. scaled(p, n): p * 2^n, rounded once where the result
is not a normal float; n is an Int from -151 to 129.
"""

_OPERANDS = "abcf"


@dataclass(frozen=True)
class KernelText:
    """An operation's text. operands: those that it reads, of "a", "b", "c" and "f"."""

    text: str

    @property
    def operands(self) -> str:
        return "".join(x for x in _OPERANDS if self.names(x))

    def names(self, name: str) -> bool:
        """Whether it reads or writes something of that name."""
        return re.search(rf"\b{name}\b", _code(self.text)) is not None

    @property
    def is_expression(self) -> bool:
        """Else it is statements, and executors make a function of it."""
        return "return" not in self.text

    @property
    def body(self) -> str:
        return f"return {self.text};" if self.is_expression else self.text


@dataclass(frozen=True)
class Function:
    """A function of the C that executors translate."""

    name: str
    result: str
    parameters: tuple[tuple[str, str], ...]
    text: KernelText

    @classmethod
    def of(cls, name: str, text: KernelText) -> Function:
        """An operation as a function of its operands."""
        return cls(name, "Real", tuple(("Real", x) for x in text.operands), text)

    def written(self, translated: Callable[[str], str], qualifier: str) -> str:
        """Its definition, every line of it translated."""
        parameters = ", ".join(" ".join(p) for p in self.parameters)
        body = indent(dedent(self.text.body).strip(), "    ")
        return translated(f"{qualifier} {self.result} {self.name}({parameters})\n{{\n{body}\n}}\n")


def sorted_by_calls(functions: Iterable[Function]) -> list[Function]:
    """Each of them behind those that it calls."""
    by_name = {f.name: f for f in functions}
    out: dict[str, Function] = {}

    def visit(f: Function) -> None:
        for name in re.findall(r"\b(\w+)\(", _code(f.text.body)):
            if name in by_name and name not in out:
                visit(by_name[name])
        out[f.name] = f

    for f in by_name.values():
        if f.name not in out:
            visit(f)
    return list(out.values())


def _code(text: str) -> str:
    """Without its comments."""
    return re.sub("//.*", "", text)


HELPERS = (
    Function(
        "rounded",
        "Real",
        (("Real", "x"),),
        KernelText(
            """
            // x / ln 2, rounded, plus 1.5 * 2^23, which leaves no bits for a fraction. |x| is below 2^22.
            return x * 1.44269504f + 12582912.0f;
            """
        ),
    ),
    Function(
        "exponent",
        "Int",
        (("Real", "shifted"),),
        KernelText(
            """
            // The integer in the low bits of such a sum.
            return as_Int(as_Word(shifted) - 0x4b400000u);
            """
        ),
    ),
    Function(
        "remainder",
        "Real",
        (("Real", "x"), ("Real", "shifted")),
        KernelText(
            """
            // x - n ln 2, at most ln 2 / 2. ln 2 is in two parts, the first of so few bits that its product
            // with n is exact.
            const Real n = shifted - 12582912.0f;
            return (x - n * 0.693359375f) + n * 2.12194440e-4f;
            """
        ),
    ),
    Function(
        "expm1_reduced",
        "Real",
        (("Real", "r"),),
        KernelText(
            """
            // exp(r) - 1 for |r| <= ln 2 / 2 with a small *relative* error: a minimax fit, of 1.3e-8.
            Real p = r * 1.38825167e-3f + 8.36654753e-3f;
            p = p * r + 4.16672006e-2f;
            p = p * r + 1.66665435e-1f;
            p = p * r + 4.99999970e-1f;
            return p * (r * r) + r;
            """
        ),
    ),
    Function(
        "power_of_two",
        "Real",
        (("Int", "n"),),
        KernelText(
            """
            // 2^n for n in -126 .. 127
            return as_Real(as_Word(n + 127) << 23);
            """
        ),
    ),
)
"""Functions that several operations call."""
