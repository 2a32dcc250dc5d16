"""Options that belong together: a dataclass declares them once, and a command takes it as one parameter.

`--help` lists each group under its own heading, which is the first line of the dataclass's docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

from typer.core import TyperCommand


class GroupedCommand(TyperCommand):
    """A command whose help has a section for each group of options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, groups, others = "Arguments", dict[str, list[Any]](), "Options"
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                alone = arguments if param.param_type_name == "argument" else others
                groups.setdefault(getattr(param, "rich_help_panel", None) or alone, []).append(record)
        for title in sorted(groups, key=lambda each: (each != arguments, each == others)):
            with formatter.section(title):
                formatter.write_dl(groups[title])


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: with an option for each field of the dataclasses that it takes."""
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        if is_dataclass(kind):
            groups[name] = kind  # type: ignore[assignment]
            parameters += _options(kind)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    """A parameter for each field, whose option is listed under the group's heading."""
    found, hints = [], get_type_hints(group, include_extras=True)
    for each in fields(group):
        kind, option = get_args(hints[each.name])
        option = copy(option)
        option.rich_help_panel = inspect.getdoc(group).splitlines()[0]  # type: ignore[union-attr]
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        found.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, option],
            )
        )
    return found


def written(*groups: Any) -> dict[str, str]:
    """What was given of these groups, by the field's name, as it was written: `--link 10Gb/s`."""
    found = {}
    for group in groups:
        hints = get_type_hints(type(group), include_extras=True)
        for each in fields(group):
            value, (_, option) = getattr(group, each.name), get_args(hints[each.name])
            if value != each.default:
                # In an annotation, the first of an option's names stands where its default would.
                found[each.name] = f"{option.default} {value}"
    return found
