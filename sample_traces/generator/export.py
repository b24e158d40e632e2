"""Put the rows of a session together as a trace file of its generation."""

from __future__ import annotations

from pathlib import Path

from .rows import Args, Row, habana_text, kineto_text, write_text
from .session import (
    BRIDGE_LOGS_OFFSET,
    DEVICE_MEMORY_BYTES,
    MEMORY_LOGS_OFFSET,
    SYNAPSE_LOGGER_OFFSET,
    SYNAPSE_TID_BASE,
    Session,
)

HOST = "gaudi-host0"
SPANS_SORT_INDEX = 536_870_912


def write_trace(
    session: Session, path: Path, *, distributed: Args | None = None, record_shapes: bool = True
) -> None:
    """Write the session's trace, in Habana's merged layout (generations 1, 2) or in Kineto's (3)."""
    header: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [{"name": "GAUDI2", "totalGlobalMem": DEVICE_MEMORY_BYTES}],
    }
    if distributed is not None:
        header["distributedInfo"] = distributed
    header["trace_id"] = f"{session.rng.getrandbits(128):032X}"
    if record_shapes:
        header["record_shapes"] = 1
    header |= {"host_name": HOST, "displayTimeUnit": "ms", "baseTimeNanoseconds": session.base_ns}
    rows = _kineto_rows(session)
    if session.generation == 3:
        own = sorted(session.device.rows + session.synapse_rows, key=_by_time)
        metadata = session.device.metadata(session.start_ns) + _synapse_metadata(session, session.start_ns)
        text = kineto_text(header, metadata + rows[:-4] + own + rows[-4:], path.name)
    else:
        text = habana_text(header, rows + _merged_rows(session), path.name)
    write_text(path, text)


def _by_time(row: Row) -> tuple[int, int]:
    return (row.ts_ns, -(row.dur_ns or 0))


def _kineto_rows(session: Session) -> list[Row]:
    """Return the rows of Kineto itself: process names, host slices by time, four rows about the window."""
    pid, start = session.pid, session.start_ns
    end = max(session.main.now_ns, session.device.free_ns) + 40_000
    rows = [
        Row("M", "process_name", pid, 0, start, args={"name": "python"}),
        Row("M", "process_labels", pid, 0, start, args={"labels": "CPU"}),
        Row("M", "process_sort_index", pid, 0, start, args={"sort_index": pid}),
    ]
    used = {row.tid for row in session.rows}
    for thread in session.threads:
        if thread.tid in used:
            name = f"thread {thread.tid} ({thread.name})"
            rows.append(Row("M", "thread_name", pid, thread.tid, start, args={"name": name}))
            rows.append(
                Row("M", "thread_sort_index", pid, thread.tid, start, args={"sort_index": thread.tid})
            )
    rows += sorted(session.rows, key=_by_time)
    span = "PyTorch Profiler"
    return [
        *rows,
        Row(
            "X", f"{span} (0)", "Spans", span, start - 30_000, end - start + 30_000, "Trace", {"Op count": 0}
        ),
        Row("M", "process_sort_index", "Spans", 0, start - 30_000, args={"sort_index": SPANS_SORT_INDEX}),
        Row("i", f"Iteration Start: {span}", "Traces", f"Trace {span}", start - 30_000, scope="g"),
        Row("i", "Record Window End", "", "", end, scope="g"),
    ]


def _merged_rows(session: Session) -> list[Row]:
    """Return what the bridge appends, source after source, each with its metadata rows."""
    rows = session.device.metadata(0) + _synapse_metadata(session, 0)
    rows += sorted(session.synapse_rows, key=_by_time) + sorted(session.device.rows, key=_by_time)
    sources = (
        ("Synapse Logger", SYNAPSE_LOGGER_OFFSET, session.synapse_logger_rows),
        ("Bridge Logs", BRIDGE_LOGS_OFFSET, session.bridge_rows),
        ("Memory Logs", MEMORY_LOGS_OFFSET, session.memory_rows),
    )
    for name, offset, source in sources:
        if source:
            rows += sorted(source, key=lambda row: row.ts_ns) + _process(name, session.pid + offset)
    return rows


def _process(name: str, pid: int) -> list[Row]:
    return [
        Row("M", "process_name", pid, 0, 0, args={"name": name}),
        Row("M", "process_labels", pid, 0, 0, args={"labels": name}),
        Row("M", "process_sort_index", pid, 0, 0, args={"sort_index": pid}),
    ]


def _synapse_metadata(session: Session, ts_ns: int) -> list[Row]:
    """Return the thread names of Synapse's host profiler; its process has none."""
    names = {SYNAPSE_TID_BASE: "Synapse/***Host", SYNAPSE_TID_BASE + 1: "Synapse/*Host Profiler"}
    used = {row.tid for row in session.synapse_rows}
    for thread in session.threads:
        if thread.synapse_tid in used:
            names[thread.synapse_tid] = f"Synapse/{140_100_000_000_000 + thread.tid * 4096}"
    rows = []
    for tid, name in names.items():
        rows.append(Row("M", "thread_name", session.synapse_pid, tid, ts_ns, args={"name": name}))
        rows.append(Row("M", "thread_sort_index", session.synapse_pid, tid, ts_ns, args={"sort_index": -1}))
    return rows
