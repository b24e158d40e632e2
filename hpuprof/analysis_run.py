"""Runs an analysis: finds files, looks them up in the cache, reduces the rest in workers, combines the results."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hpuprof._version import __version__
from hpuprof.cache import Cache, code_digest, prune
from hpuprof.errors import (
    ConfigError,
    HpuprofError,
    InputError,
    InsufficientDataError,
    NoTracesFoundError,
    did_you_mean,
)
from hpuprof.executors import Journal, Lost, dask_executor, run_all
from hpuprof.faces import notebook_html
from hpuprof.files import cannot_read, read_regular
from hpuprof.ingest.discover import (
    Companion,
    Identity,
    Skipped,
    TraceFile,
    identify,
    no_traces,
    runs_among,
    search,
)
from hpuprof.ingest.location import here_only, local_path, shown
from hpuprof.ingest.other_timers import find_timers, read_timer
from hpuprof.ingest.separate_runs import Recording, newest_whole, when
from hpuprof.ingest.step_log_files import find_step_logs, is_step_log
from hpuprof.model.clock import ClockOffset, GivenClock, read_manifest
from hpuprof.model.partial import FailedFile, all_failed, refuse_losses
from hpuprof.model.partial_codec import CodecError, PackedPartial
from hpuprof.options import AnalyzeOptions, ReduceOptions, parse_duration
from hpuprof.report.model import Report, ReportData
from hpuprof.report.pauses import Pause
from hpuprof.report.recordings import kind_of, recording_kinds
from hpuprof.report.remembered import remember, remembered, report_key
from hpuprof.report.whole_run import combine_nothing, whole_run
from hpuprof.tasks import DeepTask, ReduceTask, Result, relabeled

Source = str | Path
SMALL_RUN_BYTES = 8 << 20
"""Below this many bytes (compressed or not) starting worker processes costs more than it saves."""

MOST_LISTED = 8
"""Other runs of a directory in its diagnostic."""
MOST_PREDICTED = 64
"""Ranks of which steps are predicted; by judgment: enough for each kind of rank, and what is replayed whole."""
LOOK_UPS = 8
"""Cache entries looked up at a time; most of the time goes into waiting for a disk or a store."""
LOST_HINT = "fewer workers (--jobs) or more memory for each"


@dataclass(frozen=True)
class Run:
    """Trace files of one run and who wrote them; only heads of the files have been read.

    `others`: files of other runs found with them, by run in order of time.
    """

    files: tuple[TraceFile, ...]
    identities: tuple[Identity, ...]
    skipped: tuple[Skipped, ...]
    rank_from: str = "auto"
    others: tuple[tuple[TraceFile, ...], ...] = ()
    logs: tuple[Path, ...] = ()  # of steps
    beside: tuple[Companion, ...] = ()
    folders: tuple[Path, ...] = ()  # given ones, here: other tools may have written step times next to the traces

    @property
    def ranks(self) -> list[int]:
        """Ranks present, ascending."""
        return sorted({who.rank for who in self.identities})

    @property
    def summary(self) -> str:
        """The number of files and ranks in words."""
        files, ranks = len(self.files), len(self.ranks)
        return f"Run of {files} file{'' if files == 1 else 's'}, {ranks} rank{'' if ranks == 1 else 's'}"

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    def _repr_html_(self) -> str:
        return notebook_html(self, "run_html")


def find_files(paths: Sequence[Source], options: AnalyzeOptions, executor: Executor | None) -> Run:
    """Find and identify the traces under paths or URLs; a worker, if there is one, looks for what is not found here."""
    logs = tuple(find_step_logs(paths))
    paths = [path for path in paths if not is_step_log(path)]
    try:
        files, skipped, beside = search(paths)
    except InputError as error:
        if type(error) is not InputError or not (executor or options.scheduler):
            raise
        with _workers(executor, options) as workers:
            assert workers is not None
            there = [str(p if local_path(p) is None else Path(p).absolute()) for p in paths]
            files, skipped, _ = workers.submit(search, there).result()
        beside = []  # is read here
    if not files:
        nothing = no_traces(paths, skipped)
        if not (logs or beside) or not isinstance(nothing, NoTracesFoundError):
            raise nothing
        return Run((), (), (), options.rank_from, logs=logs, beside=tuple(beside))
    folders = tuple(local for path in paths if (local := local_path(path)) is not None and local.is_dir())
    return dataclasses.replace(_one_run(files, skipped, options), logs=logs, beside=tuple(beside), folders=folders)


def identified(run: Run, rank_from: str | None) -> Run:
    """Return a run with its ranks determined in this way; None: as they are. Raises RankConflictError."""
    if rank_from in (None, run.rank_from):
        return run
    again = _one_run(every_file(run), [s for s in run.skipped if not s.runs], AnalyzeOptions(rank_from=rank_from))
    return dataclasses.replace(again, logs=run.logs, beside=run.beside, folders=run.folders)


def every_file(run: Run) -> list[TraceFile]:
    """Return the files of all runs that were found together."""
    files = [*run.files, *(file for other in run.others for file in other)]
    return sorted(files, key=lambda f: (f.name, f.path))


def _one_run(files: Sequence[TraceFile], skipped: Sequence[Skipped], options: AnalyzeOptions) -> Run:
    """Return one of the runs that wrote files: the one that the options number, or the newest whole one."""
    runs = runs_among(files, rank_from=options.rank_from)
    if options.run > len(runs):
        here = "there is one run" if len(runs) == 1 else f"there are {len(runs)} runs"
        raise InputError(f"run {options.run}: {here} here", hint="leave out --run for the newest whole one")
    recordings = [[recording for _, recording in run] for run in runs]
    worlds = [max(int(file.inside.get("world_size") or 0) for file, _ in run) for run in runs]
    chosen = options.run - 1 if options.run else newest_whole(recordings, worlds)
    by_run = [tuple(file for file, _ in run) for run in runs]
    mine = by_run.pop(chosen)
    others = [Skipped("", _listed(recordings, worlds, chosen), explicit=False, runs=len(by_run))] if by_run else []
    return Run(
        mine,
        tuple(identify(mine, rank_from=options.rank_from)),
        (*skipped, *others),
        options.rank_from,
        tuple(by_run),
    )


def _listed(runs: Sequence[Sequence[Recording]], worlds: Sequence[int], chosen: int) -> str:
    """Say which run is analyzed, and how to analyze each of the others, the newest first."""

    def one(i: int) -> str:
        ranks, time = len({r.rank for r in runs[i]}), when(runs[i])
        of = f"{ranks} of {worlds[i]} ranks" if worlds[i] > ranks else f"{ranks} rank{'s' if ranks > 1 else ''}"
        return f"run {i + 1} ({time}, {of})" if time else f"run {i + 1} ({of})"

    others = [i for i in reversed(range(len(runs))) if i != chosen]
    listed = ", ".join(f"{one(i)} with --run {i + 1}" for i in others[:MOST_LISTED])
    more = f", and {len(others) - MOST_LISTED} older ones" if len(others) > MOST_LISTED else ""
    return f"the answer is of {one(chosen)} of {len(runs)} here; left out: {listed}{more}"


def jobs_for(run: Run, options: AnalyzeOptions) -> int:
    """Return how many processes to work with, 0 for one per core; a small run needs one."""
    return 1 if not options.jobs and sum(f.bytes for f in run.files) < SMALL_RUN_BYTES else options.jobs


class Plan(Struct, frozen=True):
    """How to analyze: the options, and what the files say that they name. `clocks`: by host, None for none given."""

    options: AnalyzeOptions
    settings: ReduceOptions
    clocks: dict[str, GivenClock] | None

    @classmethod
    def of(cls, options: AnalyzeOptions) -> Plan:
        """Read the files that the options name. Raises ConfigError for a bad one."""
        mode, _, manifest = options.clock.partition(":")
        clocks = read_clocks(manifest) if mode == "manifest" else None
        return cls(options, _settings(options), clocks)


def _settings(options: AnalyzeOptions) -> ReduceOptions:
    """Return what workers need of the options; a machine profile travels as text. Raises ConfigError for a bad one."""
    text = ""
    if options.constants:
        try:
            text = read_regular(Path(options.constants)).decode()
        except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the name
            raise ConfigError(
                f"{options.constants}: {cannot_read(error)}",
                hint="a file that `hpuprof calibrate -o FILE` wrote",
            ) from None
        from hpuprof.what_if.constants import read_profile

        try:
            read_profile(text)
        except ConfigError as error:
            raise ConfigError(f"{options.constants}: {error.message}", hint=error.hint) from None
    return ReduceOptions(_given_step_time(options), text, apply=_known_remedies(options.apply))


def _given_step_time(options: AnalyzeOptions) -> float | None:
    """Return the step time without the profiler [ns] that the user gives, by value before by file."""
    if options.step_time:
        return parse_duration(options.step_time)
    return float(read_timer(options.step_time_from).step_ns) if options.step_time_from else None


def _known_remedies(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of remedies, or parts that take less time. Raises ConfigError for anything else."""
    if names:
        from hpuprof.planning.remedies import BY_NAME
        from hpuprof.planning.remedies.faster import wished

        for name in names:
            if name not in BY_NAME and wished(name) is None:
                known = f"NAME=30% for a part, or one of {', '.join(BY_NAME)}"
                raise ConfigError(f"apply: no fix {name!r}", hint=did_you_mean(name, BY_NAME, known))
    return tuple(names)


