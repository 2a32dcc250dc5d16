"""PoCL, the OpenCL of CPUs: what it needs before it runs, and what it does not say itself.

*Cache folder.* PoCL keeps compiled kernels in one folder (a cold build takes half a second, a warm one
30 ms), but processes that fill the same one at the same time get in each other's way, and builds fail now and
then. So each process takes a folder for itself, the first free one of `pocl/0`, `pocl/1`, ... below the cache
folder, by a file lock that ends with it: one process after the other finds the first folder, warm.

*Linker.* PoCL links kernels with `ld`. Without it, it aborts the whole process, which nothing can catch.

*Processor.* A PoCL that is older than the processor takes it for "generic", a name that its own compiler
then refuses ("unknown target CPU 'generic'"): no kernel can be built. Or it takes it for a relative without
AVX-512 (a Zen 4 for "znver3"), whose vectors of 16 floats its compiler cannot handle: some functions of them
abort the process ("Cannot select ... fsqrt"). There is no option for it, so the name is put right in PoCL's
record of the device.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import shutil
import struct
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CACHE = "POCL_CACHE_DIR"

_claimed: list[Path] = []  # this process's cache folder
_problems: list[str] = []  # with the cache folder
_renamed: dict[int, str] = {}  # by the address of the device: the processor that kernels are compiled for
_keep: list[Any] = []  # names that PoCL's records point at


@contextmanager
def environment() -> Iterator[None]:
    """Around the first use of the platforms, which is when PoCL reads its environment.

    What the user has set stays. What we set is taken back, so that a child process takes a folder of its own.
    """
    if os.environ.get(CACHE):
        yield
        return
    os.environ[CACHE] = str(cache_folder())
    try:
        yield
    finally:
        os.environ.pop(CACHE, None)


def cache_folder() -> Path:
    """The folder for compiled kernels that this process, and no other living one, uses."""
    if configured := os.environ.get(CACHE):
        return Path(configured)
    if not _claimed:
        try:
            _claimed.append(_free_folder(cache_root()))
        except OSError as error:
            made = Path(tempfile.mkdtemp(prefix="amphw-pocl-"))
            atexit.register(shutil.rmtree, made, ignore_errors=True)
            _claimed.append(made)
            _problems.append(
                f"OpenCL kernels are compiled anew in every process: {cache_root()} cannot be written "
                f"({error.strerror}). Set AMPHW_CACHE to a folder that can."
            )
            warnings.warn(_problems[0], RuntimeWarning, stacklevel=2)
    return _claimed[0]


def cache_problem() -> str:
    """Why compiled kernels are not kept; empty if they are."""
    return " ".join(_problems)


def cache_root() -> Path:
    """The folder that the processes' folders are in. It need not exist yet."""
    configured = os.environ.get("AMPHW_CACHE")
    root = Path(configured).expanduser() if configured else Path.home() / ".cache" / "amphw"
    return root.absolute() / "pocl"


def _free_folder(root: Path) -> Path:
    """The first folder that nobody has locked; now this process has, until it ends."""
    try:
        import fcntl
    except ImportError as error:  # Windows, for which there is no PoCL from PyPI
        raise OSError(0, "there are no file locks here") from error
    root.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        lock = os.open(root / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            number += 1
            continue
        folder = root / str(number)
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))  # a full disk still makes empty files
        for left in folder.glob("tempfile_*"):  # PoCL leaves one behind in every process
            left.unlink(missing_ok=True)
        return folder


def linker() -> str | None:
    """Where `ld` is."""
    return shutil.which("ld")


def is_pocl(device: Any) -> bool:
    return bool(device.platform.name == "Portable Computing Language")


def processor(device: Any) -> str:
    """What PoCL compiles the device's kernels for.

    The last word of its version, as in "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3".
    """
    named = str(device.version).strip().rsplit("-", 1)[-1]
    return _renamed.get(device.int_ptr, named)


def is_renamed(device: Any) -> bool:
    """Whether `put_right` has given the device another processor's name."""
    return device.int_ptr in _renamed


def is_unknown(device: Any) -> bool:
    """Whether PoCL will refuse to build anything for the device's processor."""
    return _is_x86() and processor(device) == "generic"


def put_right(device: Any) -> None:
    """Give a device whose processor PoCL does not know the best name that it does know, if it can be done."""
    known = processor(device)
    if not is_unknown(device) and known not in _NARROW:
        return
    try:
        name = _nearest(_flags())
        if known in _NARROW and name != WIDE:
            return
        _rename(device.int_ptr, known, name)
    except (OSError, LookupError):
        return  # it stays unknown, which `platforms.check_usable` reports
    _renamed[device.int_ptr] = name


def _rename(record: int, known: str, name: str) -> None:
    """Let the one word of PoCL's record of a device that points at its processor's name point at another.

    Read and written through /proc/self/mem, where a word that is no address is an error and not a crash.
    """
    words = 128
    memory = os.open("/proc/self/mem", os.O_RDWR)
    try:
        found = []
        for k, word in enumerate(struct.unpack(f"={words}Q", os.pread(memory, 8 * words, record))):
            try:
                if os.pread(memory, len(known) + 1, word) == known.encode() + b"\0":
                    found.append(record + 8 * k)
            except (OSError, OverflowError):
                continue
        if len(found) != 1:
            raise LookupError(f"{len(found)} words of the record point at the processor's name")
        text = ctypes.create_string_buffer(name.encode())
        _keep.append(text)
        os.pwrite(memory, struct.pack("=Q", ctypes.addressof(text)), found[0])
    finally:
        os.close(memory)


def _is_x86() -> bool:
    return platform.machine().lower() in {"x86_64", "amd64"}  # elsewhere "generic" is a processor


def _flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


WIDE = "skylake-avx512"
_NARROW = {"znver1", "znver2", "znver3", "haswell", "broadwell", "skylake"}
"""Processors without AVX-512, for which PoCL takes one that has it."""


def _nearest(flags: set[str]) -> str:
    """A processor whose instructions this one has; old enough for every PoCL."""
    if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"} <= flags:
        return WIDE
    return "haswell" if {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"} <= flags else "x86-64"
