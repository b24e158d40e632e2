"""What is said of some recordings together: metrics, findings, plan, graph mode, headline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from hpuprof.analysis.steady import SteadySteps
from hpuprof.graph_mode.verdict_by_kind import ByKind, decide_by_kind
from hpuprof.model.clock import GivenClock
from hpuprof.model.metrics import Metric
from hpuprof.model.prediction import GraphMode
from hpuprof.model.tables import PlanRow
from hpuprof.ranks.rank_tables import AcrossRanks, Main, across_ranks
from hpuprof.report.answering import counted_ns, with_savings
from hpuprof.report.findings import culprits, find
from hpuprof.report.headline import headline
from hpuprof.report.headline_metrics import build_metrics
from hpuprof.report.job_plan import plan_of, unit_of
from hpuprof.report.model import Finding, Headline
from hpuprof.report.pause_lines import of_typical_steps
from hpuprof.report.pauses import Pause
from hpuprof.report.recordings import RecordingKind, natural, windows_named
from hpuprof.report.rule import Context


class Judged(msgspec.Struct, frozen=True, eq=False):
    """The answer for some recordings. `used`: their steady steps; `step_ns`: from which gains count, None: unknown."""

    main: Main
    used: SteadySteps
    across: AcrossRanks
    by_kind: ByKind
    metrics: list[Metric]
    findings: list[Finding]
    plan: list[PlanRow]
    graph_mode: GraphMode
    step_ns: float | None
    headline: Headline
    windows: list[str]  # names

    @classmethod
    def of(
        cls,
        main: Main,
        of_file: Sequence[SteadySteps],
        kind: RecordingKind,
        clock: str | Mapping[str, GivenClock],
        logged: Sequence[Pause],
        *,
        apart: bool,
    ) -> Judged:
        """Judge recordings.

        Args:
            main: the recordings.
            of_file: their steady steps, parallel.
            kind: of recordings.
            clock: how host clocks are aligned, or the clock of each host.
            logged: pauses that logs of steps show.
            apart: whether other windows are judged apart.
        """
        used = SteadySteps.joined(of_file)
        windows = sorted({row.window for row, _ in main}, key=natural)
        population = _population(main, of_file, kind, windows if apart else ())
        across = across_ranks(
            main,
            clock=clock if isinstance(clock, str) else "manifest",
            manifest=None if isinstance(clock, str) else clock,
        )
        bound = used.bound(across.verdict.wait_fraction or 0.0)
        played = _played(main)
        by_kind = decide_by_kind(used.parts, [part for _, part in played])
        metrics = build_metrics(used, across, population)
        context = _context(main, used, across, metrics)
        findings = _findings(context, of_file)
        held_up = culprits(context, findings)
        plan = plan_of(main, played, by_kind.answer, across, findings, logged)
        graph_mode = of_typical_steps(by_kind.answer, plan)
        counted = counted_ns(plan, graph_mode)
        return cls(
            main=main,
            used=used,
            across=across,
            by_kind=by_kind,
            metrics=metrics,
            findings=with_savings(findings, plan, counted),
            plan=plan,
            graph_mode=graph_mode,
            step_ns=counted,
            headline=headline(bound, context, population["both"], held_up, plan, graph_mode),
            windows=windows,
        )


def _played(main: Main) -> Main:
    """Return the recordings by which changes are priced: of each rank that of the window with most steady time.

    A window in which steps of some rank cannot be played comes last.
    """
    times: dict[str, int] = defaultdict(int)
    unknown: set[str] = set()
    for row, part in main:
        times[row.window] += sum(step.wall_ns for step in part.steps if step.steady)
        if part.prediction is None or part.prediction.method == "none":
            unknown.add(row.window)
    window = max(sorted(times, key=natural), key=lambda name: (name not in unknown, times[name]), default="")
    return [(row, part) for row, part in main if row.window == window]


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


def _population(
    main: Main, of_file: Sequence[SteadySteps], kind: RecordingKind, windows: Sequence[str]
) -> dict[str, str]:
    """Say how many steps of how many ranks metrics are over, by which steps count, and `both` as a headline says it.

    Args:
        main: the chosen recordings.
        of_file: their steps, parallel.
        kind: of recordings.
        windows: their names, empty for all.
    """
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (row, part), used in zip(main, of_file, strict=True):
        for i, steps in enumerate((used.steps, used.typical, part.steps)):
            counts[row.rank][i] += len(steps)
    ranks, alike = len(counts), len(set(map(tuple, counts.values()))) == 1
    of = f" of {kind}" if any(kind) else ""
    who = f"{ranks} rank{'s' if ranks != 1 else ''}" + (f", {windows_named(windows)}" if windows else "")
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
