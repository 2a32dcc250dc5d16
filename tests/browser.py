"""A Chromium without a window, spoken to in the DevTools protocol over a pair of pipes.

https://chromedevtools.github.io/devtools-protocol/: commands and answers are JSON, each ended by a zero byte.
It needs no driver and no library beside the browser, whose versions would have to match.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe
""".split()
PATIENCE = 60.0
"""Seconds that an answer may take."""


def program() -> str | None:
    """Of the browser; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """profile: an empty folder."""

    def __init__(self, profile: Path) -> None:
        found = program()
        assert found is not None
        # The shell puts the pipes where the browser looks for them: 3 to read, 4 to write.
        command = [found, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._send, self._receive = self._process.stdin, self._process.stdout
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The command's result; events that come before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        self._send.flush()
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._receive.fileno(), 1 << 20) if ready else b""
            assert data, f"the browser says nothing (its exit status: {self._process.poll()})"
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def show(self, page: Path, width: int, dark: bool) -> list[str]:
        """Open the file as on a screen of that width. Returns the addresses that were asked for."""
        return self.open(page.as_uri(), width, dark)

    def open(self, address: str, width: int, dark: bool) -> list[str]:
        """The same of an address."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.evaluate("document.fonts.ready.then(() => 1)")
        requests = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [request["request"]["url"] for request in requests]

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, or of the promise that it is."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, file: Path) -> None:
        """Of the whole page, as a PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._send.close()  # at which it ends
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._receive.close()
