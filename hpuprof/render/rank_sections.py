"""What a report shows of many ranks at once: waiting and its causes, collectives, process groups, clocks."""

from __future__ import annotations

from hpuprof.render.formats import clean, duration, percent, size
from hpuprof.render.section import Section
from hpuprof.report.model import ReportData

_CLOCK_NOTE = {
    "collective": "Clocks of hosts estimated from collectives.",
    "raw": "Stamps of all hosts taken as they are.",
    "manifest": "Clocks of hosts from the manifest.",
    "one host": "All on one host's clock.",
}


def across_ranks(data: ReportData, top: int | None) -> list[Section]:
    """Return the sections that compare ranks, cut to `top` rows."""
    return [_waiting(data, top), _collectives(data, top), _groups(data, top), _clocks(data, top)]


def _waiting(data: ReportData, top: int | None) -> Section:
    known = [r for r in data.rank_waits if r.waiting_ns is not None]
    ordered = sorted(known, key=lambda r: (-(r.blame_ns or 0), r.rank))
    rows = tuple(
        (
            str(r.rank) + (" straggler" if r.straggler else ""),
            percent(r.waiting_fraction),
            percent(r.blame_fraction),
            percent(r.steps_late_fraction),
            r.cause or "",
            "" if r.step_without_ns is None else duration(r.step_without_ns),
        )
        for r in ordered[:top]
    )
    more = f" {len(known) - len(rows)} more ranks in --json." if len(known) > len(rows) else ""
    note = _CLOCK_NOTE.get(known[0].clock or "", "") + more if known else ""
    header = ("rank", "waits", "blame", "late in steps", "cause", "step without it")
    return Section("Waiting for one another", header, rows, "lrrrlr", note)


def _collectives(data: ReportData, top: int | None) -> Section:
    rows = tuple(
        (
            f"{c.op} {clean(c.group_ranks)}",
            size(c.bytes),
            str(c.count),
            duration(c.transfer_p50_ns),
            duration(c.wait_mean_ns),
            _speed(c.bus_bandwidth),
        )
        for c in data.collectives[:top]
    )
    header = ("collective, ranks", "bytes", "count", "transfer", "mean wait", "bus")
    return Section("Collectives", header, rows, "lrrrrr")


def _speed(value: float | None) -> str:
    return "unknown" if value is None else f"{size(value)}/s"


def _groups(data: ReportData, top: int | None) -> Section:
    rows = tuple(
        (
            f"{clean(g.text or g.group) or 'unnamed'} {clean(g.ranks)}",
            g.role,
            g.sharding or "",
            str(g.collectives),
            str(g.complete),
        )
        for g in data.process_groups[:top]
    )
    return Section(
        "Process groups", ("group, ranks", "parallelism", "sharding", "collectives", "complete"), rows, "lllrr"
    )


def _clocks(data: ReportData, top: int | None) -> Section:
    shown = data.clocks if len(data.clocks) > 1 else []
    rows = tuple(
        (
            clean(c.host),
            duration(c.offset_ns),
            duration(c.low_ns),
            duration(c.high_ns),
            "unknown" if c.drift_ppm is None else f"{c.drift_ppm:+.2f} ppm",
        )
        for c in shown[:top]
    )
    more = f"{len(shown) - len(rows)} more in --json." if len(shown) > len(rows) else ""
    return Section("Clocks", ("host", "offset", "at least", "at most", "drift"), rows, "lrrrr", more)