def read_clocks(path: str) -> dict[str, GivenClock]:
    """Return the clocks of hosts as a file gives them. Raises ConfigError."""
    try:
        return read_manifest(read_regular(Path(path)))
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{path}: not a clock manifest: {reason}",
            hint='a JSON object such as {"node01": 0, "node02": -1250000}, nanoseconds to add to each host timestamp',
        ) from error


def analyze_run(run: Run, plan: Plan, executor: Executor | None, progress: Callable[[str], None]) -> Report:
    """Return the report of a run. Raises InputError when no file could be analyzed, or under `strict`."""
    logged = whole_run(run.logs, run.beside)
    settings = replace(plan.settings, logged=logged.times)
    if settings.step_time_ns is None:
        timers = find_timers(run.folders, other_than=[file.path for file in every_file(run)])
        found = tuple((timer.step_ns, timer.spread_ns, f"{timer.tool}, {timer.path}") for timer in timers)
        settings = replace(settings, timers=found)
    plan = replace(plan, settings=settings)
    if not run.files:
        return Report(combine_nothing(run.skipped, logged, plan.options.table_rows))
    work = _Work.of(run, plan, executor, logged.pauses)
    keys = work.keys()
    names = [file.name for file in run.files]
    key = report_key(keys, names, run.identities, run.skipped, __version__, plan.options.table_rows, work.clock, logged)
    data = remembered(work.caches[0], next(iter(keys)), key) if key else None
    if data is None:
        journal = Journal()
        data = logged.added(work.report(keys, progress, journal))
        whole = len(data.files) == len(run.files) and not journal.notes
        if key and whole and work.keys() == keys:
            remember(work.caches[0], list(keys), key, data)
    else:
        for name in names:
            progress(name)
    if plan.options.strict:
        refuse_losses(data.diagnostics, "analyze")
    return Report(data)


