"""The lanes of a device, and what lies on them."""

from __future__ import annotations

from collections import Counter

from hpuprof.dialect_report.facts import EngineFacts, EventFacts, by_count
from hpuprof.dialect_report.rows import Group, RawRows, RawTrack
from hpuprof.dialect_report.widths import Widths
from hpuprof.dialect_report.words import category, hw_role, hw_word
from hpuprof.ingest.dialect_engines import OTHER, hpu_engine
from hpuprof.ingest.dialect_rows import row_rule

STREAM = "stream"
_LANES = 100_000
"""Numbers of threads from here on are ids of the system, which stay in the file."""


def engine_of(raw: RawRows, track: RawTrack, family: str) -> str | None:
    """Return the class of a device lane, None for a thread of the host."""
    cats = {group.category for group in track.groups}
    if family == "hpu":
        pid, tid = (value if isinstance(value, int) else None for value in (track.pid, track.tid))
        name = raw.thread_names.get((track.pid, track.tid), "")
        engine = hpu_engine(name, raw.process_names.get(track.pid, ""), pid, tid)
        return engine if engine and any(on_device(cat, engine) for cat in cats) else None
    return STREAM if any(on_device(cat, None) for cat in cats) else None


def on_device(cat: str, engine: str | None) -> bool:
    """Whether rows of a category on a track are the device's, as the ordinary reader decides."""
    rule = row_rule(cat, lane=engine is not None)
    return rule.target == "device" if rule else engine is not None


def engine_facts(name: str, lanes: list[RawTrack], placed: dict[int, str | None], raw: RawRows) -> EngineFacts:
    """Return what lies on the lanes of one class."""
    mine = [lane for lane in lanes if placed[lane.number] == name]
    events: dict[str | None, Widths] = {}
    null, cats, rows = Widths(), Counter[str](), 0
    for lane in mine:
        for group, widths in lane.groups.items():
            if not on_device(group.category, name if name != STREAM else None):
                continue
            rows += widths.rows
            cats[category(group.category)] += widths.rows
            target = null if group.null else events.setdefault(event_of(group), Widths())
            target.merge(widths)
    overlaps = [_overlapping(lane) for lane in mine]
    numbers = Counter(map(lane_class, mine))
    return EngineFacts(
        engine=name,
        lanes=len(mine),
        rows=rows,
        numbers=by_count(numbers) if name != STREAM else {},
        pid_0=sum(lane.pid == 0 for lane in mine),
        named_otherwise=sum(_named_otherwise(lane, name, raw) for lane in mine),
        categories=by_count(cats),
        null=null.facts(),
        events=[
            EventFacts(event or "(none)", "absent" if event is None else hw_role(event), widths.facts())
            for event, widths in sorted(events.items(), key=lambda item: (-item[1].rows, item[0] or ""))
        ],
        sampled=sum(len(lane.starts) for lane in mine),
        overlapping=sum(overlaps),
    )


def lane_class(lane: RawTrack) -> str:
    """Return the thousands of a lane's number, as far as the vendor's classes go."""
    if not isinstance(lane.tid, int):
        return "no number"
    return f"{lane.tid // 1000}xxx" if 0 <= lane.tid < _LANES else "other numbers"


def event_of(group: Group) -> str | None:
    """Return a hardware event as it may be shown; its case does not matter where it is known."""
    if group.event is None:
        return None
    upper = group.event.upper()
    return hw_word(group.event if hw_role(upper) == "unknown" else upper)


def _named_otherwise(lane: RawTrack, engine: str, raw: RawRows) -> bool:
    """Whether a lane's number alone shows another engine than its name does."""
    if engine in (STREAM, OTHER) or not isinstance(lane.tid, int) or (lane.pid, lane.tid) not in raw.thread_names:
        return False
    return hpu_engine("", "", 0, lane.tid) != engine


def _overlapping(lane: RawTrack) -> int:
    """Count rows of a lane's sample that begin before an earlier one has ended, by more than rounding."""
    end, count = float("-inf"), 0
    for start, stop in sorted(zip(lane.starts, lane.ends, strict=True)):
        count += start < end - 0.002
        end = max(end, stop)
    return count
