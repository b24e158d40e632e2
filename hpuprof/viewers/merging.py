"""Merges traces of many ranks into one Chrome trace, file by file, in memory bounded by the largest file.

Two passes over each file: `plan` decides where its rows go and spools that to disk, `write` writes them. In between,
`layout` assigns every lane a process and thread, and the earliest row of all files becomes the origin of the common
axis.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from hpuprof._version import __version__
from hpuprof.errors import InsufficientDataError, UsageError
from hpuprof.executors import Workers
from hpuprof.files import scratch_folder
from hpuprof.ingest.discover import Identity, Skipped, TraceFile, identify
from hpuprof.ingest.impossible_rows import MAX_SPAN_NS
from hpuprof.model.clock import ClockOffset, GivenClock
from hpuprof.model.partial import FailedFile, all_failed, refuse_losses
from hpuprof.model.tables import DiagnosticRow
from hpuprof.naming import METADATA_KEY
from hpuprof.viewers import critical_lane, job_lane
from hpuprof.viewers.file_plan import FilePlan, PlanJob
from hpuprof.viewers.job_lane import JobSlice, job_slices
from hpuprof.viewers.layout import Layout
from hpuprof.viewers.output import (
    CLOSING,
    Segment,
    check_timeline_target,
    join_segments,
    members,
    opening,
    write_segment,
)
from hpuprof.viewers.row_plan import plan_file
from hpuprof.viewers.row_writer import WriteJob, write_file
from hpuprof.viewers.step_window import Selection, StepsFound, no_such_step, step_window
from hpuprof.what_if.critical_walk import CriticalSlice

_OWN_STARTS = "start of each rank"
REWRITTEN = "metadata rows (rewritten)"
"""The one reason in `Merged.left_out` that loses nothing."""
_RANKS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


class MergedRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a merged timeline."""

    rank: Annotated[int, Meta(description="Global rank.")]
    host: Annotated[str, Meta(description="Host name, or empty.")]
    files: Annotated[list[str], Meta(description="Its trace files, in order of time.")]
    offset_ns: Annotated[float, Meta(description="Subtracted from its timestamps [ns], in addition to drift.")]
    drift_ppm: Annotated[float, Meta(description="How much faster its clock is assumed to run [ppm].")]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What was written and what was left out."""

    path: Annotated[str, Meta(description="The file that was written.")]
    bytes: Annotated[int, Meta(description="Its size on disk.")]
    clock: Annotated[str, Meta(description="Basis of the common axis: raw, manifest, offsets, or start of each rank.")]
    origin_ns: Annotated[int, Meta(description="Absolute time of timestamp 0 of the timeline [ns].")]
    span_ns: Annotated[int, Meta(description="From the first to the last row [ns].")]
    ranks: Annotated[list[MergedRank], Meta(description="The ranks in it.")]
    slices: Annotated[int, Meta(description="Slices written.")]
    arrows: Annotated[int, Meta(description="Flow arrows written; a start with several ends gives several.")]
    critical: Annotated[
        int | None,
        Meta(description="Slices of critical cycles among them; 0: unknown of all ranks; null: not asked for."),
    ]
    without_job_cycle: Annotated[
        str,
        Meta(
            description="Why the critical cycle through all ranks is not drawn: one_rank; not_replayed (ranks share no "
            "steps or collectives, or their replay misses the recorded time). Empty: it is, or was not asked for."
        ),
    ]
    counters: Annotated[int, Meta(description="Counter samples written.")]
    asynchronous: Annotated[int, Meta(description="Rows of asynchronous operations written.")]
    instants: Annotated[int, Meta(description="Instants and other rows written.")]
    moved: Annotated[
        int, Meta(description="Slices moved to another lane because they would cross others on their own.")
    ]
    left_out: Annotated[dict[str, int], Meta(description="Rows left out, by reason.")]
    diagnostics: Annotated[list[DiagnosticRow], Meta(description="What was repaired or lost while reading.")]


@dataclass(frozen=True)
class MergeOptions:
    """How to merge. `offsets`: clock of each rank, by rank; `clock`: their basis, in a word.

    `critical`: draw critical cycles, too; `strict`: write nothing if rows or files would be lost.
    """

    ranks: tuple[int, ...] | None = None
    steps: Selection | None = None
    clock: str = "raw"
    offsets: Mapping[int, ClockOffset] | None = None
    rank_from: str = "auto"
    critical: bool = False
    strict: bool = False


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
    """Return each rank's clock from clocks by host or rank; a rank's own takes precedence over its host's.

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
    """Return the host named in the file or its name, or an empty string."""
    return str(file.inside.get("host") or file.parts.host or "")


