"""Write what a profiler saw of a rank's run: as Kineto writes a CUDA trace, or as the Gaudi bridge's first writers leave one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sample_traces.generator import gaudi, kineto
from sample_traces.generator.rows import Row, kineto_layout, whole

from .device import Ran
from .host import HostRow, Run
from .machine import Machine
from .program import AUTOGRAD, LAUNCHER, MAIN

BASE_NS = 1_727_743_122_000_000_000
_SOURCE = "world"
_START_NS = 60_000_000_000  # stamps of traces without a clock of their own count from the base
_COPIED = {"h2d": 1 << 20, "d2h": 4, "d2d": 1 << 20}
_CARD = gaudi.gaudi2_lanes()
_LANES = {"MME": _CARD["mme"][:1], "TPC": _CARD["tpc"][:4], "DMA": _CARD["dma"][2:3], "PDMA": _CARD["dma"][:1]}


@dataclass(frozen=True)
class Source:
    """Whose trace it is. `clock`: from true time to the host's stamps, counted from the base; `lost`: share of rows that are lost."""

    rank: int = 0
    world: int = 1
    host: str = ""
    told: dict[str, Any] | None = None  # what our own recorder adds; None for a trace of others
    clock: Callable[[float], int] | None = None
    lost: float = 0.0
    config: str | None = None
    properties: dict[str, Any] = field(
        default_factory=lambda: {"id": 0, "name": "simulated CUDA device", "totalGlobalMem": 80 << 30}
    )

    def header(self, pid: int, device: str, run_mode: str) -> dict[str, Any]:
        """Return what stands before the rows."""
        found: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [self.properties], "displayTimeUnit": "ms"}
        if self.world > 1:
            found["distributedInfo"] = kineto.distributed("nccl", self.rank, self.world, config=self.config)
        if self.host:
            found["host_name"] = self.host
        if self.told is not None:
            found["hpuprof"] = {
                "rank": self.rank, "world_size": self.world, "local_rank": self.rank, "host": _SOURCE, "pid": pid, "stage": "train",
                "action": "", "framework": "pytorch", "device": device, "run_mode": run_mode, **self.told,
            }  # fmt: skip
        return found | {"baseTimeNanoseconds": BASE_NS}


def cuda_trace(run: Run, machine: Machine, source: Source, seed: str) -> str:
    """Return the text of a CUDA trace, with the defects that the machine's constants and the source ask for."""
    return _Cuda(run, machine, source, random.Random(seed)).text()