class _Work(Struct, frozen=True):
    """What to do with the files of a run.

    `depths`: how deep to look at each file, by path: 0 to measure, 1 to predict its steps, 2 to price remedies, too;
    the plan is the lead's. `caches`: one for each depth; `pauses`: what logs of steps show.
    """

    run: Run
    plan: Plan
    executor: Executor | None
    depths: dict[str, int]
    caches: tuple[Cache, ...]
    pauses: tuple[Pause, ...]

    @classmethod
    def of(cls, run: Run, plan: Plan, executor: Executor | None, pauses: tuple[Pause, ...]) -> _Work:
        """Decide how deep to look at each file."""
        spared, led = _spared(run), _led(run)
        depths = {f.path: 0 if f.path in spared else 2 if f.path in led else 1 for f in run.files}
        whole = replace(plan.settings, joint=len(run.files) > 1)
        settings = (replace(whole, predict=False, plan=False), replace(whole, plan=False), whole)
        return cls(run, plan, executor, depths, tuple(Cache.at(plan.options.cache, mine) for mine in settings), pauses)

    @property
    def clock(self) -> str | dict[str, GivenClock]:
        """How host clocks are aligned, as `combine` takes it."""
        return self.plan.options.clock.partition(":")[0] if self.plan.clocks is None else self.plan.clocks

    def keys(self) -> dict[str, str]:
        """Return the key of each file's partial by the file's path; empty for a file that is not cached."""
        with ThreadPoolExecutor(LOOK_UPS) as pool:
            found = pool.map(lambda path: self.caches[self.depths[path]].key(path), self.depths)
            return dict(zip(self.depths, found, strict=True))

    def report(self, keys: dict[str, str], progress: Callable[[str], None], journal: Journal) -> ReportData:
        """Reduce and combine. `keys`: of what may be in the cache. Raises InputError when no file could be analyzed."""
        results = self._reduce(keys, progress, journal)
        failed = [r for r in results if isinstance(r, FailedFile)]
        if len(failed) == len(results):
            raise all_failed(failed)
        try:
            return self._combine(results, journal)
        except HpuprofError:
            raise
        except Exception:  # entries that others wrote can hold anything
            if not any(isinstance(r, PackedPartial) and r.foreign for r in results):
                raise
            # No entry may break a run: ignore them all. Errors with another cause recur.
            return self._combine(self._reduce({}, lambda _: None, journal), journal)

    def _combine(self, results: Sequence[Result], journal: Journal) -> ReportData:
        from hpuprof.report.combine import combine

        return combine(
            _identify_again(self.run, results),
            results,
            self.run.skipped,
            version=__version__,
            table_rows=self.plan.options.table_rows,
            again=journal.notes,
            clock=self.clock,
            logged=self.pauses,
        )

    def _reduce(self, keys: dict[str, str], progress: Callable[[str], None], journal: Journal) -> list[Result]:
        """Reduce every file, or find it in the cache by its key; results in the order of the run's files."""
        results: dict[str, Result] = {}
        missing: list[TraceFile] = []
        files = self.run.files
        with ThreadPoolExecutor(LOOK_UPS) as pool:
            for file, known in zip(
                files, pool.map(lambda f: self._cached(f, keys.get(f.path, "")), files), strict=True
            ):
                if known is None:
                    missing.append(file)
                else:
                    results[file.path] = known
                    progress(file.name)
        # The largest first: a large file started last would run alone.
        missing.sort(key=lambda f: (-f.bytes, f.path))
        for file, result in self._read(missing, journal, look=bool(keys)):
            results[file.path] = result
            progress(file.name)
        if missing and self.plan.options.cache in ("auto", "beside"):
            prune()
        return [results[file.path] for file in files]

    def _cached(self, file: TraceFile, key: str) -> PackedPartial | None:
        known = self.caches[self.depths[file.path]].get(file.path, key)
        with suppress(CodecError):
            return relabeled(known, file) if known is not None else None
        return None

    def _read(self, files: Sequence[TraceFile], journal: Journal, *, look: bool) -> Iterator[tuple[TraceFile, Result]]:
        """Reduce files in workers, and yield results as they come. `look`: whether workers look into the cache, too."""
        if not files:
            return
        jobs = self.plan.options.jobs
        small = sum(f.bytes for f in files) < SMALL_RUN_BYTES
        if (not jobs and small) or any(here_only(f.path) for f in files):
            jobs = 1
        with _workers(self.executor, self.plan.options) as workers:
            far = workers is not None
            code = code_digest() if far else ""
            tasks = (ReduceTask(cache, cache.settings, look=look and far, code=code) for cache in self.caches)
            done = run_all(
                DeepTask(tuple(tasks)),
                [(file if workers is None else _anywhere(file), self.depths[file.path]) for file in files],
                jobs=jobs,
                executor=workers,
                reachable=lambda item: _reachable(item[0]),
                journal=journal,
                meanwhile=lambda: import_module("hpuprof.report.combine"),
            )
            with closing(done):
                for i, result in done:
                    yield files[i], _failed(files[i], result) if isinstance(result, Lost) else result


