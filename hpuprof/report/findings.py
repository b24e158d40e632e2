"""Findings worth acting on, each with a code, evidence and advice. HP2xx.

To add a finding, add its test and an entry of `RULES`; all lists of findings derive from `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from hpuprof.analysis.bound import ALLOCATOR_FIRST, EXPOSED_COPY
from hpuprof.analysis.device_time import is_low_precision
from hpuprof.ingest.dialect_activities import copies_pageable, copies_within
from hpuprof.ingest.dialect_engines import MATRIX_ENGINE
from hpuprof.model.metrics import Value
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import CAUSE_CLAUSE, Cause
from hpuprof.model.tables import RankRow
from hpuprof.ranks.clocks import MAX_INFEASIBLE
from hpuprof.ranks.rank_tables import AcrossRanks
from hpuprof.ranks.stragglers import COST_SHARE, PERSISTENT_SHARE, WAIT_SHARE
from hpuprof.report.model import Finding


@dataclass(frozen=True)
class Context:
    """What a rule sees: rows and reduced files of the chosen recordings, headline values, idle shares."""

    main: Sequence[tuple[RankRow, RankPartial]]
    values: Mapping[str, Value]
    idle: Mapping[Cause, float]
    across: AcrossRanks

    def value(self, name: str) -> float:
        """Return a headline value, 0 when unknown."""
        return float(self.values.get(name) or 0.0)

    def share(self, column: str) -> float:
        """Return a column's share of the used steps; unknown values count as 0."""
        steps = [s for _, part in self.main for s in part.steps if s.used]
        wall = sum(s.wall_ns for s in steps)
        return sum(getattr(s, column) or 0 for s in steps) / wall if wall else 0.0


class Found(NamedTuple):
    """A hit: the numbers behind it, the share of the step it concerns, the ranks if not all."""

    evidence: str
    weight: float
    ranks: Sequence[int] = ()
    advice: str = ""
    """What to do in this case, where the rule's own advice lists several."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A finding: its code, its words, its test. `{limit}` in `found_when` stands for the limit."""

    code: str
    title: str
    meaning: str
    advice: str
    found_when: str
    limit: float = 0.0
    needs_sound_device: bool = False
    """Skip the rule where device rows are not sound (see `RankPartial.sound`)."""
    test: Callable[[Context, float], Found | None] = field(repr=False)

    @property
    def threshold(self) -> str:
        """The condition in words."""
        return self.found_when.format(limit=f"{100 * self.limit:g} %")


def _pct(value: float) -> str:
    return f"{100 * value:.1f} %"


def _idle(cause: Cause) -> Callable[[Context, float], Found | None]:
    def test(context: Context, limit: float) -> Found | None:
        share = context.idle.get(cause, 0.0)
        evidence = f"the device sat idle {_pct(share)} of the step {CAUSE_CLAUSE[cause]}"
        return Found(evidence, share) if share >= limit else None

    return test


def _input(context: Context, limit: float) -> Found | None:
    share = context.value("input_fraction")
    evidence = f"the main thread fetched batches for {_pct(share)} of the step"
    if not context.idle:
        return Found(evidence, share) if share > limit else None
    idle = context.idle.get(Cause.DATA_LOADER, 0.0)
    return Found(f"{evidence}; the device sat idle {_pct(idle)} of it meanwhile", idle) if idle > limit else None


def _blocked_copy(context: Context, limit: float) -> Found | None:
    share = context.share("blocked_copy_ns")
    read = context.idle.get(Cause.BLOCKING_READ, 0.0)
    evidence = f"the host waited {_pct(share)} of the step in blocking copies and reads"
    if not context.idle:
        return Found(evidence, share) if share >= limit else None
    during = f"the device sat idle {_pct(read)} of the step during reads"
    return Found(f"{evidence}; {during}", read) if read >= limit else None


def _compile(context: Context, _: float) -> Found | None:
    steps = [s for _, p in context.main for s in p.steps]
    late = [s for s in steps if s.compile_ns and s.step > 0]
    if not late:
        return None
    spent = sum(s.compile_ns for s in late)
    evidence = f"{len(late)} of {len(steps)} steps compile after the first one, {spent / 1e6:.2f} ms in total"
    return Found(evidence, spent / max(1, sum(s.wall_ns for s in steps)))


