"""Pauses of a job: steps that recur and take longer, by rank, with their period, what fills them, and their price.

A rank that pauses delays the others, whose slow steps are then filled by communication: those are reported only where
no rank shows another cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hpuprof.analysis.step_groups import COMMUNICATION, DEVICE, LOADING, QUEUED, SLOW
from hpuprof.analysis.steps import RECURS
from hpuprof.model.durations import duration
from hpuprof.model.kernel_names import readable
from hpuprof.model.tables import StepGroupRow
from hpuprof.ranks.matching import ranges
from hpuprof.ranks.rank_tables import Main
from hpuprof.report.rule import Context, Found, Rule, percent

SHOWN = 0.02
"""Share of the mean step from which pauses are reported, by judgment: means of equal runs differ by more."""
TWICE, OFTEN = 2, 3
"""Steps of a cause that has a fix, and of one that has none, from which taking them out is a line of the plan. By
judgment: whoever must look for the cause first needs to meet it again."""
BETWEEN_PHASES = "work between the phases"
"""What fills a pause that a log of steps shows: neither input, forward, backward nor the optimizer."""
_FIXES = {
    LOADING: (
        "Load batches ahead: the loader runs dry",
        "Use more data-loader workers, a larger prefetch_factor and persistent_workers.",
    ),
    "garbage collection": (
        "Collect garbage outside the steps",
        "Call gc.freeze() and gc.disable() after set-up, and gc.collect() on all ranks at once, between epochs.",
    ),
    "callback or checkpoint": (
        "Write checkpoints and logs in the background",
        "Use torch.distributed.checkpoint.async_save, and log less often.",
    ),
    "allocation": (
        "Keep the allocator from pausing the step",
        "Set PYTORCH_ALLOC_CONF=expandable_segments:True, keep shapes static, and call no empty_cache().",
    ),
    "compilation": (
        "Compile no more inside the loop",
        "Mark dynamic shapes, or pad to few of them: each new one compiles.",
    ),
    BETWEEN_PHASES: (
        "Do in the background what the loop does now and then",
        "Find what the loop does in these steps alone: a checkpoint (async_save), logging, garbage (gc.freeze()).",
    ),
    COMMUNICATION: (
        "Find the rank that pauses",
        "The ranks wait for each other: record all of them to see which one pauses.",
    ),
    DEVICE: (
        "Take the pause out of the steps",
        "See in `hpuprof view` what the device runs in these steps and in no others.",
    ),
}
"""What to do by what fills a pause: a title, and advice."""
_FOUND_AS = {
    LOADING: ("HP202",),
    "callback or checkpoint": ("HP209",),
    "allocation": ("HP211", "HP218"),
    "compilation": ("HP205",),
}
"""The findings on what fills a pause."""
_LOOK = (
    "Take the pause out of the steps",
    "Record these steps with stacks (with_stack=True) to see what the host does, or watch it with py-spy.",
)

Key = tuple[str, int | None]
"""What pauses of several ranks have in common: what fills them, and their period."""


class Pause(Struct, frozen=True):
    """Slow steps of one cause, on one rank or several at once; times in ns."""

    cause: str  # empty: many small things
    row: str
    steps: int  # of one rank
    of: int  # steady steps of that rank
    every: int | None
    ranks: tuple[int, ...]
    above_ns: float
    cost_ns: float  # of the mean step
    cost_low_ns: float
    cost_high_ns: float
    logged: bool = False  # seen in logs of steps, not in the recordings

    @property
    def often(self) -> str:
        """How often it comes, in words."""
        return f"every {self.every} steps" if self.every else "now and then"

    @property
    def recurs(self) -> bool:
        """Whether it comes in turns, or often enough to expect it again: unlike causes, seen once each, may not."""
        return self.logged or self.every is not None or self.steps >= (TWICE if self.cause in _FIXES else OFTEN)

    @property
    def filled(self) -> str:
        """What fills it, in words; empty if unknown."""
        return f"{self.cause} ({readable(self.row)})" if self.row else self.cause


def find_pauses(main: Main) -> list[Pause]:
    """Return the pauses of the chosen recordings, the dearest first; `main`: of one or more ranks and windows."""
    steady: dict[int, int] = {}
    found: dict[Key, dict[int, list[tuple[StepGroupRow, int]]]] = {}
    for row, part in main:
        count = sum(s.steady for s in part.steps)
        steady[row.rank] = steady.get(row.rank, 0) + count
        for group in part.step_groups:
            if group.standing == RECURS and group.reason == SLOW and group.cause != QUEUED:
                found.setdefault((group.cause, group.every), {}).setdefault(row.rank, []).append((group, count))
    pauses = [_pause(by_rank, steady) for by_rank in found.values()]
    if len(steady) > 1:
        pauses = [p for p in pauses if p.cause != COMMUNICATION] or pauses
    return sorted(pauses, key=lambda p: (-p.cost_ns, p.cause, p.every or 0))


def _pause(by_rank: Mapping[int, Sequence[tuple[StepGroupRow, int]]], steady: Mapping[int, int]) -> Pause:
    """Join what several recordings show of one pause; its price is that of the rank that pays most."""

    def cost(rank: int, column: str) -> float:
        return sum((getattr(group, column) or 0.0) * count for group, count in by_rank[rank]) / steady[rank]

    rank = max(by_rank, key=lambda rank: (cost(rank, "cost_ns"), -rank))
    first, _ = max(by_rank[rank], key=lambda found: found[0].steps)
    return Pause(
        cause=first.cause,
        row=first.row,
        steps=sum(group.steps for group, _ in by_rank[rank]),
        of=steady[rank],
        every=first.every,
        ranks=tuple(sorted(by_rank)),
        above_ns=float(first.above_ns),
        cost_ns=cost(rank, "cost_ns"),
        cost_low_ns=cost(rank, "cost_low_ns"),
        cost_high_ns=cost(rank, "cost_high_ns"),
    )


def who(pause: Pause, recorded: int) -> str:
    """Name the ranks that pause, where several were recorded and not all do."""
    few = recorded > 1 and len(pause.ranks) < recorded
    return f"rank{'s' * (len(pause.ranks) > 1)} {ranges(pause.ranks)}" if few else ""


def said(pause: Pause, recorded: int) -> str:
    """Say which steps pause, where, how long and why."""
    count = f"{pause.steps} of {pause.of} steps"
    place = f" on {who(pause, recorded)}" if who(pause, recorded) else ""
    why = f": {pause.filled}" if pause.filled else ""
    return f"{count}{place}, {pause.often}, take {duration(pause.above_ns)} longer{why}"


def fix(pause: Pause) -> tuple[str, str]:
    """Return what to do about a pause: a title, and advice."""
    return _FIXES.get(pause.cause, _LOOK)


def _test(context: Context, limit: float) -> Found | None:
    pauses, share = find_pauses(context.main), context.value("pause_fraction")
    if not pauses or share < limit:
        return None
    recorded = len({row.rank for row, _ in context.main})
    first = pauses[0]
    more = f", and {len(pauses) - 1} more" if len(pauses) > 1 else ""
    evidence = f"{said(first, recorded)}{more}; pauses cost {percent(share)} of the mean step"
    return Found(evidence, share, first.ranks if who(first, recorded) else (), fix(first)[1])


def shares(context: Context) -> dict[str, float]:
    """Return the share of the mean step that pauses cost, by the code of the finding on what fills them."""
    mean = context.value("step_time_mean")
    out: dict[str, float] = {}
    for pause in find_pauses(context.main) if mean else ():
        for code in _FOUND_AS.get(pause.cause, ()):
            out[code] = out.get(code, 0.0) + pause.cost_ns / mean
    return out


PAUSES = Rule(
    code="HP221",
    title="Some steps pause",
    meaning="Steps that come in every n-th turn or now and then take much longer than the others: a loader that runs "
    "dry, the garbage collector, a checkpoint, logging, the allocator. The table step_groups has a row for each cause.",
    advice="See what fills the pauses in the table step_groups: load ahead, collect garbage and write checkpoints in "
    "the background or on all ranks at once, log less often.",
    found_when="pause_fraction >= {limit}",
    limit=SHOWN,
    saves="pause_fraction",
    test=_test,
)
