"""A server that speaks S3 (moto's), counts what it sends, and fails when a test tells it to."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow import fs
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "banks"

Start = Callable[..., Any]


class Watched:
    """The server's application: bytes of bodies sent, requests, and faults to come.

    Attributes:
        sent: bytes of bodies.
        requests: method and path of each.
        faults: status to answer GET requests with, one each, before the store is asked.
    """

    def __init__(self, app: Callable[[dict[str, Any], Start], Iterable[bytes]]) -> None:
        self._app = app
        self.sent = 0
        self.requests: list[str] = []
        self.faults: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterator[bytes]:
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        if self.faults and environ["REQUEST_METHOD"] == "GET":
            start(self.faults.pop(0), [("Content-Length", "0")])
            return
        for part in self._app(environ, start):
            self.sent += len(part)
            yield part


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing: a test's output is its own."""


@contextmanager
def s3_server() -> Iterator[Watched]:
    """Serve one bucket on a free port; the environment points S3 clients to it meanwhile."""
    watched = Watched(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, watched, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test-key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        _system("?allow_bucket_creation=true").create_dir(BUCKET)
        yield watched
    server.shutdown()
    thread.join()
    server.server_close()


def _system(options: str = "") -> fs.FileSystem:
    # Not the class: only a URL makes it look at AWS_ENDPOINT_URL.
    system, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}{options}")
    return system


def upload(directory: Path, name: str) -> str:
    """Copy a directory's files into the bucket and return its URL."""
    system = _system()
    for path in directory.iterdir():
        with system.open_output_stream(f"{BUCKET}/{name}/{path.name}") as sink:
            sink.write(path.read_bytes())
    return f"s3://{BUCKET}/{name}"
