"""From wire events to the trace model: typed columns, paired B/E rows, classified rows. No statistics."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict, replace

from hpuprof.errors import TraceFormatError
from hpuprof.families import FAMILIES, Seen, recognize
from hpuprof.ingest import dialects
from hpuprof.ingest.allocator_rows import MemoryNotes, is_memory
from hpuprof.ingest.callers import with_callers
from hpuprof.ingest.calls import call_names, joined_threads, launches_by_correlation, numbered_by_external
from hpuprof.ingest.classify import Collected, classify
from hpuprof.ingest.columns import Columns, Interner, distinct, small, whole
from hpuprof.ingest.comm import CommNotes
from hpuprof.ingest.counter_rows import CounterNotes, is_counter
from hpuprof.ingest.decode import DecodeLog
from hpuprof.ingest.device_clock import before_launch, set_clocks
from hpuprof.ingest.dialect_activities import call_name
from hpuprof.ingest.dialect_engines import hpu_engine
from hpuprof.ingest.dialect_rows import CATEGORY_OF_PROCESS, IGNORED_MTIA, PROFILER_PAUSE, row_rule
from hpuprof.ingest.impossible_rows import MAX_SPAN_NS, doubles, strays
from hpuprof.ingest.other_rows import EventOthers, OtherRows
from hpuprof.ingest.pairing import pair_columns
from hpuprof.ingest.process_names import ProcessNames
from hpuprof.ingest.recipe_rows import KEYS, RecipeNotes
from hpuprof.ingest.scan import ScannedRows
from hpuprof.ingest.slice_rows import BETWEEN, EventSlices, Slices
from hpuprof.ingest.sync_rows import SyncNotes
from hpuprof.ingest.wire import NO_ARGS, Event
from hpuprof.model.arrays import Codes, Ints, Mask, any_of, keys_fit
from hpuprof.model.intervals import union
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Detail, DeviceRows, Health, HostRows, MemoryRows, Trace, Track, Trouble

_HOST_EXTRA = ("inputs", "sequence", "forward_thread")
_FLOWS = ("s", "f", "t")
_DROPPED = ("HP111", "HP112", "HP155")
"""Codes of rows that were read and dropped; each row counts once."""
_NONE = np.int32(-1)
_HOST, _MAYBE_DEVICE, _IGNORE, _SYNC, _UNKNOWN = 1, 2, 3, 4, 5


class Normalizer:
    """Collect wire events of one file, then `finish()` them into a `Trace`."""

    def __init__(self) -> None:
        self.names = Interner()
        self.cats = Interner()
        self.tracks = Interner()
        self.inputs = Interner()  # inputs of operators: their texts, joined
        self.dtypes = Interner()
        self.hw_events = Interner()
        shared = "start", "dur", "name", "track", "cat", "correlation", "external", "comm", *KEYS
        self.host = Columns(*shared, *_HOST_EXTRA)
        self.lane = Columns(*shared, "bytes", "dtype", "recipe_id", "hw")
        self.recipes = RecipeNotes()
        self.comms = CommNotes()
        self.syncs = SyncNotes()
        self.waits: Counter[int] = Counter()  # categories of waits that are calls
        self.targets = bytearray()  # by category code; not copied per piece
        self.cat_rows: list[int] = []
        self.by_process = array("i")  # by track code: category of rows without one, -1 for none
        self.pauses = Columns("start", "dur")  # of the profiler
        self.marks = Columns("track", "time", "begins", "name", "cat")
        self.memory = MemoryNotes()
        self.counters = CounterNotes()
        self.counted = 0  # samples of hardware counters
        self.process_names: defaultdict[str, ProcessNames] = defaultdict(ProcessNames)
        self.thread_names: dict[tuple[str, str], str] = {}
        self.troubles: dict[str, Trouble] = {}
        self.unknown: Counter[tuple[int, int]] = Counter()  # categories and tracks
        self.rows = 0
        self.flows = 0
        self.metadata = 0
        self.pairs = 0  # slices of two rows
        self.other_phases: dict[str, int] = {}
        self.inexact = False  # a stamp did not fit a double

    # --- collecting

    def trouble(self, code: str, count: int, text: str, offset: int | None = None) -> None:
        """Count a problem."""
        old = self.troubles.get(code + text)
        self.troubles[code + text] = Trouble(
            code, count + (old.count if old else 0), text, old.offset if old else offset
        )

    def feed(self, rows: list[Event] | ScannedRows, *, exact: bool) -> None:
        """Add one piece of rows."""
        self.rows += len(rows)
        if isinstance(rows, ScannedRows):
            slices: Slices = rows.slices
            rest: OtherRows = rows.others
            flows = rows.flows
        else:
            slices = EventSlices([e for e in rows if e.ph == "X"], exact=exact)
            others = [e for e in rows if e.ph != "X" and e.ph not in _FLOWS] if len(slices) != len(rows) else []
            rest = EventOthers(others, exact=exact)
            flows = len(rows) - len(slices) - len(rest)
        self.flows += flows
        if len(rest):
            self._feed_rest(rest)
        if len(slices):
            self._feed_slices(slices)

    def _target_categories(self) -> None:
        for category in self.cats.since(len(self.targets)):
            self.targets.append(_target(str(category)))
            self.cat_rows.append(0)

    def _count_categories(self, cats: npt.NDArray[Any]) -> None:
        counts = np.bincount(cats)
        for code in np.flatnonzero(counts).tolist():  # a piece has few of a file's categories
            self.cat_rows[code] += int(counts[code])

    def _feed_slices(self, slices: Slices) -> None:
        cats = slices.words("cat", self.cats)
        if "" in self.cats:
            cats = self._by_process(slices, cats)
        self._target_categories()
        self._count_categories(cats)
        target = np.frombuffer(self.targets, dtype=np.int8)[cats]
        good = target <= _MAYBE_DEVICE
        if not good.all():
            self._add_pauses(slices, cats)
            self._count_unknown(slices, cats, target == _UNKNOWN)
            if (target == _SYNC).any():
                target = self._sort_waits(slices, cats, target)
                good = target <= _MAYBE_DEVICE
            slices, cats, target = slices.where(good), cats[good], target[good]
            if not len(slices):
                return
        start, start_ok, short = slices.stamps()
        self.inexact = self.inexact or short
        dur, dur_ok = slices.durations()
        good = start_ok & dur_ok & (dur >= 0) & (dur <= MAX_SPAN_NS)
        if not good.all():
            self._count_damaged(start_ok, dur_ok, dur)
            slices, cats, target = slices.where(good), cats[good], target[good]
            start, dur = start[good], dur[good]
        rows: dict[str, npt.NDArray[Any]] = {
            "start": start,
            "dur": dur,
            "name": slices.words("name", self.names),
            "track": slices.tracks(self.tracks),
            "cat": cats,
        }
        for mask, add_rows in ((target == _HOST, self._add_host), (target == _MAYBE_DEVICE, self._add_lane)):
            if mask.all():
                add_rows(slices, rows)
            elif mask.any():
                add_rows(slices.where(mask), {name: column[mask] for name, column in rows.items()})

    def _sort_waits(self, slices: Slices, cats: Codes, target: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """Take waits; return where rows go, calls of the host to its table."""
        waits = np.flatnonzero(target == _SYNC)
        calls = waits[np.array(self.syncs.add(slices.where(target == _SYNC).events()), dtype=bool)]
        if len(calls):
            target = target.copy()
            target[calls] = _HOST
            self.waits.update(cats[calls].tolist())
        return target

    def _add_pauses(self, slices: Slices, cats: Codes) -> None:
        """Take the rows in which the profiler makes a thread of the program wait; the others run next to it."""
        if "overhead" not in self.cats or not (own := cats == self.cats["overhead"]).any():
            return
        own[own] = slices.where(own).words("name", self.names) == self.names[PROFILER_PAUSE]
        if own.any():
            (start, start_ok, _), (dur, dur_ok) = slices.where(own).stamps(), slices.where(own).durations()
            good = start_ok & dur_ok & (dur > 0) & (dur <= MAX_SPAN_NS)
            self.pauses.add(start=start[good], dur=dur[good])

    def _by_process(self, slices: Slices, cats: Codes) -> Codes:
        """Return the categories, those of rows without one by their process, where that shows."""
        track = slices.tracks(self.tracks)
        for pid, _ in self.tracks.since(len(self.by_process)):
            category = CATEGORY_OF_PROCESS.get(self._process_name(pid) or pid)
            self.by_process.append(self.cats[category] if category else -1)
        known = np.frombuffer(self.by_process, dtype=np.int32)[track]
        return np.where((cats == self.cats[""]) & (known >= 0), known, cats)

    def _add_host(self, slices: Slices, rows: dict[str, npt.NDArray[Any]]) -> None:
        self.host.add(
            **rows,
            correlation=small(slices.numbers("correlation")),
            external=small(_external(slices)),
            inputs=slices.inputs(self.inputs),
            sequence=small(slices.numbers("sequence")),
            forward_thread=small(slices.numbers("forward_thread")),
            comm=self.comms.codes(self.names, rows["name"], slices),
            **self._named(slices),
        )

    def _add_lane(self, slices: Slices, rows: dict[str, npt.NDArray[Any]]) -> None:
        named = self._named(slices)
        number = self.recipes.numbers(named["recipe"])
        self.lane.add(
            **rows,
            correlation=small(slices.numbers("correlation")),
            external=small(_external(slices)),
            bytes=small(slices.numbers("bytes")),
            dtype=slices.words("data_type", self.dtypes),
            recipe_id=small(np.where(number < 0, slices.numbers("graph_id"), number)),  # Kineto numbers graphs of CUDA
            hw=slices.words("hw_event", self.hw_events),
            comm=self.comms.codes(self.names, rows["name"], slices),
            **named,
        )

    def _named(self, slices: Slices) -> dict[str, Codes]:
        """Return what rows say of recipes and nodes, as codes; without memory where they say nothing."""
        columns = {column: slices.keys(key, self.recipes.texts[column]) for column, key in KEYS.items()}
        return {c: v if (v >= 0).any() else np.broadcast_to(_NONE, v.shape) for c, v in columns.items()}

    def _count_damaged(self, start_ok: Mask, dur_ok: Mask, dur: Ints) -> None:
        counts = (
            ("HP111", int((start_ok & ~dur_ok).sum()), "rows without a duration"),
            ("HP112", int((~start_ok).sum()), "rows without a time stamp"),
            ("HP112", int((start_ok & dur_ok & (dur < 0)).sum()), "rows with a negative duration"),
            ("HP112", int((start_ok & dur_ok & (dur > MAX_SPAN_NS)).sum()), "rows longer than a day"),
        )
        for code, count, text in counts:
            if count:
                self.trouble(code, count, text)

    def _count_unknown(self, slices: Slices, cats: Codes, unknown: Mask) -> None:
        if unknown.any():
            tracks = slices.where(unknown).tracks(self.tracks)
            self.unknown.update(zip(cats[unknown].tolist(), tracks.tolist(), strict=True))

    def _feed_rest(self, rest: OtherRows) -> None:
        events, kind = rest.kinds()
        is_mark, is_sample = [e.ph in ("B", "E") for e in events], [is_memory(e) for e in events]
        for event, mark, sample, count in zip(events, is_mark, is_sample, np.bincount(kind).tolist(), strict=True):
            if event.ph == "M":
                self.metadata += count
                self._metadata(event)
            elif is_counter(event):
                self.counted += count
            elif not mark and not sample:
                phase = str(event.ph) or "(no phase)"
                self.other_phases[phase] = self.other_phases.get(phase, 0) + count
        if len(events) < len(kind):  # the last of several names counts
            for position in distinct(kind[::-1])[0][::-1].tolist():
                event = events[kind[len(kind) - 1 - position]]
                if event.ph == "M":
                    self._metadata(event)
        is_count = [is_counter(e) for e in events]
        for chosen, add in ((is_mark, self._begin_end), (is_sample, self._sample), (is_count, self._count)):
            if any(chosen):
                rows = rest.where(np.array(chosen, dtype=bool)[kind])
                stamps, ok, short = rows.stamps()
                self.inexact = self.inexact or short
                if not ok.all():
                    self.trouble("HP112", int((~ok).sum()), "rows without a time stamp")
                if ok.any():
                    add(rows.where(ok), stamps[ok])

    def _sample(self, rows: OtherRows, time: Ints) -> None:
        self.memory.add(rows.samples(), time)

    def _count(self, rows: OtherRows, time: Ints) -> None:
        if lost := int(self.counters.add(rows.events(), time).sum()):
            self.trouble("HP112", lost, "samples of counters without a number")
            self.counted -= lost

    def _begin_end(self, rows: OtherRows, time: Ints) -> None:
        events, kind = rows.kinds()
        track, begins, name, cat = np.array([self._mark(event) for event in events]).T[:, kind]
        self._target_categories()
        self.marks.add(track=track, time=time, begins=begins != 0, name=name, cat=cat)

    def _mark(self, event: Event) -> tuple[int, bool, int, int]:
        """Return track, whether it begins, and codes of name and category."""
        name = event.name if isinstance(event.name, str) else "" if event.name is None else str(event.name)
        category = (
            event.cat
            if isinstance(event.cat, str) and event.cat
            else "foo"
            if name.startswith("call:")
            else str(event.cat)
        )
        track = self.tracks[str(event.pid), str(event.tid)]
        return track, event.ph == "B", self.names[call_name(name)], self.cats[category]

    def _metadata(self, event: Event) -> None:
        args = event.args or NO_ARGS
        pid, tid = str(event.pid), str(event.tid)
        if event.name == "process_name" and isinstance(args.name, str):
            self.process_names[pid].add(args.name)
        elif event.name == "process_labels" and isinstance(args.labels, str):
            self.process_names[pid].add_label(args.labels)
        elif event.name == "thread_name" and isinstance(args.name, str):
            self.thread_names[pid, tid] = args.name

    # --- finishing

    def finish(self, log: DecodeLog, *, path: str) -> Trace:
        """Pair, classify and sort the collected rows. Raises TraceFormatError if none is usable."""
        self._pair()
        for note in log.notes:
            self.trouble(note.code, note.count, note.text, note.offset)
        names = ["" if n is None else n if isinstance(n, str) else str(n) for n in self.names]
        cats = [str(c) for c in self.cats]
        processes = [self._process_name(pid) for pid, _ in self.tracks]
        threads, calls = set(self.thread_names.values()), call_names(names, cats, self.host, self.lane)
        family = recognize(Seen(set(cats), set(processes), threads, calls, set(names), self._arguments()))
        tracks = self._tracks(engine_lanes=FAMILIES[family].engine_lanes)
        for columns in () if self.recipes else (self.host, self.lane):
            for column in KEYS:
                del columns.parts[column]
        host_columns = self.host.take()
        if not FAMILIES[family].engine_lanes:
            anywhere = not FAMILIES[family].graphs_known
            host_columns["track"] = joined_threads(host_columns, cats, list(self.tracks), anywhere=anywhere)
        shapes, details = self._take_inputs(host_columns)
        collected = Collected(
            host=host_columns,
            lane=self.lane.take(),
            names=names,
            hw_events=[str(h) for h in self.hw_events],
            no_dtype=self.dtypes.get("", -2),
            recipes=self.recipes,
        )
        host, device, engines = classify(collected, cats, tracks)
        del collected, host_columns
        if not len(host) and not len(device) and not self.memory:
            raise self._useless(path)
        host, device = numbered_by_external(host, device)
        if not FAMILIES[family].words.launch:
            host = replace(host, activity=launches_by_correlation(host, device))
        activities = {Activity(v) for v in np.flatnonzero(np.bincount(host.activity)).tolist()}
        if FAMILIES[family].correlated:
            text = "device rows that begin long before their launch"
            device = self._without(device, before_launch(host, device), "HP112", text)
        if FAMILIES[family].correlated and (behind := set_clocks(host, device, tracks)):
            self.trouble("HP130", 1, f"the device's clock is {behind / 1000:.0f} µs behind the host's")
        host, device, memory, origin = self._rebase(host, device)
        device = self._without(device, doubles(device), "HP155", "device rows that stand twice")
        _refuse_vast(len(tracks), max((int(rows.end.max()) for rows in (host, device) if len(rows)), default=0), path)
        generation = dialects.generation(family, set(cats), set(processes), set(names))
        comms = self.comms.take(names)
        pauses = self.pauses.take()
        paused = union(pauses["start"] - origin, pauses["start"] - origin + pauses["dur"])
        if self.comms.refused:
            self.trouble("HP170", self.comms.refused, "process groups with impossible ranks")
        return Trace(
            host=host,
            device=device,
            syncs=self.syncs.take([(t.pid, t.tid) for t in tracks], self.thread_names),
            memory=memory,
            names=names,
            tracks=with_callers(tracks, host) if log.form != "bare" else tracks,
            engines=engines,
            dtypes=[str(d) for d in self.dtypes],
            shapes=[s.decode("utf-8", "replace").replace("\n", "") for s in shapes],
            details=details,
            categories={cats[c]: n for c, n in enumerate(self.cat_rows) if n},
            header=log.header,
            origin_ns=origin + base_ns(log.header),
            family=family,
            generation=generation,
            mode=dialects.run_mode(family, set(names), activities),
            form=log.form,
            health=self._health(cats, tracks, (len(host), len(device), len(memory.time))),
            comms=comms,
            paused=paused,
            recipes=self.recipes.take(),
            counters=self.counters.take(origin) if self.counted else None,
        )

    def _health(self, cats: list[str], tracks: list[Track], taken: tuple[int, int, int]) -> Health:
        """Return where all rows went. `taken`: rows of the host, of the device, and samples of memory."""
        counts = ((c, n - self.waits[c]) for c, n in enumerate(self.cat_rows))
        ignored = {cats[c]: n for c, n in counts if n and self.targets[c] in (_IGNORE, _SYNC)}
        ignored |= {f"phase {p}": n for p, n in self.other_phases.items()}
        if self.flows:
            ignored["flow arrows"] = self.flows
        unknown: Counter[tuple[str, str]] = Counter()
        for (category, track), count in self.unknown.items():
            unknown[cats[category], tracks[track].label] += count
        host_rows, device_rows, samples = taken
        set_aside = Counter(ignored)
        set_aside["unknown"] += unknown.total()
        set_aside["names of processes and threads"] += self.metadata
        set_aside["samples of memory"] += samples
        set_aside["samples of counters"] += self.counted
        set_aside["ends of rows written as two"] += self.pairs
        for trouble in self.troubles.values():
            if trouble.code in _DROPPED:
                set_aside[trouble.text] += trouble.count
        return Health(
            rows=self.rows,
            host_rows=host_rows,
            device_rows=device_rows,
            ignored=dict(sorted(ignored.items())),
            set_aside={reason: count for reason, count in sorted(set_aside.items()) if count},
            unknown=tuple((category, label, count) for (category, label), count in sorted(unknown.items())),
            troubles=tuple(sorted(self.troubles.values(), key=lambda t: (t.code, t.text))),
        )

    def _take_inputs(self, host: dict[str, npt.NDArray[Any]]) -> tuple[list[bytes], list[Detail]]:
        """Split the column `inputs` into `shape` and `detail`; return the values behind their codes."""
        shapes, details = Interner(), Interner()
        parts = [key.split(BETWEEN) for key in self.inputs]
        shape = [shapes[dims] if dims else -1 for dims, *_ in parts]
        detail = [details[Detail(*rest)] if rest[0] or rest[3] else -1 for _, *rest in parts]
        codes = host.pop("inputs")
        for name, of_inputs in (("shape", shape), ("detail", detail)):
            host[name] = np.array([*of_inputs, -1], dtype=np.int32)[codes]
        return list(shapes), list(details)

    def _useless(self, path: str) -> TraceFormatError:
        categories = sorted({str(list(self.cats)[code]) for code, _ in self.unknown})
        lost = [f"unknown categories {', '.join(categories[:5])}"] if categories else []
        lost += [t.text + ("" if t.offset is None else f" (byte {t.offset})") for t in self.troubles.values()]
        return TraceFormatError(
            f"{path}: {self.rows} rows, none of them a usable slice of a PyTorch trace"
            + (f": {'; '.join(lost)}" if lost else ""),
            path=path,
            offset=min((t.offset for t in self.troubles.values() if t.offset is not None), default=0),
            hint="is this a Chrome trace of PyTorch's profiler?",
        )

    def _arguments(self) -> set[str]:
        """Return which arguments that show a device's family some row has."""
        events = any(self.hw_events)
        return {name for name, there in (("HW event name", events), ("recipeHandle", self.recipes.handles)) if there}

    def _process_name(self, pid: str) -> str:
        return self.process_names[pid].name if pid in self.process_names else ""

    def _python_pids(self) -> set[str]:
        """Return the processes that ran operators, annotations or Python; Synapse's own tracks are in none of them."""
        rules = [row_rule(str(c), lane=False) for c in self.cats]
        written = [code for code, rule in enumerate(rules) if rule and rule.kind and rule.kind != HostKind.RUNTIME]
        used: set[int] = set()
        for cat, track in zip(self.host.parts["cat"], self.host.parts["track"], strict=True):
            used.update(np.flatnonzero(np.bincount(track[any_of(cat, written)])).tolist())
        keys = list(self.tracks)
        return {keys[code][0] for code in used}

    def _tracks(self, *, engine_lanes: bool) -> list[Track]:
        tracks = []
        pids = self._python_pids() if engine_lanes else set()
        for p, t in self.tracks:
            pid, tid = (whole(text.removesuffix(".0")) for text in (p, t))
            process, thread = self._process_name(p), self.thread_names.get((p, t), "")
            engine = hpu_engine(thread, process, pid, tid) if engine_lanes else None
            apart = p not in pids if pids else not process and not thread
            threadless = engine_lanes and not engine and process not in dialects.BRIDGE_PROCESSES
            threadless = threadless and (thread.startswith(dialects.SYNAPSE_THREAD) or apart)
            if process in dialects.BRIDGE_PROCESSES and pid is not None:
                pid -= dialects.BRIDGE_PROCESSES[process]
            tracks.append(Track(p, t, process, thread, engine, f"{p if pid is None else pid}/{t}", threadless))
        return tracks

    def _pair(self) -> None:
        marks = self.marks.take()
        if not len(marks["time"]):
            return
        slices, cut, lone = pair_columns(
            marks["track"], marks["time"], marks["begins"], marks["name"], nameless=self.names[""]
        )
        if cut:
            self.trouble("HP111", cut, "begin rows without an end")
        if lone:
            self.trouble("HP111", lone, "end rows without a begin")
        if len(slices):
            self.pairs = len(slices)
            self._add_pairs(marks, *slices.T)

    def _add_pairs(self, marks: dict[str, npt.NDArray[Any]], begins: Ints, ends: Ints) -> None:
        track, start, name, cat = (marks[column][begins] for column in ("track", "time", "name", "cat"))
        dur = marks["time"][ends] - start
        target = np.frombuffer(self.targets, dtype=np.int8)[cat]
        self._count_categories(cat)
        unknown = target == _UNKNOWN
        self.unknown.update(zip(cat[unknown].tolist(), track[unknown].tolist(), strict=True))
        keep = target <= _MAYBE_DEVICE
        long = keep & (dur > MAX_SPAN_NS)
        if long.any():
            self.trouble("HP112", int(long.sum()), "rows longer than a day")
        keep &= ~long
        none = np.full(len(begins), -1, dtype=np.int64)
        common: dict[str, npt.NDArray[Any]] = {
            "start": start,
            "dur": dur,
            "name": name.astype(np.int32),
            "track": track.astype(np.int32),
            "cat": cat.astype(np.int32),
        }
        common |= {"correlation": none, "external": none}
        common |= dict.fromkeys(("comm", *KEYS), none.astype(np.int32))
        host = {**common, **dict.fromkeys(_HOST_EXTRA, none.astype(np.int32))}
        lane = {
            **common,
            "bytes": none,
            "recipe_id": none,
            "dtype": self.dtypes.codes([""] * len(begins)),
            "hw": self.hw_events.codes([""] * len(begins)),
        }
        is_host = keep & (target == _HOST)
        is_lane = keep & (target == _MAYBE_DEVICE)
        self.host.add(**{k: v[is_host] for k, v in host.items()})
        self.lane.add(**{k: v[is_lane] for k, v in lane.items()})

    def _rebase(self, host: HostRows, device: DeviceRows) -> tuple[HostRows, DeviceRows, MemoryRows, int]:
        """Drop rows a day away from the rest and count time from the first row left."""
        host, device = self._drop_strays(host, device)
        memory = self.memory.take()
        starts = [int(start[0]) for start in (host.start, device.start) if len(start)] or memory.time[:1].tolist()
        origin = min(starts, default=0)
        for start in (host.start, device.start, memory.time):
            np.subtract(start, origin, out=start)
        return host, device, memory, origin

    def _drop_strays(self, host: HostRows, device: DeviceRows) -> tuple[HostRows, DeviceRows]:
        stray = strays(host.start, device.start)
        count = sum(int(mask.sum()) for mask in stray)
        if not count:
            return host, device
        self.trouble("HP112", count, "rows more than a day away from the others")
        for table, mask in zip(("host", "device"), stray, strict=True):
            self.recipes.drop(table, mask)
        return HostRows(**{k: v[~stray[0]] for k, v in asdict(host).items()}), DeviceRows(
            **{k: v[~stray[1]] for k, v in asdict(device).items()}
        )

    def _without(self, device: DeviceRows, bad: Mask, code: str, text: str) -> DeviceRows:
        """Drop and count bad rows."""
        if not bad.any():
            return device
        self.trouble(code, int(bad.sum()), text)
        self.recipes.drop("device", bad)
        return DeviceRows(**{k: v[~bad] for k, v in asdict(device).items()})


