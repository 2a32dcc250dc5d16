"""Files are found, checked and fetched; whatever is wrong with one is said in full."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import lzma
import re
import socket
import socketserver
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from amphw.data.cache import DataError, DataFile, is_local, read_data

CONTENT = b"a small data set\n" * 50
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER = b"another data set\n"


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that AMPHW_DATA names, empty but for the folder `set`."""
    (tmp_path / "data" / "set").mkdir(parents=True)
    monkeypatch.setenv("AMPHW_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory, which does not exist yet. AMPHW_DATA is unset."""
    monkeypatch.delenv("AMPHW_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Server(socketserver.TCPServer):
    """Answers every request with `body`, announcing `announced` bytes (all of them, if None)."""

    allow_reuse_address = True
    body = b""
    announced: int | None = None
    requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.path.startswith("/absent"):
            self.send_error(404)
            return
        self.send_response(200)
        announced = self.server.announced
        self.send_header("Content-Length", str(len(self.server.body) if announced is None else announced))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def a_file(url: str = "http://127.0.0.1:9/items.gz", checksum: str = f"sha256:{SHA256}") -> DataFile:
    """The file `set/items`; by default its URL answers to nobody."""
    return DataFile("set/items", url, checksum)


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_local_copy_may_be_compressed_in_any_way(
    local: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    assert not is_local(a_file())
    (local / f"set/items{ending}").write_bytes(compress(CONTENT))
    assert is_local(a_file())
    assert read_data(a_file()) == CONTENT


def test_md5_is_accepted_where_a_source_gives_no_other_checksum(local: Path) -> None:
    (local / "set/items").write_bytes(CONTENT)
    assert read_data(a_file(checksum=f"md5:{hashlib.md5(CONTENT).hexdigest()}")) == CONTENT


def test_local_folder_comes_before_the_cache(local: Path, cache: Path) -> None:
    (local / "set/items").write_bytes(CONTENT)
    (cache / "set").mkdir(parents=True)
    (cache / "set/items").write_bytes(OTHER)
    assert read_data(a_file()) == CONTENT


def test_download_is_kept_in_the_cache(server: Server, cache: Path) -> None:
    server.body = gzip.compress(CONTENT)
    file = a_file(f"{server.url}/items.gz")
    assert read_data(file) == CONTENT
    assert read_data(file) == CONTENT
    assert server.requests == 1
    assert [path.name for path in (cache / "set").iterdir()] == ["items.gz"]


def test_file_missing_from_the_local_folder_is_downloaded(server: Server, local: Path) -> None:
    server.body = CONTENT
    assert read_data(a_file(f"{server.url}/items")) == CONTENT
    assert list((local / "set").iterdir()) == []


def archive(path: str) -> bytes:
    """A compressed tar archive with CONTENT at `path`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo(path)
        entry.size = len(CONTENT)
        tar.addfile(entry, io.BytesIO(CONTENT))
    return packed.getvalue()


def test_of_an_archive_the_member_is_kept(server: Server, cache: Path) -> None:
    server.body = archive("all/items.txt")
    file = DataFile("set/items", f"{server.url}/all.tar.gz", f"sha256:{SHA256}", "all/items.txt")
    assert read_data(file) == read_data(file) == CONTENT
    assert server.requests == 1
    assert (cache / "set/items").read_bytes() == CONTENT


def error_of(file: DataFile) -> str:
    with pytest.raises(DataError) as caught:
        read_data(file)
    return str(caught.value)


def test_wrong_content(local: Path) -> None:
    (local / "set/items.gz").write_bytes(gzip.compress(OTHER))
    assert error_of(a_file()) == (
        f"{local}/set/items.gz is not the expected file: sha256 of its 17 decompressed bytes is "
        f"{hashlib.sha256(OTHER).hexdigest()}, expected {SHA256}. "
        "Replace it, or unset AMPHW_DATA to download it."
    )


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_a_folder_where_the_file_should_be(local: Path, ending: str) -> None:
    (local / f"set/items{ending}").mkdir()
    assert error_of(a_file()) == (
        f"{local}/set/items{ending} is a folder, where a file of that name is needed. "
        "Put the file in its place."
    )
    (local / "set/items.bz2").write_bytes(bz2.compress(CONTENT))
    assert read_data(a_file()) == CONTENT


def test_truncated_gzip(local: Path) -> None:
    (local / "set/items.gz").write_bytes(gzip.compress(CONTENT)[:-12])
    assert error_of(a_file()) == (
        f"{local}/set/items.gz is truncated: its .gz data ends early. "
        "Replace it, or unset AMPHW_DATA to download it."
    )


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (".gz", r"Not a gzipped file \(b'no'\)"),
        (".xz", "Input format not supported by decoder"),
        (".bz2", "Invalid data stream"),
    ],
)
def test_not_compressed_although_the_name_says_so(cache: Path, ending: str, reason: str) -> None:
    (cache / "set").mkdir(parents=True)
    (cache / f"set/items{ending}").write_bytes(b"not compressed at all")
    assert re.fullmatch(
        rf"{cache}/set/items{ending} is not valid {ending} data \({reason}\)\. "
        r"Delete it; the next run downloads it again\.",
        error_of(a_file()),
    )


def test_local_folder_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_DATA", "/no/such/folder")
    assert error_of(a_file()) == (
        "AMPHW_DATA is '/no/such/folder', which is not a directory. "
        "Point it at the folder that holds the data sets, or unset it to download them."
    )


def by_hand(cache: Path, ending: str = ".gz") -> str:
    return (
        f"Download it by other means to {cache}/set/items{ending}, "
        "or set AMPHW_DATA to a folder that holds set/items."
    )


def nothing_is_left(cache: Path) -> bool:
    return list((cache / "set").iterdir()) == []


def test_no_server(cache: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/items.gz"
        message = error_of(a_file(url))
    refused = f"[Errno {errno.ECONNREFUSED}] Connection refused"
    assert message == f"{url} cannot be downloaded ({refused}). {by_hand(cache)}"
    assert nothing_is_left(cache)


def test_server_without_the_file(server: Server, cache: Path) -> None:
    url = f"{server.url}/absent.gz"
    assert error_of(a_file(url)) == f"{url} cannot be downloaded (Not Found). {by_hand(cache)}"
    assert nothing_is_left(cache)


def test_archive_without_the_member(server: Server, cache: Path) -> None:
    url = f"{server.url}/all.tar.gz"
    file = DataFile("set/items", url, f"sha256:{SHA256}", "all/items.txt")
    server.body = archive("all/others.txt")
    where = f"The download from {url}"
    assert error_of(file) == f"{where} holds no file all/items.txt. {by_hand(cache, '')}"
    server.body = CONTENT
    assert error_of(file).startswith(f"{where} is not a valid archive (")
    server.body = archive("all/items.txt")[:60]
    assert error_of(file).startswith(f"{where} is not a valid archive (")
    assert nothing_is_left(cache)


def test_download_that_stops_early(server: Server, cache: Path) -> None:
    server.body, server.announced = CONTENT[:100], 850
    url = f"{server.url}/items"
    assert error_of(a_file(url)) == (
        f"{url} cannot be downloaded (truncated: 100 of 850 bytes arrived). {by_hand(cache, '')}"
    )
    assert nothing_is_left(cache)


def test_download_of_something_else(server: Server, cache: Path) -> None:
    server.body = OTHER
    url = f"{server.url}/items"
    assert error_of(a_file(url)) == (
        f"The download from {url} is not the expected file: sha256 of its 17 decompressed bytes is "
        f"{hashlib.sha256(OTHER).hexdigest()}, expected {SHA256}. {by_hand(cache, '')}"
    )
    assert nothing_is_left(cache)


def test_cache_that_cannot_be_made(tmp_path: Path, cache: Path) -> None:
    cache.write_bytes(b"a file where the folder should be")
    assert error_of(a_file()) == (
        f"{cache}/set cannot be written (Not a directory). Set AMPHW_CACHE to a folder that can."
    )
