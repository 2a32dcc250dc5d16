"""A run that is watched: what it writes while somebody looks, what the server answers, and the page."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from amphw.host import watching
from amphw.host.progress import LiveStats
from amphw.host.run_folder import RunFolder, RunFolderError
from amphw.host.watching import ASKED, LIVE, Watching, ask, looked
from amphw.library.watch import serving
from tests.browser import Browser, program
from tests.host.test_plots import history, summary

STATS = LiveStats(epoch=3, done=50, total=200, loss=0.25, rate=1234.0, utilisation=[0.5, float("nan")])


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path / "run", "m")
    made.write_json("metrics.json", history(0.5))
    return made


def test_a_run_writes_only_while_somebody_looks(folder, monkeypatch) -> None:
    monkeypatch.setattr(watching, "EVERY", 0.0)
    run = Watching(folder.path)
    assert not run.wanted()
    ask(folder.path)
    assert run.wanted()
    run.update(STATS)
    told = json.loads(folder.file(LIVE).read_text())
    assert (told["epoch"], told["done"], told["utilisation"]) == (3, 50, [0.5, None])
    os.utime(folder.file(ASKED), (0, 0))
    assert not run.wanted()


def test_it_writes_twice_a_second_at_most(folder) -> None:
    run = Watching(folder.path)
    ask(folder.path)
    run.update(STATS)
    assert not run.wanted()


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path) -> None:
    Watching(tmp_path / "gone").update(STATS)
    ask(tmp_path / "gone")


def test_what_there_is_of_a_run(folder) -> None:
    assert looked(folder) == {
        "running": False,
        "live": None,
        "epochs": json.loads(folder.file("metrics.json").read_text()),
        "summary": None,
    }
    with folder.held():
        Watching(folder.path).update(STATS)
        found = looked(folder)
        assert found["running"] and found["live"]["done"] == 50
        old = json.loads(folder.file(LIVE).read_text())
        folder.file(LIVE).write_text(json.dumps(old | {"time": time.time() - 60}))
        assert looked(folder)["live"] is None
        folder.file(LIVE).write_text("{")
        assert looked(folder)["live"] is None
    folder.write_json("summary.json", summary(0.5))
    assert looked(folder)["summary"]["epochs"] == summary(0.5).epochs


@contextmanager
def served(folder: RunFolder) -> Iterator[str]:
    server = serving(folder, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_server_answers_this_machine_alone(folder) -> None:
    folder.file("report.html").write_text("a report")
    with served(folder) as address:
        with urlopen(f"{address}/state") as answer:
            assert json.load(answer)["epochs"]
        with urlopen(f"{address}/report.html") as answer:
            assert answer.read() == b"a report"
        for path, headers, code in (
            ("/config.toml", {}, 404),
            ("/../run/config.toml", {}, 404),
            ("/state", {"Host": "elsewhere.example:80"}, 403),
        ):
            with pytest.raises(HTTPError) as error:
                urlopen(Request(address + path, headers=headers))
            assert error.value.code == code
            error.value.close()
        port = int(address.rpartition(":")[2])
        with pytest.raises(RunFolderError, match=f"port {port} cannot be had"):
            serving(folder, port)


@pytest.mark.skipif(program() is None, reason="there is no Chromium (on Debian: apt install chromium)")
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_follows_a_run(folder, tmp_path, width: int) -> None:
    browser = Browser(tmp_path)
    try:
        with served(folder) as address, folder.held():
            Watching(folder.path).update(STATS)
            browser.open(address, width, dark=width == 400)

            def shown(script: str, wanted: str) -> None:
                end = time.monotonic() + 30
                while wanted not in (found := str(browser.evaluate(script))):
                    assert time.monotonic() < end, found
                    time.sleep(0.05)

            text = "document.getElementById('{}').textContent"
            shown(text.format("state"), "Epoch 3: 50 of 200 instances.")
            shown(text.format("tiles"), "1,234/s")
            shown(text.format("workers"), "worker 050 %worker 1–")
            assert browser.evaluate("document.documentElement.scrollWidth") == width
            assert browser.evaluate("document.querySelectorAll('#metric circle').length") > 1
        with served(folder) as address:
            browser.open(address, width, dark=False)
            shown(text.format("state"), "No process trains in this folder")
            folder.file("report.html").write_text("a report")
            folder.write_json("summary.json", summary(0.5))
            shown(text.format("state"), "Ended after")
            shown(text.format("report"), "The report of the run")
    finally:
        browser.close()
