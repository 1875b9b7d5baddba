"""A web server of plain files that sends ranges, or not, and fails when a test tells it to."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

Ranges = Literal["sent", "denied", "ignored"]
Fault = int | Literal["drop", "short", "silence"]


@dataclass
class Watched:
    """What the server did and is to do.

    Attributes:
        root: the directory that it serves; below ``/moved/`` it says that a file is in it.
        url: of the root.
        sent: bytes of bodies.
        requests: method and path of each.
        ranges: whether they are sent; denied: it says that they are not; ignored: it sends the
            whole file as if none had been asked for.
        sized: whether it tells the size of a file.
        lists: whether a directory has a page of its files, or none.
        fails: the methods that faults are for.
        faults: what becomes of the next requests of ``fails``, one each: a status; ``drop``, a
            connection that ends half way; ``short``, half of the bytes as if they were all;
            ``silence``, nothing until the server ends.
        over: whether the server ends.
    """

    root: Path
    url: str = ""
    sent: int = 0
    requests: list[str] = field(default_factory=list)
    ranges: Ranges = "sent"
    sized: bool = True
    lists: bool = True
    fails: tuple[str, ...] = ("GET",)
    faults: list[Fault] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, watched: Watched, *args: Any) -> None:
        self._watched = watched
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a test's output is its own."""

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def do_GET(self) -> None:
        self._answer(head=False)

    def _answer(self, head: bool) -> None:
        watched = self._watched
        watched.requests.append(f"{self.command} {self.path}")
        fault: Fault | None = None
        if watched.faults and self.command in watched.fails:
            fault = watched.faults.pop(0)
        if fault == "silence":
            watched.over.wait(30)
        elif isinstance(fault, int):
            self._send(fault, b"", head)
        elif self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.end_headers()
        else:
            self._send_file(watched.root / self.path.strip("/"), head, fault)

    def _send_file(self, path: Path, head: bool, fault: Fault | None) -> None:
        if path.is_dir() and self._watched.lists:
            names = sorted(entry.name for entry in path.iterdir())
            page = "".join(f'<a href="{name}">{name}</a>' for name in ["?sort=name", "../", *names])
            self._send(200, page.encode(), head, [("Content-Type", "text/html")])
            return
        if not path.is_file():
            self._send(404, b"", head)
            return
        content, status = path.read_bytes(), 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        told = [("Accept-Ranges", "none")] if self._watched.ranges == "denied" else []
        if asked and self._watched.ranges == "sent":
            start, stop = int(asked[1]), int(asked[2]) + 1
            told.append(("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}"))
            content, status = content[start:stop], 206
        self._send(status, content, head, told, fault)

    def _send(
        self,
        status: int,
        content: bytes,
        head: bool,
        told: list[tuple[str, str]] | None = None,
        fault: Fault | None = None,
    ) -> None:
        if fault == "short":
            content = content[: len(content) // 2]
        self.send_response(status)
        for name, value in told or []:
            self.send_header(name, value)
        if self._watched.sized:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if head:
            return
        if fault == "drop":
            content = content[: len(content) // 2]
        try:
            for start in range(0, len(content), 1 << 16):
                part = content[start : start + (1 << 16)]
                self._watched.sent += len(part)
                self.wfile.write(part)
        except ConnectionError:
            # The client had enough.
            self.close_connection = True


@contextmanager
def web_server(root: Path) -> Iterator[Watched]:
    """Serve a directory on a free port."""
    watched = Watched(root)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, watched))
    watched.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield watched
    watched.over.set()
    server.shutdown()
    thread.join()
    server.server_close()
