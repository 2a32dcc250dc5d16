"""Checkpoints come back bit for bit, survive a full disk, and say why they cannot be used."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from amphw.host.checkpoint import CheckpointError, load_checkpoint, save_checkpoint, unchecked
from amphw.host.run_folder import WriteError

HEADER: dict[str, Any] = {
    "graph": "sha256:aaaa",
    "model": "rnn",
    "config": "[train]\nlr = 0.001\n",
    "counters": {"epoch": 3, "instances": 21000, "generator": 2**127 + 1, "best": float("-inf")},
}


def tensors() -> dict[str, np.ndarray]:
    return {
        "linear.w": np.arange(12, dtype=np.float32).reshape(3, 4).T,  # not contiguous
        "adam.step": np.array(7, dtype=np.int64),
        "empty": np.zeros((0, 5), dtype=np.float16),
        "mask": np.array([True, False]),
        "big-endian": np.array([1.5, -2.0], dtype=">f8"),
    }


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "last.safetensors"
    save_checkpoint(path, tensors(), HEADER)
    found, header = load_checkpoint(path, "sha256:aaaa")
    assert header == HEADER | {"format": 2}
    assert set(found) == set(tensors())
    for name, tensor in tensors().items():
        assert found[name].shape == tensor.shape
        assert found[name].dtype == tensor.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found[name], tensor)
        assert found[name].flags.writeable
        assert found[name].flags.owndata


def test_without_tensors_and_without_a_graph_to_expect(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {}, HEADER)
    assert load_checkpoint(tmp_path / "c", None)[0] == {}


def test_another_graph_names_both(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", tensors(), HEADER)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "c", "sha256:bbbb")
    message = str(caught.value)
    assert (
        "belongs to another graph: it was saved from sha256:aaaa (model rnn), this model is sha256:bbbb"
        in message
    )
    assert "use the config saved with the checkpoint" in message


def test_another_format_version(tmp_path: Path) -> None:
    about = {"amphw_checkpoint": "3", "amphw_header": json.dumps(HEADER)}
    save_file({"w": np.zeros(3)}, tmp_path / "c", metadata=about)
    with pytest.raises(
        CheckpointError, match="has checkpoint format 3, this amphw reads formats 1 and 2; load it with"
    ):
        load_checkpoint(tmp_path / "c", None)


def test_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read checkpoint .*absent"):
        load_checkpoint(tmp_path / "absent", None)
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        load_checkpoint(tmp_path, None)
    (tmp_path / "text").write_text("[train]\nlr = 0.001\n")
    with pytest.raises(CheckpointError, match="not an amphw checkpoint: it is not a safetensors file"):
        load_checkpoint(tmp_path / "text", None)
    save_file({"w": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="a safetensors file without an amphw header"):
        load_checkpoint(tmp_path / "other", None)


def test_cut_off_anywhere_it_is_called_truncated(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, tensors(), HEADER)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="is truncated"):
            load_checkpoint(path, None)


def test_any_flipped_bit_is_an_error(tmp_path: Path) -> None:
    """Of the header, of the tensors and of the checksum itself."""
    path = tmp_path / "c"
    save_checkpoint(path, {"w": np.arange(4.0)}, HEADER)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(CheckpointError):
            load_checkpoint(path, None)
    path.write_bytes(whole)
    load_checkpoint(path, None)


@pytest.mark.parametrize("value", [0x00, 0x22, 0x39, 0xFF])
def test_any_replaced_byte_is_an_error(tmp_path: Path, value: int) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, {"w": np.arange(4.0)}, HEADER)
    whole = path.read_bytes()
    for place in range(len(whole)):
        if whole[place] != value:
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            with pytest.raises(CheckpointError):
                load_checkpoint(path, None)


def test_a_damaged_weight_is_called_damage(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, {"w": np.ones(4, np.float32)}, HEADER)
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 0x80
    path.write_bytes(whole)
    with pytest.raises(
        CheckpointError, match="c is damaged: it does not have the checksum that it was saved"
    ):
        load_checkpoint(path, "sha256:aaaa")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    save_checkpoint(tmp_path / "c", {"good": np.ones(2), "cell.W": np.array([1.0, value])}, HEADER)
    with pytest.raises(CheckpointError, match=r"holds a NaN or an infinite value in tensor 'cell\.W'"):
        load_checkpoint(tmp_path / "c", None)


def test_a_header_that_looks_like_the_checksum_changes_nothing(tmp_path: Path) -> None:
    mark = '"amphw_sha256":"' + "0" * 64
    header = HEADER | {"model": mark, "amphw_sha256": "0" * 64}
    save_checkpoint(tmp_path / "c", {mark: np.ones(2)}, header)
    tensors, found = load_checkpoint(tmp_path / "c", None)
    assert list(tensors) == [mark] and found["model"] == mark
    assert unchecked(tmp_path / "c", found) is None


def test_a_file_from_before_checksums_loads_with_a_note(tmp_path: Path) -> None:
    about = {"amphw_checkpoint": "1", "amphw_header": json.dumps(HEADER)}
    save_file({"w": np.arange(3.0)}, tmp_path / "c", metadata=about)
    found, header = load_checkpoint(tmp_path / "c", "sha256:aaaa")
    assert found["w"].tolist() == [0, 1, 2]
    assert "c was saved before checkpoints had checksums" in (unchecked(tmp_path / "c", header) or "")


@pytest.mark.parametrize("absent", ["graph", "model", "config", "counters"])
def test_a_header_is_complete(tmp_path: Path, absent: str) -> None:
    header = {key: value for key, value in HEADER.items() if key != absent}
    with pytest.raises(CheckpointError, match=f"lacks {absent}; pass all of graph, model, config, counters"):
        save_checkpoint(tmp_path / "c", {}, header)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([None])])
def test_a_tensor_that_cannot_be_kept_is_named(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(CheckpointError, match="cannot keep tensor 'odd' of dtype"):
        save_checkpoint(tmp_path / "c", {"odd": array}, HEADER)
    assert os.listdir(tmp_path) == []


def test_a_header_that_is_not_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not JSON: .*convert its values first"):
        save_checkpoint(tmp_path / "c", {}, HEADER | {"counters": {"epoch": np.int64(3)}})


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, tensors(), HEADER)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"last\.safetensors: No space left.*untouched.*free space"):
        save_checkpoint(path, {}, HEADER | {"model": "other"})
    assert load_checkpoint(path, None)[1]["model"] == "rnn"
    assert os.listdir(tmp_path) == ["last.safetensors"]


def test_a_write_that_the_kernel_cuts_off_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, tensors(), HEADER)
    script = textwrap.dedent("""
        import json, resource, sys
        from pathlib import Path
        import numpy as np
        from amphw.host.checkpoint import save_checkpoint
        from amphw.host.run_folder import WriteError
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        try:
            save_checkpoint(Path(sys.argv[1]), {"w": np.zeros(100_000)}, json.loads(sys.argv[2]))
        except WriteError as error:
            print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), json.dumps(HEADER)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "last.safetensors: File too large; the previous version is untouched" in done.stdout
    assert set(load_checkpoint(path, "sha256:aaaa")[0]) == set(tensors())
    assert os.listdir(tmp_path) == ["last.safetensors"]
