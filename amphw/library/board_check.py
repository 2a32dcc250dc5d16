"""The self-test of a board: what somebody who has one runs first, before any model of their own.

A small model's circuit is built for the board and put into it. Then its link is timed, every bit of its
parameter memories is written both ways and read back, and it trains some instances beside the model of its
arithmetic, with which losses and weights must agree to the bit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host.config import RunConfig, resolve
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError
from amphw.ir.instance import Instance
from amphw.library.hardware_settings import Wanted, recommended
from amphw.models import get_model
from amphw.rtl.build.board_files import build, check_tools
from amphw.rtl.build.boards import Board
from amphw.rtl.build.circuit import RUN
from amphw.rtl.build.fit import FitError
from amphw.rtl.build.flash import find, flash
from amphw.rtl.driver.active import Link
from amphw.rtl.driver.board import BoardDevice, missing
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.fixed.parameters import FixedArray
from amphw.rtl.isa.wire import HEADER_WORDS, Kind, Register, pack
from amphw.rtl.numbers.formats import BITS
from amphw.rtl.plan.remedies import Remedies
from amphw.rtl.toolchain.build_cache import cache_root

MODEL = "list-reduction"
SETTINGS = ("hidden=8", "batch=1", "optimizer=sgd")
"""Of the self-test's model: small enough for every board that holds anything."""
LANES = (4, 2)
"""The first of them that fits."""

COMES_BACK = 10.0
"""Seconds for which a serial port may be gone after its board has been configured."""

ASKED = 50
"""Questions whose answers are timed."""

_SLOWER = (
    "Build it at a lower clock (amphw rtl list-reduction --frequency, as its run.toml says) and name its "
    "folder (--circuit); if that is no better, please report it"
)

OPTIONS = DeviceOptions(max_active_keys=1, max_infer_keys=0, updates="self", seed=1)


@dataclass(frozen=True)
class Step:
    """What one part of the test found. figures: for programs. wrong: what is wrong; empty if nothing is."""

    name: str
    found: str
    figures: Mapping[str, float] = field(default_factory=dict)
    wrong: str = ""


def make(board: Board, say: Callable[[str], None], out: Path | None = None) -> Path:
    """The folder of the self-test's circuit, built for the board. Takes minutes, seconds where it was before.

    Raises FitError where the board has no room for any.
    """
    model = get_model(MODEL)
    pins = board.pins()
    check_tools(board, simulate=False)
    link = board.link
    reached = {"serial": "", "usb": "-usb"}.get(link.kind, f"-{link.address}-{link.port}")
    where = f"{board.name}{reached}"
    out = out or cache_root() / "self-test" / where
    for lanes in LANES:
        wanted = Wanted(settings=SETTINGS, lanes=lanes, keys=1)
        try:
            chosen = recommended(model, board, wanted)
            made = build(chosen.fits, board, out, pins, None, True, say, Remedies())
            break
        except FitError:
            if lanes == LANES[-1]:
                raise
    chosen.write(out, made.fit.keys)
    return out


