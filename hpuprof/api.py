"""The Python interface: load, analyze, save, read_report. Joins the rooms; holds no logic of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpuprof._version import __version__
from hpuprof.cache import Cache, code_digest, prune
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import ConfigError, HpuprofError, InputError, InsufficientDataError, TraceFormatError, UsageError
from hpuprof.executors import Journal, Lost, dask_executor, run_all
from hpuprof.ingest.discover import Identity, Skipped, TraceFile, discover, identify
from hpuprof.ingest.location import here_only, local_path, shown
from hpuprof.model.clock import GivenClock, read_manifest
from hpuprof.model.partial import FailedFile
from hpuprof.model.partial_codec import CodecError, PackedPartial
from hpuprof.options import THRESHOLD, AnalyzeOptions, ReduceOptions, parse_duration, resolve_options
from hpuprof.regular import is_regular, open_regular, read_regular
from hpuprof.report.bundle import Bundle, Gatherer, Result
from hpuprof.report.model import Report
from hpuprof.tasks import ReduceTask, relabelled

if TYPE_CHECKING:
    from hpuprof.comparison.result import Comparison
    from hpuprof.model.clock import ClockOffset
    from hpuprof.viewers.merging import Merged
    from hpuprof.viewers.tensorboard.conversion import Conversion
    from hpuprof.viewers.viewer_check import Checked

Source = str | Path
SMALL_RUN_BYTES = 8 << 20
"""Below this many bytes (compressed or not) starting worker processes costs more than it saves."""

LOOK_UPS = 8
"""Cache entries looked up at a time; most of the time goes into waiting for a disk or a store."""
LOST_HINT = "fewer workers (--jobs) or more memory for each"


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


def load(
    source: Source | Sequence[Source],
    *,
    rank_from: str | None = None,
    executor: Executor | None = None,
    scheduler: str | None = None,
) -> Run:
    """Find the traces under paths or URLs and tell who wrote each, reading headers only.

    What is not found here is looked for by a worker of `executor` or of the Dask `scheduler`, where one is given.
    Raises NoTracesFoundError, InputError for a missing path, and RankConflictError when two files claim the same rank,
    stage, action and window.
    """
    options = resolve_options(rank_from=rank_from, scheduler=scheduler)
    paths: Sequence[Source] = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise UsageError("nothing to analyse", hint="give a trace file or a directory")
    try:
        files, skipped = discover(paths)
    except InputError as error:
        if type(error) is not InputError or not (executor or options.scheduler):
            raise
        with _executor(executor, options) as workers:
            assert workers is not None
            there = [str(p if local_path(p) is None else Path(p).absolute()) for p in paths]
            files, skipped = workers.submit(discover, there).result()
    return Run(tuple(files), tuple(identify(files, rank_from=options.rank_from)), tuple(skipped), options.rank_from)


def analyze(
    source: Run | Source | Sequence[Source],
    *,
    rank_from: str | None = None,
    jobs: int | None = None,
    strict: bool | None = None,
    clock: str | None = None,
    executor: Executor | None = None,
    step_time: str | None = None,
    constants: Source | None = None,
    scheduler: str | None = None,
    cache: str | None = None,
    table_rows: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Analyse traces and return the report.

    `jobs`: worker processes, 0 for one per core (default); `executor`: any concurrent.futures executor, or a Dask client, instead;
    `scheduler`: the address of a Dask scheduler instead; `strict`: fail when rows or files were lost; `cache`: where reduced
    traces are remembered: auto (default), beside, off or a directory; `table_rows`: how long a table of many ranks may get, 0
    for any length; `step_time`: the step time without the profiler, such as "12.3ms", for the graph-mode prediction; `constants`: a
    machine profile that `hpuprof calibrate` wrote; `clock`: what relates the clocks of hosts, `collective`, `raw` or `manifest:FILE`
    (see docs/ranks.md); `progress` is called with each file's name when it is done.
    Raises InputError when no file could be analysed, or under `strict`.
    """
    options = resolve_options(
        rank_from=rank_from,
        jobs=jobs,
        strict=strict,
        scheduler=scheduler,
        cache=cache,
        table_rows=table_rows,
        step_time=step_time,
        constants=str(constants) if constants is not None else None,
        clock=clock,
    )
    mode, _, manifest = options.clock.partition(":")
    clocks = _read_manifest(manifest) if mode == "manifest" else None
    settings = _settings(options)
    run = (
        source
        if isinstance(source, Run)
        else load(source, rank_from=options.rank_from, executor=executor, scheduler=scheduler)
    )
    journal = Journal()
    results = _reduce(run, options, settings, executor, progress or (lambda _: None), journal)
    failed = [r for r in results if isinstance(r, FailedFile)]
    if len(failed) == len(results):
        first = failed[0]
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        raise TraceFormatError(first.message + more, path=first.path, offset=first.offset or 0, hint=first.hint)
    from hpuprof.report.combine import combine

    def combined() -> Report:
        data = combine(
            _identify_again(run, results),
            results,
            run.skipped,
            version=__version__,
            table_rows=options.table_rows,
            again=journal.notes,
            clock=mode,
            offsets=clocks,
        )
        return Report(data)

    try:
        report = combined()
    except HpuprofError:
        raise
    except Exception:  # there is no end to what an entry can say that somebody else wrote
        if not any(isinstance(r, PackedPartial) and r.foreign for r in results):
            raise
        # No entry may break a run: all count as absent. What is no entry's fault comes again.
        results = _reduce(run, options, settings, executor, lambda _: None, journal, look=False)
        report = combined()
    if options.strict:
        _refuse_losses(report)
    return report


