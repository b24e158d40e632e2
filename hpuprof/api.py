"""The Python interface: load, analyze, save, read_report. Joins the rooms; holds no logic of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpuprof._version import __version__
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import InputError, TraceFormatError, UsageError
from hpuprof.executors import map_ordered
from hpuprof.ingest.discover import Identity, Skipped, TraceFile, discover, identify
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.options import resolve_options
from hpuprof.pipeline import reduce_file
from hpuprof.report.combine import combine
from hpuprof.report.model import Report

if TYPE_CHECKING:
    from hpuprof.model.clock import ClockOffset
    from hpuprof.timeline.check import Checked
    from hpuprof.timeline.merge import Merged

Source = str | Path
CLOCKS = ("raw", "manifest")
"""What a merged timeline's axis may rest on."""
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


def merge(
    source: Run | Source | Sequence[Source],
    path: Source,
    *,
    ranks: Iterable[int] | None = None,
    steps: str | tuple[int, int] | None = None,
    clock: str = "raw",
    offsets: Mapping[int, ClockOffset] | None = None,
    manifest: Source | None = None,
    rank_from: str | None = None,
    force: bool = True,
    strict: bool | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Merged:
    """Write one Chrome trace (`.json` or `.json.gz`) of all ranks that chrome://tracing and Perfetto open without losing a row.

    `ranks`: only these; `steps`: only these, as `"10:13"` or `(10, 13)` (without 13). `clock`: `raw` takes the stamps as
    recorded (right within a host); `manifest` takes offsets from the JSON file `manifest`. `offsets` gives the clock of each
    rank directly; `strict`: write nothing when rows or files would be lost. Memory depends on the largest file, not on their number; the file appears whole or not at all.
    `jobs`, `executor`: as for `analyze`, but workers must share this machine's temporary directory.
    Raises UsageError, OutputError, InputError when no file could be read, InsufficientDataError for ranks or steps that are
    not there.
    """
    from hpuprof.timeline.merge import MergeOptions, manifest_offsets, merge_files
    from hpuprof.timeline.steps import Selection, parse_steps

    options = resolve_options(rank_from=rank_from, jobs=jobs, strict=strict)
    run = source if isinstance(source, Run) else load(source, rank_from=options.rank_from)
    if clock not in CLOCKS:
        raise UsageError(f"no clock {clock!r}", hint=f"one of {', '.join(CLOCKS)}")
    if (clock == "manifest") != (manifest is not None):
        raise UsageError(
            "the clock `manifest` needs a manifest, and no other clock takes one", hint="see docs/viewers.md"
        )
    if manifest is not None:
        offsets = manifest_offsets(manifest, run.files, run.identities)
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
            clock="offsets" if offsets and clock == "raw" else clock,
            offsets=offsets,
        ),
        rank_from=run.rank_from,
        skipped=run.skipped,
        force=force,
        strict=options.strict,
        jobs=jobs,
        executor=executor,
        progress=progress,
    )


def is_merged(path: Source) -> bool:
    """Whether a file is a merged timeline, as `merge` writes them."""
    from hpuprof.ingest.discover import is_merged_timeline
    from hpuprof.ingest.source import read_head

    return Path(path).is_file() and is_merged_timeline(read_head(path, 4096))


def check(path: Source) -> Checked:
    """Say what Perfetto, chrome://tracing and TensorBoard would make of a trace file, and what mends it.

    Raises InputError for a missing path, TraceFormatError when nothing in the file can be read.
    """
    from hpuprof.timeline.check import check_file

    if not Path(path).is_file():
        raise InputError(f"{path}: no such file", hint="give a trace file")
    return check_file(path)


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
