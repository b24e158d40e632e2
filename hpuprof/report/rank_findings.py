"""Findings that only several ranks show. HP214 and HP230 to HP236."""

from __future__ import annotations

from statistics import median

from hpuprof.analysis.window import ONCE
from hpuprof.model.prediction import Interval
from hpuprof.model.tables import SuspectRow
from hpuprof.ranks.chance import LEVEL
from hpuprof.ranks.clocks import MAX_INFEASIBLE
from hpuprof.ranks.named_suspects import COST_SHARE, WAIT_SHARE
from hpuprof.report.rule import Context, Found, Rule, percent

UNEVEN_INPUT = 0.1
"""From this far above the median rank's, a rank's input share counts as uneven, by judgment."""
UNEXPLAINED = 0.05
"""From this share of all ranks' time on, waiting is reported although no rank is named, by judgment."""
EXPLAINS = 0.5
"""A cause explains waiting if removing it saves at least this share of it: more than is left."""
BLAMED = 0.1
"""Ranks that cause at least this share of the waiting are named, by judgment."""


def _imbalance(context: Context, limit: float) -> Found | None:
    per_rank = {row.rank: row for row, _ in context.main}
    sources = {part.file.step_source for _, part in context.main}
    if len(per_rank) < 2 or len(sources) > 1 or sources == {ONCE}:
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
        evidence = (
            f"rank {worst} fetches data for {percent(loads[worst])} of its step, the median rank for {percent(usual)}"
        )
        return Found(evidence, loads[worst] - usual, loading)
    if slow:
        worst = max(slow, key=lambda r: walls[r])
        over = walls[worst] / middle - 1
        evidence = f"rank {worst} takes {percent(over)} longer than the median rank, waiting left out"
        return Found(evidence, over / (1 + over), slow)
    return None


DOING = {
    "compute": "computing",
    "input": "fetching data",
    "copy": "copying",
    "compile": "compiling",
    "gc": "collecting garbage",
    "host": "in host code",
}
"""What late ranks do meanwhile, by cause."""


CHECK = {
    "compute": "Check the clocks, temperature and neighbors of rank {rank}'s device, and whether it gets more work.",
    "input": "Check the disk or mount that rank {rank} reads from, its data-loader workers, and its CPU cores.",
    "copy": "Check what rank {rank} copies that the others do not, and how its device is attached.",
    "compile": "Check which shapes only rank {rank} sees: it compiles while the others wait.",
    "gc": "Collect Python's garbage on all ranks at the same step: gc.disable(), and gc.collect() every n steps.",
    "host": "Check the cores that rank {rank} is bound to, other processes there, and Python code that only it runs, "
    "such as logging and checkpoints.",
}
"""What to check on a late rank, by what it does meanwhile."""


_WHO = {
    "rank": "rank {name}",
    "host": "host {name} (ranks {ranks})",
    "stage": "pipeline stage {name} (ranks {ranks})",
    "group": "the group of ranks {ranks}",
    "coordinate": "place {name} (ranks {ranks})",
    "link": "the link between ranks {ranks}",
}


def name_of(suspect: SuspectRow) -> str:
    """Say who or what delays the others."""
    return _WHO[suspect.kind].format(name=suspect.name, ranks=suspect.ranks)


def doing(context: Context) -> str:
    """Return what the named ranks do while the others wait, a key of `DOING`; empty if unknown."""
    causes = context.across.causes
    return max(causes, key=lambda cause: causes[cause]) if any(causes.values()) else ""


def _straggler(context: Context, _: float) -> Found | None:
    if not context.across.named:
        return None
    row, meanwhile = context.across.named[0], doing(context)
    often = f"in {percent(row.steps_fraction or 0.0)} of the steps"
    why = _why(context, 0) or (f", because it is {DOING[meanwhile]}" if meanwhile else "")
    ranks = [w.rank for w in context.across.waits if w.straggler]
    advice = CHECK.get(meanwhile, "").format(rank=row.name) if row.kind == "rank" else ""
    cost, then = context.across.cost, context.across.then
    if cost is None:
        waiting = context.value("collective_wait_fraction")
        return Found(f"{name_of(row)} comes last {often}{why}; what it costs is not known", waiting, ranks, advice)
    said = f"{name_of(row)} holds the others back {often}{why}"
    if then is not None:
        second, alone = (
            context.across.named[1],
            " and ".join(percent(s.saved_fraction or 0.0) for s in context.across.named),
        )
        said += (
            f"; so does {name_of(second)}{_why(context, 1)}; if both kept pace, a step would take {_span(cost)} less"
        )
        return Found(f"{said}, each alone {alone}", cost.median, ranks, advice)
    return Found(f"{said}; if it kept pace, a step would take {_span(cost)} less", cost.median, ranks, advice)


