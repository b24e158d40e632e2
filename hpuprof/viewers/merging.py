"""Merges traces of many ranks into one Chrome trace, file by file, in memory that depends on the largest file alone.

Two passes over each file: `plan` decides where its rows go and leaves that on disk, `write` writes them. Between the passes
`layout` gives every lane its process and thread, and the earliest row of all files becomes the origin of the common axis.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hpuprof._version import __version__
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import InputError, InsufficientDataError, TraceFormatError, UsageError
from hpuprof.executors import map_ordered
from hpuprof.files import scratch_folder
from hpuprof.ingest.discover import Identity, Skipped, TraceFile, identify
from hpuprof.ingest.normalise import MAX_SPAN_NS
from hpuprof.model.clock import ClockOffset, GivenClock
from hpuprof.model.partial import FailedFile
from hpuprof.model.tables import DiagnosticRow
from hpuprof.naming import METADATA_KEY
from hpuprof.viewers.file_plan import FilePlan, PlanJob
from hpuprof.viewers.layout import Layout
from hpuprof.viewers.output import Segment, check_timeline_target, join_segments, write_segment
from hpuprof.viewers.row_plan import plan_file
from hpuprof.viewers.row_writer import WriteJob, write_file
from hpuprof.viewers.step_window import Selection, StepsFound, no_such_step, step_window

WRITTEN_ANEW = "metadata rows (written anew)"
"""Of what `Merged.left_out` counts, the rows of which nothing is lost."""
_RANKS = re.compile(r"(\d+)(?:-(\d+))?")


class MergedRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a merged timeline."""

    rank: Annotated[int, Meta(description="Global rank.")]
    host: Annotated[str, Meta(description="Host name, or empty.")]
    files: Annotated[list[str], Meta(description="Its trace files, in order of time.")]
    offset_ns: Annotated[float, Meta(description="What was taken off its stamps [ns], drift apart.")]
    drift_ppm: Annotated[float, Meta(description="How much faster its clock was taken to run [ppm].")]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and what could not be."""

    path: Annotated[str, Meta(description="The file that was written.")]
    bytes: Annotated[int, Meta(description="Its size on disk.")]
    clock: Annotated[
        str, Meta(description="What the common axis rests on: raw, manifest, offsets, or start of each rank.")
    ]
    origin_ns: Annotated[int, Meta(description="Absolute time of stamp 0 of the timeline [ns].")]
    span_ns: Annotated[int, Meta(description="From the first to the last row [ns].")]
    ranks: Annotated[list[MergedRank], Meta(description="The ranks in it.")]
    slices: Annotated[int, Meta(description="Slices written.")]
    arrows: Annotated[int, Meta(description="Flow arrows written; a start with several ends gives several.")]
    counters: Annotated[int, Meta(description="Counter samples written.")]
    asynchronous: Annotated[int, Meta(description="Rows of asynchronous operations written.")]
    instants: Annotated[int, Meta(description="Instants and other rows written.")]
    moved: Annotated[
        int, Meta(description="Slices on a lane of their own, as they would cross others where they were.")
    ]
    left_out: Annotated[dict[str, int], Meta(description="Rows that are not in it, by reason.")]
    diagnostics: Annotated[list[DiagnosticRow], Meta(description="What was repaired or lost while reading.")]


@dataclass(frozen=True)
class MergeOptions:
    """How to merge. `offsets`: clock of each rank, by rank; `clock`: what they rest on, in a word."""

    ranks: tuple[int, ...] | None = None
    steps: Selection | None = None
    clock: str = "raw"
    offsets: Mapping[int, ClockOffset] | None = None


def parse_ranks(text: str) -> tuple[int, ...]:
    """Read `0,7` or `0-3,8`. Raises UsageError."""
    ranks: set[int] = set()
    for part in text.split(","):
        match = _RANKS.fullmatch(part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]) or int(match[2] or 0) > int(match[1]) + 10**6:
            raise UsageError(f"ranks {text!r} cannot be read", hint="write them as 0,7 or 0-3,8")
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(ranks))


def given_offsets(
    clocks: Mapping[str, GivenClock], source: str, files: Sequence[TraceFile], identities: Sequence[Identity]
) -> dict[int, ClockOffset]:
    """Return the clock of each rank from clocks by host or rank; a rank's own counts before its host's.

    Raises UsageError naming `source` when a rank has none.
    """
    found = {}
    missing: set[str] = set()
    for file, who in zip(files, identities, strict=True):
        given = clocks.get(str(who.rank)) or clocks.get(host_of(file))
        if given is None:
            missing.add(f"rank {who.rank}" + (f" on {host_of(file)}" if host_of(file) else ""))
        else:
            found[who.rank] = ClockOffset(-given.offset_ns, -given.drift_ppm, given.reference_ns or 0)
    if missing:
        raise UsageError(
            f"{source} has no entry for {', '.join(sorted(missing)[:4])}{' and others' if len(missing) > 4 else ''}",
            hint="name every host or rank; 0 for the reference",
        )
    return found


def host_of(file: TraceFile) -> str:
    """Return the host that a file or its name tells, or nothing."""
    return str(file.inside.get("host") or file.parts.host or "")


def merge_files(
    files: Sequence[TraceFile],
    identities: Sequence[Identity],
    path: Path,
    options: MergeOptions,
    *,
    rank_from: str = "auto",
    skipped: Sequence[Skipped] = (),
    force: bool = True,
    strict: bool = False,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Merged:
    """Write the merged timeline; see `hpuprof.merge`."""
    check_timeline_target(path, force=force)
    if any(os.path.realpath(file.path) == os.path.realpath(path) for file in files):
        raise UsageError(f"{path} is one of the traces to merge", hint="write to another file")
    chosen = _choose(files, identities, options)
    with scratch_folder("merge") as spool:
        found = _windows([f for f, _ in chosen], options.steps, jobs=jobs, executor=executor)
        jobs_todo = [
            PlanJob(file.path, file.name, str(Path(spool) / str(i)), found[i].window if found else None)
            for i, (file, _) in enumerate(chosen)
            if not found or found[i].window
        ]
        by_path = {file.path: (file, who) for file, who in chosen}
        plans: list[FilePlan] = []
        failed: list[FailedFile] = []
        for result in map_ordered(plan_file, jobs_todo, jobs=jobs, executor=executor):
            if isinstance(result, FailedFile):
                failed.append(result)
            else:
                plans.append(result)
                if progress:
                    progress(result.name)
        if not plans:
            if failed:
                more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
                raise TraceFormatError(
                    failed[0].message + more, path=failed[0].path, offset=failed[0].offset or 0, hint=failed[0].hint
                )
            raise no_such_step(options.steps or Selection(), found, [who.rank for _, who in chosen])
        who = _identify_again([by_path[p.path][0] for p in plans], plans, rank_from)
        if strict:
            _refuse_losses(_diagnostics(plans, failed, skipped, ""))

        def run(todo: Sequence[WriteJob]) -> Iterator[Segment]:
            return map_ordered(write_file, todo, jobs=jobs, executor=executor)

        merged = _write(plans, who, path, options, failed, skipped, progress, run)
        without = sum(not file.window for file in found)
        if without:
            merged.left_out["files without these steps"] = without
        return merged


def _refuse_losses(diagnostics: list[DiagnosticRow]) -> None:
    lost = [d for d in diagnostics if DIAGNOSTICS[d.code].lossy]
    if lost:
        raise InputError(
            f"{lost[0].path or 'the input'}: {lost[0].text} ({lost[0].code}); {len(lost)} such problems in all",
            hint="leave out --strict to merge what could be read",
        )


def _choose(
    files: Sequence[TraceFile], identities: Sequence[Identity], options: MergeOptions
) -> list[tuple[TraceFile, Identity]]:
    chosen = list(zip(files, identities, strict=True))
    if options.ranks is None:
        return chosen
    present = sorted({who.rank for _, who in chosen})
    absent = [r for r in options.ranks if r not in present]
    if absent:
        raise InsufficientDataError(
            f"no trace of rank {', '.join(map(str, absent))}",
            hint=f"present: {', '.join(map(str, present[:20]))}{' …' if len(present) > 20 else ''}",
        )
    return [(file, who) for file, who in chosen if who.rank in options.ranks]


def _windows(
    files: Sequence[TraceFile], steps: Selection | None, *, jobs: int, executor: Executor | None
) -> list[StepsFound]:
    if steps is None:
        return []
    return list(map_ordered(step_window, [(f.path, steps) for f in files], jobs=jobs, executor=executor))


def _identify_again(files: list[TraceFile], plans: list[FilePlan], rank_from: str) -> list[tuple[TraceFile, Identity]]:
    """Identify anew with what the whole files told; their heads may not have shown it."""
    known = [replace(file, inside={**file.inside, **plan.inside}) for file, plan in zip(files, plans, strict=True)]
    return list(zip(known, identify(known, rank_from=rank_from), strict=True))


def _write(
    plans: list[FilePlan],
    who: list[tuple[TraceFile, Identity]],
    path: Path,
    options: MergeOptions,
    failed: list[FailedFile],
    skipped: Sequence[Skipped],
    progress: Callable[[str], None] | None,
    run: Callable[[Sequence[WriteJob]], Iterator[Segment]],
) -> Merged:
    clocks, clock = _clocks(plans, who, options)
    order = sorted(range(len(plans)), key=lambda i: (who[i][1].rank, plans[i].first_ns, plans[i].name))
    hosts: dict[int, str] = {}
    for i in order:
        hosts.setdefault(who[i][1].rank, host_of(who[i][0]))
    extents = [_extent(plans[i], clocks[who[i][1].rank]) for i in order]
    origin = min(first for first, _ in extents)
    layout = Layout(sorted(hosts), hosts)
    slots = {i: layout.add(who[i][1].rank, plans[i]) for i in order}
    ranks = [
        MergedRank(
            rank=rank,
            host=host,
            files=[plans[i].name for i in order if who[i][1].rank == rank],
            offset_ns=clocks[rank].offset_ns,
            drift_ppm=clocks[rank].drift_ppm,
        )
        for rank, host in hosts.items()
    ]

    own = {
        "version": __version__,
        "clock": clock,
        "ranks": [msgspec.to_builtins(rank) for rank in ranks],
    }
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": origin,
        METADATA_KEY: {"merged": own},
    }
    packed = path.name.endswith(".gz")
    jobs = []
    arrows = groups = 0
    for i in order:
        target = f"{plans[i].spool}.out"
        clock_of = clocks[who[i][1].rank]
        jobs.append(WriteJob(plans[i], slots[i], clock_of, origin, arrows, groups, target, packed))
        arrows += plans[i].arrows
        groups += plans[i].groups

    def segments() -> Iterator[Segment]:
        begin = msgspec.json.encode(header)[:-1] + b',"traceEvents":[\n'
        names = b",\n".join(msgspec.json.encode(row) for row in layout.metadata())
        yield write_segment(f"{plans[0].spool}.begin", [begin, names], packed=packed)
        for job, segment in zip(jobs, run(jobs), strict=True):
            yield segment
            if progress:
                progress(job.plan.name)
        yield write_segment(f"{plans[0].spool}.end", [b"\n]}\n"], packed=packed)

    size = join_segments(path, segments())

    def total(key: str) -> int:
        return sum(plan.counts.get(key, 0) for plan in plans)

    left_out = {
        "flow points without a partner": total("flow_points_without_partner"),
        "flow points outside every row": total("flow_points_outside_slices"),
        "rows outside the steps": total("outside_steps"),
        "end rows joined with their begin rows": total("ends_joined"),
        WRITTEN_ANEW: sum(plan.names.rows for plan in plans),
    }
    return Merged(
        path=str(path),
        bytes=size,
        clock=clock,
        origin_ns=origin,
        span_ns=max(last for _, last in extents) - origin,
        ranks=ranks,
        slices=total("slices"),
        arrows=sum(plan.arrows for plan in plans),
        counters=total("counters"),
        asynchronous=total("asynchronous"),
        instants=total("instants"),
        moved=total("moved"),
        left_out={reason: count for reason, count in left_out.items() if count},
        diagnostics=_diagnostics(plans, failed, skipped, clock),
    )


def _extent(plan: FilePlan, clock: ClockOffset) -> tuple[int, int]:
    import numpy as np

    first, last = clock.common(np.array([plan.first_ns, plan.last_ns], dtype=np.int64)).tolist()
    return first, last


def _clocks(
    plans: list[FilePlan], who: list[tuple[TraceFile, Identity]], options: MergeOptions
) -> tuple[dict[int, ClockOffset], str]:
    """Return the clock of each rank; ranks whose stamps are a day apart have nothing to do with each other and start together."""
    ranks = sorted({identity.rank for _, identity in who})
    offsets = options.offsets or {}
    clocks = {rank: offsets.get(rank, ClockOffset()) for rank in ranks}
    first: dict[int, int] = {}
    for plan, (_, identity) in zip(plans, who, strict=True):
        begin = _extent(plan, clocks[identity.rank])[0]
        first[identity.rank] = min(first.get(identity.rank, begin), begin)
    if max(first.values()) - min(first.values()) <= MAX_SPAN_NS:
        return clocks, options.clock
    return {rank: ClockOffset(first[rank]) for rank in ranks}, "start of each rank"


def _diagnostics(
    plans: list[FilePlan], failed: list[FailedFile], skipped: Sequence[Skipped], clock: str
) -> list[DiagnosticRow]:
    rows = [
        _diagnostic(note.code, plan.name, note.count, note.text, note.offset if note.code in _PLACED else None)
        for plan in plans
        for note in plan.notes
    ]
    rows += [_diagnostic("HP114", f.path, 1, f.message, f.offset) for f in failed]
    rows += [_diagnostic(s.code, s.path, 1, s.reason, None) for s in skipped if s.explicit]
    if clock == "start of each rank":
        text = "ranks were recorded more than a day apart by their stamps; each is drawn from its own start"
        rows.append(_diagnostic("HP128", "", 1, text, None))
    return rows


_PLACED = ("HP101", "HP102", "HP103", "HP119")


def _diagnostic(code: str, path: str, count: int, text: str, offset: int | None) -> DiagnosticRow:
    return DiagnosticRow(
        code=code, severity=DIAGNOSTICS[code].severity, path=path, count=count, text=text, offset=offset
    )