def _exposed(context: Context, limit: float) -> Found | None:
    share = context.value("exposed_communication_fraction")
    evidence = f"for {_pct(share)} of the step, communication ran without compute"
    return Found(evidence, share) if share >= limit else None


def _short(context: Context, limit: float) -> Found | None:
    share = context.value("short_launch_fraction")
    if share < limit:
        return None
    weight = max(context.idle.get(Cause.OPERATOR_LAUNCH, 0.0), SMALL)
    return Found(f"{_pct(share)} of the launched rows are shorter than the call that launched them", weight)


def _alloc(*, below: float) -> Callable[[Context, float], Found | None]:
    def test(context: Context, limit: float) -> Found | None:
        share = context.share("blocked_alloc_ns")
        evidence = f"the host path spent {_pct(share)} of the step allocating and freeing device memory"
        return Found(evidence, share) if limit <= share < below else None

    return test


def _copies(context: Context, limit: float) -> Found | None:
    share = context.value("exposed_copy_fraction")
    if share < limit:
        return None
    rows = [r for _, part in context.main for r in part.kernels if r.kind == "copy"]
    total = sum(r.total_ns for r in rows) or 1
    within, pageable = (sum(r.total_ns for r in rows if of(r.name)) / total for of in (copies_within, copies_pageable))
    evidence = f"for {_pct(share)} of the step, the device only copied"
    if pageable >= MOSTLY:
        return Found(f"{evidence}; {_pct(pageable)} of the copying is of pageable memory", share, advice=PIN)
    if within >= MOSTLY:
        return Found(f"{evidence}; {_pct(within)} of the copying is within its memory", share, advice=MOVE_LESS)
    computing = context.value("compute_fraction")
    more = f"; it computed for {_pct(computing)}"
    return Found(evidence + more, share, advice=OVERLAP if computing >= WORTH_OVERLAPPING else MOVE_LESS)


def _unstable(context: Context, limit: float) -> Found | None:
    spread = context.value("step_time_spread")
    return (
        Found(f"the median absolute deviation is {_pct(spread)} of the median step", spread) if spread > limit else None
    )


def _imbalance(context: Context, limit: float) -> Found | None:
    per_rank = {row.rank: row for row, _ in context.main}
    sources = {part.file.step_source for _, part in context.main}
    if len(per_rank) < 2 or len(sources) > 1 or sources == {"whole_trace"}:
        return None
    loads = {r: row.input_fraction or 0.0 for r, row in per_rank.items()}
    waiting = {w.rank: w.waiting_fraction or 0.0 for w in context.across.waits}
    walls = {r: row.step_p50_ns * (1 - waiting.get(r, 0.0)) for r, row in per_rank.items()}
    middle, usual = median(walls.values()), median(loads.values())
    slow = [r for r, w in walls.items() if w > (1 + limit) * middle]
    loading = [r for r, share in loads.items() if share > usual + UNEVEN_INPUT]
    late = {w.rank for w in context.across.waits if w.straggler}
    if late:  # one cause has one culprit
        slow, loading = ([r for r in found if r in late] for found in (slow, loading))
    if loading:
        worst = max(loading, key=lambda r: loads[r])
        evidence = f"rank {worst} fetches data for {_pct(loads[worst])} of its step, the median rank for {_pct(usual)}"
        return Found(evidence, loads[worst], loading)
    if slow:
        worst = max(slow, key=lambda r: walls[r])
        over = walls[worst] / middle - 1
        return Found(f"rank {worst} takes {_pct(over)} longer than the median rank, waiting left out", over, slow)
    return None


def _precision(context: Context, limit: float) -> Found | None:
    rows = [r for _, p in context.main for r in p.precision if r.engine == MATRIX_ENGINE and r.dtype != "unknown"]
    total = sum(r.busy_ns for r in rows)
    if not total:
        return None
    low = sum(r.busy_ns for r in rows if is_low_precision(r.dtype)) / total
    weight = context.value("compute_fraction") * (1 - low)
    evidence = f"{_pct(low)} of the matrix engine's time uses 16 bits or fewer"
    return Found(evidence, weight) if low < limit else None


def _memory(context: Context, limit: float) -> Found | None:
    for _, part in context.main:
        size = part.file.device_memory_bytes
        peak = max((r.peak_allocated_bytes or 0 for r in part.memory if r.space == "device"), default=0)
        if size and peak > limit * size:
            return Found(f"peak {peak / 1e9:.1f} GB of {size / 1e9:.1f} GB", SMALL)
    return None