def _span(share: Interval) -> str:
    return f"{percent(share.low)} to {percent(share.high)}"


def _why(context: Context, place: int) -> str:
    """Say by how much a named link is slower; empty for ranks."""
    slower = context.across.slower[place]
    return f": its transfers take {slower:.1f} times as long as those of its like" if slower else ""


def _unnamed(context: Context, limit: float) -> Found | None:
    """Say who waits for whom where no rank is named, and why no one is."""
    across, share = context.across, context.value("collective_wait_fraction")
    rows = [w for w in across.waits if w.blame_fraction is not None]
    if across.verdict.kind not in _NO_RANK or share < limit or not rows:
        return None
    waiting = max(rows, key=lambda w: (w.waiting_fraction or 0.0, -w.rank))
    late = max(rows, key=lambda w: (w.blame_fraction or 0.0, -w.rank))
    even = across.replay.even if across.replay is not None and not across.replay.lossy else None
    steps = across.verdict.needed
    why, advice = _NO_RANK[across.verdict.kind]
    saves = f" (even ranks would save {percent(even)})" if even is not None else ""
    evidence = (
        f"ranks wait for one another {percent(share)} of the time, rank {waiting.rank} most, "
        f"{percent(late.blame_fraction or 0.0)} of it for rank {late.rank}; {why.format(steps=steps, saves=saves)}"
    )
    return Found(evidence, even if even is not None else share, (), advice.format(steps=steps))


_NO_RANK = {
    "undecided": (
        "no rank is named, as so few steps could show it by chance{saves}: record {steps} steps",
        "Record {steps} steps in a row behind the warm-up (active={steps} in torch.profiler.schedule).",
    ),
    "launch": (
        "no rank is named, as the hosts launch too slowly for the devices and would be busy meanwhile{saves}",
        "Speed up the hosts first: see the plan.",
    ),
    "none": (
        "no rank is named, as waiting less would save little{saves}: hosts or transfers take as long",
        "Speed up what the ranks do meanwhile first: see rank_cycle.",
    ),
}
"""Why no rank is named, by verdict, and what to do."""


def _rotating(context: Context, _: float) -> Found | None:
    if context.across.verdict.kind != "rotating":
        return None
    share = context.value("collective_wait_fraction")
    replay, even, saves = context.across.replay, "", share
    if replay:
        saves = replay.even
        even = f"; with equally fast ranks, a step would take at most {percent(saves)} less"
    ranks = [r.rank for r in context.across.waits if (r.blame_fraction or 0) >= BLAMED]
    evidence = f"ranks wait for one another {percent(share)} of the time, and not always for the same rank{even}"
    return Found(evidence, saves, ranks)


def _mismatch(context: Context, _: float) -> Found | None:
    wrong = [g for g in context.across.groups if g.mismatched and g.known]
    if not wrong:
        return None
    first = wrong[0]
    group = first.text or first.group
    evidence = f"in {first.mismatched} places ranks {first.ranks} ran different collectives of group {group!r}"
    return Found(evidence, 1.0)


def _stopped_early(context: Context, _: float) -> Found | None:
    stopped = context.across.stopped
    if not stopped:
        return None
    worst = max(stopped, key=lambda s: s.behind)
    after = f"; its last one is {worst.last}" if worst.last else ""
    evidence = f"rank {worst.rank} stops {worst.behind} collectives before the others{after}"
    return Found(evidence, 1.0, [s.rank for s in stopped])


def _clock_trouble(context: Context, limit: float) -> Found | None:
    share = context.across.infeasible
    if share is None or share <= limit:
        return None
    return Found(f"{percent(share)} of the matched collectives contradict the clocks", None)


