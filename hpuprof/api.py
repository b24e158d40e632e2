"""The Python interface: load, analyze, save, read_report. Joins the rooms; holds no logic of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from hpuprof._version import __version__
from hpuprof.conversion.run import TARGETS, Conversion, convert_run, refuse_among
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import InputError, TraceFormatError, UsageError
from hpuprof.executors import map_ordered
from hpuprof.ingest.discover import Identity, Skipped, TraceFile, discover, identify
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.options import resolve_options
from hpuprof.pipeline import reduce_file
from hpuprof.report.combine import combine
from hpuprof.report.model import Report

Source = str | Path
SMALL_RUN_BYTES = 8 << 20
"""Below this many bytes (compressed or not) starting worker processes costs more than it saves."""


@dataclass(frozen=True)
class Run:
    """Trace files of one run and who wrote them; only heads of the files have been read."""

    files: tuple[TraceFile, ...]
    identities: tuple[Identity, ...]
    skipped: tuple[Skipped, ...]
    rank_from: str = "auto"

    @property
    def ranks(self) -> list[int]:
        """Ranks present, ascending."""
        return sorted({who.rank for who in self.identities})

    def __len__(self) -> int:
        return len(self.files)


def load(source: Source | Sequence[Source], *, rank_from: str | None = None) -> Run:
    """Find the traces under a path (or several) and tell who wrote each, reading headers only.

    Raises NoTracesFoundError, InputError for a missing path, and RankConflictError when two files claim the same rank,
    stage, action and window.
    """
    options = resolve_options(rank_from=rank_from)
    paths: Sequence[Source] = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise UsageError("nothing to analyse", hint="give a trace file or a directory")
    files, skipped = discover(paths)
    return Run(tuple(files), tuple(identify(files, rank_from=options.rank_from)), tuple(skipped), options.rank_from)


def analyze(
    source: Run | Source | Sequence[Source],
    *,
    rank_from: str | None = None,
    jobs: int | None = None,
    strict: bool | None = None,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Analyse traces and return the report.

    `jobs`: worker processes, 0 for one per core (default); `executor`: any concurrent.futures executor instead;
    `strict`: fail when rows or files were lost; `progress` is called with each file's name when it is done.
    Raises InputError when no file could be analysed, or under `strict`.
    """
    options = resolve_options(rank_from=rank_from, jobs=jobs, strict=strict)
    run = source if isinstance(source, Run) else load(source, rank_from=options.rank_from)
    jobs = options.jobs
    if not jobs and sum(f.bytes for f in run.files) < SMALL_RUN_BYTES:
        jobs = 1
    results: list[RankPartial | FailedFile] = []
    for file, result in zip(run.files, map_ordered(reduce_file, run.files, jobs=jobs, executor=executor), strict=True):
        results.append(result)
        if progress:
            progress(file.name)
    failed = [r for r in results if isinstance(r, FailedFile)]
    if len(failed) == len(results):
        first = failed[0]
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        raise TraceFormatError(first.message + more, path=first.path, offset=first.offset or 0, hint=first.hint)
    identities = _identify_again(run, results)
    report = Report(combine(identities, results, run.skipped, version=__version__))
    if options.strict:
        _refuse_losses(report)
    return report


def _identify_again(run: Run, results: Sequence[RankPartial | FailedFile]) -> Sequence[Identity]:
    """Identify anew where a whole file told more than its head did."""
    files = [
        replace(file, inside={**file.inside, **result.inside}) if isinstance(result, RankPartial) else file
        for file, result in zip(run.files, results, strict=True)
    ]
    if all(new.inside == old.inside for new, old in zip(files, run.files, strict=True)):
        return run.identities
    return identify(files, rank_from=run.rank_from)


def _refuse_losses(report: Report) -> None:
    lost = [d for d in report.data.diagnostics if DIAGNOSTICS[d.code].lossy]
    if lost:
        first = lost[0]
        raise InputError(
            f"{first.path or 'the input'}: {first.text} ({first.code}); {len(lost)} such problems in all",
            hint="leave out --strict to analyse what could be read",
        )


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
    analyse to the numbers of their sources. Raises UsageError for an unknown `target` or a directory among the traces,
    OutputError when a file exists (without `force`) or cannot be written, InputError when no file could be converted.
    """
    if target not in TARGETS:
        raise UsageError(f"nothing is known of converting for {target!r}", hint=f"one of {', '.join(TARGETS)}")
    options = resolve_options(rank_from=rank_from, jobs=jobs)
    if not isinstance(source, Run):
        refuse_among([source] if isinstance(source, (str, Path)) else source, Path(directory))
    run = source if isinstance(source, Run) else load(source, rank_from=options.rank_from)
    jobs = options.jobs
    if not jobs and sum(f.bytes for f in run.files) < SMALL_RUN_BYTES:
        jobs = 1
    return convert_run(
        run.files,
        run.identities,
        Path(directory),
        force=force,
        compress=compress,
        jobs=jobs,
        executor=executor,
        progress=progress,
    )


def save(report: Report, path: Source, *, force: bool = True) -> Path:
    """Write a report; the suffix chooses the format: .json, .md, .txt. The file appears whole or not at all.

    Raises OutputError when it cannot be written, UsageError for an unknown suffix.
    """
    from hpuprof.render import write

    return write(report, Path(path), force=force)


def read_report(path: Source) -> Report:
    """Read a report that `save` or `--json` wrote. Raises InputError when it is none, or of a newer schema."""
    from hpuprof.render.json import loads

    try:
        return loads(Path(path).read_bytes(), name=str(path))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}", hint="give a report written with -o report.json"
        ) from error
