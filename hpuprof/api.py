"""The Python interface: load, analyze, save, read_report. Joins the rooms; holds no logic of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hpuprof.analysis_run import (
    Plan,
    Run,
    Source,
    analyze_run,
    anywhere,
    estimated_clocks,
    find_files,
    identified,
    jobs_for,
    read_clocks,
)
from hpuprof.arguments import Kind, checked, made_of, place, place_or
from hpuprof.errors import InputError, InsufficientDataError, UsageError
from hpuprof.files import is_regular, open_regular
from hpuprof.ingest.location import local_path, shown
from hpuprof.model.clock import ClockOffset
from hpuprof.options import THRESHOLD, resolve_options
from hpuprof.report.model import Report

if TYPE_CHECKING:
    import pandas as pd

    from hpuprof.comparison.result import Comparison
    from hpuprof.model.plan_rows import PlanRow
    from hpuprof.viewers.merging import Merged
    from hpuprof.viewers.tensorboard.conversion import Conversion
    from hpuprof.viewers.viewer_check import Checked


def _offsets(value: Mapping[int, ClockOffset]) -> dict[int, ClockOffset]:
    return {made_of(int)(rank): made_of(ClockOffset)(offset) for rank, offset in dict(value).items()}


def _saved(value: object) -> object:
    from hpuprof.comparison.result import Comparison

    return made_of(Report, Comparison)(value)


_PATHS = Kind("the path or URL of a trace or a directory, or a list of them", place, several=True)
RUN = Kind("a Run, the path or URL of a trace or a directory, or a list of paths", place_or(Run), several=True)
_SIDE = Kind("one run: a Report, a Run or a path; hpuprof.load makes a Run of several paths", place_or(Report, Run))
_OFFSETS = Kind("the ClockOffset of each rank, such as {1: hpuprof.ClockOffset(-500)}", _offsets)


@checked(source=_PATHS)
def load(
    source: Source | Sequence[Source],
    *,
    rank_from: str | None = None,
    run: int | None = None,
    executor: Executor | None = None,
    scheduler: str | None = None,
) -> Run:
    """Find the traces of a run under paths or URLs and identify their writers, reading headers only.

    `run`: which one, where several share a directory: 1 for the oldest; the default is the newest that is whole.
    What is not found here is looked for by a worker of `executor` or of the Dask `scheduler`, where one is given.
    Raises NoTracesFoundError, InputError for a missing path, and RankConflictError when two files claim the same rank,
    stage, action and window.
    """
    options = resolve_options(rank_from=rank_from, run=run, scheduler=scheduler)
    paths: Sequence[Source] = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise UsageError("nothing to analyze", hint="give a trace file or a directory")
    return find_files(paths, options, executor)


@checked(source=RUN)
def analyze(
    source: Run | Source | Sequence[Source],
    *,
    rank_from: str | None = None,
    jobs: int | None = None,
    strict: bool | None = None,
    clock: str | None = None,
    executor: Executor | None = None,
    step_time: str | timedelta | None = None,
    step_time_from: Source | None = None,
    constants: Source | None = None,
    apply: Sequence[str] | None = None,
    scheduler: str | None = None,
    cache: Source | None = None,
    table_rows: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Analyze traces and return the report.

    `rank_from`: how to determine each file's rank, also of a Run; `jobs`: worker processes, 0 for one per core
    (default); `executor`: any concurrent.futures executor, or a Dask client, instead; `scheduler`: the address of a
    Dask scheduler instead; `strict`: fail if rows or files were lost; `cache`: where to cache results: auto (default),
    beside, off or a directory; `table_rows`: maximum rows in multi-rank tables, 0 for no limit; `step_time`: the step
    time without the profiler, such as "12.3ms" or a timedelta, from which gains count; `step_time_from`: a file of
    another tool that holds it (docs/reference/reports.md lists which); `constants`: a machine
    profile written by `hpuprof calibrate`; `apply`: a list of remedies that the plan prices, whatever their order;
    `clock`: how to align host clocks: `collective`, `raw` or `manifest:FILE` (see docs/method/ranks.md); `progress` is
    called with the name of each finished file.

    Raises InputError when no file could be analyzed, or under `strict`.
    """
    options = resolve_options(
        rank_from=rank_from,
        jobs=jobs,
        strict=strict,
        scheduler=scheduler,
        cache=cache,
        table_rows=table_rows,
        step_time=step_time,
        step_time_from=str(step_time_from) if step_time_from is not None else None,
        constants=str(constants) if constants is not None else None,
        clock=clock,
        apply=tuple(apply) if apply else None,
    )
    plan = Plan.of(options)
    run = loaded(source, rank_from, executor=executor, scheduler=scheduler)
    return analyze_run(run, plan, executor, progress or (lambda _: None))


def loaded(
    source: Run | Source | Sequence[Source],
    rank_from: str | None,
    *,
    executor: Executor | None = None,
    scheduler: str | None = None,
) -> Run:
    """Return a run as `load` does; of a Run, the ranks as `rank_from` determines them, where it is given."""
    if isinstance(source, Run):
        return identified(source, rank_from)
    return load(source, rank_from=rank_from, executor=executor, scheduler=scheduler)


