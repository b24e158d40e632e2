"""The Python interface: load, analyze, save, read_report. Joins the rooms; holds no logic of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hpuprof._version import __version__
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import ConfigError, InputError, TraceFormatError, UsageError
from hpuprof.executors import map_ordered
from hpuprof.ingest.discover import Identity, Skipped, TraceFile, discover, identify
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.options import AnalyzeOptions, ReduceOptions, parse_duration, resolve_options
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
    step_time: str | None = None,
    constants: Source | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Analyse traces and return the report.

    `jobs`: worker processes, 0 for one per core (default); `executor`: any concurrent.futures executor instead;
    `strict`: fail when rows or files were lost; `step_time`: the step time without the profiler, such as "12.3ms", for the graph-mode
    prediction; `constants`: a machine profile that `hpuprof calibrate` wrote; `progress` is called with each file's name when it is done.
    Raises InputError when no file could be analysed, or under `strict`.
    """
    options = resolve_options(
        rank_from=rank_from,
        jobs=jobs,
        strict=strict,
        step_time=step_time,
        constants=str(constants) if constants is not None else None,
    )
    work = partial(reduce_file, settings=_settings(options))
    run = source if isinstance(source, Run) else load(source, rank_from=options.rank_from)
    jobs = options.jobs
    if not jobs and sum(f.bytes for f in run.files) < SMALL_RUN_BYTES:
        jobs = 1
    results: list[RankPartial | FailedFile] = []
    for file, result in zip(run.files, map_ordered(work, run.files, jobs=jobs, executor=executor), strict=True):
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


def _settings(options: AnalyzeOptions) -> ReduceOptions:
    """Return what workers need of the options; a machine profile travels as text. Raises ConfigError for a bad one."""
    text = ""
    if options.constants:
        try:
            text = Path(options.constants).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{options.constants}: cannot be read: {error}", hint="a file that `hpuprof calibrate -o FILE` wrote"
            ) from None
        from hpuprof.analysis.graph_mode.constants import read_profile

        read_profile(text)
    return ReduceOptions(parse_duration(options.step_time) if options.step_time else None, text)


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
