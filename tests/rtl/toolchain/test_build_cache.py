"""A product is built once, appears whole or not at all, and depends on all of its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.rtl.toolchain.build_cache import cache_root, cached, key
from amphw.rtl.toolchain.environment import ToolchainError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path))


def test_a_product_is_built_once() -> None:
    built = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "product").write_text("done")

    first, second = cached("things", "one", build), cached("things", "one", build)
    assert first == second == cache_root() / "things" / "one"
    assert (first / "product").read_text() == "done" and len(built) == 1


def test_a_build_that_breaks_off_leaves_nothing() -> None:
    def build(folder: Path) -> None:
        (folder / "product").write_text("half")
        raise KeyError("broken off")

    with pytest.raises(KeyError):
        cached("things", "one", build)
    assert list((cache_root() / "things").iterdir()) == []


def test_of_two_builders_at_once_the_first_to_finish_wins() -> None:
    def slow(folder: Path) -> None:
        (folder / "product").write_text("slow")
        cached("things", "one", lambda other: (other / "product").write_text("fast") and None)

    assert (cached("things", "one", slow) / "product").read_text() == "fast"
    assert len(list((cache_root() / "things").iterdir())) == 1


def test_a_key_depends_on_each_part_and_on_where_it_ends() -> None:
    keys = {key("ab", "c"), key("a", "bc"), key("abc"), key("c", "ab"), key("ab", "c", "")}
    assert len(keys) == 5 and key("ab", "c") == key("ab", "c")


def test_a_cache_that_cannot_be_written_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path / "file"))
    with pytest.raises(ToolchainError, match="cannot be written .* Set AMPHW_CACHE to a folder that can"):
        cached("things", "one", lambda folder: None)
