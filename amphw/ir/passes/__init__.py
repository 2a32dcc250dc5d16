"""Passes: functions from graph to graph that leave results unchanged."""

from amphw.ir.passes.fold import fold, fold_parameters
from amphw.ir.passes.fuse import fuse
from amphw.ir.passes.named import by_name
from amphw.ir.passes.replicate import RULES, originals, replicate
from amphw.ir.passes.rest import rest
from amphw.ir.passes.tile import join, split, tile

__all__ = [
    "RULES",
    "by_name",
    "fold",
    "fold_parameters",
    "fuse",
    "join",
    "originals",
    "replicate",
    "rest",
    "split",
    "tile",
]