@contextmanager
def _workers(executor: Executor | None, options: AnalyzeOptions) -> Iterator[Executor | None]:
    """Yield the given executor, one of the scheduler that the options name, or None."""
    if executor is not None or not options.scheduler:
        yield executor
        return
    with dask_executor(options.scheduler) as workers:
        yield workers


def _spared(run: Run) -> set[str]:
    """Return the files of ranks whose steps are not predicted: all but `MOST_PREDICTED` spread over the job.

    Neighbors in the sample differ in their place on a host, too: ranks are numbered by that first.
    """
    ranks = sorted({who.rank for who in run.identities})
    if len(ranks) <= MOST_PREDICTED:
        return set()
    kept = {ranks[(i * len(ranks) // MOST_PREDICTED + i) % len(ranks)] for i in range(MOST_PREDICTED)}
    return {file.path for file, who in zip(run.files, run.identities, strict=True) if who.rank not in kept}


def _led(run: Run) -> set[str]:
    """Return the files among which is the recording that the report leads with: all windows of one rank."""
    kind = next(iter(recording_kinds(run.identities)))
    mine = [who.rank for who in run.identities if kind_of(who) == kind]
    return {
        file.path
        for file, who in zip(run.files, run.identities, strict=True)
        if kind_of(who) == kind and who.rank == min(mine)
    }


def anywhere(run: Run) -> Run:
    """A run as workers with another working directory find its files."""
    return dataclasses.replace(run, files=tuple(map(_anywhere, run.files)))


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
    """Identify again if a whole file holds more metadata than its head."""
    files = [
        replace(file, inside={**file.inside, **result.inside}) if isinstance(result, PackedPartial) else file
        for file, result in zip(run.files, results, strict=True)
    ]
    if all(new.inside == old.inside for new, old in zip(files, run.files, strict=True)):
        return run.identities
    return identify(files, rank_from=run.rank_from)


def estimated_clocks(report: Report) -> dict[int, ClockOffset]:
    """Return each rank's clock as the analysis placed it. Raises InsufficientDataError when clocks are unrelated."""
    rows = {row.host: row for row in report.data.clocks}
    found = {}
    for file in report.data.files:
        row = rows.get(file.host_name or "") or rows.get(f"rank {file.rank}")
        if row is None and len(rows) == 1:
            continue  # all ranks share the one clock
        if row is None or row.offset_ns is None:
            raise InsufficientDataError(
                f"{file.path}: no collective relates the clock of rank {file.rank} to the others",
                hint="--clock raw uses timestamps as recorded; --clock manifest:FILE uses offsets that you know",
            )
        # The table holds what to add to timestamps, ClockOffset the excess to subtract.
        found[file.rank] = ClockOffset(-row.offset_ns, -(row.drift_ppm or 0.0), row.at_ns or 0)
    return found
