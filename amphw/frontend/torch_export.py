"""`from_export`: a program that torch.export made, with its loops and decisions, as a part of a model.

PyTorch itself is imported by `from_export` alone. What it has is read into a `Flow`, which knows none of it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amphw.frontend.flow_program import ImportedProgram
from amphw.frontend.source import FrontendError
from amphw.frontend.torch_export_read import Reader, writes_in_place
from amphw.frontend.torch_state import TorchEntry, TorchState


def from_export(program: Any, *, most: int | None = None) -> Exported:
    """A `torch.export.ExportedProgram`, or the path of a saved one (.pt2), for a model's function to call.

    The operands are those of the program, in their order: values and Integers, or sequences of them. A
    dimension of differing length (`torch.export.Dim`) is the positions of a sequence that an operand depends
    on; the last such dimensions are the innermost positions, and one for which an operand has none is a batch
    of one. The others are columns, row by row. The result is a value, or a list of them. most: a bound for
    loops whose end the network decides, where it is not seen from what the condition counts.

    `torch.cond`, `while_loop`, `scan` and `map` become `cond`, `while_loop`, `scan` and what is computed at
    each position. Parameters start at a copy of the program's. Raises FrontendError with the line that the
    program was made from, for what has no counterpart and for a length that the program is specialised to.
    """
    try:
        import torch
    except ImportError:
        raise FrontendError("from_export needs PyTorch: pip install 'amphw[torch]'") from None
    if isinstance(program, str | os.PathLike):
        if not Path(program).is_file():
            raise FrontendError(f"there is no file '{os.fspath(program)}'")
        try:
            program = torch.export.load(program)
        except Exception as error:  # whatever PyTorch says of a file that is none of its own
            raise FrontendError(f"'{os.fspath(program)}' is no exported program: {error}") from error
    if not isinstance(program, torch.export.ExportedProgram):
        raise FrontendError(f"from_export takes what torch.export.export gives, or a path, got {program!r}")
    return Exported(program, most, torch)


class Exported(ImportedProgram):
    """A program of `torch.export` as a part of a model."""

    differs = "export it with a length that differs: " + (
        "dynamic_shapes=({{0: torch.export.Dim('n', min={small}, max={large})}}, ...)"
    )

    def __init__(self, program: Any, most: int | None, torch: Any) -> None:
        if writes_in_place(program, torch):
            with warnings.catch_warnings():  # of what PyTorch does itself
                warnings.simplefilter("ignore")
                program = program.run_decompositions({})  # new values for what is written in place
        reader = Reader(program, torch)
        super().__init__(reader.whole(), reader.limits(), most)
        self._weights, self._state = reader.weights, dict(program.state_dict)

    def torch_state(self, nodes: Mapping[str, str], present: Mapping[str, set[str]]) -> TorchState:
        """The program's tensors, and what they are here. nodes: the name of each block's node; present: the
        parameters that nodes have."""
        owners = {
            w: nodes[part] for part, block in self.parts.items() if part in nodes for w in block.weights
        }
        layouts = {w: axes for block in self.parts.values() for w, axes in block.layouts.items()}
        entries = []
        for path, tensor in self._state.items():
            known = self._weights.get(path)
            node = owners.get(known.name, "") if known is not None else ""
            name = known.name if known is not None and known.name in present.get(node, ()) else ""
            values = None if name else tensor.detach().cpu().double().numpy().copy()
            dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
            axes = layouts.get(name, ())
            entries.append(
                TorchEntry(
                    *(path, dtype, shape, name, axes == (1, 0), values),
                    node=node,
                    axes=axes if len(axes) > 2 else (),
                )
            )
        return TorchState(tuple(entries))
