"""The OpenCL devices that tests run on: PoCL's, two of its thread pool and one that runs within the caller.

tests/conftest.py asks for them before anybody opens a platform. PoCL lists `basic` first, in whatever order
they are asked for. With AMPHW_TESTS_OPENCL, such as `gpu`, that device is in the place of all of them, for
the suites that say what every device must do:

    AMPHW_TESTS_OPENCL=gpu pytest tests/conformance/test_opencl.py
"""

from __future__ import annotations

import os

POCL_DEVICES = "pthread pthread basic"
GIVEN = os.environ.get("AMPHW_TESTS_OPENCL")
PTHREAD, PTHREADS, BASIC = (GIVEN, GIVEN, GIVEN) if GIVEN else ("1", "1,2", "0")
