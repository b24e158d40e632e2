"""Builds small traces for tests: events in microseconds, written as Chrome JSON in any dialect a test needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpuprof.ingest.discover import TraceFile
from hpuprof.ingest.read import read_trace
from hpuprof.model.partial import RankPartial
from hpuprof.model.trace import Trace
from hpuprof.naming import parse_name
from hpuprof.pipeline import reduce_trace
from sample_traces.generator.rows import write_text

MAIN = (100, 100)  # pid, tid of the main thread
AUTOGRAD = (100, 101)


def reduce_file(file: TraceFile) -> RankPartial:
    """Read and measure a trace file."""
    return reduce_trace(read_trace(file.path), file)


class TraceBuilder:
    """Collect events, then write or read them. Times are µs; every method returns the builder."""

    def __init__(self, **header: Any) -> None:
        self.header: dict[str, Any] = {"schemaVersion": 1, **header}
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def event(self, **fields: Any) -> TraceBuilder:
        """Add an event as it is."""
        self.events.append(fields)
        return self

    def host(
        self, name: str, start: float, dur: float, *, cat: str = "cpu_op", thread: tuple[Any, Any] = MAIN, **args: Any
    ) -> TraceBuilder:
        """Add a slice on a host thread."""
        return self.event(ph="X", cat=cat, name=name, pid=thread[0], tid=thread[1], ts=start, dur=dur, args=args)

    def annotation(self, name: str, start: float, dur: float, *, thread: tuple[Any, Any] = MAIN) -> TraceBuilder:
        """Add a user annotation."""
        return self.host(name, start, dur, cat="user_annotation", thread=thread)

    def step(self, number: int, start: float, dur: float) -> TraceBuilder:
        """Add a `ProfilerStep#N`."""
        return self.annotation(f"ProfilerStep#{number}", start, dur)

    def steps(self, count: int, dur: float) -> TraceBuilder:
        """Add `count` steps of equal length, back to back from 0."""
        for i in range(count):
            self.step(i, i * dur, dur)
        return self

    def device(
        self,
        name: str,
        start: float,
        dur: float,
        *,
        cat: str = "kernel",
        device: int = 0,
        stream: int = 7,
        correlation: int | None = None,
        **args: Any,
    ) -> TraceBuilder:
        """Add a slice on a CUDA-like stream."""
        linked = {} if correlation is None else {"correlation": correlation}
        return self.event(
            ph="X",
            cat=cat,
            name=name,
            pid=device,
            tid=stream,
            ts=start,
            dur=dur,
            args={"device": device, "stream": stream, **linked, **args},
        )

    def kernel(
        self,
        name: str,
        start: float,
        dur: float,
        *,
        launch: float | None = None,
        call: str = "cudaLaunchKernel",
        call_dur: float = 2,
        thread: tuple[Any, Any] = MAIN,
        **kwargs: Any,
    ) -> TraceBuilder:
        """Add a device slice and, with `launch`, the call that launched it at that time."""
        self._correlation += 1
        if launch is not None:
            self.host(call, launch, call_dur, cat="cuda_runtime", thread=thread, correlation=self._correlation)
        return self.device(name, start, dur, correlation=self._correlation, **kwargs)

    def lane(
        self,
        name: str,
        start: float,
        dur: float,
        *,
        engine: str = "TPC 0",
        tid: int = 7000,
        cat: str = "Kernel",
        **args: Any,
    ) -> TraceBuilder:
        """Add a slice on an HPU engine lane, with the lane's metadata."""
        self.event(ph="M", name="process_name", pid=0, tid=0, ts=0.0, args={"name": "/device:HPU:0"})
        self.event(ph="M", name="thread_name", pid=0, tid=tid, ts=0.0, args={"name": f"[HD0] {engine}"})
        return self.event(ph="X", cat=cat, name=name, pid=0, tid=tid, ts=start, dur=dur, args=args)

    def thread(self, name: str, thread: tuple[Any, Any]) -> TraceBuilder:
        """Name a thread."""
        return self.event(ph="M", name="thread_name", pid=thread[0], tid=thread[1], ts=0, args={"name": name})

    def text(self) -> str:
        """Return the trace as JSON, one event a line."""
        head = json.dumps(self.header)[:-1]
        events = ",\n".join(json.dumps(e) for e in self.events)
        return f'{head}, "traceEvents": [\n{events}\n]}}\n'

    def write(self, path: Path) -> Path:
        """Write the trace; `.gz` compresses. Directories are made."""
        write_text(path, self.text())
        return path

    def trace(self, folder: Path) -> Trace:
        """Write, then read as hpuprof reads it."""
        return read_trace(self.write(folder / "t.json"))

    def reduce(self, folder: Path) -> RankPartial:
        """Write, read and measure."""
        path = self.write(folder / "t.json")
        return reduce_file(TraceFile(str(path), path.name, path.stat().st_size, parse_name(path.name)))


def waited_for(**header: Any) -> TraceBuilder:
    """Return six steps of 1000 µs: a gemm that the host waits for, then a relu that nobody waits for."""
    b = TraceBuilder(**header)
    for i in range(6):
        at = 1000 * i
        b.step(i, at, 1000)
        b.host("aten::mm", at + 10, 40)
        b.kernel("gemm", at + 60, 500, launch=at + 20)
        b.host("cudaDeviceSynchronize", at + 60, 510, cat="cuda_runtime")
        b.host("aten::relu", at + 600, 30)
        b.kernel("relu", at + 640, 100, launch=at + 610)
    return b
