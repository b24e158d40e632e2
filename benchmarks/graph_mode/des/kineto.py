"""Write a profiled run as Kineto writes a CUDA trace, with the defects that a machine's constants ask for."""

from __future__ import annotations

import random
from typing import Any

from .device import Ran
from .host import HostRow, Run
from .machine import Machine
from .program import AUTOGRAD, MAIN

PID = 4242
TIDS = {MAIN: 4242, AUTOGRAD: 4321}
BASE_NS = 1_727_743_122_000_000_000
START_NS = 60_000_000_000  # stamps count from the base
_CBID = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147, "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165, "cudaGraphLaunch": 311,
}  # fmt: skip
_LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaGraphLaunch"}
_COPIED = {"h2d": 1 << 20, "d2h": 4, "d2d": 1 << 20}


def trace(run: Run, machine: Machine, *, unprofiled: dict[str, Any] | None, seed: str) -> dict[str, Any]:
    """Return the whole trace document of a profiled run. `unprofiled`: what goes into our own metadata, None for none."""
    return _Writer(run, machine, random.Random(seed)).document(unprofiled)


class _Writer:
    def __init__(self, run: Run, machine: Machine, rng: random.Random) -> None:
        self.run, self.machine, self.rng = run, machine, rng
        self.events: list[dict[str, Any]] = []
        self.external = 0

    def document(self, unprofiled: dict[str, Any] | None) -> dict[str, Any]:
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
        self._window(began)
        if machine.shuffled:
            self.rng.shuffle(self.events)
        own: dict[str, Any] = {
            "rank": 0, "world_size": 1, "local_rank": 0, "host": "des", "pid": PID, "stage": "train", "action": "",
            "framework": "pytorch", "device": "cuda", "run_mode": "eager",
        }  # fmt: skip
        if unprofiled is not None:
            own["unprofiled"] = unprofiled
        return {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": 0, "name": "simulated CUDA device", "totalGlobalMem": 85_000_000_000, "numSms": 132}
            ],
            "cuda_runtime_version": 12080,
            "record_shapes": 1,
            "with_stack": 1,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
            "hpuprof": own,
            "traceEvents": self.events,
            "traceName": "des.pt.trace.json",
        }

    def _stamp(self, ns: int, dur_ns: int) -> dict[str, float | int]:
        """Return `ts` and `dur` in microseconds, to the nanosecond or cut to whole ones as old writers did."""
        start = ns + self.zero
        if self.machine.whole_microseconds:
            return {"ts": start // 1000, "dur": (start + dur_ns) // 1000 - start // 1000}
        return {"ts": start / 1000, "dur": dur_ns / 1000}

    def _host_row(self, index: int, row: HostRow, lost: set[int], python: list[tuple[int, int]]) -> None:
        tid = TIDS[row.thread]
        if row.cat == "cuda_runtime":
            args: dict[str, Any] = {"External id": self.external, "cbid": _CBID[row.name]}
            if row.correlation not in lost:
                args["correlation"] = row.correlation
        elif row.cat == "python_function":
            while python and python[-1][0] < row.end_ns:
                python.pop()
            parent = python[-1][1] if python else None
            args = {"Python parent id": parent, "Python id": index + 1}
            args["Python module id"] = int(row.name.rsplit("_", 1)[1])
            python.append((row.end_ns, index + 1))
        else:
            self.external += 1
            args = {"External id": self.external, "Record function id": 0, **row.args, "Ev Idx": index}
            if "Sequence number" in args:
                args["Sequence number"] += row.step * 100_000
        stamps = self._stamp(row.start_ns, row.end_ns - row.start_ns)
        self.events.append(
            {"ph": "X", "cat": row.cat, "name": row.name, "pid": PID, "tid": tid, **stamps, "args": args}
        )
        if row.name in _LAUNCHES and row.correlation not in lost:
            flow = {
                "ph": "s",
                "id": row.correlation,
                "pid": PID,
                "tid": tid,
                "ts": stamps["ts"],
                "cat": "ac2g",
                "name": "ac2g",
            }
            self.events.append(flow)

    def _sync_row(self, row: HostRow, records: dict[str, HostRow]) -> None:
        """Write the `cuda_sync` row of a wait: it alone names the stream and the event that the call was about."""
        args: dict[str, Any] = {
            "External id": self.external,
            "stream": row.stream,
            "correlation": row.correlation,
            "device": 0,
            "context": 1,
        }
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
        stamps = self._stamp(row.start_ns, row.end_ns - row.start_ns)
        self.events.append(
            {
                "ph": "X",
                "cat": "cuda_sync",
                "name": args["cuda_sync_kind"],
                "pid": 0,
                "tid": args["stream"],
                **stamps,
                "args": args,
            }
        )

    def _device_row(self, ran: Ran, linked: bool) -> None:
        stream = ran.stream[0]
        args: dict[str, Any] = {"device": 0, "context": 1, "stream": stream}
        if linked:
            args["correlation"] = ran.correlation
        if ran.kind in _COPIED:
            cat = "gpu_memcpy"
            args |= {"bytes": _COPIED[ran.kind], "memory bandwidth (GB/s)": 12.5}
        else:
            cat = "kernel"
            args |= {"grid": [132, 1, 1], "block": [256, 1, 1], "registers per thread": 64}
        stamps = self._stamp(ran.start_ns + self.machine.clock_offset_ns, ran.end_ns - ran.start_ns)
        self.events.append({"ph": "X", "cat": cat, "name": ran.name, "pid": 0, "tid": stream, **stamps, "args": args})
        if linked:
            self.events.append(
                {
                    "ph": "f",
                    "bp": "e",
                    "id": ran.correlation,
                    "pid": 0,
                    "tid": stream,
                    "ts": stamps["ts"],
                    "cat": "ac2g",
                    "name": "ac2g",
                }
            )

    def _metadata(self) -> None:
        def name(kind: str, pid: int, tid: int, **args: Any) -> None:
            self.events.append({"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args})

        name("process_name", PID, 0, name="python")
        name("process_labels", PID, 0, labels="CPU")
        for thread, tid in TIDS.items():
            name("thread_name", PID, tid, name=f"thread {tid} ({'python' if thread == MAIN else 'pt_autograd_0'})")
        name("process_name", 0, 0, name="python")
        name("process_labels", 0, 0, labels="GPU 0")
        for stream in sorted({r.stream[0] for r in self.run.device}):
            name("thread_name", 0, stream, name=f"stream {stream} ")

    def _window(self, began: int) -> None:
        stamps = self._stamp(began - 20_000, self.run.drained_ns - began + 40_000)
        self.events.append(
            {
                "ph": "X",
                "cat": "Trace",
                "name": "PyTorch Profiler (0)",
                "pid": "Spans",
                "tid": "PyTorch Profiler",
                **stamps,
                "args": {"Op count": 0},
            }
        )
        end = self._stamp(self.run.drained_ns + 20_000, 0)["ts"]
        self.events.append({"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": end})