_DOING = {
    "compute": "computing",
    "input": "fetching data",
    "copy": "copying",
    "compile": "compiling",
    "gc": "collecting garbage",
    "host": "in host code",
}


_WHO = {
    "rank": "rank {name}",
    "host": "host {name} (ranks {ranks})",
    "stage": "pipeline stage {name} (ranks {ranks})",
    "group": "the group of ranks {ranks}",
    "coordinate": "place {name} (ranks {ranks})",
    "link": "the link between ranks {ranks}",
}


def _straggler(context: Context, _: float) -> Found | None:
    row, causes = context.across.named, context.across.causes
    if row is None:
        return None
    who = _WHO[row.kind].format(name=row.name, ranks=row.ranks)
    often = f"in {_pct(row.steps_fraction or 0.0)} of the steps"
    of = "in the one step compared" if context.across.steps == 1 else often
    why = f", because it is {_DOING[max(causes, key=lambda c: causes[c])]}" if any(causes.values()) else ""
    if context.across.slower is not None:
        why = f": its transfers take {context.across.slower:.1f} times as long as those of its like"
    ranks = [w.rank for w in context.across.waits if w.straggler]
    if row.low_fraction is None or row.high_fraction is None or row.saved_fraction is None:
        waiting = context.value("collective_wait_fraction")
        return Found(f"{who} comes last {of}{why}; what it costs cannot be told", waiting, ranks)
    saved = f"{_pct(row.low_fraction)} to {_pct(row.high_fraction)}"
    evidence = f"{who} holds the others back {of}{why}; if it kept pace, a step would take {saved} less"
    return Found(evidence, row.saved_fraction, ranks)


def _rotating(context: Context, _: float) -> Found | None:
    if context.across.verdict.kind != "rotating":
        return None
    share = context.value("collective_wait_fraction")
    replay, even = context.across.replay, ""
    if replay:
        even = f"; with equally fast ranks, a step would take at most {_pct(replay.even)} less"
    ranks = [r.rank for r in context.across.waits if (r.blame_fraction or 0) >= BLAMED]
    which = "not always for the same rank"
    if context.across.steps == 1:
        which = "one step does not show whether always for the same rank"
    evidence = f"ranks wait for one another {_pct(share)} of the time, and {which}{even}"
    return Found(evidence, share, ranks)


def _mismatch(context: Context, _: float) -> Found | None:
    wrong = [g for g in context.across.groups if g.mismatched and g.known]
    if not wrong:
        return None
    first = wrong[0]
    group = first.text or first.group
    evidence = f"in {first.mismatched} places ranks {first.ranks} ran different collectives of group {group!r}"
    return Found(evidence, 1.0)  # a hang costs everything


def _stopped_early(context: Context, _: float) -> Found | None:
    stopped = context.across.stopped
    if not stopped:
        return None
    worst = max(stopped, key=lambda s: s.behind)
    after = f"; its last one is {worst.last}" if worst.last else ""
    evidence = f"rank {worst.rank} stops {worst.behind} collectives before the others{after}"
    return Found(evidence, 0.5, [s.rank for s in stopped])  # a hang, or only an early end of the recording


def _clock_trouble(context: Context, limit: float) -> Found | None:
    share = context.across.infeasible
    if share is None or share <= limit:
        return None
    return Found(f"{_pct(share)} of the matched collectives contradict the clocks", share)


def _pipeline(context: Context, limit: float) -> Found | None:
    bubble, uneven = context.across.bubble, context.across.imbalance
    if bubble is None or bubble < limit:
        return None
    stages = f"; the busiest rank computes {_pct(uneven)} more than the mean" if uneven is not None else ""
    return Found(f"ranks wait {_pct(bubble)} of the step for a peer to send{stages}", bubble)


