"""First pass over one file: where each row goes. Keeps some 30 bytes per row, on disk between the passes.

For every row of the file, in order, a plan gives its treatment (`kind`), start and duration (ns), and `slot`: a lane of
a track. Other files are unknown here; `layout` gives slots their process and thread numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from hpuprof.errors import TraceFormatError
from hpuprof.families import FAMILIES, Seen, recognize
from hpuprof.ingest.columns import Interner, whole
from hpuprof.ingest.dialect_activities import call_name
from hpuprof.ingest.dialect_engines import hpu_engine
from hpuprof.ingest.dialect_rows import row_rule
from hpuprof.ingest.discover import identity_inside
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.ingest.impossible_rows import MAX_SPAN_NS, strays
from hpuprof.ingest.normalize import base_ns
from hpuprof.ingest.pairing import END_OF_TRACK, pair
from hpuprof.ingest.recover import Note
from hpuprof.ingest.row_reader import RowReader
from hpuprof.ingest.stamps import duration_ns, exact_ns
from hpuprof.ingest.wire import WholeEvent
from hpuprof.model.arrays import Codes, Ints
from hpuprof.model.partial import FailedFile
from hpuprof.model.schema import HostKind
from hpuprof.model.trace import Bytes8
from hpuprof.viewers import flows
from hpuprof.viewers.file_plan import (
    ANNOTATION,
    ASYNC,
    COUNTER,
    DEVICE,
    FLOW,
    FRAME,
    INSTANT,
    LEFT_OUT,
    LONE_END,
    RANK_IN_NAME,
    SLICE,
    WAIT,
    Columns,
    FilePlan,
    Names,
    Place,
    PlanJob,
    arguments,
    text,
)
from hpuprof.viewers.lanes import arrange

UNSET = msgspec.UNSET
_ASYNC_PHASES = frozenset("bneSTpF")
_FLOW_PHASES = {"s": flows.START, "t": flows.STEP, "f": flows.END}


def plan_file(job: PlanJob) -> FilePlan | FailedFile:
    """Plan one file; an unreadable one becomes a `FailedFile`."""
    try:
        with enough_memory(job.path):
            collector = _Collector()
            reader = RowReader(job.path)
            for rows in reader:
                collector.feed(rows)
            collector.notes += reader.log.notes
            return collector.finish(job, reader.log.header)
    except TraceFormatError as error:
        return FailedFile(path=job.name, message=error.message, hint=error.hint, offset=error.offset)


@dataclass(eq=False)
class _Rows:
    """One entry per row of the file; see `Columns`. `slot`: -1 for none yet."""

    kind: Bytes8
    start: Ints
    dur: Ints
    track: Codes
    cat: Ints
    slot: Codes
    number: Ints


class _Collector:
    def __init__(self) -> None:
        self.kinds: list[Bytes8] = []
        self.starts: list[Ints] = []
        self.durs: list[Ints] = []
        self.track_parts: list[Codes] = []
        self.cat_parts: list[Codes] = []
        self.tracks, self.cats = Interner(), Interner()
        self.flow_keys, self.async_keys = Interner(), Interner()
        self.flow: list[tuple[int, int, int, bool]] = []  # row, key, phase, bound to the enclosing slice
        self.asyncs: list[tuple[int, int]] = []
        self.begin_end: list[tuple[int, bool, str]] = []  # row, begins, name
        self.end_args: dict[int, bytes] = {}
        self.held: dict[int, int] = {}
        self.names = Names()
        self.notes: list[Note] = []
        self.counts: Counter[str] = Counter()
        self.rows = 0

    def note(self, code: str, count: int, text: str) -> None:
        if count:
            self.notes.append(Note(code, 0, count, text))

    # ------------------------------------------------------------------------------------------------------- collecting

    def feed(self, rows: list[WholeEvent]) -> None:
        if not rows:
            return
        start, timed = exact_ns([row.ts for row in rows])
        kind = np.zeros(len(rows), dtype=np.int8)
        dur = np.zeros(len(rows), dtype=np.int64)
        slices = np.array([row.ph == "X" for row in rows], dtype=bool)
        if slices.any():
            dur[slices] = self._durations([row.dur for row in rows if row.ph == "X"])
        kind[slices] = SLICE
        if not slices.all():
            for i in np.flatnonzero(~slices).tolist():
                kind[i] = self._other(rows[i], self.rows + i, timed=bool(timed[i]))
        self.note("HP112", int((~timed & (kind != LEFT_OUT)).sum()), "rows without a time stamp were left out")
        kind[~timed] = LEFT_OUT
        self.kinds.append(kind)
        self.starts.append(start)
        self.durs.append(dur)
        self.track_parts.append(self.tracks.codes([(text(row.pid), text(row.tid)) for row in rows]))
        self.cat_parts.append(self.cats.codes([row.cat for row in rows]))
        self.rows += len(rows)

    def _durations(self, values: list[Any]) -> Ints:
        dur, ok = duration_ns([None if v is UNSET else v for v in values])
        negative, long = dur < 0, dur > MAX_SPAN_NS
        self.note("HP111", int((~ok).sum()), "rows without a duration are drawn without length")
        self.note("HP112", int(negative.sum()), "rows with a negative duration are drawn without length")
        self.note("HP112", int(long.sum()), "rows longer than a day are drawn without length")
        dur[~ok | negative | long] = 0
        return dur

    def _other(self, row: WholeEvent, at: int, *, timed: bool) -> int:
        phase = row.ph
        if not isinstance(phase, str) or len(phase) != 1:
            self.note("HP112", 1, "rows whose phase is not a letter were left out")
            return LEFT_OUT
        if phase == "M":
            self._metadata(row)
            return LEFT_OUT
        if not timed:
            return INSTANT
        if phase in ("B", "E"):
            name = row.name if isinstance(row.name, str) else ""
            self.begin_end.append((at, phase == "B", call_name(name)))
            if phase == "E" and row.args is not UNSET and bytes(row.args).strip(b"{} \t\r\n"):
                self.end_args[at] = bytes(row.args)
            return SLICE
        if phase in _FLOW_PHASES:
            number = row.id if row.id is not UNSET else str(row.id2)
            key = self.flow_keys[text(row.cat), text(row.name), str(number)]
            self.flow.append((at, key, _FLOW_PHASES[phase], phase != "f" or row.bp == "e"))
            return FLOW
        if phase in _ASYNC_PHASES:
            key = self.async_keys[text(row.cat), str(row.scope), str(row.id), str(row.id2), str(row.pid)]
            self.asyncs.append((at, key))
            return ASYNC
        return COUNTER if phase == "C" else INSTANT

    def _metadata(self, row: WholeEvent) -> None:
        self.names.rows += 1
        args = arguments(row)
        pid, key, name = text(row.pid), (text(row.pid), text(row.tid)), args.get("name")
        if row.name == "process_name" and isinstance(name, str):
            self.names.process.setdefault(pid, []).append(name)
            noted = match[1] if (match := RANK_IN_NAME.search(name)) else args.get("rank")
            if (number := whole(noted)) is not None:
                self.names.rank[pid] = number
        elif row.name == "process_labels" and isinstance(args.get("labels"), str):
            self.names.labels.setdefault(pid, []).append(args["labels"])
        elif row.name == "thread_name" and isinstance(name, str):
            self.names.thread[key] = name
        elif row.name == "thread_sort_index" and isinstance(args.get("sort_index"), int):
            self.names.thread_sort[key] = args["sort_index"]

    # -------------------------------------------------------------------------------------------------------- finishing

    def finish(self, job: PlanJob, header: dict[str, Any]) -> FilePlan:
        rows = self._take(base_ns(header))
        self._drop_strays(rows)
        self._pair_begin_end(rows)
        outside = _leave_out_outside(rows, job.window) if job.window else 0
        slots = self._arrange(rows)
        for at, code in self.asyncs:
            rows.number[at] = code + 1
        copies, flow_count = self._flows(rows)
        for at in np.flatnonzero((rows.kind != LEFT_OUT) & (rows.slot < 0)).tolist():
            rows.slot[at] = slots[int(rows.track[at]), FRAME, 0]
        drawn = rows.kind != LEFT_OUT
        if not drawn.any() and not job.window:
            raise TraceFormatError(
                f"{job.path}: no row with a time stamp",
                path=job.path,
                hint="is this a Chrome trace of PyTorch's profiler?",
            )
        places = _places(rows, slots, self._keys)
        self._count(rows.kind, places, outside)
        columns = Columns(rows.kind, rows.slot, rows.start, rows.dur, rows.number, copies, self.end_args, self.held)
        columns.save(job.spool)
        return FilePlan(
            path=job.path,
            name=job.name,
            spool=job.spool,
            first_ns=int(rows.start[drawn].min()) if drawn.any() else 0,
            last_ns=int((rows.start[drawn] + rows.dur[drawn]).max()) if drawn.any() else 0,
            rows=self.rows - self.names.rows,
            places=places,
            names=self.names,
            engines=self.engines,
            device_tracks=frozenset(self._keys[t] for t in self._device_tracks),
            notes=_merged(self.notes),
            counts=dict(self.counts),
            flows=flow_count,
            asyncs=len(self.async_keys),
            inside=identity_inside(header),
        )

    def _take(self, base: int) -> _Rows:
        """Join the collected parts and release them; stamps become absolute."""
        kind = _join(self.kinds, np.int8)
        rows = _Rows(
            kind=kind,
            start=_join(self.starts, np.int64) + base,
            dur=_join(self.durs, np.int64),
            track=self._track_codes(),
            cat=_join(self.cat_parts, np.int32).astype(np.int64),
            slot=np.full(len(kind), -1, dtype=np.int32),
            number=np.zeros(len(kind), dtype=np.int64),
        )
        self.kinds, self.starts, self.durs, self.track_parts, self.cat_parts = [], [], [], [], []
        return rows

    def _count(self, kind: Bytes8, places: list[Place], outside: int) -> None:
        self.counts.update(
            slices=int((kind == SLICE).sum()),
            counters=int((kind == COUNTER).sum()),
            asynchronous=int((kind == ASYNC).sum()),
            instants=int(((kind == INSTANT) | (kind == LONE_END)).sum()),
            flow_points=int((kind == FLOW).sum()),
            moved=sum(p.slices for p in places if p.group or p.lane),
            outside_steps=outside,
        )

    def _track_codes(self) -> Codes:
        """Join the codes of tracks; find the engines among these."""
        self._keys = list(self.tracks)
        processes = {self.names.of_process(pid) for pid, _ in self._keys}
        categories = {c for c in self.cats if isinstance(c, str)}
        threads = set(self.names.thread.values())
        family = FAMILIES[recognize(Seen(categories, processes, threads, set(), set()))]
        self.engines = {
            (pid, tid): hpu_engine(
                self.names.thread.get((pid, tid), ""), self.names.of_process(pid), whole(pid), whole(tid)
            )
            if family.engine_lanes
            else None
            for pid, tid in self._keys
        }
        codes: Codes = _join(self.track_parts, np.int32)
        return codes

    def _drop_strays(self, rows: _Rows) -> None:
        """Leave out rows a day away from the others; they would squeeze everything else to a point."""
        drawn = np.flatnonzero(rows.kind != LEFT_OUT)
        far = drawn[strays(rows.start[drawn])[0]]
        rows.kind[far] = LEFT_OUT
        self.note("HP112", len(far), "rows more than a day away from the others were left out")

    def _pair_begin_end(self, rows: _Rows) -> None:
        kind, start, dur, track = rows.kind, rows.start, rows.dur, rows.track
        events = [
            (int(track[row]), int(start[row]), begins, name, row)
            for row, begins, name in self.begin_end
            if kind[row] != LEFT_OUT
        ]
        if not events:
            return
        drawn = kind != LEFT_OUT
        last = int((start[drawn] + dur[drawn]).max())
        paired = pair(events, nameless="")
        args, self.end_args = self.end_args, {}
        for begin, end in paired.slices:
            row, end_row = events[begin][-1], events[end][-1]
            dur[row] = start[end_row] - start[row]
            kind[end_row] = LEFT_OUT
            if end_row in args:
                self.end_args[row] = args[end_row]
        for begin, end in paired.cut:
            row = events[begin][-1]
            dur[row] = (last if end == END_OF_TRACK else events[end][1]) - start[row]
        kind[[events[i][-1] for i in paired.lone]] = LONE_END
        self.counts["ends_joined"] = len(paired.slices)
        self.note("HP111", len(paired.cut), "begin rows without an end are drawn to the end of the enclosing row")
        self.note("HP111", len(paired.lone), "end rows without a begin are drawn as instants")

    def _groups(self, track: Codes, cat: Ints) -> Ints:
        """Return each row's group, by its category and by whether its track is an engine's."""
        table = np.array(
            [[_group(c, lane=lane) for lane in (False, True)] for c in self.cats] or [[FRAME, FRAME]], dtype=np.int64
        )
        lane = np.array([self.engines[key] is not None for key in self._keys] or [False], dtype=np.int64)
        return table[cat, lane[track]]

    def _arrange(self, rows: _Rows) -> Interner:
        """Give every slice its slot; return the slots."""
        start, track = rows.start, rows.track
        slots = Interner()
        slices = np.flatnonzero(rows.kind == SLICE)
        group = self._groups(track[slices], rows.cat[slices])
        self._device_tracks = set(np.unique(track[slices][group == DEVICE]).tolist())
        end = start[slices] + rows.dur[slices]
        order = np.lexsort((slices, -end, start[slices], track[slices]))
        slices, group, end = slices[order], group[order], end[order]
        on = track[slices]
        bounds = np.flatnonzero(np.diff(on)) + 1
        for first, last in zip([0, *bounds.tolist()], [*bounds.tolist(), len(slices)], strict=True):
            if first == last:
                continue
            code = int(on[first])
            places = arrange(start[slices[first:last]], end[first:last], group[first:last], apart=DEVICE)
            rows.slot[slices[first:last]] = [slots[code, g, lane] for g, lane in places]
        self._sorted = flows.Sorted(slices, on, end)
        return slots

    def _flows(self, rows: _Rows) -> tuple[dict[int, list[int]], int]:
        """Bind flow events to slices, number the flows, and leave out flow events that no viewer can draw."""
        points = [p for p in self.flow if rows.kind[p[0]] != LEFT_OUT]
        if not points:
            return {}, 0
        at, key, phase, bound = (np.array(column) for column in zip(*points, strict=True))
        fits = flows.bind(at, bound, rows.start, rows.track, rows.slot, self._sorted)
        kept = np.flatnonzero(fits)
        paired = flows.pair(key[kept].astype(np.int32), rows.start[at[kept]], phase[kept].astype(np.int8))
        rows.number[at[kept]] = paired.ids
        self.held = {int(at[kept[end]]): int(at[kept[begin]]) for end, begin in paired.early}
        lost = at[rows.number[at] == 0]
        rows.kind[lost] = LEFT_OUT
        self.counts["flow_points_outside_slices"] = int((~fits).sum())
        self.counts["flow_points_without_partner"] = int((paired.ids == 0).sum())
        copies: dict[int, list[int]] = {}
        for i, number in paired.copies:
            copies.setdefault(int(at[kept[i]]), []).append(number)
        return copies, paired.count


def _group(category: Any, *, lane: bool) -> int:
    rule = row_rule(category, lane=lane) if isinstance(category, str) else None
    if rule is None:
        return FRAME
    if rule.target == "device":
        return DEVICE
    if rule.kind == HostKind.ANNOTATION or rule.id == "device-annotation":
        return ANNOTATION
    return WAIT if rule.id == "sync-marker" else FRAME


def _leave_out_outside(rows: _Rows, window: tuple[int, int]) -> int:
    """Leave out rows outside the window; return how many."""
    low, high = window
    start, dur, end = rows.start, rows.dur, rows.start + rows.dur
    # A row around the whole window (the script's main frame) would only widen the timeline.
    out = (start >= high) | (end < low) | ((end == low) & (dur > 0)) | ((start < low) & (end > high))
    out &= rows.kind != LEFT_OUT
    rows.kind[out] = LEFT_OUT
    return int(out.sum())


def _places(rows: _Rows, slots: Interner, keys: list[tuple[str, str]]) -> list[Place]:
    kind, start, slot, count = rows.kind, rows.start, rows.slot, len(slots)
    drawn = np.flatnonzero((kind != LEFT_OUT) & (slot >= 0))
    first, last = np.full(count, 2**62, dtype=np.int64), np.full(count, -(2**62), dtype=np.int64)
    np.minimum.at(first, slot[drawn], start[drawn])
    np.maximum.at(last, slot[drawn], start[drawn] + rows.dur[drawn])
    slices = np.bincount(slot[drawn[kind[drawn] == SLICE]], minlength=count)
    threaded = np.bincount(slot[drawn[kind[drawn] != COUNTER]], minlength=count)
    return [
        Place(keys[code][0], keys[code][1], group, lane, int(first[i]), int(last[i]), int(slices[i]), bool(threaded[i]))
        for i, (code, group, lane) in enumerate(slots)
    ]


def _join(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)


def _merged(notes: list[Note]) -> list[Note]:
    merged: dict[tuple[str, str], Note] = {}
    for note in notes:
        old = merged.get((note.code, note.text))
        merged[note.code, note.text] = Note(note.code, old.offset, old.count + note.count, note.text) if old else note
    return list(merged.values())