def _for_workers(run: Run, executor: Executor | None) -> Run:
    return run if executor is None else anywhere(run)


@checked(source=RUN)
def plan(
    source: Run | Source | Sequence[Source],
    *,
    apply: Sequence[str] | None = None,
    step_time: str | timedelta | None = None,
    constants: Source | None = None,
) -> pd.DataFrame:
    """Return what to change first and what it gives: the `plan` table of the report, times in ns.

    `apply`: names of remedies to price, whatever their order, instead of the best ones; the rest as for `analyze`.
    """
    return analyze(source, apply=apply, step_time=step_time, constants=constants).table("plan")


@checked(a=_SIDE, b=_SIDE)
def compare(
    a: Report | Run | Source,
    b: Report | Run | Source,
    *,
    threshold: float = THRESHOLD,
    rank_from: str | None = None,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare run B with run A: changes beyond noise, regressions, and what the step-time change consists of.

    Each is a report, a run, a saved report (.json), a trace or a directory of traces. `threshold`: the smallest
    relative change that counts, 0.02 for 2 %. Raises what `analyze` and `read_report` raise, and InsufficientDataError
    when nothing can be compared.
    """
    from hpuprof.comparison.reports import compare_reports

    sides = [read_report(s) if isinstance(s, (str, Path)) and is_report(s) else s for s in (a, b)]
    if all(isinstance(side, Report) for side in sides):
        refuse_rank_from(rank_from)
    reports = [
        s if isinstance(s, Report) else analyze(s, rank_from=rank_from, jobs=jobs, progress=progress) for s in sides
    ]
    names = [shown(side) if isinstance(side, (str, Path)) else label for side, label in ((a, "A"), (b, "B"))]
    first = sides[0]
    together = None if isinstance(first, Report) else partial(_plan_with, first, rank_from, jobs)
    return compare_reports(reports[0], reports[1], names=(names[0], names[1]), threshold=threshold, together=together)


def _plan_with(side: Run | Source, rank_from: str | None, jobs: int | None, fixes: Sequence[str]) -> list[PlanRow]:
    """Return the plan of a run with these fixes."""
    return analyze(side, rank_from=rank_from, jobs=jobs, apply=fixes).data.plan


def refuse_rank_from(rank_from: str | None) -> None:
    """Refuse an option that would change nothing. Raises UsageError."""
    if rank_from is not None:
        raise UsageError("rank_from is given for a report, whose ranks are fixed", hint="give the traces themselves")


def is_report(path: Source) -> bool:
    """Whether a file is a saved report rather than a trace, judged by its first bytes."""
    try:
        with open_regular(Path(path)) as handle:
            head = handle.read(4096)
    except (OSError, ValueError):
        return False
    return b'"schema_version"' in head and b'"hpuprof_version"' in head


@checked()
def read_comparison(path: Source) -> Comparison:
    """Read a comparison written by `save` or `compare --json`. Raises InputError for another file or a newer form."""
    from hpuprof.render.comparison_text import COMPARISONS

    return COMPARISONS.read(path)


@checked(source=RUN, offsets=_OFFSETS)
def merge(
    source: Run | Source | Sequence[Source],
    path: Source,
    *,
    ranks: Iterable[int] | None = None,
    steps: str | tuple[int, int] | None = None,
    clock: str | None = None,
    offsets: Mapping[int, ClockOffset] | None = None,
    critical: bool = False,
    rank_from: str | None = None,
    force: bool = True,
    strict: bool | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Merged:
    """Write one Chrome trace of all ranks that chrome://tracing and Perfetto open without losing a row.

    `ranks`: only these; `steps`: only these, as `"10:13"` or `(10, 13)` (without 13). `clock`: `collective` estimates
    host clocks from collectives, as `analyze` does, and is the default where ranks ran on several hosts and it can be
    done; `raw` uses timestamps as recorded (right within a host); `manifest:FILE` reads clocks from a JSON file.
    `offsets` gives the clock of each rank directly; `critical` adds lanes of each rank's critical cycle, which needs an
    analysis of each file; `strict`: write nothing if rows or files would be lost. Memory
    depends on the largest file, not on their number; the file (`.json` or `.json.gz`) appears whole or not at all.
    `jobs`, `executor`: as for `analyze`, but workers must share this machine's temporary directory. Raises UsageError,
    OutputError, InputError when no file could be read, InsufficientDataError for missing ranks or steps.
    """
    from hpuprof.executors import Workers
    from hpuprof.viewers.merging import MergeOptions, given_offsets, host_of, merge_files
    from hpuprof.viewers.step_window import Selection, parse_steps

    if clock is not None and offsets is not None:
        raise UsageError("clock and offsets are both given", hint="one of them: offsets are the ranks' clocks")
    options = resolve_options(rank_from=rank_from, jobs=jobs, strict=strict)
    run = _for_workers(loaded(source, rank_from), executor)
    hosts = [host_of(file) for file in run.files]
    spread = len(run.files) > 1 and (len(set(hosts)) > 1 or not all(hosts))
    wanted = clock or ("collective" if offsets is None and spread else "raw")
    mode, _, manifest = wanted.partition(":")
    if mode not in ("raw", "collective", "manifest") or (mode == "manifest") != bool(manifest):
        raise UsageError(
            f"no clock {clock!r}", hint="one of raw, collective, manifest:FILE; see docs/reference/timelines.md"
        )
    if mode == "manifest":
        offsets = given_offsets(read_clocks(manifest), manifest, run.files, run.identities)
    elif mode == "collective":
        try:
            offsets = estimated_clocks(analyze(run, clock="collective", jobs=jobs, executor=executor))
        except InsufficientDataError:
            if clock is not None:
                raise
            mode = "raw"
    chosen = parse_steps(steps) if isinstance(steps, str) else Selection(*steps) if steps else None
    return merge_files(
        run.files,
        run.identities,
        Path(path),
        MergeOptions(
            ranks=None if ranks is None else tuple(sorted(set(ranks))),
            steps=chosen,
            clock="offsets" if offsets and mode == "raw" else mode,
            offsets=offsets,
            rank_from=run.rank_from,
            critical=critical,
            strict=options.strict,
        ),
        Workers(jobs_for(run, options), executor, progress),
        skipped=run.skipped,
        force=force,
    )


def is_merged(path: Source) -> bool:
    """Whether a file is a merged timeline, as `merge` writes them."""
    from hpuprof.ingest.discover import is_merged_timeline
    from hpuprof.ingest.source import read_head

    try:
        return is_regular(Path(path)) and is_merged_timeline(read_head(path, 4096))
    except OSError:
        return False  # the next reader reports why


@checked(path=Kind("the path or URL of a file; check_all takes several", place))
def check(path: Source) -> Checked:
    """Check how Perfetto, chrome://tracing and TensorBoard show a trace file, and how to fix it.

    Raises InputError for a missing path, TraceFormatError when nothing in the file can be read.
    """
    if local_path(path) is not None and Path(path).is_dir():
        raise InputError(f"{path} is a directory", hint="check_all accepts directories, patterns and several paths")
    (checked,) = check_all(path)
    return checked


@checked(source=_PATHS)
def check_all(source: Source | Sequence[Source]) -> list[Checked]:
    """As `check`, for every trace and merged timeline under paths, patterns or URLs, in the order given.

    A file that cannot be read is reported in its place (`error`). Raises InputError for a missing path,
    NoTracesFoundError when there is no trace, TraceFormatError when no file can be read.
    """
    from hpuprof.viewers.viewer_check import check_paths

    paths: Sequence[Source] = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise UsageError("nothing to check", hint="give a trace file or a directory")
    return check_paths(paths)


@checked(source=RUN)
def convert(
    source: Run | Source | Sequence[Source],
    directory: Source,
    *,
    target: str = "tensorboard",
    force: bool = False,
    compress: bool = True,
    rank_from: str | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Rewrite traces so that the stock TensorBoard tab (torch-tb-profiler) shows the device in every view.

    Files go to `directory/<run>/<host>_<rank>.<time>.pt.trace.json.gz`, one run for each stage, action and window; they
    analyze to the numbers of their sources. Raises UsageError for an unknown `target` or a directory among the traces,
    OutputError when a file exists (without `force`) or cannot be written, InputError when no file could be converted.
    """
    from hpuprof.executors import Workers
    from hpuprof.viewers.tensorboard.conversion import TARGETS, convert_run, refuse_among

    if target not in TARGETS:
        raise UsageError(f"cannot convert for {target!r}", hint=f"one of {', '.join(TARGETS)}")
    options = resolve_options(rank_from=rank_from, jobs=jobs)
    if not isinstance(source, Run):
        refuse_among([source] if isinstance(source, (str, Path)) else source, Path(directory))
    run = _for_workers(loaded(source, rank_from), executor)
    return convert_run(
        run.files,
        run.identities,
        Path(directory) if executor is None else Path(directory).absolute(),
        Workers(jobs_for(run, options), executor, progress),
        force=force,
        compress=compress,
    )


@checked(report=Kind("a Report or a Comparison", _saved))
def save(report: Report | Comparison, path: Source, *, force: bool = True) -> Path:
    """Write a report or a comparison, whole or not at all, in the format of the suffix: .html, .json, .md, .txt.

    Raises OutputError when it cannot be written, UsageError for an unknown suffix.
    """
    from hpuprof.render import write

    return write(report, Path(path), force=force)


@checked()
def read_report(path: Source) -> Report:
    """Read a report that `save` or `--json` wrote. Raises InputError if it is not one, or has a newer schema."""
    from hpuprof.render.json import REPORTS
    from hpuprof.report.answering import upgraded

    return Report(upgraded(REPORTS.read(path)))
