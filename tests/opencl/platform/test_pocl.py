"""Each process has a cache folder of its own, which the next one finds warm; PoCL is told what the CPU is."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from amphw.opencl.platform import pocl

BUILD = """
import os
from amphw.opencl.platform.platforms import found
from amphw.opencl.platform import pocl
device = found()[0].handle
import pyopencl as cl
context = cl.Context([device])
queue = cl.CommandQueue(context)
source = "kernel void one(global float *x) { x[get_global_id(0)] = 1; }"
kernel = cl.Kernel(cl.Program(context, source).build(), "one")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
kernel(queue, (16,), (1,), buffer)
queue.finish()
print(pocl.cache_folder(), os.environ.get("POCL_CACHE_DIR"), flush=True)
"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """This process has no folder yet -> the cache folder, which does not exist."""
    monkeypatch.delenv(pocl.CACHE, raising=False)
    monkeypatch.setattr(pocl, "_claimed", [])
    monkeypatch.setattr(pocl, "_problems", [])
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiled(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.so")}


def test_processes_at_the_same_time_do_not_share_and_later_ones_are_warm(
    python, environment, tmp_path
) -> None:
    root = tmp_path / "cache" / "pocl"
    first = subprocess.Popen(
        [sys.executable, "-c", f"{BUILD}\ninput()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdin is not None and first.stdout is not None
    assert first.stdout.readline() == f"{root / '0'} None\n"
    before = compiled(root / "0")
    assert len(before) == 1
    assert python(BUILD) == f"{root / '1'} None"
    first.communicate("\n")
    assert python(BUILD) == f"{root / '0'} None"
    assert compiled(root / "0") == before
    assert len(list((root / "0").glob("tempfile_*"))) <= 1  # that of the last process


def test_a_child_process_does_not_inherit_the_folder(python, tmp_path) -> None:
    program = f"""
import subprocess, sys
from amphw.opencl.platform import platforms
from amphw.opencl.platform import pocl
platforms.found()
print(pocl.cache_folder().name, flush=True)
subprocess.run([sys.executable, "-c", {BUILD!r}], check=True)
"""
    assert python(program).splitlines() == ["0", f"{tmp_path}/cache/pocl/1 None"]


def test_what_the_user_has_set_stays(python, tmp_path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    assert python(BUILD, POCL_CACHE_DIR=str(mine)) == f"{mine} {mine}"
    assert len(compiled(mine)) == 1
    assert not (tmp_path / "cache").exists()


def not_kept(fresh: Path, reason: str) -> None:
    """The folder is a temporary one, and why is said once."""
    message = (
        f"OpenCL kernels are compiled anew in every process: {fresh}/pocl cannot be written ({reason}). Set "
        "AMPHW_CACHE to a folder that can."
    )
    with pytest.warns(RuntimeWarning, match=f"^{re.escape(message)}$"):
        folder = pocl.cache_folder()
    assert folder.parent == Path(tempfile.gettempdir()) and folder.is_dir()
    assert pocl.cache_folder() == folder  # without another warning, which would be an error
    assert pocl.cache_problem() == message
    folder.rmdir()


def test_a_cache_folder_that_cannot_be_made(fresh) -> None:
    fresh.write_text("a file where the folder should be")
    not_kept(fresh, "Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_folder_that_is_read_only(fresh) -> None:
    fresh.mkdir(mode=0o500)
    not_kept(fresh, "Permission denied")


def test_a_full_disk(fresh, monkeypatch) -> None:
    def full(dir: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    not_kept(fresh, "No space left on device")


def test_a_relative_cache_folder_outlives_a_change_of_folder(fresh, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPHW_CACHE", "cache")
    assert pocl.cache_folder() == tmp_path / "cache" / "pocl" / "0"


def test_a_temporary_folder_goes_with_its_process(python, tmp_path) -> None:
    (tmp_path / "cache").write_text("")
    program = f"import warnings\nwarnings.simplefilter('ignore')\n{BUILD}"
    folder = Path(python(program, TMPDIR=str(tmp_path)).removesuffix(" None"))
    assert folder.parent == tmp_path and not folder.exists()


def test_what_pocl_leaves_behind_is_removed(fresh) -> None:
    left = fresh / "pocl" / "0" / "tempfile_aBcDeF"
    left.parent.mkdir(parents=True)
    left.touch()
    kept = left.with_name("AB")
    kept.touch()
    assert pocl.cache_folder() == left.parent
    assert kept.exists() and not left.exists()


# --- the processor ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux")
def test_the_processors_name_is_exchanged_in_the_record() -> None:
    name = ctypes.create_string_buffer(b"generic")
    other = ctypes.create_string_buffer(b"generic-x")
    words = (ctypes.c_uint64 * 128)(7, ctypes.addressof(other), ctypes.addressof(name), 2**64 - 1)
    record = ctypes.addressof(words)
    pocl._rename(record, "generic", "skylake-avx512")
    assert ctypes.string_at(words[2]) == b"skylake-avx512"
    assert (words[0], words[1], words[3]) == (7, ctypes.addressof(other), 2**64 - 1)
    with pytest.raises(LookupError, match="^0 words of the record point at the processor's name$"):
        pocl._rename(record, "generic", "haswell")
    words[5] = words[6] = ctypes.addressof(name)
    with pytest.raises(LookupError, match="^2 words"):
        pocl._rename(record, "generic", "haswell")
    assert words[5] == words[6] == ctypes.addressof(name)


class Record:
    """A device as PoCL describes it."""

    int_ptr = 0

    def __init__(self, processor: str):
        self.version = f"OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-{processor}"


AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"}


@pytest.mark.parametrize(
    ("known", "flags", "renamed"),
    [
        ("generic", AVX512, "skylake-avx512"),
        ("znver3", AVX512, "skylake-avx512"),  # a Zen 4
        ("znver3", {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"}, None),
        ("icelake-server", AVX512, None),
    ],
)
def test_a_processor_is_named_by_what_it_can_do(monkeypatch, known, flags, renamed) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(pocl, "_is_x86", lambda: True)
    monkeypatch.setattr(pocl, "_flags", lambda: flags)
    monkeypatch.setattr(pocl, "_rename", lambda record, old, new: told.append((old, new)))
    monkeypatch.setattr(pocl, "_renamed", {})
    pocl.put_right(Record(known))
    assert told == ([(known, renamed)] if renamed else [])


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("sse2", "x86-64"),
        ("avx2 fma bmi1 bmi2 f16c movbe", "haswell"),
        ("avx2 fma bmi1 bmi2 f16c movbe avx512f", "haswell"),
        (
            "avx2 fma bmi1 bmi2 f16c movbe avx512f avx512bw avx512cd avx512dq avx512vl avx512_bf16",
            "skylake-avx512",
        ),
    ],
)
def test_the_nearest_processor_has_no_instruction_that_this_one_lacks(flags, name) -> None:
    assert pocl._nearest(set(flags.split())) == name
