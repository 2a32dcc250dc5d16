"""Asynchronous model-parallel (AMP) training of dynamic neural networks.

A model is a static graph whose control flow is dynamic: every message carries the state that says where
in the computation it stands. The same description runs on a multi-core CPU, on OpenCL devices and on FPGAs.
"""

__version__ = "0.2.0"