def _read_manifest(path: str) -> dict[str, GivenClock]:
    try:
        return read_manifest(read_regular(Path(path)))
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{path}: no clock manifest: {reason}",
            hint='a JSON object such as {"node01": 0, "node02": -1250000}, nanoseconds to add to the stamps of a host',
        ) from error


def _settings(options: AnalyzeOptions) -> ReduceOptions:
    """Return what workers need of the options; a machine profile travels as text. Raises ConfigError for a bad one."""
    text = ""
    if options.constants:
        try:
            text = read_regular(Path(options.constants)).decode()
        except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the name
            reason = error.strerror if isinstance(error, OSError) else ""
            raise ConfigError(
                f"{options.constants}: cannot be read: {reason or error}",
                hint="a file that `hpuprof calibrate -o FILE` wrote",
            ) from None
        from hpuprof.graph_mode.constants import read_profile

        try:
            read_profile(text)
        except ConfigError as error:
            raise ConfigError(f"{options.constants}: {error.message}", hint=error.hint) from None
    return ReduceOptions(parse_duration(options.step_time) if options.step_time else None, text)


@contextmanager
def _executor(executor: Executor | None, options: AnalyzeOptions) -> Iterator[Executor | None]:
    """The executor that was given (of a Dask client: its own), or one of the scheduler that the options name, or None."""
    client: Any = executor
    if hasattr(client, "get_executor"):
        yield client.get_executor(pure=False)
        return
    if executor is not None or not options.scheduler:
        yield executor
        return
    with dask_executor(options.scheduler) as workers:
        yield workers


def _reduce(
    run: Run,
    options: AnalyzeOptions,
    settings: ReduceOptions,
    executor: Executor | None,
    progress: Callable[[str], None],
    journal: Journal,
    *,
    look: bool = True,
) -> list[Result]:
    """Reduce every file, or find it in the cache (`look`); results in the order of the run's files."""
    cache = Cache.at(options.cache, settings)
    gathered = Gatherer()
    missing: list[TraceFile] = []
    with ThreadPoolExecutor(LOOK_UPS) as pool:
        for file, known in zip(run.files, pool.map(lambda f: _remembered(cache, f, look=look), run.files), strict=True):
            if known is None:
                missing.append(file)
            else:
                gathered.add(Bundle({file.path: known}))
                progress(file.name)
    jobs = options.jobs
    small = sum(f.bytes for f in missing) < SMALL_RUN_BYTES
    if (not jobs and small) or any(here_only(f.path) for f in missing):
        jobs = 1
    # The largest first: a large file that begins last is waited for alone.
    missing.sort(key=lambda f: (-f.bytes, f.path))
    if missing:
        with _executor(executor, options) as workers:
            task = ReduceTask(cache, settings, look=look and workers is not None, code=code_digest())
            items = missing if workers is None else list(map(_anywhere, missing))
            done = run_all(
                task,
                items,
                jobs=jobs,
                executor=workers,
                reachable=_reachable,
                journal=journal,
                meanwhile=lambda: import_module("hpuprof.report.combine"),
            )
            with closing(done):
                for i, result in done:
                    file = missing[i]
                    gathered.add(Bundle({file.path: _failed(file, result) if isinstance(result, Lost) else result}))
                    progress(file.name)
        if options.cache in ("auto", "beside"):
            prune()
    results = gathered.result().results
    return [results[file.path] for file in run.files]