def merge_files(
    files: Sequence[TraceFile],
    identities: Sequence[Identity],
    path: Path,
    options: MergeOptions,
    workers: Workers,
    *,
    skipped: Sequence[Skipped] = (),
    force: bool = True,
) -> Merged:
    """Write the merged timeline; see `hpuprof.merge`."""
    check_timeline_target(path, force=force)
    if any(os.path.realpath(file.path) == os.path.realpath(path) for file in files):
        raise UsageError(f"{path} is one of the traces to merge", hint="write to another file")
    chosen = _choose(files, identities, options)
    with scratch_folder("merge") as spool:
        wanted = [(f.path, options.steps) for f, _ in chosen if options.steps is not None]
        found = list(workers.map(step_window, wanted))
        plans, failed = _plan([f for f, _ in chosen], found, Path(spool), workers)
        if not plans:
            ranks = [who.rank for _, who in chosen]
            raise all_failed(failed) if failed else no_such_step(options.steps or Selection(), found, ranks)
        losses = _losses(plans, failed, skipped)
        if options.strict:
            refuse_losses(losses, "merge")
        by_path = {file.path: file for file, _ in chosen}
        timeline = _timeline(plans, [by_path[plan.path] for plan in plans], options)
        if options.critical:
            timeline = _with_cycles(timeline, by_path, workers)
        size = join_segments(path, _segments(timeline, workers, packed=path.name.endswith(".gz")))
        if timeline.clock == _OWN_STARTS:
            text = "ranks were recorded more than a day apart by their timestamps; each is drawn from its own start"
            losses.append(DiagnosticRow.of("HP128", text))
        left_out = _left_out(plans, files_without_steps=sum(not file.window for file in found))
        merged = _merged(timeline, str(path), size, left_out, losses)
        return merged if options.critical else msgspec.structs.replace(merged, critical=None)


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


def _plan(
    files: Sequence[TraceFile], found: Sequence[StepsFound], spool: Path, workers: Workers
) -> tuple[list[FilePlan], list[FailedFile]]:
    """Plan every file that has any of the steps. `found`: by file, or empty to plan whole files."""
    jobs = [
        PlanJob(file.path, file.name, str(spool / str(i)), found[i].window if found else None)
        for i, file in enumerate(files)
        if not found or found[i].window
    ]
    plans: list[FilePlan] = []
    failed: list[FailedFile] = []
    for result in workers.map(plan_file, jobs):
        if isinstance(result, FailedFile):
            failed.append(result)
        else:
            plans.append(result)
            workers.done(result.name)
    return plans, failed


# --------------------------------------------------------------------------------------------------------- the timeline


@dataclass(frozen=True, eq=False)
class _Member:
    """A planned file, its rank and host, and its rank's clock."""

    plan: FilePlan
    rank: int
    host: str
    clock: ClockOffset
    cycle: Sequence[CriticalSlice] = ()  # on the common axis, ns from the timeline's origin
    job: Sequence[CriticalSlice] = ()  # of the cycle through all ranks, likewise

    def extent(self) -> tuple[int, int]:
        """Return its first and last time on the common axis, absolute ns."""
        ends = np.array([self.plan.first_ns, self.plan.last_ns], dtype=np.int64)
        first, last = self.clock.common(ends).tolist()
        return first, last


