"""Options of dataclasses: what a command gets, and where its help lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from amphw.cli.option_groups import GroupedCommand, grouped, written


@dataclass(frozen=True)
class Size:
    """How large it is"""

    width: Annotated[int, typer.Option("--width", metavar="N", help="Across.", min=1)]
    deep: Annotated[bool, typer.Option("--deep", help="Down.")] = False


@dataclass(frozen=True)
class Name:
    """What it is called"""

    label: Annotated[str | None, typer.Option("--name", metavar="NAME", help="A word.")] = None


found: list[object] = []


@grouped
def make(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="A thing.")],
    size: Size,
    name: Name,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False,
) -> None:
    """Make something."""
    found.append((what, size, name, quiet))


app = typer.Typer(rich_markup_mode=None)
app.command(cls=GroupedCommand)(make)


def test_a_command_gets_its_groups() -> None:
    found.clear()
    assert CliRunner().invoke(app, ["box", "--width", "3", "--name", "a", "--quiet"]).exit_code == 0
    assert CliRunner().invoke(app, ["box", "--deep", "--width", "2"]).exit_code == 0
    assert found == [("box", Size(3), Name("a"), True), ("box", Size(2, True), Name(), False)]


def test_what_a_command_line_lacks_or_has_wrong_is_refused() -> None:
    for arguments in (["box"], ["box", "--width", "0"], ["--width", "1"], ["box", "--width", "1", "--tall"]):
        assert CliRunner().invoke(app, arguments).exit_code == 2


def test_help_lists_each_group_under_its_heading() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    sections = [section.split(":\n") for section in text.split("\n\n")[2:]]
    options = {title: [row.split()[0] for row in rows.splitlines()] for title, rows in sections}
    assert list(options) == ["Arguments", "How large it is", "What it is called", "Options"]
    assert options["How large it is"] == ["--width", "--deep"]
    assert options["What it is called"] == ["--name"] and "--quiet" in options["Options"]


def test_what_was_given_is_told_as_it_was_written() -> None:
    assert written(Size(3), Name()) == {"width": "--width 3"}
    assert written(Size(3, True), Name("a")) == {
        "width": "--width 3",
        "deep": "--deep True",
        "label": "--name a",
    }
