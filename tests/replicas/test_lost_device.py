"""A rank whose device is lost: the run ends, and names the checkpoint that it goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.run_folder import RunFolder
from amphw.ir.errors import DeviceLostError
from amphw.ir.reference import ReferenceDevice
from tests.host.training import MODEL
from tests.replicas.test_equivalence import settings
from tests.replicas.training import train_in_threads


class Lost(ReferenceDevice):
    """Is lost at its n-th update."""

    def __init__(self, at: int) -> None:
        super().__init__(dtype=np.float64)
        self.left = at

    def update(self, nodes: Any = None) -> None:
        self.left -= 1
        if not self.left:
            raise DeviceLostError("it is gone")
        super().update(nodes)


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce"])
def test_a_run_whose_device_is_lost_goes_on_from_what_was_saved(strategy: str, tmp_path: Path) -> None:
    """An epoch of two ranks has seven updates, with the last one of what nodes still hold."""
    cfg = settings(MODEL, 1, f"replicas.strategy={strategy}")
    for at in (2, 9):
        folder = RunFolder.create(tmp_path / f"run{at}", "toy")
        devices = [Lost(at), ReferenceDevice(dtype=np.float64)]
        with pytest.raises(DeviceLostError) as lost:
            train_in_threads(2, MODEL, cfg, lambda rank, devices=devices: devices[rank], folder)
        if at == 2:
            assert str(lost.value).startswith("the device was lost in epoch 1: it is gone. There is no check")
            assert not folder.file(CHECKPOINT).exists()
            continue
        assert f"lost in epoch 2: it is gone. The last consistent state is in {folder.path}" in str(
            lost.value
        )
        assert load_checkpoint(folder.file(CHECKPOINT), None)[1]["counters"]["epoch"] == 1
