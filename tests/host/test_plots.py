"""Plots are drawn in both formats, say what they show, and refuse what cannot be drawn."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from amphw.host.plots import comparison, convergence, gantt
from amphw.host.rank_plots import step_times
from amphw.host.records import Direction, EpochRecord, RankFigures, RunSummary, Slice

PNG = b"\x89PNG\r\n\x1a\n"


def texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def pieces(count: int = 200) -> list[Slice]:
    kinds: tuple[Direction, ...] = ("forward", "backward", "forward", "backward", "update")
    return [
        Slice(
            number % 3,
            ("embed", "net.cell", "loss")[number % 3],
            kinds[number % 5],
            40.0 * number,
            100.0,
            rows=5,
        )
        for number in range(count)
    ]


def history(speed: float, epochs: int = 6) -> list[EpochRecord]:
    return [
        EpochRecord(
            epoch=epoch,
            instances=1000 * epoch,
            seconds=epoch / speed,
            train_loss=1.0,
            train={},
            valid={"accuracy": 1 - math.exp(-epoch * speed)},
            instances_per_s=1000 * speed,
            staleness_p50=2.0,
            staleness_p99=9.0,
            staleness_nodes={},
            utilisation=[0.5],
            keys_in_flight=4.0,
        )
        for epoch in range(1, epochs + 1)
    ]


def summary(speed: float, reached: bool = True) -> RunSummary:
    return RunSummary(
        model="rnn",
        device="cpu",
        epochs=6,
        instances_per_s=12345.0 * speed,
        target_reached=reached,
        valid={"accuracy": 0.9},
        staleness={"p50": 2.0, "p99": 9.0},
        messages={"forward": 1, "backward": 1, "lost": 0},
        run_dir="runs/x",
        history=history(speed),
    )


def test_gantt_has_a_lane_per_worker_and_a_legend(tmp_path: Path) -> None:
    gantt(pieces(), tmp_path / "g.svg", "RNN, 3 workers")
    found = texts(tmp_path / "g.svg")
    assert {"worker 0", "worker 1", "worker 2", "forward", "backward", "update", "RNN, 3 workers"} <= set(
        found
    )
    assert "infer" not in found  # only what is there is explained
    assert any("ms into the trace (ms)" in text for text in found)
    assert 30 <= sum(text in ("embed", "net.cell", "cell", "loss") for text in found) <= 70


def test_gantt_by_node_and_in_a_window(tmp_path: Path) -> None:
    gantt(pieces(), tmp_path / "g.svg", "pinned", window_us=(0.0, 400.0), lanes="node")
    found = texts(tmp_path / "g.svg")
    assert {"embed", "net.cell", "loss"} <= set(found)
    assert any("(us); numbers are rows in the frame" in text for text in found)
    assert found.count("5") == 10


def test_gantt_shows_a_worker_that_idles_through_the_window(tmp_path: Path) -> None:
    idle = [*pieces(), Slice(7, "loss", "forward", 1e6, 5.0, rows=1)]
    gantt(idle, tmp_path / "g.svg", "idle", window_us=(0.0, 400.0))
    assert "worker 7" in texts(tmp_path / "g.svg")


def test_gantt_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no slices to draw; was tracing on"):
        gantt([], tmp_path / "g.svg", "empty")
    with pytest.raises(ValueError, match=r"no slice between 1e\+09 and 2e\+09 us to draw in .*g\.svg"):
        gantt(pieces(), tmp_path / "g.svg", "empty", window_us=(1e9, 2e9))
    assert not (tmp_path / "g.svg").exists()


def test_gantt_of_one_slice_without_duration(tmp_path: Path) -> None:
    gantt([Slice(0, "a", "infer", 5.0, 1.0, rows=1)], tmp_path / "g.svg", "one")
    assert "infer" in texts(tmp_path / "g.svg")


def test_convergence_has_both_panels_and_the_target(tmp_path: Path) -> None:
    convergence({"keys 1": history(0.3), "keys 16": history(0.9)}, tmp_path / "c.svg", 0.9, "accuracy")
    found = texts(tmp_path / "c.svg")
    wanted = {
        "keys 1",
        "keys 16",
        "target 0.9",
        "instances trained",
        "training time (s)",
        "validation accuracy",
    }
    assert wanted <= set(found)


def test_convergence_without_target_or_metric(tmp_path: Path) -> None:
    convergence({"a": history(0.3)}, tmp_path / "c.svg", None, "accuracy")
    assert not any("target" in text for text in texts(tmp_path / "c.svg"))
    with pytest.raises(ValueError, match="no run has a validation 'mae' to draw"):
        convergence({"a": history(0.3)}, tmp_path / "d.svg", None, "mae")


def test_comparison_names_runs_and_values(tmp_path: Path) -> None:
    comparison({"keys 1": summary(0.5), "keys 16": summary(1.0, reached=False)}, tmp_path / "c.svg")
    found = texts(tmp_path / "c.svg")
    assert {"keys 1", "keys 16", "6,172", "12.3k", "6", "6 (not met)", "2 to 9"} <= set(found)
    with pytest.raises(ValueError, match="no run to draw"):
        comparison({}, tmp_path / "d.svg")


def test_axes_name_what_the_model_counts(tmp_path: Path) -> None:
    counting = replace(summary(1.0), counted="words")
    comparison({"a": counting}, tmp_path / "c.svg")
    assert "throughput (words/s)" in texts(tmp_path / "c.svg")
    convergence({"a": history(1.0)}, tmp_path / "d.svg", 0.9, "accuracy", "words")
    assert "words trained" in texts(tmp_path / "d.svg")


def test_comparison_of_unknown_numbers(tmp_path: Path) -> None:
    unknown = summary(math.nan)
    unknown.staleness, unknown.history = {}, []
    comparison({"broken": unknown}, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(PNG)


def test_png_by_suffix_and_nothing_else(tmp_path: Path) -> None:
    gantt(pieces(), tmp_path / "g.png", "png")
    convergence({"a": history(0.3)}, tmp_path / "c.PNG", 0.9, "accuracy")
    for name in ("g.png", "c.PNG"):
        assert (tmp_path / name).read_bytes().startswith(PNG)
    with pytest.raises(ValueError, match=r"a plot is \.svg or \.png, not \.pdf"):
        gantt(pieces(), tmp_path / "g.pdf", "pdf")


def test_equal_input_gives_equal_svg(tmp_path: Path) -> None:
    for name in ("1.svg", "2.svg"):
        gantt(pieces(), tmp_path / name, "same")
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()


def test_pyplot_stays_out() -> None:
    script = "import sys, amphw.host.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_window_lies_in_the_middle_half_of_the_trace(tmp_path: Path) -> None:
    """Whatever happens at the start alone, as a first update that takes long, does not stand for the run."""
    mixed = [Slice(w, f"n{k}", "update", 10.0 * k, 9.0, rows=1) for k in range(20) for w in range(8)]
    rest = [Slice(0, "cell", "forward", 1000.0 + 10.0 * k, 9.0, rows=1) for k in range(1000)]
    gantt([*mixed, *rest], tmp_path / "g.svg", "t")
    (label,) = [text for text in texts(tmp_path / "g.svg") if text.startswith("time from")]
    begins = float(label.split()[2])
    assert label.split()[3] == "ms" and 2.5 < begins < 9


def test_there_are_no_halves_of_versions_and_epochs(tmp_path: Path) -> None:
    few = replace(summary(1.0), staleness={"p50": 0.0, "p99": 1.0}, epochs=1)
    comparison({"a": few, "b": few}, tmp_path / "c.svg")
    shown = texts(tmp_path / "c.svg")
    assert "1" in shown and not {"0.5", "0.25", "0.6", "0.9"} & set(shown)


@pytest.mark.parametrize("narrow", [False, True])
def test_ink_turns_light_in_a_dark_scheme_and_nothing_else_is_black_on_nothing(
    tmp_path: Path, narrow: bool
) -> None:
    gantt(pieces(), tmp_path / "g.svg", "t", narrow=narrow)
    convergence({"a": history(0.5)}, tmp_path / "c.svg", 0.9, "accuracy", narrow=narrow)
    comparison({"a": summary(1.0), "b": summary(1.0, reached=False)}, tmp_path / "m.svg")
    for name in ("g.svg", "c.svg", "m.svg"):
        root = ElementTree.parse(tmp_path / name).getroot()
        texts_drawn = list(root.iter("{http://www.w3.org/2000/svg}text"))
        on_bars = {"embed", "cell", "net.cell", "loss"} | {str(n) for n in range(10)}
        for text in texts_drawn:
            if "".join(text.itertext()).strip() not in on_bars or name != "g.svg":
                assert "fill: #1b1f24" in text.attrib["style"], (name, "".join(text.itertext()))
        assert "prefers-color-scheme: dark" in (tmp_path / name).read_text()
    assert float(root.attrib["width"].removesuffix("pt")) > 700


def test_a_bar_is_stacked_for_each_rank(tmp_path: Path) -> None:
    ranks = [RankFigures(rank, 10.0, 0.2, 0.1 * rank, 0.1, 1.0, 1.0, 0.0, 0.0) for rank in (0, 1)]
    step_times(ranks, 10, tmp_path / "s.svg")
    found = texts(tmp_path / "s.svg")
    assert {"rank 0", "rank 1", "compute", "wait", "transfer", "30", "40"} <= set(found)
    with pytest.raises(ValueError, match="no rank to draw"):
        step_times([], 10, tmp_path / "s.svg")