@dataclass(frozen=True, eq=False)
class _Timeline:
    """All files in writing order: by rank, then by time. `clock`: see `Merged`."""

    members: list[_Member]
    clock: str
    origin_ns: int
    last_ns: int
    without: str = ""  # why the cycle through all ranks is not drawn

    def job(self) -> list[JobSlice]:
        """Return the cycle through all ranks, in order of time."""
        found = [JobSlice(member.rank, s) for member in self.members for s in member.job]
        return sorted(found, key=lambda s: (s.slice.begin_ns, s.slice.end_ns, s.rank, s.slice.device))

    def ranks(self) -> list[MergedRank]:
        """Return each rank's files and clock."""
        of_rank = {rank: list(mine) for rank, mine in groupby(self.members, key=lambda m: m.rank)}
        return [
            MergedRank(
                rank=rank,
                host=mine[0].host,
                files=[member.plan.name for member in mine],
                offset_ns=mine[0].clock.offset_ns,
                drift_ppm=mine[0].clock.drift_ppm,
            )
            for rank, mine in of_rank.items()
        ]


def _timeline(plans: list[FilePlan], files: list[TraceFile], options: MergeOptions) -> _Timeline:
    """Identify files again by their whole content, as heads may show less, and put them on one axis."""
    known = [
        msgspec.structs.replace(file, inside={**file.inside, **plan.inside})
        for file, plan in zip(files, plans, strict=True)
    ]
    offsets = options.offsets or {}
    members = [
        _Member(plan, who.rank, host_of(file), offsets.get(who.rank, ClockOffset()))
        for plan, file, who in zip(plans, known, identify(known, rank_from=options.rank_from), strict=True)
    ]
    members.sort(key=lambda m: (m.rank, m.plan.first_ns, m.plan.name))
    members, clock = _related(members, options.clock)
    extents = [member.extent() for member in members]
    return _Timeline(members, clock, min(first for first, _ in extents), max(last for _, last in extents))


def _related(members: list[_Member], clock: str) -> tuple[list[_Member], str]:
    """Let unrelated ranks, whose timestamps are more than a day apart, start together."""
    first: dict[int, int] = {}
    for member in members:
        begin = member.extent()[0]
        first[member.rank] = min(first.get(member.rank, begin), begin)
    if max(first.values()) - min(first.values()) <= MAX_SPAN_NS:
        return members, clock
    return [replace(member, clock=ClockOffset(first[member.rank])) for member in members], _OWN_STARTS


def _with_cycles(timeline: _Timeline, files: Mapping[str, TraceFile], workers: Workers) -> _Timeline:
    """Find the critical cycle of each file, and the one through all ranks: of each rank's first recording."""
    walks = list(workers.map(critical_lane.walked, [files[member.plan.path] for member in timeline.members]))
    first: dict[int, int] = {}
    for i, (member, walk) in enumerate(zip(timeline.members, walks, strict=True)):
        if walk is not None:
            first.setdefault(member.rank, i)
    job, without = job_slices([(rank, walk) for rank, i in first.items() if (walk := walks[i])])

    def of(member: _Member, slices: Sequence[CriticalSlice]) -> list[CriticalSlice]:
        return critical_lane.placed(slices, member.plan, member.clock, timeline.origin_ns)

    drawn = [
        replace(
            m,
            cycle=of(m, walk.slices if walk else []),
            job=of(m, job.get(m.rank, []) if first.get(m.rank) == i else []),
        )
        for i, (m, walk) in enumerate(zip(timeline.members, walks, strict=True))
    ]
    return replace(timeline, members=drawn, without=without)


# -------------------------------------------------------------------------------------------------------------- writing