class _Cuda:
    def __init__(self, run: Run, machine: Machine, source: Source, rng: random.Random) -> None:
        self.run, self.machine, self.source, self.rng = run, machine, source, rng
        self.pid = 4242 + source.rank
        self.tids = {MAIN: self.pid, AUTOGRAD: self.pid + 79}
        self.rows: list[Row] = []
        self.external = 0
        self.modules: list[tuple[int, int]] = []  # end and number of the module rows that are open
        began = run.step_starts_ns[0]
        self.stamp = source.clock or (lambda ns: round(ns - began + _START_NS))

    def text(self) -> str:
        run, machine, rng = self.run, self.machine, self.rng
        began, launches = (
            run.step_starts_ns[0],
            {r.correlation for r in run.rows if "Launch" in r.name or "Memcpy" in r.name},
        )
        linked = {c for c in sorted(launches) if not machine.lost_flows or rng.random() >= machine.lost_flows}
        records = {r.event: r for r in run.rows if r.name == "cudaEventRecord"}
        self._names()
        for index, row in enumerate(sorted(run.rows, key=lambda r: (r.start_ns, -r.end_ns))):
            if self._lost() and not row.name.startswith("ProfilerStep"):
                continue
            self._host_row(index, row, linked if row.correlation in launches else {row.correlation})
            if machine.sync_rows:
                self._sync_row(row, records)
        for ran in run.device:
            seen = ran.correlation in launches  # or its launch came before the window
            if ran.start_ns < began or self._lost() or (machine.unseen_lead and not seen):
                continue  # Kineto drops what ran before the window
            self._device_row(ran, told=ran.correlation in linked or not seen, linked=ran.correlation in linked)
        self.rows += kineto.window(self.stamp(began) - 20_000, self.stamp(run.drained_ns) + 20_000)
        if machine.shuffled:
            rng.shuffle(self.rows)
        return _text(self.source.header(self.pid, "cuda", "eager"), self.rows, machine)

    def _lost(self) -> bool:
        return self.source.lost > 0 and self.rng.random() < self.source.lost

    def _span(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        start = self.stamp(start_ns)
        return start, self.stamp(end_ns) - start

    def _host_row(self, index: int, row: HostRow, linked: set[int]) -> None:
        tid, span = self.tids[row.thread], self._span(row.start_ns, row.end_ns)
        if row.cat == "cuda_runtime":
            correlation = row.correlation if row.correlation and row.correlation in linked else None
            self.rows.append(
                kineto.runtime(row.name, (self.pid, tid), *span, correlation=correlation, external=self.external)
            )
            if correlation is not None and ("Launch" in row.name or "Memcpy" in row.name):
                self.rows.append(kineto.flow("ac2g", "s", correlation, self.pid, tid, span[0]))
            return
        if row.cat == "python_function":
            while self.modules and self.modules[-1][0] < row.end_ns:
                self.modules.pop()
            parent = self.modules[-1][1] if self.modules else None
            args: dict[str, Any] = {"Python parent id": parent, "Python id": index + 1}
            if row.name.startswith("nn.Module"):
                args["Python module id"] = int(row.name.rsplit("_", 1)[1])
            self.modules.append((row.end_ns, index + 1))
        else:
            self.external += 1
            args = kineto.numbered(self.external, index, _numbered(row))
        self.rows.append(Row("X", row.name, self.pid, tid, *span, row.cat, args))

    def _sync_row(self, row: HostRow, records: dict[str, HostRow]) -> None:
        """Write the `cuda_sync` row of a wait: it alone names the stream and the event that the call was about."""
        args: dict[str, Any] = {"External id": self.external, "correlation": row.correlation, "stream": row.stream}
        if row.name == "cudaStreamWaitEvent":
            record = None if self.machine.unresolved_events else records.get(row.event)
            args |= {
                "cuda_sync_kind": "Stream Wait Event",
                "wait_on_stream": record.stream if record else -1,
                "wait_on_cuda_event_record_corr_id": record.correlation if record else -1,
                "wait_on_cuda_event_id": 1,
            }
        elif row.name == "cudaStreamSynchronize":
            args["cuda_sync_kind"] = "Stream Sync"
        elif row.name == "cudaDeviceSynchronize":
            args |= {"cuda_sync_kind": "Context Sync", "stream": -1}
        else:
            return
        span = self._span(row.start_ns, row.end_ns)
        self.rows.append(kineto.device(args["cuda_sync_kind"], args["stream"], *span, args, cat="cuda_sync"))

    def _device_row(self, ran: Ran, *, told: bool, linked: bool) -> None:
        args: dict[str, Any] = {"correlation": ran.correlation} if told else {}
        cat, kind = "kernel", ran.instr.kind
        if kind in _COPIED:
            cat = "gpu_memcpy"
            args |= {"bytes": _COPIED[kind], "memory bandwidth (GB/s)": 12.5}
        start, dur = self._span(ran.start_ns, ran.end_ns)
        start += self.machine.clock_offset_ns
        self.rows.append(kineto.device(ran.instr.name, ran.stream, start, dur, args | dict(ran.instr.args), cat=cat))
        if linked:
            self.rows.append(kineto.flow("ac2g", "f", ran.correlation, 0, ran.stream, start))

    def _names(self) -> None:
        self.rows += kineto.process(self.pid, 0, "python", "CPU")
        for thread, tid in self.tids.items():
            self.rows += kineto.track(
                self.pid, tid, 0, f"thread {tid} ({'python' if thread == MAIN else 'pt_autograd_0'})"
            )
        self.rows += kineto.process(0, 0, "python", "GPU 0")
        for stream in sorted({r.stream for r in self.run.device}):
            self.rows += kineto.track(0, stream, 0, f"stream {stream} ")


def lazy_trace(run: Run, machine: Machine, source: Source, seed: str) -> str:
    """Return the text of a lazy-mode trace of the bridge's first generation: four processes, engine lanes, no correlations."""
    pid = 14_734
    tids = {MAIN: pid, AUTOGRAD: pid + 411, LAUNCHER: pid + 77, "waiter": pid + 78}
    zero = 3_801_442_181_530_417 - run.step_starts_ns[0]
    used = {_engine(ran) for ran in run.device}
    rows = kineto.process(pid, 0, "python", "CPU")
    rows += gaudi.source_names("Synapse Logger", pid + gaudi.SYNAPSE_LOGGER_OFFSET)
    rows += gaudi.source_names("Bridge Logs", pid + gaudi.BRIDGE_LOGS_OFFSET)
    for tid in tids.values():
        rows += kineto.track(pid, tid, 0, f"thread {tid} (python)")
    rows += gaudi.device_names([lane for engine, lanes in _LANES.items() if engine in used for lane in lanes], 0)
    for index, row in enumerate(sorted(run.rows + _waits(run), key=lambda r: (r.start_ns, -r.end_ns))):
        tid, start, end = tids[row.thread], row.start_ns + zero, row.end_ns + zero
        if row.cat == "bridge":
            rows += [gaudi.bridge_half(ph, row.name, pid, tid, at) for ph, at in (("B", start), ("E", end))]
        elif row.cat in ("syn", "cuda_runtime"):  # the latter: the wait for the device that ends a recording
            name = row.name if row.cat == "syn" else "synchronizeDevice"
            rows.append(gaudi.logger_half("B", name, pid, tid, start, row.args or gaudi.event_args()))
            rows.append(gaudi.logger_half("E", name, pid, tid, end, gaudi.CALL_ENDED))
        else:
            args = kineto.numbered(index + 1, index, _numbered(row))
            rows.append(Row("X", row.name, pid, tid, start, end - start, row.cat, args))
    for ran in run.device:
        for lane in _LANES[_engine(ran)]:
            name, recipe = ran.instr.name, ran.instr.args.get("recipe", 0)
            dtype = ran.instr.args.get("dtype", "bf16")
            args = gaudi.engine_args(f"g_0_{name}", gaudi.HW_EVENTS[lane.engine], dtype, recipe)
            rows.append(gaudi.engine_row(lane, name, ran.start_ns + zero, ran.end_ns + zero, args, kineto=False))
    if machine.shuffled:
        # B and E rows of equal stamps must keep their order within a track: shuffle whole tracks against each other.
        tracks: dict[tuple[object, object], list[Row]] = {}
        for each in rows:
            tracks.setdefault((each.pid, each.tid), []).append(each)
        shuffled = list(tracks.values())
        random.Random(seed).shuffle(shuffled)
        rows = [each for track in shuffled for each in track]
    return _text(replace(source, properties=gaudi.PROPERTIES).header(pid, "hpu", "lazy"), rows, machine)


def _text(header: dict[str, Any], rows: list[Row], machine: Machine) -> str:
    if not machine.whole_microseconds:
        return kineto_layout(header, "world.pt.trace.json").text(rows)
    return kineto_layout(header, "world.pt.trace.json", number=whole).text(map(_whole_us, rows))


def _engine(ran: Ran) -> str:
    return ran.instr.cat


def _waits(run: Run) -> list[HostRow]:
    """Return the rows of the thread that waits for each recipe, one after the other."""
    ends: dict[int, int] = {}
    for ran in run.device:
        ends[ran.correlation] = max(ran.end_ns, ends.get(ran.correlation, 0))
    found: list[HostRow] = []
    for row in sorted(run.rows, key=lambda r: r.end_ns):
        if row.name == "synLaunchWithExternalEvents":
            begin = max(row.end_ns + 6_000, found[-1].end_ns if found else 0)
            end = max(ends.get(row.correlation, 0), begin) + 5_000
            found.append(HostRow("synEventSynchronize", "syn", "waiter", begin, end, {}))
    return found


def _numbered(row: HostRow) -> dict[str, Any]:
    """Return a row's arguments; sequence numbers run on from step to step."""
    if "Sequence number" not in row.args:
        return dict(row.args)
    return {**row.args, "Sequence number": row.args["Sequence number"] + row.step * 100_000}


def _whole_us(row: Row) -> Row:
    """Return a row cut to whole microseconds, so that what nests still nests."""
    start = row.ts_ns // 1000 * 1000
    return replace(
        row, ts_ns=start, dur_ns=None if row.dur_ns is None else (row.ts_ns + row.dur_ns) // 1000 * 1000 - start
    )
