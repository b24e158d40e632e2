"""Write a profiled run as Kineto writes a CUDA trace, with the defects that a machine's constants ask for."""

from __future__ import annotations

import random
from typing import Any

from sample_traces.generator import kineto
from sample_traces.generator.rows import Row, document

from .device import Ran
from .host import HostRow, Run
from .machine import Machine
from .program import AUTOGRAD, MAIN

PID = 4242
TIDS = {MAIN: 4242, AUTOGRAD: 4321}
BASE_NS = 1_727_743_122_000_000_000
START_NS = 60_000_000_000  # stamps count from the base
TRACE_NAME = "des.pt.trace.json"
_LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaGraphLaunch"}
_COPIED = {"h2d": 1 << 20, "d2h": 4, "d2d": 1 << 20}


def trace(run: Run, machine: Machine, *, unprofiled: dict[str, Any] | None, seed: str) -> dict[str, Any]:
    """Return the whole trace document of a profiled run. `unprofiled`: what goes into our own metadata, None for none."""
    return _Writer(run, machine, random.Random(seed)).whole(unprofiled)


class _Writer:
    def __init__(self, run: Run, machine: Machine, rng: random.Random) -> None:
        self.run, self.machine, self.rng = run, machine, rng
        self.rows: list[Row] = []
        self.external = 0

    def whole(self, unprofiled: dict[str, Any] | None) -> dict[str, Any]:
        run, machine = self.run, self.machine
        began = run.step_starts_ns[0]
        self.zero = START_NS - began
        lost = {
            r.correlation
            for r in run.rows
            if r.name in _LAUNCHES and machine.lost_flows and self.rng.random() < machine.lost_flows
        }
        seen = {r.correlation for r in run.rows if r.correlation}
        self._metadata()
        host = sorted(run.rows, key=lambda r: (r.start_ns, -r.end_ns))
        python: list[tuple[int, int]] = []
        records = {r.event: r for r in run.rows if r.name == "cudaEventRecord"}
        for index, row in enumerate(host):
            self._host_row(index, row, lost, python)
            if machine.sync_rows:
                self._sync_row(row, records)
        for ran in run.device:
            if ran.start_ns >= began:  # Kineto drops what ran before the window
                self._device_row(ran, ran.correlation in seen and ran.correlation not in lost)
        self.rows += kineto.window(START_NS - 20_000, self.run.drained_ns + self.zero + 20_000)
        if machine.shuffled:
            self.rng.shuffle(self.rows)
        header = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": 0, "name": "simulated CUDA device", "totalGlobalMem": 85_000_000_000, "numSms": 132}
            ],
            "cuda_runtime_version": 12080,
            "record_shapes": 1,
            "with_stack": 1,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
            "hpuprof": recorded("cuda", "eager", PID, unprofiled),
        }
        return document(header, self.rows, TRACE_NAME, whole_microseconds=machine.whole_microseconds)

    def _host_row(self, index: int, row: HostRow, lost: set[int], python: list[tuple[int, int]]) -> None:
        tid, start, dur = TIDS[row.thread], row.start_ns + self.zero, row.end_ns - row.start_ns
        if row.cat == "cuda_runtime":
            linked = None if row.correlation in lost else row.correlation
            self.rows.append(
                kineto.runtime(row.name, (PID, tid), start, dur, correlation=linked, external=self.external)
            )
            if row.name in _LAUNCHES and linked is not None:
                self.rows.append(kineto.flow("ac2g", "s", linked, PID, tid, start))
            return
        if row.cat == "python_function":
            while python and python[-1][0] < row.end_ns:
                python.pop()
            args: dict[str, Any] = {
                "Python parent id": python[-1][1] if python else None,
                "Python id": index + 1,
                "Python module id": int(row.name.rsplit("_", 1)[1]),
            }
            python.append((row.end_ns, index + 1))
        else:
            self.external += 1
            args = kineto.numbered(self.external, index, row.args)
            if "Sequence number" in args:
                args["Sequence number"] += row.step * 100_000
        self.rows.append(Row("X", row.name, PID, tid, start, dur, row.cat, args))

    def _sync_row(self, row: HostRow, records: dict[str, HostRow]) -> None:
        """Write the `cuda_sync` row of a wait: it alone names the stream and the event that the call was about."""
        args: dict[str, Any] = {"External id": self.external, "correlation": row.correlation, "stream": row.stream}
        if row.name == "cudaStreamWaitEvent":
            record = records.get(row.event)
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
        start, dur = row.start_ns + self.zero, row.end_ns - row.start_ns
        kind, stream = args["cuda_sync_kind"], args["stream"]
        self.rows.append(kineto.device(kind, stream, start, dur, args, cat="cuda_sync"))

    def _device_row(self, ran: Ran, linked: bool) -> None:
        stream = ran.stream[0]
        args: dict[str, Any] = {"correlation": ran.correlation} if linked else {}
        if ran.kind in _COPIED:
            cat = "gpu_memcpy"
            args |= {"bytes": _COPIED[ran.kind], "memory bandwidth (GB/s)": 12.5}
        else:
            cat = "kernel"
            args |= {"grid": [132, 1, 1], "block": [256, 1, 1], "registers per thread": 64}
        start = ran.start_ns + self.zero + self.machine.clock_offset_ns
        self.rows.append(kineto.device(ran.name, stream, start, ran.end_ns - ran.start_ns, args, cat=cat))
        if linked:
            self.rows.append(kineto.flow("ac2g", "f", ran.correlation, 0, stream, start))

    def _metadata(self) -> None:
        self.rows += kineto.process(PID, 0, "python", "CPU")
        for thread, tid in TIDS.items():
            self.rows += kineto.track(PID, tid, 0, f"thread {tid} ({'python' if thread == MAIN else 'pt_autograd_0'})")
        self.rows += kineto.process(0, 0, "python", "GPU 0")
        for stream in sorted({r.stream[0] for r in self.run.device}):
            self.rows += kineto.track(0, stream, 0, f"stream {stream} ")


def recorded(device: str, run_mode: str, pid: int, unprofiled: dict[str, Any] | None) -> dict[str, Any]:
    """Return what hpuprof's recorder says of itself in a trace's header. `unprofiled`: None where nothing was timed."""
    own = {
        "rank": 0, "world_size": 1, "local_rank": 0, "host": "des", "pid": pid, "stage": "train", "action": "",
        "framework": "pytorch", "device": device, "run_mode": run_mode,
    }  # fmt: skip
    return own if unprofiled is None else own | {"unprofiled": unprofiled}
