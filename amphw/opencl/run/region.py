"""An OpenCL device in a run with others: the nodes placed on it are a region, which it computes as alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.arena import Arena
from amphw.engine.tiles.code import TiledUnit
from amphw.ir.device import Capabilities
from amphw.ir.graph import Graph
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.opencl.platform.lost import is_driver_error, not_opened
from amphw.opencl.platform.platforms import Found, capabilities, check_process
from amphw.opencl.run.executor import Executor, chosen_form
from amphw.opencl.run.plane import arena_bytes


class OpenCLRegion:
    """See `amphw.engine.parts.executor.RegionPart`. found: the device."""

    def __init__(self, found: Found):
        self.found = found

    def capabilities(self) -> Capabilities:
        return capabilities(self.found)

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        return ""  # as a run on the device alone, it takes whatever there is

    def shared_bytes(self, settings: Mapping[str, Any]) -> tuple[int, int]:
        check_process()
        return arena_bytes(self.found, settings), self.found.largest_allocation

    def open(
        self,
        worker: int,
        label: str,
        units: Sequence[tuple[Unit, TiledUnit]],
        params: dict[str, NodeParameters],
        arena: Arena,
        settings: Mapping[str, Any],
    ) -> Executor:
        form, tune = chosen_form(self.found, settings.get("form"))
        try:
            return Executor(worker, label, self.found, arena, form, tune, settings, units, params)
        except Exception as error:
            if not is_driver_error(error):
                raise
            raise not_opened(error, [self.found], arena.size) from error
