"""One configuration field: its type, limits and help text, and the check of one value against them.

A section of the configuration is a frozen dataclass whose fields are made by `option`. The annotation gives
the type (`int`, `float`, `bool`, `str`, `Literal[...]`, `X | None`, `tuple[int, ...]` and the like),
`option` the limits and the help. A model's own dataclass may use plain defaults as well; then the type
alone is checked.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Literal, TypeVar, Union

from amphw.ir.errors import AmphwError

_NAMES: dict[type, tuple[str, str]] = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("a string", "strings"),
}
_TOO_LARGE = 1 << 63
"""What compiled code and TOML take for an integer ends here."""
Section = TypeVar("Section")
NONE = "none"
"""How the absence of a value is written; TOML has no null."""


class ConfigError(AmphwError):
    """The configuration is not usable. The message names the key, the value and what is allowed."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a number, or of each number in a list: `minimum` and `maximum` inclusive, the others not."""

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """Whether a finite `value` lies within the bounds."""
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )

    def text(self) -> str:
        """The bounds in words, such as `of 1 or more`; empty without bounds."""
        if self.minimum is not None and self.maximum is not None:
            return f"from {self.minimum} to {self.maximum}"
        bounds = [
            (self.minimum, "of {} or more"),
            (self.above, "above {}"),
            (self.maximum, "of at most {}"),
            (self.below, "below {}"),
        ]
        return " and ".join(words.format(bound) for bound, words in bounds if bound is not None)


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    default_factory: Callable[[], Any] | None = None,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: Iterable[str] = (),
    aliases: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with a help text, limits or choices, and other names accepted for it.

    With `default_factory` the default is computed where the configuration is made, such as from the number
    of cores.
    """
    limits = Limits(minimum, above, maximum, below)
    metadata = {"help": help, "limits": limits, "choices": tuple(choices), "aliases": aliases}
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Option:
    """What is known of one field. default: `dataclasses.MISSING` if the field must be given."""

    name: str
    default: Any
    help: str
    aliases: tuple[str, ...]
    type: Any
    optional: bool
    limits: Limits

    @property
    def allowed(self) -> str:
        """What values are accepted, in words, such as `an integer from 1 to 4096`."""
        bounds = self.limits.text()
        if typing.get_origin(self.type) is Literal:
            words = "one of " + ", ".join(str(choice) for choice in typing.get_args(self.type))
        elif typing.get_origin(self.type) is tuple:
            plural = _NAMES[typing.get_args(self.type)[0]][1]
            words = f"a list of {plural}" + (f", each {bounds}" if bounds else "")
        else:
            words = _NAMES[self.type][0] + (f" {bounds}" if bounds else "")
        return f'{words}, or "{NONE}"' if self.optional else words

    def check(self, value: Any, key: str) -> Any:
        """`value` in the type of the field, or ConfigError, in which `key` names the field."""
        if self.optional and (value is None or value == NONE):
            return None
        try:
            return self._convert(value)
        except _Refused:
            shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
            large = self.type is int and isinstance(value, int) and not -_TOO_LARGE <= value < _TOO_LARGE
            bits = ", and one that fits in 64 bits" if large else ""
            raise ConfigError(f"{key} is {shown}, expected {self.allowed}{bits}.") from None

    def parse(self, text: str) -> Any:
        """The value that `text` from a command line stands for, not checked yet.

        Strings need no quotes there, so the type of the field decides how the text is read.
        """
        try:
            value = tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
        except tomllib.TOMLDecodeError:
            value = text
        if self.type is str and not isinstance(value, str):
            return text  # name=5 means the string "5"
        if typing.get_origin(self.type) is Literal and text in typing.get_args(self.type):
            return text
        if self.type is float and isinstance(value, str):
            try:
                return float(value)  # TOML has no ".5" and no "1."
            except ValueError:
                return value
        return value

    def _convert(self, value: Any) -> Any:
        if typing.get_origin(self.type) is Literal:
            if value not in typing.get_args(self.type) or isinstance(value, bool):
                raise _Refused
            return value
        if typing.get_origin(self.type) is tuple:
            if not isinstance(value, list | tuple):
                raise _Refused
            element = typing.get_args(self.type)[0]
            return tuple(self._convert_scalar(each, element) for each in value)
        return self._convert_scalar(value, self.type)

    def _convert_scalar(self, value: Any, wanted: type) -> Any:
        if getattr(value, "ndim", None) == 0:  # of numpy, which need not be imported here
            value = value.item()
        if isinstance(value, bool) != (wanted is bool):  # in Python, True is an integer
            raise _Refused
        if wanted is float and isinstance(value, int):
            try:
                value = float(value)
            except OverflowError:
                raise _Refused from None
        if not isinstance(value, wanted) or (isinstance(value, float) and not math.isfinite(value)):
            raise _Refused
        if isinstance(value, int | float) and not self.limits.allow(value):
            raise _Refused
        if isinstance(value, int) and not -_TOO_LARGE <= value < _TOO_LARGE:
            raise _Refused
        return wanted(value)  # not of a class of its own, which a file would be written with


class _Refused(Exception):
    """A value that the field does not accept; `Option.check` puts it into words."""


@functools.cache
def options(section: type) -> dict[str, Option]:
    """The fields of a section by name, in the order of the dataclass.

    Raises TypeError for a class that is not a dataclass, or has a field of a type that no configuration can
    hold.
    """
    if not dataclasses.is_dataclass(section):
        raise TypeError(f"{section.__name__} is not a dataclass, so its fields cannot be configured")
    hints = typing.get_type_hints(section)
    return {f.name: _option(section, f, hints[f.name]) for f in dataclasses.fields(section) if f.init}


def _option(section: type, field: dataclasses.Field[Any], hint: Any) -> Option:
    optional = False
    if choices := field.metadata.get("choices"):
        hint = Literal[choices]
    if typing.get_origin(hint) in (Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        optional = len(members) < len(typing.get_args(hint))
        hint = members[0] if len(members) == 1 else hint
    is_list = typing.get_origin(hint) is tuple and typing.get_args(hint)[1:] == (...,)
    scalar = typing.get_args(hint)[0] if is_list else hint
    if typing.get_origin(hint) is not Literal and scalar not in _NAMES:
        raise TypeError(
            f"{section.__name__}.{field.name} has type {field.type}; a configuration holds int, float, bool, "
            "str, Literal, a tuple of one of these (tuple[int, ...]), and each of them or None"
        )
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return Option(
        name=field.name,
        default=default,
        help=field.metadata.get("help", ""),
        aliases=field.metadata.get("aliases", ()),
        type=hint,
        optional=optional,
        limits=field.metadata.get("limits", Limits()),
    )


def check_section(section: Any, name: str) -> None:
    """Check every field of a section object, called `name` in errors. Raises ConfigError."""
    kind: type = type(section)
    for each in options(kind).values():
        each.check(getattr(section, each.name), f"{name}.{each.name}")


def read(kind: type[Section], table: Any, name: str) -> Section:
    """A section from a table of a TOML file. name: what errors call it, such as `mine.toml: [clock]`.

    Raises ConfigError for a key that it does not have, for one that is missing and for a value that its field
    does not accept.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{name} is {table!r}, expected a table.")
    known: dict[str, Option] = options(typing.cast(Any, kind))
    for key in table:
        if key not in known:
            near = did_you_mean(key, list(known))
            raise ConfigError(f"{name}: unknown key {key}.{near} It has: {', '.join(known)}.")
    for each in known.values():
        if each.default is MISSING and each.name not in table:
            raise ConfigError(f"{name}: {each.name} is missing; it is {each.allowed}.")
    return kind(**{key: known[key].check(value, f"{name}: {key}") for key, value in table.items()})


def picked(kind: type[Section], settings: Mapping[str, Any]) -> Section:
    """A section from settings among which others' may be; they have been checked, or are the caller's own."""
    known = options(typing.cast(Any, kind))
    return kind(**{name: settings[name] for name in known if name in settings})


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean X?` with the nearest of `known`, or nothing if none is near.

    If `known` is a mapping, its keys are what `word` is compared with and its values what is shown.
    """
    shown = known if isinstance(known, Mapping) else {each: each for each in known}
    near = difflib.get_close_matches(word, list(shown), n=1)
    return f" Did you mean {shown[near[0]]}?" if near else ""
