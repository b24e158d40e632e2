"""Make a sample of the Synapse Logger's own file: no enclosing array, cut inside a row at both ends.

The logger writes one row after the other while the process runs, so a file that was rotated or cut has half
a row at each end. Row shapes follow a published log of the bridge's tests: integer epoch microseconds, the
prefix ``call:`` and a ``func`` for API calls, the category ``foo`` for functions of the bridge.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .rows import write_text

Half = Callable[[str, str], None]
Call = Callable[[str, dict[str, object], int, int, int], None]

PID, WAIT_TID = 18211, 18874
_STEPS = 12
_SIGNATURES = {
    "synLaunchWithExternalEvents": (
        "synStatus synLaunchWithExternalEvents(synStreamHandle, const synLaunchTensorInfo*, uint32_t, "
        "uint64_t, synRecipeHandle, EventInterfaceExternal**, uint32_t, uint32_t)"
    ),
    "synEventRecord": "synStatus synEventRecord(synEventHandle, synStreamHandle)",
    "synEventSynchronize": "synStatus synEventSynchronize(synEventHandle)",
    "synMemCopyAsync": "synStatus synMemCopyAsync(synStreamHandle, uint64_t, uint64_t, uint64_t, synDmaDir)",
}
_COMPUTE = {"streamHandle": "0x42b117c0", "streamName": "STREAM_TYPE_COMPUTE"}


def synapse_log(folder: Path) -> dict[str, object]:
    """Write ``hpu_synapse_logger`` and return what a reader must find in it."""
    rows = _rows()
    texts = [_text(row) for row in rows]
    head, tail = texts[0], texts[-1]
    texts[0], texts[-1] = head[head.index('"name"') :], tail[: tail.index('"ph"') + 5]
    write_text(folder / "synapse_log.json", ",\n".join(texts))
    complete = rows[1:-1]
    return _expected(complete)


def _expected(complete: list[dict[str, object]]) -> dict[str, object]:
    """Count the complete rows, and pair begins with ends, newest first, for each thread and name."""
    open_rows: Counter[tuple[object, object]] = Counter()
    pairs = unmatched_ends = 0
    for row in complete:
        key = (row["tid"], row["name"])
        if row["ph"] == "B":
            open_rows[key] += 1
        elif open_rows[key]:
            open_rows[key] -= 1
            pairs += 1
        else:
            unmatched_ends += 1
    stamps = [int(str(row["ts"])) for row in complete]
    return {
        "steps_total": 0,
        "step_source": None,
        "complete_rows": len(complete),
        "cut_rows": 2,
        "paired_slices": pairs,
        "unmatched_begins": sum(open_rows.values()),
        "unmatched_ends": unmatched_ends,
        "window_ns": (max(stamps) - min(stamps)) * 1000,
        "rows_per_name": dict(sorted(Counter(str(row["name"]) for row in complete).items())),
    }


def _rows() -> list[dict[str, object]]:
    """Return the log of some lazy steps: accumulate, flush, launch, wait on another thread, read a scalar."""
    rng = random.Random(9201)
    now = 1_731_548_012_004_118
    rows: list[dict[str, object]] = []

    def tick(low: int, high: int) -> int:
        nonlocal now
        now += low + round(rng.random() * (high - low))
        return now

    def half(ph: str, name: str) -> None:
        rows.append({"tid": PID, "pid": PID, "ts": tick(1, 9), "name": name, "cat": "foo", "ph": ph})

    def call(name: str, args: dict[str, object], tid: int, low: int, high: int) -> None:
        begin = {"tid": tid, "pid": PID, "ts": tick(1, 5), "name": f"call:{name}", "ph": "B"}
        rows.append(begin | {"func": _SIGNATURES[name], "args": args})
        rows.append(
            {
                "tid": tid,
                "pid": PID,
                "ts": tick(low, high),
                "name": f"call:{name}",
                "ph": "E",
                "args": {"status": 0},
            }
        )

    for step in range(_STEPS):
        for name in ("addmm_hpu_lazy", "gelu_hpu_lazy"):
            for part in (("B", name), ("B", "empty_hpu_lazy"), ("E", "empty_hpu_lazy"), ("E", name)):
                half(*part)
        for name in (
            "StepMarker",
            "SyncTensorsGraphInternal",
            "LaunchSyncTensorsGraph",
            "Launch",
            "run",
            "launch",
        ):
            half("B", name)
        launch: dict[str, object] = {
            "streamHandle": _COMPUTE["streamHandle"],
            "launchTensorsInfo": "0x51c07d10",
            "numberOfTensors": 6,
            "pWorkspace": "0x1001600020800000",
            "pRecipeHandle": f"0x{0x7F3000 + 64 * step:x}",
            "eventHandleList": "0",
            "numberOfEvents": 0,
            "flags": 0,
            "streamName": _COMPUTE["streamName"],
        }
        event: dict[str, object] = {"eventHandle": "0x62b0000000000011", **_COMPUTE}
        call("synLaunchWithExternalEvents", launch, PID, 70, 190)
        call("synEventRecord", event, PID, 3, 8)
        for name in (
            "launch",
            "run",
            "Launch",
            "LaunchSyncTensorsGraph",
            "SyncTensorsGraphInternal",
            "StepMarker",
        ):
            half("E", name)
        call("synEventSynchronize", event, WAIT_TID, 200, 420)
        if step % 4 == 3:
            _read_scalar(half, call, event)
    return rows


def _read_scalar(half: Half, call: Call, event: dict[str, object]) -> None:
    """Add a blocking read: a copy to the host between the halves of ``_local_scalar_dense_hpu_lazy``."""
    copy: dict[str, object] = {
        "streamHandle": "0x42b11a60",
        "src": "0x1001600040b04000",
        "size": "0x4",
        "dst": "0x7f1c54201000",
        "direction": 1,
        "streamName": "STREAM_TYPE_COPY_DEVICE_TO_HOST",
    }
    half("B", "_local_scalar_dense_hpu_lazy")
    call("synMemCopyAsync", copy, PID, 6, 14)
    call("synEventSynchronize", event, WAIT_TID, 30, 60)
    half("E", "_local_scalar_dense_hpu_lazy")


def _text(row: dict[str, object]) -> str:
    """Return a row as the logger prints it: one key a line, only ``args`` indented."""
    lines = []
    for key, value in row.items():
        text = json.dumps(value, indent=4) if key == "args" else json.dumps(value)
        lines.append(f'"{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}"
