"""What the bridge's C++ profiler does: collects device rows between start and stop, appends them to a file that was exported before."""  # noqa: N999  the vendor's name

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from habana_frameworks.torch import hpu

ENGINES = {"MME": (6000, "[HD0] MME"), "TPC": (7000, "[HD0] TPC 0")}
calls: list[str] = []
_window = [0, 0]


def _setup_activity_profiler_sources(
    synapse_logger: bool, bridge: bool, memory: bool, mandatory_events: list[str]
) -> None:
    calls.append("setup")


def _start_activity_profiler() -> None:
    calls.append("start")
    _window[0] = time.time_ns()


def _stop_activity_profiler() -> None:
    calls.append("stop")
    _window[1] = time.time_ns()


def _export_logs(path: str) -> None:
    calls.append("export")
    whole = json.loads(Path(path).read_text(encoding="utf-8"))
    base = whole.get("baseTimeNanoseconds", 0)

    def row(name: str, category: str, pid: int, tid: int, start: int, end: int) -> dict:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": (start - base) / 1000,
            "dur": (end - start) / 1000,
        }

    def named(pid: int, tid: int, what: str, name: str) -> dict:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0.0, "args": {"name": name}}

    events = [
        named(0, 0, "process_name", "/device:HPU:0"),
        *(named(0, tid, "thread_name", name) for tid, name in ENGINES.values()),
    ]
    events.append(named(os.getpid() + 20000, 0, "process_name", "Bridge Logs"))
    for launched, pieces in hpu.launches:
        if launched < _window[0] or pieces[-1][3] > _window[1]:
            continue  # the vendor drops what is not whole inside the window
        bridge = row(
            "LaunchSyncTensorsGraph",
            "Runtime",
            os.getpid() + 20000,
            threading.get_native_id(),
            launched,
            launched + 2000,
        )
        begin = {k: v for k, v in bridge.items() if k != "dur"} | {"ph": "B"}
        events += [begin, begin | {"ph": "E", "ts": bridge["ts"] + bridge["dur"]}]
        events.append(
            row("enqueueWithExternalEvents (accel0)", "Runtime", 22101, 4294966298, launched, launched + 2000)
        )
        events += [row(name, "Kernel", 0, ENGINES[engine][0], start, end) for name, engine, start, end in pieces]
    whole["traceEvents"] += events
    whole["deviceProperties"] = [{"name": "GAUDI2", "totalGlobalMem": hpu.memory_stats()["Limit"]}]
    Path(path).write_text(json.dumps(whole, sort_keys=True), encoding="utf-8")
