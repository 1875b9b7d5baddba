"""A server that speaks Google's JSON API (gcp-storage-emulator's), counts what it sends, and fails
when a test tells it to.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

BUCKET = "banks"


@dataclass
class Watched:
    """What the server did and is to do.

    Attributes:
        address: host and port.
        sent: bytes of answers, their heads among them.
        requests: method and path of each.
        faults: statuses to answer requests with, one each, before the store is asked.
        fails: the first method that ``faults`` are for.
    """

    address: str = ""
    sent: int = 0
    requests: list[str] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    fails: str = "GET"


class _Counted:
    """The file that an answer is written to."""

    def __init__(self, file: Any, watched: Watched) -> None:
        self._file, self._watched = file, watched

    def write(self, content: bytes) -> None:
        self._watched.sent += len(content)
        self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Handler(RequestHandler):  # type: ignore[misc]
    wfile: Any

    def __init__(self, watched: Watched, *args: Any) -> None:
        self._watched = watched
        super().__init__(*args)

    def setup(self) -> None:
        super().setup()
        self.wfile = _Counted(self.wfile, self._watched)

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        self._watched.requests.append(f"{self.command} {self.path}")
        if self._watched.faults and self.command == self._watched.fails:
            status = self._watched.faults.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False
        return True


class _Server(HTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that had its answer: gcsfs asks for two and takes the first."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def gcs_server() -> Iterator[Watched]:
    """Serve one bucket on a free port; the environment points Google's clients to it meanwhile."""
    storage = Storage(use_memory_fs=True)
    create_bucket(BUCKET, storage)
    watched = Watched()
    server = _Server(("127.0.0.1", 0), partial(_Handler, watched, storage))
    watched.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", watched.address)
        yield watched
    server.shutdown()
    thread.join()
    server.server_close()


def upload(watched: Watched, directory: Path, name: str) -> str:
    """Copy a directory's files into the bucket and return its URL."""
    place = f"http://{watched.address}/upload/storage/v1/b/{BUCKET}/o?uploadType=media"
    for path in directory.iterdir():
        put = Request(f"{place}&name={quote(f'{name}/{path.name}', safe='')}", path.read_bytes())
        put.add_header("Content-Type", "application/octet-stream")
        with urlopen(put) as answer:
            assert answer.status == 200
    return f"gs://{BUCKET}/{name}"