class SelfTest:
    """Of the circuit in a folder, on the board at a port. instances: to train."""

    def __init__(self, circuit: Path, port: str, instances: int) -> None:
        self.circuit, self.port, self.instances = circuit, port, instances
        self.model: Any = get_model(MODEL)
        self.cfg: RunConfig[Any] = resolve(self.model.config, {}, circuit / RUN)
        self.graph = self.model.graph(self.cfg.model)
        self.rules = update_rules(self.cfg, self.graph)

    def put(self, board: Board) -> Step:
        """The circuit into the board. Its serial port may be gone for a moment then."""
        bitstream, on = find(self.circuit, board.name)
        flash(bitstream, on, keep=False)
        end = time.monotonic() + COMES_BACK
        while (why := missing(self.port)) and time.monotonic() < end:
            time.sleep(0.1)
        if why:
            why += (
                f" It has not come back after the circuit was put into the board. Keep it there (amphw flash "
                f"--keep {self.circuit}), plug the board in anew, and say --no-flash"
            )
        return Step("flash", f"{bitstream} is in the board", wrong=why)

    def steps(self, put: Board | None) -> Iterator[Step]:
        """In their order; each rests on those before, so that one that is wrong is the last.

        put: the board, if the circuit is to be put into it.
        """
        parts: dict[str, Callable[[], Step]] = {"flash": lambda: self.put(put)} if put is not None else {}
        parts |= {"link": self.link, "memory": self.memory, "training": self.training}
        for name, part in parts.items():
            try:
                step = part()
            except AmphwError as error:
                step = Step(name, "", wrong=str(error))
            yield step
            if step.wrong:
                return

    def _device(self) -> BoardDevice:
        return BoardDevice(f"{self.port},circuit={self.circuit}")

    def link(self) -> Step:
        """That it is the circuit which it should be, and how long an answer takes."""
        device = self._device()
        plan = device.make_plan(self.graph, self.rules, OPTIONS)
        link = device.make_link(plan, False)
        try:
            seconds = [_answered(link) for _ in range(ASKED)]
        finally:
            link.close()
        middle, worst = statistics.median(seconds), max(seconds)
        return Step(
            "link",
            f"{'Ethernet' if device.about.in_network else f'{device.baud:,} baud'}; an answer takes "
            f"{1e3 * middle:.2f} ms, at most {1e3 * worst:.2f} ms",
            {
                "baud": 0 if device.about.in_network else device.baud,
                "latency_ms": 1e3 * middle,
                "latency_worst_ms": 1e3 * worst,
            },
        )

    def memory(self) -> Step:
        """Random bits in every word that holds a parameter, then their complements."""
        device = self._device()
        device.load(self.graph, self.rules, OPTIONS)
        master_bits, sum_bits = BITS + device.formats.low_bits, device.formats.sums
        rng = np.random.default_rng(1)
        seconds, numbers, wrong = 0.0, 0, 0
        try:
            parameters = device._link
            arrays = [a for fixed in parameters.fixed.values() for a in fixed.arrays.values()]
            given = [(_bits(rng, master_bits, a), _bits(rng, sum_bits, a)) for a in arrays]
            for flip in (0, -1):
                for a, (master, total) in zip(arrays, given, strict=True):
                    a.master, a.sums = master ^ flip, total ^ flip
                start = time.perf_counter()
                parameters.write()
                parameters.read()
                seconds += time.perf_counter() - start
                for a, (master, total) in zip(arrays, given, strict=True):
                    wrong += int((a.master != master ^ flip).sum() + (a.sums != total ^ flip).sum())
                    numbers += 2 * master.size
        finally:
            device.close()
        return Step(
            "memory",
            f"{numbers:,} numbers of random bits and of their complements, written and read back in "
            f"{seconds:.1f} s",
            {"numbers": numbers, "seconds": seconds, "wrong": wrong},
            f"{wrong:,} of {numbers:,} numbers came back as others: the circuit is not that of "
            f"{self.circuit}, runs too fast, or its power is bad. {_SLOWER}"
            if wrong
            else "",
        )

    def training(self) -> Step:
        """Beside the model of the circuit's arithmetic, one instance at a time."""
        data = self.model.training(self.cfg.model, self.cfg.train.seed, 1)
        instances = [data[k] for k in range(min(self.instances, len(data)))]
        start = time.perf_counter()
        found, kept = _trained(device := self._device(), self, instances)
        seconds = time.perf_counter() - start
        expected, model = _trained(FixedDevice(str(device.formats)), self, instances)
        per_second = len(instances) / seconds
        return Step(
            "training",
            f"{len(instances)} instances, {per_second:,.0f} a second with one in flight; losses and weights "
            "are those of the model of its arithmetic, to the bit",
            {"instances": len(instances), "instances_per_s": per_second},
            _differs(found, expected, kept, model),
        )


def _answered(link: Link) -> float:
    """Seconds between a question and its answer."""
    left, came = np.array(pack(Kind.PEEK, place=Register.VERSION), np.uint16), 0
    start = time.perf_counter()
    while came < HEADER_WORDS:
        accepted, words, _ = link.exchange(left, 0)
        left = left[accepted:]
        came += len(words)
    return time.perf_counter() - start


def _bits(rng: np.random.Generator, width: int, of: FixedArray) -> np.ndarray:
    """Integers of so many bits, one for each of a parameter's."""
    return rng.integers(-1 << (width - 1), 1 << (width - 1), of.master.shape)


Losses = list[Mapping[str, Mapping[str, float]]]
Weights = Mapping[str, Mapping[str, np.ndarray]]


def _trained(device: Any, test: SelfTest, instances: Sequence[Instance]) -> tuple[Losses, Weights]:
    """What each instance's sinks said, and the parameters at the end."""
    device.load(test.graph, test.rules, replace(OPTIONS))
    try:
        losses: Losses = []
        for number, instance in enumerate(instances):
            device.submit(0, number + 1, instance, Mode.TRAIN)
            losses += [report.sums for report in device.drain()]
        return losses, {name: dict(p.values) for name, p in device.parameters().items()}
    finally:
        device.close()


def _differs(found: Losses, expected: Losses, kept: Weights, model: Weights) -> str:
    """The first difference; empty: there is none."""
    for number, (has, should) in enumerate(zip(found, expected, strict=True)):
        if has != should:
            return (
                f"instance {number + 1} says {_said(has)} where the model of the arithmetic says "
                f"{_said(should)}: the circuit computes wrongly. {_SLOWER}"
            )
    wrong = [n for n, of in model.items() if any(not np.array_equal(kept[n][p], v) for p, v in of.items())]
    return (
        f"the weights of {', '.join(wrong)} are others than the model of the arithmetic has" if wrong else ""
    )


def _said(sums: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(f"{node}: {name} {value:.6g}" for node, of in sums.items() for name, value in of.items())