def _segments(timeline: _Timeline, workers: Workers, *, packed: bool) -> Iterator[Segment]:
    """Yield the timeline's text: metadata, then each file's rows, written by workers."""
    ranks = timeline.ranks()
    layout = Layout([rank.rank for rank in ranks], {rank.rank: rank.host for rank in ranks})
    jobs = _write_jobs(timeline, layout, packed=packed)
    own = {"version": __version__, "clock": timeline.clock, "ranks": [msgspec.to_builtins(rank) for rank in ranks]}
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": timeline.origin_ns,
        METADATA_KEY: {"merged": own},
    }
    spool = jobs[0].plan.spool
    yield write_segment(f"{spool}.begin", [opening(header), members(layout.metadata())], packed=packed)
    for job, segment in zip(jobs, workers.map(write_file, jobs), strict=True):
        yield segment
        workers.done(job.plan.name)
    flows = sum(member.plan.flows for member in timeline.members)
    cycles = list(critical_lane.all_rows([(m.rank, m.cycle) for m in timeline.members if m.cycle], layout, flows))
    if through_all := timeline.job():
        flows += sum(len(critical_lane.changes(m.cycle)) for m in timeline.members)
        cycles += job_lane.all_rows(through_all, layout, flows)
    if cycles:
        yield write_segment(f"{spool}.cycle", [b",\n", members(cycles)], packed=packed)
    yield write_segment(f"{spool}.end", [CLOSING], packed=packed)


def _write_jobs(timeline: _Timeline, layout: Layout, *, packed: bool) -> list[WriteJob]:
    jobs = []
    flows = asyncs = 0
    for member in timeline.members:
        plan = member.plan
        slots = layout.add(member.rank, plan)
        target = f"{plan.spool}.out"
        jobs.append(WriteJob(plan, slots, member.clock, timeline.origin_ns, flows, asyncs, target, packed))
        flows += plan.flows
        asyncs += plan.asyncs
    return jobs


# ---------------------------------------------------------------------------------------------------- what became of it


def _merged(
    timeline: _Timeline, path: str, size: int, left_out: dict[str, int], diagnostics: list[DiagnosticRow]
) -> Merged:
    plans = [member.plan for member in timeline.members]
    cycles = [member.cycle for member in timeline.members]
    job = timeline.job()
    critical = sum(map(len, cycles)) + len(job)
    return Merged(
        path=path,
        bytes=size,
        clock=timeline.clock,
        origin_ns=timeline.origin_ns,
        span_ns=timeline.last_ns - timeline.origin_ns,
        ranks=timeline.ranks(),
        slices=_total(plans, "slices") + critical,
        arrows=sum(plan.flows for plan in plans)
        + sum(len(critical_lane.changes(cycle)) for cycle in cycles)
        + len(job_lane.changes(job)),
        critical=critical,
        without_job_cycle=timeline.without,
        **{name: _total(plans, name) for name in ("counters", "asynchronous", "instants", "moved")},
        left_out=left_out,
        diagnostics=diagnostics,
    )


def _total(plans: Sequence[FilePlan], key: str) -> int:
    return sum(plan.counts.get(key, 0) for plan in plans)


def _left_out(plans: Sequence[FilePlan], *, files_without_steps: int) -> dict[str, int]:
    left_out = {
        "flow points without a partner": _total(plans, "flow_points_without_partner"),
        "flow points outside every row": _total(plans, "flow_points_outside_slices"),
        "rows outside the steps": _total(plans, "outside_steps"),
        "end rows joined with their begin rows": _total(plans, "ends_joined"),
        REWRITTEN: sum(plan.names.rows for plan in plans),
        "files without these steps": files_without_steps,
    }
    return {reason: count for reason, count in left_out.items() if count}


def _losses(plans: Sequence[FilePlan], failed: Sequence[FailedFile], skipped: Sequence[Skipped]) -> list[DiagnosticRow]:
    rows = [
        DiagnosticRow.of(
            note.code, note.text, note.count, path=plan.name, offset=note.offset if note.code in _PLACED else None
        )
        for plan in plans
        for note in plan.notes
    ]
    rows += [DiagnosticRow.of("HP114", f.message, path=f.path, offset=f.offset) for f in failed]
    rows += [DiagnosticRow.of(s.code, s.reason, path=s.path) for s in skipped if s.explicit]
    return rows


_PLACED = ("HP101", "HP102", "HP103", "HP119")
