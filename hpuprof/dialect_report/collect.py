"""Reads one file and says what it looks like: raw counts become facts once the names of all threads are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from hpuprof.dialect_report.device_lanes import engine_facts, engine_of, event_of, lane_class, on_device
from hpuprof.dialect_report.facts import (
    ArgumentFacts,
    CategoryFacts,
    ClockFacts,
    Counts,
    EngineFacts,
    Facts,
    by_count,
)
from hpuprof.dialect_report.recipe_joins import call_facts, recipe_facts
from hpuprof.dialect_report.rows import OTHERS, ArrowEnd, RawRows
from hpuprof.dialect_report.widths import two_digits
from hpuprof.dialect_report.words import (
    ARGUMENTS,
    HEADER_KEYS,
    HOST_WORDS,
    PHASES,
    category,
    json_type,
    known,
    track_shape,
    type_name,
)
from hpuprof.families import Seen, recognize
from hpuprof.ingest.dialect_engines import OTHER
from hpuprof.ingest.dialect_rows import IGNORED_MTIA, row_rule
from hpuprof.ingest.dialects import generation
from hpuprof.ingest.row_reader import RowReader

_EPOCH_US = 1e14


def facts_of(path: str) -> Facts:
    """Read a file of any dialect in one pass; raises TraceFormatError where it is no trace."""
    reader, raw = RowReader(path), RawRows()
    for rows in reader:
        for row in rows:
            raw.feed(row)
    return facts(raw, reader.log)


def facts(raw: RawRows, log: Any) -> Facts:
    """Return what was counted, reduced to known words. `log`: of the decoder."""
    categories = {cat for cat in raw.categories if cat not in (OTHERS, "")}
    processes, threads = set(raw.process_names.values()), set(raw.thread_names.values())
    family = recognize(Seen(categories, processes, threads, raw.hints, raw.hints))
    if any(group.event is not None for track in raw.tracks.values() for group in track.groups):
        family = "hpu"  # no one else writes hardware events on rows
    placed = {track.number: engine_of(raw, track, family) for track in raw.tracks.values()}
    lanes = [track for track in raw.tracks.values() if placed[track.number] is not None]
    engines = [engine_facts(name, lanes, placed, raw) for name in sorted({placed[t.number] or "" for t in lanes})]
    arguments: dict[bool, _Arguments] = {True: _Arguments(), False: _Arguments()}
    by_category: dict[str, _Arguments] = {}
    for (number, cat, names, kinds), rows in raw.signatures.items():
        by_category.setdefault(cat, _Arguments()).add(names, kinds, rows)
        arguments[on_device(cat, placed[number])].add(names, kinds, rows)
    host: Counter[str] = Counter()
    device_rows = host_rows = 0
    for track in raw.tracks.values():
        for group, widths in track.groups.items():
            if group.category == OTHERS:
                continue
            if on_device(group.category, placed[track.number]):
                device_rows += widths.rows
            else:
                host_rows += widths.rows
                host[category(group.category)] += widths.rows
    calls = call_facts(raw)
    return Facts(
        form=log.form,
        compressed=log.compressed,
        family=family,
        generation=generation(family, categories, processes, raw.hints) or "",
        rows=raw.rows,
        header={known(str(key), HEADER_KEYS): json_type(value) for key, value in log.header.items()},
        categories=_categories(raw, by_category),
        engines=engines,
        device_rows=device_rows,
        host_rows=host_rows,
        device_arguments=arguments[True].facts(),
        host_arguments=arguments[False].facts(),
        host_categories=by_count(host),
        device_phases=_device_phases(raw),
        zero_rows=by_count(Counter({category(cat): rows for cat, rows in raw.zero_rows.items()})),
        recipes=recipe_facts(raw, lanes, calls),
        calls=calls,
        arrows=_arrows(raw, placed),
        loose_arrows=raw.loose_arrows,
        clock=_clock(raw, log.header),
        processes=_shapes(raw.process_names.values()),
        threads=_shapes(raw.thread_names.values()),
        unknown=_unknown(raw, engines, placed),
        left_out=by_count(raw.left_out),
        damage={note.code: note.count for note in sorted(log.notes, key=lambda note: note.code)},
    )


class _Arguments:
    """Rows by argument and type."""

    def __init__(self) -> None:
        self.types: dict[str, Counter[str]] = {}

    def add(self, names: tuple[str, ...], kinds: tuple[type, ...], rows: int) -> None:
        for name, kind in zip(names, kinds, strict=True):
            self.types.setdefault(known(name, ARGUMENTS), Counter())[type_name(kind)] += rows

    def facts(self) -> dict[str, ArgumentFacts]:
        found = [ArgumentFacts(name, sum(types.values()), by_count(types)) for name, types in self.types.items()]
        return {argument.name: argument for argument in sorted(found, key=lambda a: (-a.rows, a.name))}


def _categories(raw: RawRows, arguments: dict[str, _Arguments]) -> list[CategoryFacts]:
    """Return the categories, the commonest first; those of one shape stay apart."""
    return [
        CategoryFacts(
            category(cat) if cat else "(none)",
            found.rows,
            by_count(Counter({phase if phase in PHASES else "?": rows for phase, rows in found.phases.items()})),
            found.slices,
            found.null_args,
            found.no_args,
            found.widths.facts(),
            list(arguments[cat].facts().values()) if cat in arguments else [],
        )
        for cat, found in sorted(raw.categories.items(), key=lambda item: (-item[1].rows, item[0]))
    ]


def _device_phases(raw: RawRows) -> Counts:
    """Return the phases of rows whose category is the device's wherever they lie."""
    phases: Counter[str] = Counter()
    for cat, found in raw.categories.items():
        if on_device(cat, None):
            phases.update({phase: rows for phase, rows in found.phases.items() if phase in PHASES})
    return by_count(phases)


