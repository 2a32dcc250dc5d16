"""Names that the language does not have: what to write in their place."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from amphw.frontend.source import FrontendError, UnknownName

_INSTEAD = {
    "T": "Linear multiplies with a matrix, a Layer with `x @ p.W`; values are rows and are not transposed",
    "shape": "its columns are `x.width`; a sequence has `length`",
    "size": "its columns are `x.width`; a sequence has `length`",
    "mean": '`reduce(x, "mean")` is over the positions, `mean_columns(x)` over the columns',
    "sum": "`reduce(x)` is that of the positions, `sum_columns(x)` that of the columns",
    "max": '`reduce(x, "max")` is that of the positions, `largest(x)` that of the columns',
    "min": '`-reduce(-x, "max")` is that of the positions, `-largest(-x)` that of the columns',
    "abs": "`absolute(x)` is |x|",
    "cat": "`concat(x, y)` puts values side by side",
    "silu": "`x * sigmoid(x)` is it",
    "swish": "`x * sigmoid(x)` is it",
    "mish": "`x * tanh(softplus(x))` is it",
    "selu": "`elu(x, 1.6733) * 1.0507` is it",
    "celu": "`elu(x / alpha, alpha)` is it",
    "relu6": "`minimum(relu(x), 6.0)` is it",
    "hardtanh": "`maximum(minimum(x, 1.0), -1.0)` is it",
    "hardsigmoid": "`minimum(relu(x / 6.0 + 0.5), 1.0)` is it",
    "hardswish": "`x * minimum(relu(x / 6.0 + 0.5), 1.0)` is it",
    "clamp": "`maximum(minimum(x, high), low)` is it",
    "clip": "`maximum(minimum(x, high), low)` is it",
    "logsigmoid": "`-softplus(-x)` is it",
    "softsign": "`x / (absolute(x) + 1.0)` is it",
    "tanhshrink": "`x - tanh(x)` is it",
    "softmin": "`softmax(-x)` is it",
    "glu": "`a * sigmoid(b)` of `a, b = split(x, 2)` is it",
    "prelu": "a Layer has the slope: `lambda p, x: relu(x) - p.a * relu(-x)`",
    "matmul": "Linear multiplies with a matrix, a Layer with `x @ p.W`",
    "sum_cols": "it is called `sum_columns`",
}


def unknown(what: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """The error of a name that `what` does not have, with what to write instead."""
    if name.startswith("_"):
        return AttributeError(name)  # Python itself asks for these
    functions = _functions()
    if name in _INSTEAD:
        remedy = _INSTEAD[name]
    elif name in functions and "frontend" not in what:
        remedy = f"write `{name}(x)`, which amphw.frontend has"
    else:
        near = get_close_matches(name, [*known, *functions], n=3)
        remedy = (
            f"did you mean {' or '.join(near)}?"
            if near
            else "`python -m pydoc amphw.frontend` lists what there is"
        )
    return UnknownName(f"{what} has no `{name}`; {remedy}")


def _functions() -> list[str]:
    """The names of the language that are called; this module is imported before they are."""
    from amphw import frontend

    return [name for name in frontend.__all__ if not isinstance(getattr(frontend, name), type)]


def no_keyword(what: str, given: Iterable[str], keywords: dict[str, str]) -> None:
    """FrontendError for the first keyword that is given and not known. keywords: those of others, and what is
    meant by them here."""
    for name in given:
        raise FrontendError(
            f"{what} has no `{name}=`; {keywords.get(name, f'it takes what help({what}) says')}"
        )