def _pipeline(context: Context, limit: float) -> Found | None:
    bubble, uneven = context.across.bubble, context.across.imbalance
    if bubble is None or bubble < limit:
        return None
    stages = f"; the busiest rank computes {percent(uneven)} more than the mean" if uneven is not None else ""
    return Found(f"ranks wait {percent(bubble)} of the step for a peer to send{stages}", bubble)


# Limits are by judgment, as those of steps, unless ranks/ gives them.
RANK_RULES: tuple[Rule, ...] = (
    Rule(
        code="HP214",
        title="Ranks are uneven",
        meaning="One rank takes longer, or fetches data longer, than the others, and collectives make all wait for it.",
        advice="Compare that rank's data loading, host and compute with the other ranks'.",
        found_when="a rank's median step less its waiting for others > {limit} over the median rank's, or its input "
        "share > 10 points over; not where another rank delays all (HP230)",
        limit=0.05,
        saves="what the rank's median step takes beyond the median rank's, over it; for data loading, the difference "
        "of the two shares",
        test=_imbalance,
    ),
    Rule(
        code="HP230",
        title="One part of the job delays the others",
        meaning="The same rank, host, pipeline stage, group or link takes longer than its like in most steps, and the "
        "others wait for it.",
        advice="Find what it does longer than the others: check its data loading, its host, its device's clocks and "
        "neighbors; of a link, its network; of a stage, how many layers it has.",
        found_when="it works longer than its like beyond chance (a permutation test over the used steps at "
        f"{100 * LEVEL:g} %), and replayed at the pace of its like, alone or with another one, the job surely saves >= "
        "{limit} of the step; where steps cannot be replayed, a rank beyond chance that causes most waiting, if that "
        f"is >= {100 * WAIT_SHARE:g} % of all ranks' time",
        limit=COST_SHARE,
        saves="straggler_cost_fraction; where that is unknown, collective_wait_fraction",
        test=_straggler,
    ),
    Rule(
        code="HP231",
        title="A different rank is late each time",
        meaning="Each collective waits for whichever rank is slowest at that moment: garbage collection, uneven "
        "batches, a shared machine.",
        advice="Collect garbage on all ranks at the same step, balance batches by length, and leave cores for the "
        "data loader.",
        found_when="waiting >= {limit} of all ranks' time, even ranks would save as much, and no rank is slow beyond "
        "chance although the steps suffice to show it",
        limit=WAIT_SHARE,
        saves="what the step takes less with equally fast ranks; without a trusted replay, collective_wait_fraction",
        test=_rotating,
    ),
    Rule(
        code="HP232",
        title="Ranks run different collectives",
        meaning="Members of one process group disagree on operation, size or type at the same position: the job "
        "hangs, or soon crashes.",
        advice="Look for branches around collectives that depend on the rank or on data.",
        found_when="members of one group run different collectives at one position",
        saves="everything: the job hangs",
        test=_mismatch,
    ),
    Rule(
        code="HP233",
        title="Ranks stop early",
        meaning="A rank's collectives end at least a step before those of its group: it crashed, hangs before the next "
        "one, or its recording ended.",
        advice="Look at the end of that rank's trace and log.",
        found_when="a rank's last collective lies a step's worth of collectives before its group's",
        saves="everything if the rank crashed, nothing if only its recording ended",
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
        saves="unknown: it makes other numbers doubtful",
        test=_clock_trouble,
    ),
    Rule(
        code="HP235",
        title="The pipeline has bubbles",
        meaning="Stages wait for their neighbors to send.",
        advice="Use more micro-batches per step or an interleaved schedule, or move layers off the busiest stage.",
        found_when="pipeline_bubble_fraction >= {limit}",
        limit=0.1,
        saves="pipeline_bubble_fraction",
        test=_pipeline,
    ),
    Rule(
        code="HP236",
        title="Ranks wait, and no rank is named",
        meaning="Waiting in collectives that no part of the job explains: too few steps to tell a slow part from "
        "chance, or hosts that would be busy meanwhile.",
        advice="Record more steps, or speed up what the ranks do meanwhile.",
        found_when="waiting >= {limit} of all ranks' time, and no rank is named, as too few steps were recorded, hosts "
        f"set the pace, or even ranks would save < {100 * WAIT_SHARE:g} % of the step",
        limit=UNEXPLAINED,
        saves="what the step takes less with equally fast ranks; without a trusted replay, collective_wait_fraction",
        test=_unnamed,
    ),
)
