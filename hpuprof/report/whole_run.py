"""The whole run by the recorder's logs of steps: tables, step times for predictions, contradictions to windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hpuprof._version import __version__
from hpuprof.analysis.run_steps import RunPause, run_pauses, run_steps, slow_steps, step_time
from hpuprof.analysis.step_groups import LOADING
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import InputError
from hpuprof.ingest.bridge_metrics import read_bridge_metrics
from hpuprof.ingest.discover import Companion, Skipped
from hpuprof.ingest.server_events import read_server_events
from hpuprof.ingest.step_log_files import LoggedSteps, read_step_log
from hpuprof.model.durations import duration
from hpuprof.model.step_log_rows import RunSlowStepRow, RunStepsRow
from hpuprof.model.tables import DiagnosticRow
from hpuprof.report.answering import answered
from hpuprof.report.combine import combine
from hpuprof.report.model import ReportData
from hpuprof.report.pauses import BETWEEN_PHASES, Pause
from hpuprof.report.rule import percent

APART = 0.1
"""By what share steps near the windows differ from the run's before this is said."""
GROWTH = 0.05
LEAST_GROWTH_BYTES = 32 << 20
"""Growth of memory that is reported: both this share of it and this much; by judgment."""
SWITCHES = 100.0
"""Involuntary context switches a second and rank from which threads count as in each other's way; by judgment."""


class WholeRun(msgspec.Struct, frozen=True):
    """What the logs of one run say.

    `times`: of each log, its name, the step time and its spread [ns]; `pauses`: in every n-th step, the dearest first.
    """

    times: tuple[tuple[str, int, int], ...] = ()
    runs: tuple[RunStepsRow, ...] = ()
    slow: tuple[RunSlowStepRow, ...] = ()
    diagnostics: tuple[DiagnosticRow, ...] = ()
    pauses: tuple[Pause, ...] = ()

    def added(self, data: ReportData) -> ReportData:
        """Return a report with the whole run in it."""
        if not (self.runs or self.diagnostics):
            return data
        found = [*data.diagnostics, *self.diagnostics]
        data = replace(
            data,
            run_steps=list(self.runs),
            run_slow_steps=list(self.slow),
            diagnostics=sorted(found, key=lambda d: (d.code, d.rank, d.path, d.text)),
        )
        return answered(data)


def whole_run(paths: Sequence[Path], beside: Sequence[Companion] = ()) -> WholeRun:
    """Read the logs and measure the newest run of each rank and loop; and what the device's software counted."""
    logs: list[LoggedSteps] = []
    diagnostics = list(_of_the_software(beside))
    for path in paths:
        try:
            log = read_step_log(path)
        except InputError as error:
            diagnostics.append(DiagnosticRow.of("HP114", error.message, path=path.name))
            continue
        if len(log.records):
            logs.append(log)
    timed = [(log.name, time) for log in logs if (time := step_time(log)) is not None]
    newest = {}
    for log in sorted(logs, key=lambda log: (log.number("began_ns") or 0, log.name)):
        newest[log.number("rank") or 0, log.text("stage"), log.text("action")] = log
    chosen = [newest[key] for key in sorted(newest)]
    if len(chosen) < len(logs):
        left = len(logs) - len(chosen)
        diagnostics.append(DiagnosticRow.of("HP184", f"{left} logs of earlier runs of the same ranks", left))
    runs = [run_steps(log) for log in chosen]
    diagnostics += [*_windows_apart(runs), *_growing(runs), *_crowded(runs)]
    return WholeRun(
        tuple((name, time.step_ns, time.spread_ns) for name, time in timed),
        tuple(runs),
        tuple(row for log in chosen for row in slow_steps(log)),
        tuple(diagnostics),
        _pauses([(log.number("rank") or 0, pause) for log in chosen for pause in run_pauses(log)]),
    )


_WHO_PAUSES = ("input", "rest", "optimizer", "forward", "backward")
"""Causes of pauses, those first that a rank has of its own: in forward and backward it may wait for another rank."""
_CAUSE = {"input": LOADING, "rest": BETWEEN_PHASES}


def _pauses(of_ranks: Sequence[tuple[int, RunPause]]) -> tuple[Pause, ...]:
    """Join what ranks pause for in the same turn; its price is that of the rank that pays most of its own."""
    turns: dict[int, list[tuple[int, RunPause]]] = defaultdict(list)
    for rank, pause in of_ranks:
        turns[pause.every].append((rank, pause))
    out = []
    for seen in turns.values():
        own = min((pause.cause for _, pause in seen), key=_WHO_PAUSES.index)
        mine = [(rank, pause) for rank, pause in seen if pause.cause == own]
        _, dearest = max(mine, key=lambda pair: pair[1].cost_ns)
        out.append(
            Pause(
                **dearest._replace(cause=_CAUSE.get(own, own))._asdict(),
                row="",
                ranks=tuple(sorted({rank for rank, _ in mine})),
                logged=True,
            )
        )
    return tuple(sorted(out, key=lambda pause: -pause.cost_ns))


