"""From reduced ranks to a report: chooses the recordings to answer for, sums over ranks. Cheap and serial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from hpuprof.analysis.groups import percentile
from hpuprof.analysis.steady import SteadySteps, share
from hpuprof.ingest.discover import Identity, Skipped
from hpuprof.model.clock import GivenClock
from hpuprof.model.metrics import BY_NAME
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.model.partial_codec import PackedPartial
from hpuprof.model.prediction import GraphMode
from hpuprof.model.tables import FILE_TABLES, DiagnosticRow, FileRow, RankRow, StepKindRow
from hpuprof.report.answering import answered
from hpuprof.report.headline_metrics import overlap_degree
from hpuprof.report.judged import Judged
from hpuprof.report.model import SCHEMA_VERSION, ReportData
from hpuprof.report.pauses import Pause
from hpuprof.report.recordings import RecordingKind, kind_of, natural, recording_kinds
from hpuprof.report.row_limits import cut_to_ranks, opened, shown_rows, stamped
from hpuprof.report.unlike_windows import alike_windows, differ, window_rows, with_windows
from hpuprof.what_if.critical_rows import in_steps_of


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
    main, steady = [(ranks[i], done[i][1]) for i in chosen], [of_file[i] for i in chosen]
    groups = alike_windows(main) or [[]]
    judged = [
        Judged.of([main[i] for i in group], [steady[i] for i in group], kind, clock, logged, apart=len(groups) > 1)
        for group in groups
    ]
    lead, apart = judged[0], window_rows(judged)
    across = lead.across
    waited = {row.recording: row.waiting_fraction or 0.0 for one in judged for row in one.across.waits}
    step_waits, waits_cut = cut_to_ranks(across.step_waits, done, table_rows)
    if waits_cut:
        cut["step_waits"] = waits_cut
    for one in judged:
        _put_in_steps(tables, one)
    diagnostics = [row for who, part in done for row in stamped(part, "diagnostics", who)]
    diagnostics += [
        *_file_diagnostics(failed, skipped),
        *_run_diagnostics(done, kind),
        *differ(apart),
        *_scale_diagnostics(cut, again or {}),
        *_unpredicted(main),
        *(DiagnosticRow.of(code, text, count) for code, text, count in across.notes),
        *([DiagnosticRow.of("HP129", lead.by_kind.disagree)] if lead.by_kind.disagree else []),
    ]
    data = ReportData(
        schema_version=SCHEMA_VERSION,
        hpuprof_version=version,
        headline=with_windows(lead.headline, apart),
        metrics=lead.metrics,
        findings=lead.findings,
        graph_mode=lead.graph_mode,
        plan=lead.plan,
        windows=apart,
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
    return who.rank, who.stage, who.action, natural(who.window)


def _put_in_steps(tables: dict[str, list[Any]], judged: Judged) -> None:
    """Put the answers for kinds into their rows, and times of a step into the one that gains count from.

    What sets the step time, and what it would be with a part faster, are in that one, too.
    """
    recordings = [row.recording for row, _ in judged.main]
    answers = dict(zip(recordings, judged.by_kind.of_kind, strict=True))
    tables["step_kinds"] = [_judged(row, answers.get(row.recording, {})) for row in tables["step_kinds"]]
    known = {m.name: m.value for m in judged.metrics}
    now = judged.step_ns or known["step_time_mean"]
    factors = {
        row.recording: now / row.step_100_ns
        for row in tables["sensitivity"]
        if now and row.step_100_ns and row.recording in answers
    }
    for name in ("critical_path", "sensitivity", "modules"):
        tables[name] = [in_steps_of(row, factors.get(row.recording, 1.0)) for row in tables[name]]


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
