"""Passes: functions from graph to graph that leave results unchanged."""

from amphw.ir.passes.fuse import fuse
from amphw.ir.passes.replicate import replicate

__all__ = ["fuse", "replicate"]