def _remembered(cache: Cache, file: TraceFile, *, look: bool) -> PackedPartial | None:
    known = cache.look_up(file.path) if look else None
    with suppress(CodecError):
        return relabelled(known, file) if known is not None else None
    return None


def _anywhere(file: TraceFile) -> TraceFile:
    """A file as workers with another working directory find it."""
    path = local_path(file.path)
    return file if path is None else replace(file, path=str(path.absolute()))


def _failed(file: TraceFile, lost: Lost) -> FailedFile:
    return FailedFile(path=file.name, message=f"{shown(file.path)}: {lost.reason}", hint=LOST_HINT)


def _reachable(file: TraceFile) -> bool:
    """Whether a file can be read by this process's own workers."""
    path = local_path(file.path)
    # os.path asks without raising where it may not look.
    return os.path.exists(path) if path is not None else not here_only(file.path)  # noqa: PTH110


def _identify_again(run: Run, results: Sequence[Result]) -> Sequence[Identity]:
    """Identify anew where a whole file told more than its head did."""
    files = [
        replace(file, inside={**file.inside, **result.inside}) if isinstance(result, PackedPartial) else file
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


def compare(
    a: Report | Run | Source,
    b: Report | Run | Source,
    *,
    threshold: float = THRESHOLD,
    rank_from: str | None = None,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare run B with run A: what changed beyond noise, what got worse, and what the step time's change consists of.

    Each is a report, a run, a saved report (.json), a trace or a directory of traces. `threshold`: the smallest relative change that
    counts, 0.02 for 2 %. Raises what `analyze` and `read_report` raise, and InsufficientDataError when nothing can be compared.
    """
    from hpuprof.comparison.reports import compare_reports

    reports = [_report(side, rank_from=rank_from, jobs=jobs, progress=progress) for side in (a, b)]
    names = [shown(side) if isinstance(side, (str, Path)) else label for side, label in ((a, "A"), (b, "B"))]
    return compare_reports(reports[0], reports[1], names=(names[0], names[1]), threshold=threshold)


def _report(
    side: Report | Run | Source,
    *,
    rank_from: str | None,
    jobs: int | None,
    progress: Callable[[str], None] | None,
) -> Report:
    if isinstance(side, Report):
        return side
    if not isinstance(side, Run) and is_report(side):
        return read_report(side)
    return analyze(side, rank_from=rank_from, jobs=jobs, progress=progress)


def is_report(path: Source) -> bool:
    """Tell by its first bytes whether a file is a saved report rather than a trace."""
    try:
        with open_regular(Path(path)) as handle:
            head = handle.read(4096)
    except (OSError, ValueError):
        return False
    return b'"schema_version"' in head and b'"hpuprof_version"' in head


def read_comparison(path: Source) -> Comparison:
    """Read a comparison that `save` or `hpuprof compare --json` wrote. Raises InputError when it is none, or of a newer form."""
    from hpuprof.render.comparison_text import loads

    try:
        return loads(read_regular(Path(path)), name=str(path))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}",
            hint="give a comparison written with -o comparison.json",
        ) from error


def merge(
    source: Run | Source | Sequence[Source],
    path: Source,
    *,
    ranks: Iterable[int] | None = None,
    steps: str | tuple[int, int] | None = None,
    clock: str = "raw",
    offsets: Mapping[int, ClockOffset] | None = None,
    rank_from: str | None = None,
    force: bool = True,
    strict: bool | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Merged:
    """Write one Chrome trace (`.json` or `.json.gz`) of all ranks that chrome://tracing and Perfetto open without losing a row.

    `ranks`: only these; `steps`: only these, as `"10:13"` or `(10, 13)` (without 13). `clock`: `raw` takes the stamps as
    recorded (right within a host); `collective` estimates the clocks of hosts from their collectives, as `analyze` does; `manifest:FILE` takes
    them from a JSON file. `offsets` gives the clock of each rank directly; `strict`: write nothing when rows or files would be lost. Memory depends on the largest file, not on their number; the file appears whole or not at all.
    `jobs`, `executor`: as for `analyze`, but workers must share this machine's temporary directory.
    Raises UsageError, OutputError, InputError when no file could be read, InsufficientDataError for ranks or steps that are
    not there.
    """
    from hpuprof.viewers.merging import MergeOptions, given_offsets, merge_files
    from hpuprof.viewers.step_window import Selection, parse_steps
    from hpuprof.viewers.workers import Workers

    options = resolve_options(rank_from=rank_from, jobs=jobs, strict=strict)
    run = source if isinstance(source, Run) else load(source, rank_from=options.rank_from)
    mode, _, manifest = clock.partition(":")
    if mode not in ("raw", "collective", "manifest") or (mode == "manifest") != bool(manifest):
        raise UsageError(f"no clock {clock!r}", hint="one of raw, collective, manifest:FILE; see docs/viewers.md")
    if mode == "manifest":
        offsets = given_offsets(_read_manifest(manifest), manifest, run.files, run.identities)
    elif mode == "collective":
        offsets = _estimated_clocks(analyze(run, clock="collective", jobs=jobs, executor=executor))
    chosen = parse_steps(steps) if isinstance(steps, str) else Selection(*steps) if steps else None
    jobs = options.jobs
    if not jobs and sum(f.bytes for f in run.files) < SMALL_RUN_BYTES:
        jobs = 1
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
            strict=options.strict,
        ),
        Workers(jobs, executor, progress),
        skipped=run.skipped,
        force=force,
    )


def _estimated_clocks(report: Report) -> dict[int, ClockOffset]:
    """Return each rank's clock as the analysis placed it. Raises InsufficientDataError when clocks are unrelated."""
    from hpuprof.model.clock import ClockOffset

    rows = {row.host: row for row in report.data.clocks}
    found = {}
    for file in report.data.files:
        row = rows.get(file.host_name or "") or rows.get(f"rank {file.rank}")
        if row is None and len(rows) == 1:
            continue  # all ranks share the one clock
        if row is None or row.offset_ns is None:
            raise InsufficientDataError(
                f"{file.path}: no collective relates the clock of rank {file.rank} to the others",
                hint="--clock raw takes stamps as recorded; --clock manifest:FILE takes offsets that you know",
            )
        # The table says what to add to stamps, ClockOffset what they show too much.
        found[file.rank] = ClockOffset(-row.offset_ns, -(row.drift_ppm or 0.0), row.at_ns or 0)
    return found


def is_merged(path: Source) -> bool:
    """Whether a file is a merged timeline, as `merge` writes them."""
    from hpuprof.ingest.discover import is_merged_timeline
    from hpuprof.ingest.source import read_head

    try:
        return is_regular(Path(path)) and is_merged_timeline(read_head(path, 4096))
    except OSError:
        return False  # whoever reads it next says why


def check(path: Source) -> Checked:
    """Say what Perfetto, chrome://tracing and TensorBoard would make of a trace file, and what mends it.

    Raises InputError for a missing path, TraceFormatError when nothing in the file can be read.
    """
    if local_path(path) is not None and Path(path).is_dir():
        raise InputError(f"{path} is a directory", hint="check_all takes directories, patterns and several paths")
    (checked,) = check_all(path)
    return checked


def check_all(source: Source | Sequence[Source]) -> list[Checked]:
    """As `check`, for every trace and merged timeline under paths, patterns or URLs, in the order given.

    A file that cannot be read is told in its place (`error`). Raises InputError for a missing path, NoTracesFoundError when
    there is no trace, TraceFormatError when no file can be read.
    """
    from hpuprof.viewers.viewer_check import check_paths

    paths: Sequence[Source] = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise UsageError("nothing to check", hint="give a trace file or a directory")
    return check_paths(paths)


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
    from hpuprof.viewers.tensorboard.conversion import TARGETS, convert_run, refuse_among
    from hpuprof.viewers.workers import Workers

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
        Workers(jobs, executor, progress),
        force=force,
        compress=compress,
    )


def save(report: Report | Comparison, path: Source, *, force: bool = True) -> Path:
    """Write a report or a comparison; the suffix chooses the format: .html, .json, .md, .txt. The file appears whole or not at all.

    Raises OutputError when it cannot be written, UsageError for an unknown suffix.
    """
    from hpuprof.render import write

    return write(report, Path(path), force=force)


def read_report(path: Source) -> Report:
    """Read a report that `save` or `--json` wrote. Raises InputError when it is none, or of a newer schema."""
    from hpuprof.render.json import loads

    try:
        return loads(read_regular(Path(path)), name=str(path))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}", hint="give a report written with -o report.json"
        ) from error
