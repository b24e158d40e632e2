"""Counts rows that trouble Perfetto and chrome://tracing, and keeps what their nesting needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from hpuprof.ingest.columns import Interner, whole
from hpuprof.ingest.wire import WholeEvent
from hpuprof.model.arrays import Ints
from hpuprof.viewers.file_plan import arguments, known_color
from hpuprof.viewers.nesting import Micros
from hpuprof.viewers.stock_tab import StockTab

UNSET = msgspec.UNSET


class RowsSeen:
    """Counts, by reason, the rows that trouble a viewer."""

    def __init__(self) -> None:
        self.rows = 0
        self.seen: Counter[str] = Counter()
        self.names: dict[str, set[str]] = {}
        self.tab = StockTab()
        self._tracks = Interner()  # by what repr says of process and thread: Perfetto distinguishes 7 from "7"
        self._ids: list[tuple[Any, Any]] = []  # process and thread of each
        self._start: list[Micros] = []
        self._dur: list[Micros] = []
        self._track: list[Any] = []

    def feed(self, rows: list[WholeEvent]) -> None:
        """Take the next rows of the file."""
        self.rows += len(rows)
        start = np.array([_micros(bytes(row.ts).strip(b'" ')) for row in rows], dtype=np.float64)
        self._start.append(start)
        self._dur.append(np.array([_length(row) for row in rows], dtype=np.float64))
        track = self._tracks.codes([repr((row.pid, row.tid)) for row in rows])
        self._track.append(track)
        for row, ts, code in zip(rows, start.tolist(), track.tolist(), strict=True):
            if code == len(self._ids):
                self._ids.append((row.pid, row.tid))
            self._common(row)
            self.tab.feed(row, ts)
            phase = _PHASES.get(row.ph) if isinstance(row.ph, str) else None
            if phase:
                getattr(self, f"_{phase}")(row)

    def columns(self) -> tuple[Micros, Micros, Ints]:
        """Return each row's stamp (µs, NaN for none), `_length`, and the code of its process and thread."""
        return tuple(np.concatenate([np.empty(0), *parts]) for parts in (self._start, self._dur, self._track))  # type: ignore[return-value]

    def drawn_on(self, track: Ints, place: Callable[[Any, Any], Any]) -> Ints:
        """Return codes of the tracks onto which `place(pid, tid)` puts rows; `track`: of `columns`."""
        of_code = Interner().codes([repr(place(pid, tid)) for pid, tid in self._ids])
        return of_code.astype(np.int64)[track]

    def _common(self, row: WholeEvent) -> None:
        seen = self.seen
        if bytes(row.ts) in (b"", b"null") and row.ph != "M":
            seen["timeless"] += 1
        if not isinstance(row.name, str):
            seen["unnamed" if row.name is UNSET else "name_no_text"] += 1
        if row.cat is not UNSET and not isinstance(row.cat, str):
            seen["cat_no_text"] += 1
        if row.cname is not UNSET and not known_color(row.cname):
            seen["color"] += 1
        for value, what in ((row.pid, "pid"), (row.tid, "tid")):
            number = whole(value) if value is not UNSET else None
            if value is UNSET or value is None:
                seen[f"no_{what}"] += 1
            elif number is None:
                seen["text_id"] += 1
            elif not 0 <= number < 2**32:
                seen["far_id"] += 1

    def _slice(self, row: WholeEvent) -> None:
        self.seen["endless"] += row.dur is UNSET or row.dur is None

    def _flow(self, row: WholeEvent) -> None:
        if row.id is UNSET or row.id is None:
            self.seen["flow_without_id"] += 1
        elif not isinstance(row.id, int):
            self.seen["flow_text_id"] += 1
        if row.ph == "f" and row.bp != "e":
            self.seen["flow_unbound"] += 1

    def _counter(self, row: WholeEvent) -> None:
        values = list(arguments(row).values())
        self.seen["counter_null"] += None in values
        if not values or not all(isinstance(v, (int, float)) or _numeric(v) for v in values):
            self.seen["counter"] += 1

    def _async(self, row: WholeEvent) -> None:
        if row.id is UNSET and row.id2 is UNSET:
            self.seen["async_without_id"] += 1
        if row.cat is UNSET:
            self.seen["async_without_cat"] += 1
        if row.ph in "STpF":
            self.seen["async_legacy"] += 1

    def _metadata(self, row: WholeEvent) -> None:
        if row.args is UNSET:
            self.seen["metadata_without_args"] += 1
        elif row.name == "process_name":
            self.names.setdefault(str(row.pid), set()).add(str(arguments(row).get("name")))


_PHASES = {"X": "slice", "C": "counter", "M": "metadata"}
_PHASES |= dict.fromkeys("stf", "flow") | dict.fromkeys("bneSTpF", "async")


def _micros(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _length(row: WholeEvent) -> float:
    """Return a row's length in µs: infinite where it is missing, NaN where the phase has none."""
    if row.ph != "X":
        return np.nan
    length = _micros(row.dur)
    return length if np.isfinite(length) else np.inf


def _numeric(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(np.isfinite(float(value)))
    except ValueError:
        return False
