"""Progress is plain lines off a terminal, a live table on one, and never in the way of a run."""

from __future__ import annotations

import io
import math
import re
import threading
from dataclasses import replace

import pytest

from amphw.host.progress import LiveStats, Progress, Remaining
from amphw.host.records import EpochRecord, RankFigures


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def live(done: int = 500, **changes: object) -> LiveStats:
    stats = LiveStats(
        epoch=2,
        done=done,
        total=1000,
        loss=0.25,
        valid={"accuracy": 0.875},
        rate=12345.6,
        keys_in_flight=15.5,
        staleness_p50=3.0,
        staleness_p99=17.0,
        utilisation=[0.9, 0.7],
    )
    for name, value in changes.items():
        setattr(stats, name, value)
    return stats


RECORD = EpochRecord(
    epoch=2,
    instances=2000,
    seconds=4.0,
    train_loss=0.25,
    train={"accuracy": 0.9},
    valid={"accuracy": 0.875},
    instances_per_s=500.0,
    staleness_p50=3.0,
    staleness_p99=17.0,
    staleness_nodes={},
    utilisation=[0.9, 0.7],
    keys_in_flight=15.5,
)


def plain_text(terminal: str) -> str:
    """What a terminal was sent, without the control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal)


HEADING = [
    "rnn [cpu]: staleness is in versions; time is of training so far",
    "           words              valid  staleness",
    "epoch   a second     loss  accuracy   p50, p99   keys  busy     time",
]
ROW = "  2/5        500     0.25     0.875      3, 17   15.5   80%    4.0 s"


def test_plain_lines_come_every_ten_seconds_and_after_each_epoch() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(None, 5, "rnn [cpu]", "words", stream=out, clock=clock) as progress:
        for second in range(25):
            clock.now = 100.0 + second
            progress.update(live(10 * second))
        progress.epoch(RECORD)
        progress.update(live())
        progress.note("target [bold]reached[/bold]")
        progress.epoch(RECORD)
    lines = out.getvalue().splitlines()
    assert lines == [
        "rnn [cpu]: epoch 2/5, 100/1000 (10%), 12,346 words/s, loss 0.25, busy 80%",
        "rnn [cpu]: epoch 2/5, 200/1000 (20%), 12,346 words/s, loss 0.25, busy 80%, "
        "80 s of the epoch, at most 6 min of the run",
        *HEADING,
        ROW,
        "rnn [cpu]: target [bold]reached[/bold]",
        ROW,
    ]
    assert max(map(len, lines[2:6])) <= 80


def test_a_row_of_large_numbers_fits() -> None:
    out = io.StringIO()
    with Progress(False, 100, "m", "sequences", stream=out) as progress:
        valid = {"loss": 0.00012345, "accuracy": 0.98765}
        record = replace(RECORD, epoch=100, valid=valid, instances_per_s=1234567.0, seconds=10000.0)
        progress.epoch(record)
    _, heading, row = out.getvalue().splitlines()[1:]
    assert len(heading) == len(row) <= 80
    assert row.split() == [
        "100/100", "1,234,567", "0.25", "1.2e-04", "0.9877", "3,", "17", "15.5", "80%", "2:47", "h"
    ]  # fmt: skip


def test_time_that_is_left() -> None:
    """Epochs of 100 instances, one a second, and 20 seconds of validation after each."""
    clock = Clock()
    remaining = Remaining(3, clock)
    found = []
    for epoch in (1, 2, 3):
        for done in (0, 50, 100):
            stats = LiveStats(epoch=epoch, done=done, total=100)
            found.append((remaining.of_epoch(stats), remaining.of_run(stats)))
            clock.now += 50 if done < 100 else 20
    assert [math.isnan(a) for a, _ in found] == [True, False, False] * 3
    assert [a for a, _ in found if a == a] == [50, 0] * 3
    assert math.isnan(found[0][1]) and found[1][1] == pytest.approx(250)
    assert found[3][1] == pytest.approx(240) and found[-1][1] == 0


def test_a_run_that_goes_on_within_an_epoch_knows_what_is_left() -> None:
    clock = Clock()
    remaining = Remaining(2, clock)
    remaining.of_epoch(LiveStats(epoch=1, done=600, total=1000))
    clock.now += 10
    stats = LiveStats(epoch=1, done=700, total=1000)
    assert remaining.of_epoch(stats) == pytest.approx(30)


def test_unknown_figures_and_an_unknown_total() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(False, 5, "rnn", stream=out, clock=clock) as progress:
        clock.now += 10
        progress.update(LiveStats(epoch=1, done=3, total=0))
    assert out.getvalue() == "rnn: epoch 1/5, 3/0, n/a instances/s, loss n/a, busy n/a\n"


def test_a_terminal_gets_a_table_with_everything() -> None:
    out = io.StringIO()
    with Progress(True, 5, "rnn [cpu]", "words", stream=out, clock=Clock()) as progress:
        progress.update(live())
        shown = plain_text(out.getvalue())
        progress.epoch(RECORD)
    for words in (
        "rnn [cpu]",
        r"epoch +2/5 .* 500/1000",
        "words/s +12,346",
        "time left +n/a",
        r"loss +0\.25",
        r"valid accuracy +0\.875",
        r"keys in flight +15\.5",
        "staleness +p50 3 +p99 17",
        "worker 0 .* 90%",
        "worker 1 .* 70%",
    ):
        assert words in shown or re.search(words, shown), words
    assert ROW in plain_text(out.getvalue())


def test_a_terminal_is_redrawn_at_most_five_times_a_second() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(True, 5, "rnn", stream=out, clock=clock) as progress:
        for step in range(1001):  # one second
            clock.now = 100.0 + step / 1000
            progress.update(live(step))
    assert 4 <= plain_text(out.getvalue()).count("keys in flight") <= 6


def test_many_workers_are_summed_up() -> None:
    out = io.StringIO()
    with Progress(True, 5, "rnn", stream=out, clock=Clock()) as progress:
        progress.update(live(utilisation=[0.5] * 63 + [1.0]))
    assert re.search("64 workers +mean 51% +50% to 100%", plain_text(out.getvalue()))


def test_nan_utilisation_of_many_workers_is_drawn() -> None:
    out = io.StringIO()
    with Progress(True, 5, "rnn", stream=out, clock=Clock()) as progress:
        progress.update(live(utilisation=[math.nan] * 64))
    text = plain_text(out.getvalue())
    assert re.search("64 workers +mean n/a", text) and "nan" not in text


def test_nan_utilisation_is_drawn() -> None:
    out = io.StringIO()
    with Progress(True, 5, "rnn", stream=out, clock=Clock()) as progress:
        progress.update(live(utilisation=[math.nan], total=0))
    assert re.search("worker 0 .*n/a", plain_text(out.getvalue()))


def test_stdout_stays_clean(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(True, 5, "rnn") as progress:
        progress.update(live())
        print('{"json": true}')
        progress.epoch(RECORD)
    with Progress(False, 5, "rnn") as progress:
        progress.note("done")
    captured = capsys.readouterr()
    assert captured.out == '{"json": true}\n'
    assert "rnn: done" in captured.err


def test_the_table_goes_when_the_run_fails() -> None:
    out = io.StringIO()
    with pytest.raises(RuntimeError), Progress(True, 5, "rnn", stream=out, clock=Clock()) as progress:
        progress.update(live())
        raise RuntimeError("the run failed")
    assert out.getvalue().count("\x1b[?25l") == out.getvalue().count("\x1b[?25h") == 1  # the cursor is back


@pytest.mark.parametrize("tty", [True, False])
def test_a_closed_pipe_does_not_end_the_run(tty: bool) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with Progress(tty, 5, "rnn", stream=Closed(), clock=Clock()) as progress:
        progress.note("into the void")
        progress.update(live())
        progress.epoch(RECORD)


def test_threads_may_report() -> None:
    out = io.StringIO()
    with Progress(False, 5, "rnn", stream=out) as progress:
        threads = [threading.Thread(target=progress.note, args=("x" * 200,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert out.getvalue().splitlines() == ["rnn: " + "x" * 200] * 20


RANKS = [
    RankFigures(0, 600.0, 1.5, 0.25, 0.25, 4000.0, 5000.0, 3.0, 17.0),
    RankFigures(1, 0.0, 0.0, 1.5, 0.5, 5000.0, 4000.0, math.nan, math.nan),
]


def test_below_an_epoch_there_is_a_row_for_each_rank() -> None:
    out = io.StringIO()
    with Progress(False, 5, "rnn", "words", stream=out, clock=Clock()) as progress:
        for _ in range(2):
            progress.epoch(replace(RECORD, ranks=RANKS))
    lines = out.getvalue().splitlines()
    at = lines.index("rnn: below each epoch what its ranks did in it")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["rank", "words/s", "staleness", "sent", "received", "wait", "transfer"],
        ["0", "300", "3,", "17", "4", "kB", "5", "kB", "250", "ms", "250", "ms"],
        ["1", "0", "n/a,", "n/a", "5", "kB", "4", "kB", "1.5", "s", "500", "ms"],
    ]
    assert lines[at + 5 :] == lines[at + 2 : at + 4]  # the second epoch's row stands between
    assert max(map(len, lines)) <= 80


def test_a_live_table_has_the_ranks_of_the_last_epoch() -> None:
    out = io.StringIO()
    with Progress(True, 5, "rnn", "words", stream=out, clock=Clock()) as progress:
        progress.update(live(ranks=RANKS))
    assert re.search(r"0 +300 +3, 17 +4 kB +5 kB +250 ms +250 ms", plain_text(out.getvalue()))
