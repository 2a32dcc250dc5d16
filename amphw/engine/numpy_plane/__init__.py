"""The data plane in numpy: needs no compiler, and runs any arithmetic that can be written with arrays."""

from amphw.engine.numpy_plane.plane import NumpyPlane
from amphw.engine.numpy_plane.replay import Replay

__all__ = ["NumpyPlane", "Replay"]