def combine_nothing(skipped: Sequence[Skipped], run: WholeRun, table_rows: int) -> ReportData:
    """Return the report of a run without traces. Raises InputError when no log holds a step."""
    counted = next((d for d in run.diagnostics if d.code in _COUNTED), None)
    if not run.runs and counted is None:
        problem = next((d.text for d in run.diagnostics), "the logs of steps hold no step")
        raise InputError(problem, hint="record a run that trains for some steps")
    data = run.added(combine([], [], skipped, version=__version__, table_rows=table_rows))
    if not run.runs and counted is not None:
        sentence = f"{DIAGNOSTICS[counted.code].title}, without traces: {counted.text}."
        headline = msgspec.structs.replace(data.headline, sentence=sentence, bound_sentence="")
        return answered(msgspec.structs.replace(data, headline=headline))
    lead = max(run.runs, key=lambda row: row.clean_steps)
    ranks = len({row.rank for row in run.runs})
    headline = msgspec.structs.replace(
        data.headline,
        sentence=f"A log of steps without traces: a step takes {duration(lead.step_p50_ns)}. What bounds it needs a "
        "trace.",
        population=f"{lead.clean_steps:,} of {lead.steps:,} steps, {ranks} rank{'s' if ranks != 1 else ''}",
    )
    return answered(msgspec.structs.replace(data, headline=headline))


_COUNTED = ("HP188", "HP189", "HP192", "HP193")
_MOST_OPERATORS = 5


def _of_the_software(beside: Sequence[Companion]) -> Iterator[DiagnosticRow]:
    """Say what the device's software wrote next to the traces."""
    for file in beside:
        try:
            yield from _SAID[file.kind](file.path)
        except InputError as error:
            yield DiagnosticRow.of("HP114", error.message, path=file.path.name)


def _of_the_bridge(path: Path) -> Iterator[DiagnosticRow]:
    """Say what the device's bridge counted in a process."""
    found = read_bridge_metrics(path)
    counted = [f"{found.graphs:,} graphs compiled in {found.compile_us / 1e6:,.3g} s"]
    counted += [f"{found.cache_misses:,} recipes not in the cache"] if found.cache_misses else []
    counted += [f"device memory defragmented {found.defragmentations:,} times"] if found.defragmentations else []
    yield DiagnosticRow.of("HP188", f"rank {found.rank}: {', '.join(counted)}", path=path.name)
    if found.fallbacks:
        total = sum(count for _, count in found.fallbacks)
        most = ", ".join(f"{name} {count:,}" for name, count in found.fallbacks[:_MOST_OPERATORS])
        text = f"rank {found.rank}: {total:,} calls of {len(found.fallbacks)} operators ran on the CPU: {most}"
        yield DiagnosticRow.of("HP189", text, total, path=path.name)


def _of_the_server(path: Path) -> Iterator[DiagnosticRow]:
    """Say what a server's phases took, how much of its batches was padding, and what it compiled while it served."""
    found = read_server_events(path)
    said = [
        f"{phase.name}: {phase.count:,} of {duration(1000 * phase.total_us / phase.count)} on average"
        for phase in found.phases
    ]
    said += [f"{percent(found.padding)} of the decoded batches is padding"] if found.padding is not None else []
    yield DiagnosticRow.of("HP192", "; ".join(said), path=path.name)
    if found.compiled:
        text = f"graphs compiled after the warm-up: {found.compiled:,}, {found.compile_us / 1e6:,.3g} s in all"
        yield DiagnosticRow.of("HP193", text, found.compiled, path=path.name)


_SAID = {"metrics": _of_the_bridge, "events": _of_the_server}


def _windows_apart(runs: Sequence[RunStepsRow]) -> list[DiagnosticRow]:
    """Say where the windows do not stand for the run; the rank that differs most speaks for all."""
    apart = [
        (abs(row.near_windows_ns / row.step_p50_ns - 1), row)
        for row in runs
        if row.near_windows_ns and row.step_p50_ns and row.clean_steps >= 200
    ]
    share, row = max(apart, key=lambda pair: pair[0], default=(0.0, None))
    if row is None or share < APART:
        return []
    text = (
        f"steps near the windows take {duration(row.near_windows_ns)}, the run's {duration(row.step_p50_ns)} "
        f"({duration(row.step_p10_ns)} to {duration(row.step_p90_ns)}, {row.clean_steps:,} steps of rank {row.rank})"
    )
    return [DiagnosticRow.of("HP181", text)]


def _growing(runs: Sequence[RunStepsRow]) -> list[DiagnosticRow]:
    found = []
    for row in runs:
        grown = row.resident_growth_bytes or 0
        if row.resident_bytes and grown > max(LEAST_GROWTH_BYTES, GROWTH * row.resident_bytes):
            found.append((row.rank, f"resident memory grew by {grown / 2**20:,.0f} MiB", row))
        grown = row.device_growth_bytes or 0
        if grown > LEAST_GROWTH_BYTES:
            found.append((row.rank, f"device memory grew by {grown / 2**20:,.0f} MiB", row))
    return [
        DiagnosticRow.of("HP182", f"rank {rank}: {text} from the second to the last quarter of {row.steps:,} steps")
        for rank, text, row in found[:4]
    ]


def _crowded(runs: Sequence[RunStepsRow]) -> list[DiagnosticRow]:
    """Find hosts whose ranks together have more threads than CPUs, and interrupt each other."""
    hosts: dict[str, list[RunStepsRow]] = defaultdict(list)
    for row in runs:
        hosts[row.host_name].append(row)
    found = []
    for host, rows in sorted(hosts.items()):
        cpus = max((row.cpus or 0 for row in rows), default=0)
        threads = sum(row.threads or 0 for row in {row.rank: row for row in rows}.values())
        switches = max((row.switches_per_second or 0.0 for row in rows), default=0.0)
        if cpus and threads > cpus and switches >= SWITCHES:
            who = f"{host}: {len(rows)} rank{'s' * (len(rows) != 1)} with {threads} threads on {cpus} CPUs"
            text = f"{who}, up to {switches:,.0f} involuntary context switches a second"
            found.append(DiagnosticRow.of("HP183", text))
    return found
