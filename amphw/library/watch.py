"""The server behind `amphw watch`: a page of a run that is under way, for this machine alone."""

from __future__ import annotations

import json
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from amphw.host.run_folder import ENVIRONMENT, RunFolder, RunFolderError
from amphw.host.watching import ask, looked
from amphw.library.artifacts import REPORT
from amphw.page.watch.page import page

HERE = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    """Answers with the page, what is to be seen of the run, and its report where it has one."""

    def __init__(self, folder: RunFolder, *arguments: Any) -> None:
        self.folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        # A page from elsewhere could have a name of its own point here, and read what it likes.
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in (HERE, "localhost"):
            self._answer(403, "text/plain", b"this page is for the machine that the run is watched on\n")
        elif self.path == "/":
            self._answer(200, "text/html", page(self._title()).encode())
        elif self.path == "/state":
            ask(self.folder.path)
            found = looked(self.folder)
            if found["summary"] is not None:
                del found["summary"]["history"]  # which `epochs` has
            self._answer(200, "application/json", json.dumps(found).encode())
        elif self.path == f"/{REPORT}" and self.folder.file(REPORT).exists():
            self._answer(200, "text/html", self.folder.file(REPORT).read_bytes())
        else:
            self._answer(404, "text/plain", b"there is no such page\n")

    def _title(self) -> str:
        about = self.folder.read_json(ENVIRONMENT) if self.folder.file(ENVIRONMENT).exists() else {}
        return ", ".join(filter(None, (about.get("model"), self.folder.path.name)))

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Of requests nothing is said."""


def serving(folder: RunFolder, port: int) -> ThreadingHTTPServer:
    """A server for the run in this folder, not serving yet. port: 0: any that is free. Raises RunFolderError
    where the port is taken."""
    try:
        server = ThreadingHTTPServer((HERE, port), partial(Handler, folder))
    except OSError as error:
        raise RunFolderError(
            f"port {port} cannot be had ({error.strerror}); leave --port out, and a free one is taken"
        ) from error
    server.daemon_threads = True
    ask(folder.path)
    return server
