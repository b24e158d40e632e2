"""From reduced ranks to a report: chooses the recordings to answer for, sums over ranks. Cheap and serial."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from hpuprof.analysis.groups import percentile
from hpuprof.analysis.steady import SteadySteps, share
from hpuprof.graph_mode.verdict_by_kind import decide_by_kind
from hpuprof.ingest.discover import Identity, Skipped
from hpuprof.model.clock import GivenClock
from hpuprof.model.durations import duration
from hpuprof.model.metrics import BY_NAME, Metric
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.model.partial_codec import PackedPartial
from hpuprof.model.prediction import GraphMode
from hpuprof.model.tables import FILE_TABLES, DiagnosticRow, FileRow, RankRow, StepKindRow
from hpuprof.ranks.rank_tables import AcrossRanks, Main, across_ranks
from hpuprof.report.answering import answered, counted_ns, with_savings
from hpuprof.report.findings import culprits, find
from hpuprof.report.headline import headline
from hpuprof.report.headline_metrics import build_metrics, overlap_degree
from hpuprof.report.job_plan import plan_of, unit_of
from hpuprof.report.model import SCHEMA_VERSION, Finding, ReportData
from hpuprof.report.pause_lines import of_typical_steps
from hpuprof.report.pauses import Pause
from hpuprof.report.recordings import RecordingKind, kind_of, recording_kinds
from hpuprof.report.row_limits import cut_to_ranks, opened, shown_rows, stamped
from hpuprof.report.rule import Context
from hpuprof.what_if.critical_rows import in_steps_of

APART = 1.1
"""How many times as long typical steps of a window must be as those of another to be distinguished; by judgment, as of
a log of steps against its windows (HP181)."""
_DIGITS = 9  # of a window's number


def combine(
    identities: Sequence[Identity],
    results: Sequence[RankPartial | PackedPartial | FailedFile],
    skipped: Sequence[Skipped],
    *,
    version: str,
    table_rows: int = 0,
    again: Mapping[str, int] | None = None,
    clock: str | Mapping[str, GivenClock] = "collective",
    logged: Sequence[Pause] = (),
) -> ReportData:
    """Combine reduced files into a report; `identities` and `results` are parallel. Order of files changes nothing.

    `table_rows`: most rows of a table over many files, 0 for no limit. `again`: repeated work, from reason to number of
    files. `clock`: how host clocks are aligned: collective, raw, or the clock of each host. `logged`: pauses that logs
    of steps show.
    """
    parts = list(opened(results))
    done = sorted(
        ((who, part) for who, part in zip(identities, parts, strict=True) if isinstance(part, RankPartial)),
        key=lambda pair: (_order(pair[0]), pair[1].file.path),
    )
    failed = sorted((part for part in parts if isinstance(part, FailedFile)), key=lambda f: (f.path, f.message))
    shown, cut = shown_rows(done, FILE_TABLES, table_rows)
    tables: dict[str, list[Any]] = {
        name: [row for i, (who, part) in enumerate(done) if i in shown[name] for row in stamped(part, name, who)]
        for name in FILE_TABLES
    }
    of_file = [SteadySteps.of(part) for _, part in done]
    ranks = [_rank_row(who, part, used) for (who, part), used in zip(done, of_file, strict=True)]
    kind = next(iter(recording_kinds(who for who, _ in done)), RecordingKind("", ""))
    chosen = _choose(done, kind)
    main = [(ranks[i], done[i][1]) for i in chosen]
    used = SteadySteps.joined([of_file[i] for i in chosen])
    population = _population(main, [of_file[i] for i in chosen], kind)
    across = across_ranks(
        main,
        clock=clock if isinstance(clock, str) else "manifest",
        manifest=None if isinstance(clock, str) else clock,
    )
    waited = {row.recording: row.waiting_fraction or 0.0 for row in across.waits}
    step_waits, waits_cut = cut_to_ranks(across.step_waits, done, table_rows)
    if waits_cut:
        cut["step_waits"] = waits_cut
    bound = used.bound(across.verdict.wait_fraction or 0.0)
    by_kind = decide_by_kind(used.parts)
    answers = {ranks[i].recording: found for i, found in zip(chosen, by_kind.of_kind, strict=True)}
    tables["step_kinds"] = [_judged(row, answers.get(row.recording, {})) for row in tables["step_kinds"]]
    metrics = build_metrics(used, across, population)
    context = _context(main, used, across, metrics)
    findings = _findings(context, [of_file[i] for i in chosen])
    held_up = culprits(context, findings)
    plan = plan_of(main, by_kind.answer, across, findings, logged)
    graph_mode = of_typical_steps(by_kind.answer, plan)
    counted = counted_ns(plan, graph_mode)
    # One step time: what sets it, and what it would be with a part faster, are in the one that gains count from.
    now, mine = counted or context.values["step_time_mean"], {ranks[i].recording for i in chosen}
    factors = {
        row.recording: now / row.step_100_ns
        for row in tables["sensitivity"]
        if now and row.step_100_ns and row.recording in mine
    }
    for name in ("critical_path", "sensitivity", "modules"):
        tables[name] = [in_steps_of(row, factors.get(row.recording, 1.0)) for row in tables[name]]
    diagnostics = [row for who, part in done for row in stamped(part, "diagnostics", who)]
    diagnostics += [
        *_file_diagnostics(failed, skipped),
        *_run_diagnostics(done, kind),
        *_windows_differ([ranks[i] for i in chosen]),
        *_scale_diagnostics(cut, again or {}),
        *_unpredicted(main),
        *(DiagnosticRow.of(code, text, count) for code, text, count in across.notes),
        *([DiagnosticRow.of("HP129", by_kind.disagree)] if by_kind.disagree else []),
    ]
    data = ReportData(
        schema_version=SCHEMA_VERSION,
        hpuprof_version=version,
        headline=headline(bound, context, population["both"], held_up, plan, graph_mode),
        metrics=metrics,
        findings=with_savings(findings, plan, counted),
        graph_mode=graph_mode,
        plan=plan,
        diagnostics=sorted(diagnostics, key=lambda d: (d.code, d.rank, d.path, d.text)),
        files=[_file_row(who, part) for who, part in done],
        ranks=[_waiting(row, of_file[i], waited) for i, row in enumerate(ranks)],
        clocks=across.clocks,
        process_groups=across.groups,
        collectives=across.collectives,
        rank_waits=across.waits,
        suspects=across.suspects,
        rank_cycle=across.cycle,
        step_waits=step_waits,
        **tables,  # type: ignore[arg-type]
    )
    return answered(data)


def _order(who: Identity) -> tuple[Any, ...]:
    return who.rank, who.stage, who.action, _natural(who.window)


def _judged(row: StepKindRow, answers: Mapping[str, GraphMode]) -> StepKindRow:
    """Return a kind of step with the answer for it."""
    if row.kind not in answers:
        return row
    answer = answers[row.kind]
    gain = answer.speedup
    return msgspec.structs.replace(
        row,
        verdict=answer.verdict,
        speedup_low=gain.low if gain else None,
        speedup_median=gain.median if gain else None,
        speedup_high=gain.high if gain else None,
    )


def _natural(window: str) -> tuple[int, int, str]:
    """Sort numbered windows by number, before named ones."""
    number = window.isdecimal() and len(window) <= _DIGITS
    return (0, int(window), "") if number else (1, 0, window)


def _choose(done: Sequence[tuple[Identity, RankPartial]], kind: RecordingKind) -> list[int]:
    """Return the files to answer for: those of a kind, with synchronous windows only where there are no others.

    A synchronous window shows what each action costs; only an asynchronous one shows how host and device overlap. A
    window without device rows is left out where another of its rank has some: recording the device began late. So are
    the planned windows of a run that settled at another step time later, and has a window from there.
    """
    mine = [i for i, (who, _) in enumerate(done) if kind_of(who) == kind]
    if any(done[i][1].file.opened == "settled" for i in mine):
        mine = [i for i in mine if done[i][1].file.opened != "plan"]
    traced = {done[i][0].rank for i in mine if done[i][1].file.device_rows}
    mine = [i for i in mine if done[i][1].file.device_rows or done[i][0].rank not in traced]
    if any(done[i][1].file.window_kind == "async" for i in mine):
        return [i for i in mine if done[i][1].file.window_kind != "sync"]
    return mine


def _file_row(who: Identity, part: RankPartial) -> FileRow:
    return msgspec.structs.replace(part.file, **who.recording, provenance=who.provenance)


def _context(main: Main, used: SteadySteps, across: AcrossRanks, metrics: Sequence[Metric]) -> Context:
    values = {m.name: m.value for m in metrics}
    return Context(main, values, used.idle_shares if used.sound else {}, across)


def _findings(context: Context, used: Sequence[SteadySteps]) -> list[Finding]:
    """Find what is worth acting on; `used`: the steady steps of each recording of the context."""
    late = {w.rank for w in context.across.waits if w.straggler}
    others = [i for i, (row, _) in enumerate(context.main) if late and row.rank not in late]
    if not others:
        return find(context)
    joined = SteadySteps.joined([used[i] for i in others])
    metrics = build_metrics(joined, context.across, {})
    return find(context, _context([context.main[i] for i in others], joined, context.across, metrics))


def _rank_row(who: Identity, part: RankPartial, used: SteadySteps) -> RankRow:
    shares: dict[str, Any] = {
        name: share(used.steps, BY_NAME[name].column)
        for name in RankRow.__struct_fields__
        if name in BY_NAME and BY_NAME[name].column
    }
    return RankRow(
        **who.recording,
        steps_used=len(used.typical),
        steps_total=len(part.steps),
        step_p50_ns=percentile(used.typical_walls, 0.5) or 0,
        step_p90_ns=percentile(used.walls, 0.9) or 0,
        **shares,
        overlap_degree=overlap_degree(used.steps),
        **_bound(used),
    )


def _bound(used: SteadySteps, waiting: float = 0.0) -> dict[str, Any]:
    """Return the columns of what bounds steps; `waiting`: the share of them in which other ranks were waited for."""
    found = used.bound(waiting)
    cause = found.top_cause
    return {
        "bound": found.kind,
        "top_cause": None if cause is None else cause.name.lower(),
        "top_cause_fraction": found.top_cause_fraction,
    }


def _waiting(row: RankRow, used: SteadySteps, waited: Mapping[Any, float]) -> RankRow:
    """Return a rank's row with what bounds its steps where it waits for others, as comparing the ranks shows."""
    share = waited.get(row.recording, 0.0)
    return msgspec.structs.replace(row, **_bound(used, share)) if share else row


