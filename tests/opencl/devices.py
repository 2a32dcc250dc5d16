"""PoCL's devices as the tests find them: two of its thread pool, and one that runs within the caller.

tests/conftest.py asks for them before anybody opens a platform. PoCL lists `basic` first, in whatever order
they are asked for.
"""

POCL_DEVICES = "pthread pthread basic"
PTHREAD, PTHREADS, BASIC = "1", "1,2", "0"
