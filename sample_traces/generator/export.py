"""Put the rows of a session together as a trace file of its generation."""

from __future__ import annotations

from pathlib import Path

from . import gaudi, kineto
from .rows import Args, Row, habana_layout, kineto_layout, write_text
from .session import Session

HOST = "gaudi-host0"


def write_trace(
    session: Session, path: Path, *, distributed: Args | None = None, record_shapes: bool = True
) -> None:
    """Write the session's trace, in Habana's merged layout (generations 1, 2) or in Kineto's (3)."""
    header: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [gaudi.PROPERTIES],
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
        text = kineto_layout(header, path.name).text(metadata + rows[:-4] + own + rows[-4:])
    else:
        text = habana_layout(header, path.name).text(rows + _merged_rows(session))
    write_text(path, text)


def _by_time(row: Row) -> tuple[int, int]:
    return (row.ts_ns, -(row.dur_ns or 0))


def _kineto_rows(session: Session) -> list[Row]:
    """Return the rows of Kineto itself: process names, host slices by time, four rows about the window."""
    pid, start = session.pid, session.start_ns
    end = max(session.main.now_ns, session.device.free_ns) + 40_000
    rows = kineto.process(pid, start, "python", "CPU", pid)
    used = {row.tid for row in session.rows}
    for thread in session.threads:
        if thread.tid in used:
            name = f"thread {thread.tid} ({thread.name})"
            rows += kineto.track(pid, thread.tid, start, name, thread.tid)
    rows += sorted(session.rows, key=_by_time)
    return rows + kineto.window(start - 30_000, end)


def _merged_rows(session: Session) -> list[Row]:
    """Return what the bridge appends, source after source, each with its metadata rows."""
    rows = session.device.metadata(0) + _synapse_metadata(session, 0)
    rows += sorted(session.synapse_rows, key=_by_time) + sorted(session.device.rows, key=_by_time)
    sources = (
        ("Synapse Logger", gaudi.SYNAPSE_LOGGER_OFFSET, session.synapse_logger_rows),
        ("Bridge Logs", gaudi.BRIDGE_LOGS_OFFSET, session.bridge_rows),
        ("Memory Logs", gaudi.MEMORY_LOGS_OFFSET, session.memory_rows),
    )
    for name, offset, source in sources:
        if source:
            rows += sorted(source, key=lambda row: row.ts_ns) + gaudi.source_names(name, session.pid + offset)
    return rows


def _synapse_metadata(session: Session, ts_ns: int) -> list[Row]:
    """Return the thread names of Synapse's host profiler; its process has none."""
    names = {gaudi.SYNAPSE_TID_BASE: "Synapse/***Host", gaudi.SYNAPSE_TID_BASE + 1: "Synapse/*Host Profiler"}
    used = {row.tid for row in session.synapse_rows}
    for thread in session.threads:
        if thread.synapse_tid in used:
            names[thread.synapse_tid] = f"Synapse/{140_100_000_000_000 + thread.tid * 4096}"
    rows = []
    for tid, name in names.items():
        rows += kineto.track(session.synapse_pid, tid, ts_ns, name, -1)
    return rows