def _refuse_vast(tracks: int, end: int, path: str) -> None:
    """Raise TraceFormatError where rows of all threads cannot be sorted by one int64, `track * span + time`."""
    if not keys_fit(tracks, end + 2):
        raise TraceFormatError(
            f"{path}: {tracks:,} threads over {end / 3.6e12:.0f} hours are more than can be put in order",
            path=path,
            hint="cut the file into shorter ones, or leave out damaged events",
        )


def _target(category: str) -> int:
    off, on = row_rule(category, lane=False), row_rule(category, lane=True)
    if off is None and on is None:
        return _IGNORE if IGNORED_MTIA.match(category.lower()) else _UNKNOWN
    targets = {r.target for r in (off, on) if r}
    if targets == {"host"}:
        return _HOST
    if targets == {"sync"}:
        return _SYNC
    return _MAYBE_DEVICE if "device" in targets else _IGNORE


def _external(slices: Slices) -> Ints:
    values = slices.numbers("external_id")
    return slices.numbers("external_id_old") if (values < 0).all() else values


def base_ns(header: dict[str, object]) -> int:
    """Return the origin of a trace's stamps, ns since 1970; 0 if it names none."""
    base = whole(header.get("baseTimeNanoseconds", 0)) or 0
    return base if 0 <= base < 2**62 else 0
