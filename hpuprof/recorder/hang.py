"""Says where a process stands: stacks of all threads, its last collectives, torch's flight recorder.

Written as JSON: `hangs/<host>_<rank>.<time>.hang` in the directory of the recording. Everything is read from outside of
the threads that hang, and nothing waits for the device.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from hpuprof.files import put_in_place
from hpuprof.naming import HANGS, trace_name
from hpuprof.recorder.metadata import Who, host, versions

_FRAMES = 100  # of a thread, innermost


def write_hang(dirpath: str, who: Who, *, step: int, since_step_s: float, why: str) -> Path:
    """Write where this process stands. Raises OSError."""
    report = {
        "format": 1,
        "why": why,
        **who.as_metadata(),
        "time_ns": time.time_ns(),
        "step": step,
        "since_step_s": round(since_step_s, 1),
        "threads": threads(),
        "groups": groups(),
        "flight_recorder": flight_recorder(),
        "versions": versions(),
    }
    return put_report(dirpath, who, report["time_ns"], ".hang", json.dumps(report).encode())


def put_report(dirpath: str, who: Who, time_ns: int, suffix: str, data: bytes) -> Path:
    """Write a report of trouble into a recording's directory. Raises OSError."""
    name = trace_name(host(), who.rank, time_ns).partition(".pt.")[0] + suffix
    path = Path(dirpath) / HANGS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with put_in_place(path) as out:
        out.write(data)
    return path


def threads() -> list[dict[str, Any]]:
    """Return the frames of each Python thread, outermost first; the main thread comes first."""
    main = threading.main_thread().ident
    named = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        {
            "name": named.get(ident, "not of Python"),
            "main": ident == main,
            "frames": [
                {"file": frame.filename, "line": frame.lineno, "function": frame.name}
                for frame in traceback.StackSummary.extract(traceback.walk_stack(top), lookup_lines=False)
            ][:_FRAMES][::-1],
        }
        for ident, top in sys._current_frames().items()  # noqa: SLF001  faulthandler gives text only
        if ident != threading.get_ident()
    ]
    return sorted(found, key=lambda thread: not thread["main"])


def groups() -> list[dict[str, Any]]:
    """Return the process groups with the number of collectives that this rank has called in each."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return []
    found = []
    for group, (backend, _) in list(c10d._world.pg_map.items()):  # noqa: SLF001  there is no public list
        try:
            number = int(group._get_sequence_number_for_group())  # noqa: SLF001  there is no public name
        except Exception:  # noqa: BLE001  backends raise what they like
            number = None
        ranks = c10d.get_process_group_ranks(group)
        found.append({"name": str(group.group_name), "backend": str(backend), "ranks": ranks, "called": number})
    return found


def flight_recorder() -> Any:
    """Return torch's flight recorder as torch writes it in JSON; None where this torch or backend has none."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(c10d, name, None)
        if dump is not None:
            with contextlib.suppress(Exception):  # torch raises what it likes, and this is a report of trouble
                found = json.loads(dump())
                if found.get("entries"):
                    return found
    return None
