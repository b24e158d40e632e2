"""A real Dask cluster on loopback, one process each, and a web server whose answers wait for the test."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

PATIENCE_S = 120


READERS = ("hpuprof.tasks", "hpuprof.pipeline", "hpuprof.ingest.read")
# Its children have what the scheduler and the workers import, and cost no start of Python.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["distributed.cli.dask_scheduler", "distributed.cli.dask_worker", *READERS])


@dataclass
class Cluster:
    """A scheduler and its workers; `address` is the scheduler's."""

    address: str
    scheduler: ForkServerProcess
    workers: list[ForkServerProcess] = field(default_factory=list)


def _run(module: str, arguments: list[str], log: Path) -> None:
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.environ["HPUPROF_CACHE"] = "off"
    import_module(f"distributed.cli.{module}").main(arguments)


def _start(module: str, *arguments: str, log: Path) -> ForkServerProcess:
    process = FORKS.Process(target=_run, args=(module, list(arguments), log), daemon=True)
    process.start()
    return process


def end(process: ForkServerProcess) -> int | None:
    """Kill a process; return how it ended."""
    process.kill()
    process.join(PATIENCE_S)
    return process.exitcode


def wait_for(condition, what: str):
    """Return the condition's value once it is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(what)


@contextmanager
def cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Run a scheduler and single-threaded workers without nannies, each a process on loopback."""
    address_file, log = folder / "scheduler.json", folder / "dask.log"
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter")
    scheduler = _start("dask_scheduler", *options, "--scheduler-file", str(address_file), log=log)
    made = None
    try:
        text = wait_for(lambda: address_file.exists() and address_file.read_text(), f"no scheduler: {log}")
        made = Cluster(json.loads(text)["address"], scheduler)
        for _ in range(workers):
            arguments = (
                "--no-nanny",
                "--nthreads",
                "1",
                "--no-dashboard",
                "--host",
                "127.0.0.1",
                "--local-directory",
                str(folder),
            )
            made.workers.append(_start("dask_worker", made.address, *arguments, log=log))
        yield made
    finally:
        for process in [*(made.workers if made else []), scheduler]:
            end(process)


class Gate:
    """Holds back the answers for some names, once `hold` is set, until it is opened.

    `asked` counts answers by name, `sent` the bytes of answers to ranges.
    """

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.reached = threading.Event()
        self.open = threading.Event()
        self.hold = False
        self.free = 0  # how many answers for a name come before it holds
        self.asked: dict[str, int] = {}
        self.sent = 0


@contextmanager
def web_server(folder: Path, gate: Gate | None = None, *, ranges: bool = False) -> Iterator[str]:
    """Serve a folder on loopback; answers for the gate's names wait. `ranges`: send parts of files. Yields the address."""
    gate = gate or Gate()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, directory=str(folder), **options)

        def do_GET(self):
            asked = self.headers.get("Range", "")
            path = Path(self.translate_path(self.path))
            if not (ranges and asked.startswith("bytes=") and path.is_file()):
                return super().do_GET()
            total = path.stat().st_size
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or total - 1), total - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{total}")
            self.send_header("Content-Length", str(end - begin + 1))
            self.end_headers()
            gate.sent += end - begin + 1
            with path.open("rb") as source:
                source.seek(begin)
                self.wfile.write(source.read(end - begin + 1))
            return None

        def copyfile(self, source, outputfile):
            name = Path(self.path).name
            gate.asked[name] = gate.asked.get(name, 0) + 1
            if name in gate.names and gate.hold and gate.asked[name] > gate.free:
                outputfile.write(source.read(1 << 10))
                outputfile.flush()
                gate.reached.set()
                gate.open.wait(PATIENCE_S)
            super().copyfile(source, outputfile)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_):
            """Readers that have seen enough hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        gate.open.set()
        server.shutdown()
        server.server_close()
        thread.join()