SMALL = 0.01
"""Weight of a finding without a known cost in time, by judgement: below those that have one."""
UNEVEN_INPUT = 0.1
"""From this far above the median rank's, a rank's input share counts as uneven, by judgement."""
MOSTLY = 0.5
"""From this share of the copying on, one kind of copies decides what to do."""
WORTH_OVERLAPPING = 0.1
"""Compute of at least this share of the step is worth hiding copies behind, by judgement."""
PIN = "Pin the memory (pin_memory=True in the data loader, or `Tensor.pin_memory()`) and copy with non_blocking=True."
OVERLAP = "Copy the next batch or layer on a stream of its own while this one computes."
MOVE_LESS = (
    "The device only moves data, and nothing runs that could hide it: copy less, in smaller types, or keep it there."
)
BLAMED = 0.1
"""Ranks that cause at least this share of the waiting are named, by judgement."""

# Limits are by judgement, not measured, unless a comment says otherwise: 1 to 5 % of the step where a line or two of
# the script fixes it, 10 % where the fix takes more work. HP230, HP231 and HP234 take theirs from ranks/.
RULES: tuple[Rule, ...] = (
    Rule(
        code="HP201",
        title="The host launches work too slowly",
        meaning="The device waits while the host accumulates, dispatches or launches operators.",
        advice="Launch less: use larger batches, fused optimizers, torch.compile, or graph replay (HPU Graphs in "
        "lazy mode, CUDA graphs).",
        found_when="device idle during operator accumulation and launch >= {limit} of the step",
        limit=0.1,
        needs_sound_device=True,
        test=_idle(Cause.OPERATOR_LAUNCH),
    ),
    Rule(
        code="HP202",
        title="Data loading slows the step down",
        meaning="The main thread spends much of the step fetching batches.",
        advice="Use more data-loader workers, persistent_workers and prefetching; on Gaudi, the media data loader.",
        found_when="device idle during data loading > {limit} of the step; without device rows, input_fraction > "
        "{limit} (the threshold of torch-tb-profiler, consistent with Intel's published outputs)",
        # The limit of torch-tb-profiler, consistent with Intel's published outputs.
        limit=0.05,
        test=_input,
    ),
    Rule(
        code="HP203",
        title="Values are read back inside the step",
        meaning="`.item()`, `.cpu()` or a device-to-host copy makes the host wait until the device is done; it can "
        "launch nothing meanwhile.",
        advice="Read losses and metrics every n steps, keep them on the device, or copy with non_blocking=True into "
        "pinned memory.",
        found_when="device idle during blocking reads >= {limit} of the step; without device rows, waiting in blocking "
        "copies and reads >= {limit}",
        limit=0.02,
        test=_blocked_copy,
    ),
    Rule(
        code="HP204",
        title="Input copies stall the device",
        meaning="The device waits for host-to-device copies.",
        advice="Use pin_memory=True in the data loader and non_blocking=True in `.to()`; copy the next batch while "
        "this one computes.",
        found_when="device idle during host-to-device copies >= {limit} of the step",
        limit=0.03,
        needs_sound_device=True,
        test=_idle(Cause.H2D_COPY),
    ),
    Rule(
        code="HP205",
        title="Graphs are compiled inside steps",
        meaning="A new shape or graph appears after the first step, and compiling it stops the step.",
        advice="Keep shapes static: drop_last=True, padding or buckets; look for Python values that change per step.",
        found_when="any compilation in a step after the first",
        test=_compile,
    ),
    Rule(
        code="HP206",
        title="Communication is exposed",
        meaning="Collectives run without compute that overlaps them.",
        advice="Overlap the gradient all-reduce with backward (DDP buckets), increase the batch per rank, or look for "
        "the rank that arrives last.",
        found_when="exposed communication >= {limit} of the step",
        limit=0.1,
        needs_sound_device=True,
        test=_exposed,
    ),
    Rule(
        code="HP207",
        title="Most kernels are shorter than their launch",
        meaning="Launching takes longer than running, so the device starves as soon as the queue runs dry.",
        advice="Fuse operators (torch.compile, foreach or fused optimizers), increase the batch, or replay graphs.",
        found_when="short_launch_fraction >= {limit}",
        # Half: what the title says.
        limit=0.5,
        needs_sound_device=True,
        test=_short,
    ),
    Rule(
        code="HP208",
        title="The optimizer starves the device",
        meaning="The device waits while the optimizer's step runs on the host.",
        advice="Use fused=True or foreach=True, or the vendor's fused optimizer.",
        found_when="device idle during the optimizer >= {limit} of the step",
        limit=0.05,
        needs_sound_device=True,
        test=_idle(Cause.OPTIMIZER),
    ),
    Rule(
        code="HP209",
        title="Callbacks and logging stall the step",
        meaning="The device waits for callbacks, loggers or checkpoints.",
        advice="Log every n steps, and write checkpoints asynchronously.",
        found_when="device idle during callbacks and logging >= {limit} of the step",
        limit=0.03,
        needs_sound_device=True,
        test=_idle(Cause.CALLBACK),
    ),
    Rule(
        code="HP210",
        title="Matrix work runs in full precision",
        meaning="Less than half of the matrix engine's time uses 16 bits or fewer.",
        advice='Use bf16 autocast (`precision="bf16-mixed"`).',
        found_when="low-precision share of MME time < {limit}",
        # Half: what the meaning says.
        limit=0.5,
        needs_sound_device=True,
        test=_precision,
    ),
    Rule(
        code="HP211",
        title="Memory is allocated inside steps",
        meaning="Allocating and freeing device memory synchronises the device.",
        advice="Let the caching allocator warm up; avoid empty_cache() and changing shapes.",
        found_when=f"host path in allocation and free >= {{limit}} and < {100 * ALLOCATOR_FIRST:g} % of the step",
        limit=0.01,
        test=_alloc(below=ALLOCATOR_FIRST),
    ),
    Rule(
        code="HP212",
        title="Step times vary",
        meaning="Medians hide the slow steps.",
        advice="Look at the table of steps; log, evaluate and collect garbage at fixed steps.",
        found_when="median absolute deviation > {limit} of the median step",
        limit=0.1,
        test=_unstable,
    ),
    Rule(
        code="HP213",
        title="Python outside operators stalls the device",
        meaning="The device waits for Python between operators.",
        advice="Record with stacks (with_stack=True) to see which code; move work off the training thread.",
        found_when="device idle during Python >= {limit} of the step",
        limit=0.1,
        needs_sound_device=True,
        test=_idle(Cause.PYTHON),
    ),
    Rule(
        code="HP214",
        title="Ranks are uneven",
        meaning="One rank takes longer, or fetches data longer, than the others, and collectives make all wait for it.",
        advice="Compare that rank's data loading, host and compute with the other ranks'.",
        found_when="a rank's median step less its waiting for others > {limit} over the median rank's, or its input "
        "share > 10 points over; not where another rank delays all (HP230)",
        limit=0.05,
        test=_imbalance,
    ),
    Rule(
        code="HP215",
        title="Explicit synchronisation stalls the device",
        meaning="The host waits for the device and launches nothing meanwhile.",
        advice="Remove synchronize() calls from the step; time with events.",
        found_when="device idle during synchronisation >= {limit} of the step",
        limit=0.03,
        needs_sound_device=True,
        test=_idle(Cause.SYNCHRONISE),
    ),
    Rule(
        code="HP216",
        title="Device memory is nearly full",
        meaning="Little memory is left for larger batches or captured graphs.",
        advice="Use activation checkpointing, a smaller batch, or sharding.",
        found_when="peak allocation > {limit} of the device's memory",
        limit=0.9,
        test=_memory,
    ),
    Rule(
        code="HP217",
        title="The device is set up inside steps",
        meaning="Creating the context and loading kernels happens once, at first use; the device waits meanwhile.",
        advice="Run a step before the first one that counts, and leave it out of timings; this is no cost of copying, "
        "though it often shows inside the first `.to()`.",
        found_when="device idle during first use >= {limit} of the step",
        limit=0.05,
        needs_sound_device=True,
        test=_idle(Cause.FIRST_USE),
    ),
    Rule(
        code="HP218",
        title="The allocator works without its cache",
        meaning="Memory goes back to the driver and comes from it again in every step, and both synchronise the "
        "device: the cache is off, is emptied, or fails for lack of memory and retries. No launch overhead, and "
        "graphs cannot be captured without the cache: this comes before every other remedy.",
        advice="Unset PYTORCH_NO_CUDA_MEMORY_CACHING (on ROCm PYTORCH_NO_HIP_MEMORY_CACHING) and remove "
        "empty_cache() from the step. If the cache is on, "
        "memory is short or fragmented (`num_alloc_retries` of torch.cuda.memory_stats() grows): set "
        "PYTORCH_ALLOC_CONF=expandable_segments:True, keep shapes static, or use a smaller batch.",
        found_when="host path in allocation and free >= {limit} of the step",
        limit=ALLOCATOR_FIRST,
        test=_alloc(below=math.inf),
    ),
    Rule(
        code="HP219",
        title="Copies fill the device",
        meaning="For most of the step the device neither computes nor communicates, but copies.",
        advice=f"Pageable memory: {PIN} Compute to hide copies behind: {OVERLAP} Neither: {MOVE_LESS}",
        found_when="exposed copies >= {limit} of the step",
        limit=EXPOSED_COPY,
        needs_sound_device=True,
        test=_copies,
    ),
    Rule(
        code="HP230",
        title="One part of the job delays the others",
        meaning="The same rank, host, pipeline stage, group or link takes longer than its like in most steps, and the "
        "others wait for it.",
        advice="Find what it does longer than the others: check its data loading, its host, its device's clocks and "
        "neighbours; of a link, its network; of a stage, how many layers it has.",
        found_when="replayed at the pace of its like, the job surely saves >= {limit} of the step, and saves in > "
        f"{100 * PERSISTENT_SHARE:g} % of the steps; where steps cannot be replayed, a rank that causes the largest "
        f"share of the waiting in as many, if that is >= {100 * WAIT_SHARE:g} % of all ranks' time",
        limit=COST_SHARE,
        test=_straggler,
    ),
    Rule(
        code="HP231",
        title="A different rank is late each time",
        meaning="Each collective waits for whichever rank is slowest at that moment: garbage collection, uneven "
        "batches, a shared machine.",
        advice="Collect garbage on all ranks at the same step, balance batches by length, and leave cores for the "
        "data loader.",
        found_when="waiting >= {limit} of all ranks' time, and no rank causes the largest share of it in > "
        f"{100 * PERSISTENT_SHARE:g} % of the steps",
        limit=WAIT_SHARE,
        test=_rotating,
    ),
    Rule(
        code="HP232",
        title="Ranks run different collectives",
        meaning="Members of one process group disagree on operation, size or type at the same position: the job "
        "hangs, or soon crashes.",
        advice="Look for branches around collectives that depend on the rank or on data.",
        found_when="members of one group run different collectives at one position",
        test=_mismatch,
    ),
    Rule(
        code="HP233",
        title="Ranks stop early",
        meaning="A rank's collectives end at least a step before those of its group: it crashed, hangs before the next "
        "one, or its recording ended.",
        advice="Look at the end of that rank's trace and log.",
        found_when="a rank's last collective lies a step's worth of collectives before its group's",
        test=_stopped_early,
    ),
    Rule(
        code="HP234",
        title="Host clocks contradict the collectives",
        meaning="No offset and drift per host fits them: collectives were matched wrongly, or a clock was stepped "
        "during the recording.",
        advice="Do not trust comparisons of ranks; record a shorter window with whole steps, or give `--clock "
        "manifest:FILE`.",
        found_when="infeasible_match_fraction > {limit}",
        limit=MAX_INFEASIBLE,
        test=_clock_trouble,
    ),
    Rule(
        code="HP235",
        title="The pipeline has bubbles",
        meaning="Stages wait for their neighbours to send.",
        advice="Use more micro-batches per step or an interleaved schedule, or move layers off the busiest stage.",
        found_when="pipeline_bubble_fraction >= {limit}",
        limit=0.1,
        test=_pipeline,
    ),
)

BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}


def find(
    main: Sequence[tuple[RankRow, RankPartial]],
    values: Mapping[str, Value],
    idle: Mapping[Cause, int],
    wall_ns: int,
    across: AcrossRanks,
) -> list[Finding]:
    """Apply every rule (those on device time only where device rows are sound), the largest weight first."""
    sound = bool(main) and all(part.sound for _, part in main)
    shares = {c: ns / wall_ns for c, ns in idle.items()} if wall_ns and sound else {}
    context = Context(main, values, shares, across)
    out = []
    for rule in RULES:
        if rule.needs_sound_device and not sound:
            continue
        found = rule.test(context, rule.limit)
        if found:
            out.append(
                Finding(
                    code=rule.code,
                    title=rule.title,
                    evidence=found.evidence,
                    advice=found.advice or rule.advice,
                    weight=round(found.weight, 6),
                    ranks=list(found.ranks),
                )
            )
    return sorted(out, key=lambda f: (-f.weight, f.code))