def _arrows(raw: RawRows, placed: dict[int, str | None]) -> Counts:
    def end(found: ArrowEnd) -> str:
        track, what, zero = found
        word = what if what in HOST_WORDS else category(what) if what else "no row"
        return f"{placed[track] or 'host'} {word}{' of no length' if zero else ''}"

    counts: Counter[str] = Counter()
    for (cat, tail, head), rows in raw.arrows.items():
        counts[f"{category(cat)}: {end(tail)} > {end(head)}"] += rows
    return by_count(counts)


def _clock(raw: RawRows, header: dict[str, Any]) -> ClockFacts:
    base = header.get("baseTimeNanoseconds")
    words = json_type(base) if "baseTimeNanoseconds" in header else "absent"
    if words == "int" and base:
        words = "int, since the epoch" if base > 1000 * _EPOCH_US else "int, too small for the epoch"
    origin = "" if raw.first is None else "the epoch" if raw.first > _EPOCH_US else "the base"
    if raw.first is None or raw.last is None:
        return ClockFacts(words, origin, None, None, raw.no_stamp)
    return ClockFacts(words, origin, two_digits(raw.first), two_digits(raw.last - raw.first), raw.no_stamp)


def _shapes(names: Iterable[str]) -> Counts:
    return by_count(Counter(track_shape(name) for name in names))


def _unknown(raw: RawRows, engines: list[EngineFacts], placed: dict[int, str | None]) -> dict[str, Counts]:
    cats = Counter[str]()
    phases = Counter[str]()
    for cat, found in raw.categories.items():
        rows = sum(found.phases.values()) - found.phases.get("M", 0)
        if cat and rows and row_rule(cat, lane=False) is None and not IGNORED_MTIA.match(cat.lower()):
            cats[category(cat)] += rows
        phases["?"] += sum(rows for phase, rows in found.phases.items() if phase not in PHASES)
    events = Counter[str]()
    for engine in engines:
        events.update({event.name: event.widths.rows for event in engine.events if event.role == "unknown"})
    classes = Counter(lane_class(track) for track in raw.tracks.values() if placed[track.number] == OTHER)
    tables = {
        "categories": cats,
        "phases": +phases,
        "hardware events": events,
        "hardware events off device lanes": _off_lanes(raw, placed),
        "lanes": classes,
    }
    return {name: by_count(counts) for name, counts in tables.items() if counts}


def _off_lanes(raw: RawRows, placed: dict[int, str | None]) -> Counter[str]:
    """Count rows of hardware events on threads that no rule takes for a device lane, by event and name of thread."""
    found: Counter[str] = Counter()
    for track in raw.tracks.values():
        if placed[track.number] is None:
            name = track_shape(raw.thread_names.get((track.pid, track.tid), ""))
            for group, widths in track.groups.items():
                if (event := event_of(group)) is not None:
                    found[f"{event} on {name}"] += widths.rows
    return found
