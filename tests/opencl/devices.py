"""PoCL's devices as the tests find them: two of its thread pool, and one that runs within the caller.

tests/conftest.py asks for them before anybody opens a platform.
"""

POCL_DEVICES = "pthread pthread basic"
PTHREAD, PTHREADS, BASIC = "0", "0,1", "2"