def _population(main: Main, of_file: Sequence[SteadySteps], kind: RecordingKind) -> dict[str, str]:
    """Say how many steps of how many ranks metrics are over, by which steps count, and `both` as a headline says it.

    Args:
        main: the chosen recordings.
        of_file: their steps, parallel.
        kind: of recordings.
    """
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (row, part), used in zip(main, of_file, strict=True):
        for i, steps in enumerate((used.steps, used.typical, part.steps)):
            counts[row.rank][i] += len(steps)
    ranks, alike = len(counts), len(set(map(tuple, counts.values()))) == 1
    of = f" of {kind}" if any(kind) else ""
    who = f"{ranks} rank{'s' if ranks != 1 else ''}"
    columns = zip(*(counts.values() or [(0, 0, 0)]), strict=True)
    steady, typical, total = (sum(column) // (ranks if alike else 1) for column in columns)
    where = f"{of} on each of {who}" if alike and ranks > 1 else f"{of}, {who}"
    if unit_of(main) == "pass":
        return dict.fromkeys(("steady", "typical", "both"), f"one pass{of}, {who}")
    some = f" ({typical} typical)" if typical < steady else ""
    return {
        "steady": f"{steady} of {total} steps{where}",
        "typical": f"{typical} of {total} steps{where}",
        "both": f"{steady} of {total} steps{some}{where}",
    }


def _file_diagnostics(failed: Sequence[FailedFile], skipped: Sequence[Skipped]) -> list[DiagnosticRow]:
    """Report files that could not be read or were skipped."""
    return [
        *(DiagnosticRow.of("HP114", f.message, path=f.path, offset=f.offset) for f in failed),
        *(DiagnosticRow.of(s.code, s.reason, s.runs or 1, path=s.path) for s in skipped),
    ]


def _run_diagnostics(done: Sequence[tuple[Identity, RankPartial]], kind: RecordingKind) -> list[DiagnosticRow]:
    """Report what the recordings together lack, and what was assumed of them."""
    found = []
    guessed = sum("rank: order of names" in who.provenance for who, _ in done)
    if guessed:
        found.append(DiagnosticRow.of("HP113", f"{guessed} files got ranks in the order of their names", guessed))
    found += _missing_ranks(done)
    if done and all(part.file.unprofiled_step_ns is None for _, part in done):
        found.append(DiagnosticRow.of("HP122", "the traces do not hold the step time without the profiler"))
    kinds = {kind_of(who) for who, _ in done}
    if len(kinds) > 1:
        of = str(kind) or "the unnamed files"
        found.append(DiagnosticRow.of("HP125", f"the answer covers {of}", len(kinds) - 1))
    return found


def _windows_differ(rows: Sequence[RankRow]) -> list[DiagnosticRow]:
    """Report windows of a rank whose typical steps take clearly longer than another's: no number is of both."""
    of_rank: dict[int, list[RankRow]] = defaultdict(list)
    for row in rows:
        if row.steps_used >= 2 or row.steps_total == 1:
            of_rank[row.rank].append(row)
    found = []
    for rank, windows in of_rank.items():
        short, long = (pick(windows, key=lambda row: row.step_p50_ns) for pick in (min, max))
        if long.step_p50_ns > APART * short.step_p50_ns and long.step_p50_ns > short.step_p90_ns:
            times = [f"{duration(row.step_p50_ns)} a step in window {row.window}" for row in (short, long)]
            found.append((long.step_p50_ns / short.step_p50_ns, f"rank {rank}: {' and '.join(times)}"))
    return [DiagnosticRow.of("HP187", max(found)[1], len(found))] if found else []


def _missing_ranks(done: Sequence[tuple[Identity, RankPartial]]) -> list[DiagnosticRow]:
    world = max((part.file.world_size or 0 for _, part in done), default=0)
    ranks = {who.rank for who, _ in done}
    missing = world - sum(rank < world for rank in ranks)
    if missing <= 0:
        return []
    # A file may claim any number of ranks, so never make a list of them.
    first = ", ".join(str(r) for r in islice((r for r in range(world) if r not in ranks), 8))
    shown = first + (", …" if missing > 8 else "")
    return [DiagnosticRow.of("HP118", f"{len(ranks)} of {world} ranks are here; missing: {shown}", missing)]


def _unpredicted(main: Sequence[tuple[RankRow, RankPartial]]) -> list[DiagnosticRow]:
    left = sum(part.prediction is None for _, part in main)
    return (
        [DiagnosticRow.of("HP163", f"{len(main) - left} of {len(main)} recordings are predicted", left)] if left else []
    )


def _scale_diagnostics(cut: Mapping[str, tuple[int, int]], again: Mapping[str, int]) -> list[DiagnosticRow]:
    """Report tables that were cut to some of the files, and work that was repeated."""
    found = [DiagnosticRow.of("HP162", reason, count) for reason, count in sorted(again.items())]
    if cut:
        tables = "; ".join(
            f"{name}: rows of {here:,} of {every:,} recordings" for name, (here, every) in sorted(cut.items())
        )
        found.append(DiagnosticRow.of("HP160", tables, len(cut)))
    return found
