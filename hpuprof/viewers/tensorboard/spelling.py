"""Formats times as the tab reads them best, and builds the rows added to a converted trace."""

from __future__ import annotations

from typing import Any

import msgspec

from hpuprof.ingest.normalize import base_ns
from hpuprof.ingest.restore import DRAWN
from hpuprof.model.trace import Trace

_SECOND = 1_000_000_000


def track_number(text: str) -> int | None:
    """Return the number that a process or thread text stands for; None for other text and beyond 64 bits."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def micros(ns: int) -> bytes:
    """Format nanoseconds as Chrome's microseconds."""
    sign, ns = (b"-", -ns) if ns < 0 else (b"", ns)
    return sign + b"%d.%03d" % divmod(ns, 1000)


def shortened(ns: int) -> bytes:
    """Format an operator's length, less a fraction of a nanosecond that reading rounds away.

    The tab adds start and length as doubles and drops an operator that seems to outlive its parent, or to begin before
    its neighbor ends; one in a few does, by the last bit. Shorter rows lose more (0.1 to 0.4 ns), so that a child that
    ends with its parent ends before it.
    """
    if ns <= 0:
        return b"0.000"
    off = 100_000 + 300_000 // (1 + ns.bit_length()) - 2 * (ns * 64 // (1 << ns.bit_length()))  # femtoseconds
    whole, rest = divmod(ns * 1_000_000 - off, 1_000_000_000)
    return b"%d.%09d" % (whole, rest)


class AddedRows:
    """Rows to add, as JSON text on the converted file's clock. Times are ns since the trace's first row, as in `Trace`.

    `shift_ns` is subtracted from every source stamp, `zero_ns` is the first row's new stamp: viewers read stamps as
    doubles, which are finer near 0, so a converted file starts a whole second before its first row.
    """

    def __init__(self, trace: Trace) -> None:
        stamp = trace.origin_ns - base_ns(trace.header)
        self.shift_ns = (stamp // _SECOND - 1) * _SECOND
        self.zero_ns = stamp - self.shift_ns
        self.rows: list[bytes] = []

    def add(self, name: str, cat: str, place: tuple[int, int, int, int], facts: dict[str, Any]) -> None:
        """Add a slice at (process, thread, start, end), without `facts` that are None; `shortened` if an operator."""
        pid, tid, start, end = place
        length = shortened(end - start) if cat == "cpu_op" else micros(max(end - start, 0))
        self._put(facts, ph="X", cat=cat, name=name, pid=pid, tid=tid, ts=self._stamp(start), dur=msgspec.Raw(length))

    def instant(self, name: str, place: tuple[int, int, int], facts: dict[str, Any]) -> None:
        """Add an instant at (process, thread, time)."""
        pid, tid, when = place
        self._put(facts, ph="i", s="t", name=name, pid=pid, tid=tid, ts=self._stamp(when))

    def name_track(self, pid: int, tid: int, name: str, *, process: str = "", order: int | None = None) -> None:
        """Name a track, and its process if given."""
        facts: list[tuple[str, dict[str, Any]]] = [("thread_name", {"name": name})]
        if order is not None:
            facts.append(("thread_sort_index", {"sort_index": order}))
        if process:
            facts.append(("process_name", {"name": process}))
        for what, args in facts:
            self._put(args, ph="M", name=what, pid=pid, tid=tid)

    def flow(self, number: int, start: tuple[int, int, int], end: tuple[int, int, int]) -> None:
        """Add a flow from (process, thread, time) to another."""
        for phase, (pid, tid, when) in (("s", start), ("f", end)):
            row = {"ph": phase, "id": number, "cat": DRAWN, "name": "launch", "pid": pid, "tid": tid}
            row["ts"] = self._stamp(when)
            self.rows.append(msgspec.json.encode(row | ({"bp": "e"} if phase == "f" else {})))

    def _put(self, facts: dict[str, Any], **row: Any) -> None:
        args = {**{k: v for k, v in facts.items() if v is not None}, "hpuprof": {"drawn": True}}
        self.rows.append(msgspec.json.encode({**row, "args": args}))

    def _stamp(self, when: int) -> msgspec.Raw:
        return msgspec.Raw(micros(when + self.zero_ns))
