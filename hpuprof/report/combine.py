"""From reduced ranks to a report: stamps identities, sums over ranks, decides the headline. Cheap and serial."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from hpuprof.analysis.bound import Bound, decide
from hpuprof.analysis.groups import percentile
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.graph_mode.verdict import decide_graph_mode
from hpuprof.ingest.discover import AGAIN, Identity, Skipped
from hpuprof.model.clock import GivenClock
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.model.partial_codec import PackedPartial
from hpuprof.model.schema import CAUSE_TEXT, Cause
from hpuprof.model.tables import DiagnosticRow, GapCauseRow, RankRow, Row, StepRow
from hpuprof.ranks.rank_tables import across_ranks, build_rank_metrics
from hpuprof.report.findings import find
from hpuprof.report.headline_metrics import IDLE, build_metrics
from hpuprof.report.model import SCHEMA_VERSION, TABLES, Headline, ReportData
from hpuprof.report.recordings import places
from hpuprof.report.row_limits import cut_to_ranks, opened, shown_rows, stamped

_PER_FILE = tuple(name for name in TABLES if name in RankPartial.__struct_fields__ and name != "diagnostics")
_DIGITS = 9  # of a window's number
_R = TypeVar("_R", bound=Row)


def combine(
    identities: Sequence[Identity],
    results: Sequence[RankPartial | PackedPartial | FailedFile],
    skipped: Sequence[Skipped],
    *,
    version: str,
    table_rows: int = 0,
    again: Mapping[str, int] | None = None,
    clock: str = "collective",
    offsets: Mapping[str, GivenClock] | None = None,
) -> ReportData:
    """Combine reduced files into a report; `identities` and `results` go together. Order of files changes nothing.

    `table_rows`: how long a table with rows of many files may get, 0 for any length. `again`: work that had to be done again,
    reason to number of files. `clock` relates the clocks of hosts: collective, raw, or manifest with the clock of each
    host in `offsets`.
    """
    parts = list(opened(results))
    done = sorted(
        ((who, part) for who, part in zip(identities, parts, strict=True) if isinstance(part, RankPartial)),
        key=lambda pair: (_order(pair[0]), pair[1].file.path),
    )
    failed = sorted((part for part in parts if isinstance(part, FailedFile)), key=lambda f: (f.path, f.message))
    shown, cut = shown_rows(done, _PER_FILE, table_rows)
    tables: dict[str, list[Any]] = {
        name: [row for i, (who, part) in enumerate(done) if i in shown[name] for row in stamped(part, name, who)]
        for name in _PER_FILE
    }
    file_rows = [msgspec.structs.replace(_stamped(part.file, who), provenance=who.provenance) for who, part in done]
    chosen = next(iter(places(who for who, _ in done)), ("", ""))
    idles = {id(part): _idle_by_cause(part.gap_causes, part.steps) for _, part in done}
    rank_rows = [_rank_row(who, part, idles[id(part)]) for who, part in done]
    main = [(row, part) for row, (who, part) in zip(rank_rows, done, strict=True) if (who.stage, who.action) == chosen]
    if any(part.file.window_kind == "async" for _, part in main):
        # A synchronous window tells what each action costs; how host and device overlap, only the asynchronous one.
        main = [(row, part) for row, part in main if part.file.window_kind != "sync"]
    steps = [s for _, part in main for s in part.steps if s.used]
    sound = bool(main) and all(part.sound for _, part in main)
    idle = _total(idles[id(part)] for _, part in main)
    population = _population(main, steps, chosen)
    across = across_ranks(main, clock=clock, manifest=offsets)
    step_waits, waits_cut = cut_to_ranks(across.step_waits, done, table_rows)
    if waits_cut:
        cut["step_waits"] = waits_cut
    metrics = build_metrics(steps, idle, [part for _, part in main], population)
    metrics += build_rank_metrics(across, population)
    values = {m.name: m.value for m in metrics}
    wall = sum(s.wall_ns for s in steps)
    bound = decide(
        values["device_busy_fraction"],
        values["exposed_communication_fraction"] or 0.0,
        {c: ns / wall for c, ns in idle.items()} if wall else {},
        sound=sound,
    )
    diagnostics = [row for who, part in done for row in _stamp(part.diagnostics, who)]
    diagnostics += _run_diagnostics(done, failed, skipped, chosen)
    diagnostics += _scale_diagnostics(cut, again or {})
    diagnostics += [
        DiagnosticRow(code=code, severity=DIAGNOSTICS[code].severity, path="", count=count, text=text)
        for code, text, count in across.notes
    ]
    return ReportData(
        schema_version=SCHEMA_VERSION,
        hpuprof_version=version,
        headline=_headline(bound, values, main, population),
        metrics=metrics,
        findings=find(main, values, idle, wall, across),
        graph_mode=decide_graph_mode([part for _, part in main]),
        diagnostics=sorted(diagnostics, key=lambda d: (d.code, d.rank, d.path, d.text)),
        files=file_rows,
        ranks=rank_rows,
        clocks=across.clocks,
        process_groups=across.groups,
        collectives=across.collectives,
        rank_waits=across.waits,
        step_waits=step_waits,
        **tables,
    )


def _order(who: Identity) -> tuple[Any, ...]:
    return who.rank, who.stage, who.action, _natural(who.window)


def _natural(window: str) -> tuple[int, int, str]:
    """Put numbered windows in the order of their numbers, before those with names."""
    number = window.isdecimal() and len(window) <= _DIGITS
    return (0, int(window), "") if number else (1, 0, window)


def _stamped(row: _R, who: Identity) -> _R:
    return msgspec.structs.replace(row, rank=who.rank, stage=who.stage, action=who.action, window=who.window)


def _stamp(rows: Iterable[_R], who: Identity) -> list[_R]:
    return [_stamped(row, who) for row in rows]


def _idle_by_cause(causes: Iterable[GapCauseRow], steps: Sequence[StepRow]) -> dict[Cause, int]:
    used = {s.step for s in steps if s.used}
    totals: dict[str, int] = defaultdict(int)
    for row in causes:
        if row.step in used:
            totals[row.cause] += row.idle_ns
    return dict(sorted((Cause[name.upper()], idle_ns) for name, idle_ns in totals.items()))


def _total(parts: Iterable[Mapping[Cause, int]]) -> dict[Cause, int]:
    totals: dict[Cause, int] = defaultdict(int)
    for part in parts:
        for cause, idle_ns in part.items():
            totals[cause] += idle_ns
    return dict(sorted(totals.items()))


def _share(steps: Sequence[StepRow], column: str) -> float | None:
    values = [getattr(s, column) for s in steps]
    wall = sum(s.wall_ns for s in steps)
    if not values or any(v is None for v in values) or not wall:
        return None
    return float(sum(values) / wall)


def _rank_row(who: Identity, part: RankPartial, idle: Mapping[Cause, int]) -> RankRow:
    import numpy as np

    steps = [s for s in part.steps if s.used]
    walls = np.array([s.wall_ns for s in steps], dtype=np.int64)
    wall = int(walls.sum())
    busy = _share(steps, "device_busy_ns")
    exposed = _share(steps, "exposed_communication_ns")
    bound = decide(busy, exposed or 0.0, {c: ns / wall for c, ns in idle.items()} if wall else {}, sound=part.sound)
    overlap, working, device = (
        sum(getattr(s, c) or 0 for s in steps) for c in ("host_device_overlap_ns", "host_working_ns", "device_busy_ns")
    )
    shorter = min(working, device)
    return RankRow(
        rank=who.rank,
        stage=who.stage,
        action=who.action,
        window=who.window,
        steps_used=len(steps),
        steps_total=len(part.steps),
        step_p50_ns=percentile(walls, 0.5) or 0,
        step_p90_ns=percentile(walls, 0.9) or 0,
        host_working_fraction=_share(steps, "host_working_ns"),
        host_blocked_fraction=_share(steps, "host_blocked_ns"),
        input_fraction=_share(steps, "input_ns"),
        device_busy_fraction=busy,
        compute_fraction=_share(steps, "compute_busy_ns"),
        exposed_communication_fraction=exposed,
        exposed_copy_fraction=_share(steps, "exposed_copy_ns"),
        overlap_degree=overlap / shorter if shorter and busy is not None else None,
        bound=bound.kind,
        top_cause=bound.top_cause.name.lower() if bound.top_cause is not None else None,
        top_cause_fraction=bound.top_cause_fraction,
    )


def _population(main: Sequence[tuple[RankRow, RankPartial]], steps: Sequence[StepRow], chosen: tuple[str, str]) -> str:
    total = sum(len(part.steps) for _, part in main)
    ranks = len({row.rank for row, _ in main})
    of = f" of {' '.join(w for w in chosen if w)}" if any(chosen) else ""
    return f"{len(steps)} of {total} steps{of}, {ranks} rank{'s' if ranks != 1 else ''}"


_WORDS = {
    "host": "Host-bound",
    "device": "Device-bound",
    "input": "Input-bound",
    "communication": "Communication-bound",
    "mixed": "Mixed",
    "unknown": "Cannot say what bounds the step",
}


_UNSOUND = ("HP105", "HP126", "HP108", "HP106", "HP107")  # why no conclusion is drawn, the plainest reason first


_PHASES = {
    "operators_fraction": "in forward and other operators",
    "backward_fraction": "in backward",
    "optimizer_fraction": "in the optimizer",
    "input_fraction": "fetching data",
    "no_operator_fraction": "with no operator running",
}


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _percent(value: float | int | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def _headline(
    bound: Bound, values: dict[str, Any], main: Sequence[tuple[RankRow, RankPartial]], population: str
) -> Headline:
    busy, exposed = values["device_busy_fraction"], values["exposed_communication_fraction"]
    deciding = ["device_busy_fraction"]
    cause = bound.top_cause
    phases = {name: values[name] for name in _PHASES if values[name] is not None}
    if bound.kind == "unknown" and busy is None and "operators_fraction" in phases:
        # Without a device, what the host was in is the whole answer.
        deciding = sorted(phases, key=lambda name: (-phases[name], list(_PHASES).index(name)))
        shares = [f"{_percent(phases[name])} {_PHASES[name]}" for name in deciding if phases[name] >= 0.0005]
        sentence = f"No device was traced; of the step, the host spent {_listed(shares)}"
    elif bound.kind == "unknown":
        reasons = [d.text for code in _UNSOUND for _, part in main for d in part.diagnostics if d.code == code]
        sentence = f"{_WORDS['unknown']}: {next(iter(reasons), 'no step has a length')}"
        deciding = []
        if busy is None and values["host_blocked_fraction"] is not None:
            deciding = ["host_blocked_fraction"]
            sentence += f"; the host waited for {_percent(values['host_blocked_fraction'])} of the step"
    elif bound.kind == "communication" and exposed is not None and exposed >= 0.25:
        deciding.append("exposed_communication_fraction")
        sentence = f"{_WORDS['communication']}: {_percent(exposed)} of the step is communication that no compute hides; the device was busy {_percent(busy)}"
    elif bound.kind == "device":
        deciding.append("device_idle_fraction")
        rest = f"; most of its idle time fell into {CAUSE_TEXT[cause]}" if cause not in (None, Cause.UNKNOWN) else ""
        sentence = f"{_WORDS['device']}: the device was busy {_percent(busy)} of the step{rest}"
    else:
        deciding.append(IDLE[cause] if cause is not None else "device_idle_fraction")
        doing = (
            "with nothing traced on the host"
            if cause == Cause.UNKNOWN
            else f"during {CAUSE_TEXT[cause]}"
            if cause is not None
            else ""
        )
        why = f"; for {_percent(bound.top_cause_fraction)} of the step it idled {doing}" if doing else ""
        sentence = f"{_WORDS[bound.kind]}: the device was busy {_percent(busy)} of the step{why}"
    lead = main[0][0] if main else None
    return Headline(
        bound=bound.kind,
        sentence=f"{sentence}.",
        deciding=deciding,
        population=population,
        lead=Row(rank=lead.rank, stage=lead.stage, action=lead.action, window=lead.window) if lead else None,
    )


def _run_diagnostics(
    done: Sequence[tuple[Identity, RankPartial]],
    failed: Sequence[FailedFile],
    skipped: Sequence[Skipped],
    chosen: tuple[str, str],
) -> list[DiagnosticRow]:
    def row(
        code: str, text: str, *, path: str = "", count: int = 1, offset: int | None = None, severity: str = ""
    ) -> DiagnosticRow:
        return DiagnosticRow(
            code=code, severity=severity or DIAGNOSTICS[code].severity, path=path, count=count, text=text, offset=offset
        )

    found = [row("HP114", f.message, path=f.path, offset=f.offset) for f in failed]
    found += [row(s.code, s.reason, path=s.path) for s in skipped]
    guessed = [who for who, _ in done if "rank: order of names" in who.provenance]
    if guessed:
        found.append(row("HP113", f"{len(guessed)} files were given ranks in order of their names", count=len(guessed)))
    worlds = [part.file.world_size for _, part in done if part.file.world_size]
    if worlds:
        ranks = {who.rank for who, _ in done}
        world = max(worlds)
        missing = world - sum(rank < world for rank in ranks)
        if missing:
            # A file may name any number of ranks: no list of them is made.
            first = ", ".join(str(r) for r in islice((r for r in range(world) if r not in ranks), 8))
            shown = first + (", …" if missing > 8 else "")
            found.append(row("HP118", f"{len(ranks)} of {world} ranks are here; missing: {shown}", count=missing))
    if done and all(part.file.unprofiled_step_ns is None for _, part in done):
        found.append(row("HP122", "how long a step takes without the profiler is not in the traces"))
    again = [who for who, _ in done if AGAIN in who.window]
    if again:
        found.append(row("HP127", f"{len(again)} files repeat a window of their rank", count=len(again)))
    kinds = {(who.stage, who.action) for who, _ in done}
    if len(kinds) > 1:
        found.append(
            row(
                "HP125",
                f"the answer speaks of {' '.join(w for w in chosen if w) or 'the unnamed files'}",
                count=len(kinds) - 1,
            )
        )
    return found


def _scale_diagnostics(cut: Mapping[str, tuple[int, int]], again: Mapping[str, int]) -> list[DiagnosticRow]:
    """Tell which tables were cut to some of the files, and what had to be done again."""
    found = []
    if cut:
        tables = "; ".join(
            f"{name}: rows of {here:,} of {every:,} recordings" for name, (here, every) in sorted(cut.items())
        )
        found.append(("HP160", tables, len(cut)))
    found += [("HP162", reason, count) for reason, count in sorted(again.items())]
    return [
        DiagnosticRow(code=code, severity=DIAGNOSTICS[code].severity, path="", count=count, text=text, offset=None)
        for code, text, count in found
    ]
