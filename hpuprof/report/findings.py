"""Findings: what is worth acting on, each with a code, evidence and advice. HP2xx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from hpuprof.analysis.device_time import is_low_precision
from hpuprof.ingest.dialect_engines import MATRIX_ENGINE
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import Cause
from hpuprof.model.tables import RankRow
from hpuprof.ranks.rank_tables import MAX_INFEASIBLE, AcrossRanks
from hpuprof.report.model import Finding

Values = Mapping[str, float | int | None]


@dataclass(frozen=True)
class Context:
    """What a rule may look at: rows and reduced files of the chosen recordings, headline values, idle shares."""

    main: Sequence[tuple[RankRow, RankPartial]]
    values: Values
    idle: Mapping[Cause, float]
    across: AcrossRanks

    def value(self, name: str) -> float:
        """Return a headline value, 0 when unknown."""
        return float(self.values.get(name) or 0.0)


@dataclass(frozen=True)
class Rule:
    """A finding's code and words, and the test that finds it: evidence and weight, or None."""

    code: str
    title: str
    meaning: str
    advice: str
    threshold: str
    test: Callable[[Context], tuple[str, float] | tuple[str, float, list[int]] | None] = field(repr=False)


def _pct(value: float) -> str:
    return f"{100 * value:.1f} %"


def _idle_rule(cause: Cause, limit: float) -> Callable[[Context], tuple[str, float] | None]:
    def test(context: Context) -> tuple[str, float] | None:
        share = context.idle.get(cause, 0.0)
        return (f"the device idled {_pct(share)} of the step during it", share) if share >= limit else None

    return test


def _input(context: Context) -> tuple[str, float] | None:
    share = context.value("input_fraction")
    evidence = f"the main thread fetched batches for {_pct(share)} of the step"
    if not context.idle:
        return (evidence, share) if share > 0.05 else None
    idle = context.idle.get(Cause.DATA_LOADER, 0.0)
    return (f"{evidence}; the device idled {_pct(idle)} of it meanwhile", idle) if idle > 0.05 else None


def _compile(context: Context) -> tuple[str, float] | None:
    steps = [s for _, p in context.main for s in p.steps]
    late = [s for s in steps if s.compile_ns and s.step > 0]
    if not late:
        return None
    share = sum(s.compile_ns for s in late) / max(1, sum(s.wall_ns for s in steps))
    return (
        f"{len(late)} of {len(steps)} steps compile after the first one, {sum(s.compile_ns for s in late) / 1e6:.2f} ms in all",
        share,
    )


def _exposed(context: Context) -> tuple[str, float] | None:
    share = context.value("exposed_communication_fraction")
    return (f"{_pct(share)} of the step is communication that no compute hides", share) if share >= 0.1 else None


def _short(context: Context) -> tuple[str, float] | None:
    share = context.value("short_launch_fraction")
    launch = context.idle.get(Cause.OPERATOR_LAUNCH, 0.0)
    return (
        (f"{_pct(share)} of the launched rows are shorter than their launch call", max(launch, 0.01))
        if share >= 0.5
        else None
    )


def _alloc(context: Context) -> tuple[str, float] | None:
    steps = [s for _, p in context.main for s in p.steps if s.used]
    wall = sum(s.wall_ns for s in steps)
    share = sum(s.blocked_alloc_ns or 0 for s in steps) / wall if wall else 0.0
    return (
        (f"the host path spent {_pct(share)} of the step in device allocation and free", share)
        if share >= 0.01
        else None
    )


def _unstable(context: Context) -> tuple[str, float] | None:
    spread = context.values.get("step_time_spread")
    return (
        (f"step times spread by {_pct(spread)} around their median", spread)
        if spread is not None and spread > 0.1
        else None
    )


def _imbalance(context: Context) -> tuple[str, float, list[int]] | None:
    per_rank = {row.rank: row for row, _ in context.main}
    sources = {part.file.step_source for _, part in context.main}
    if len(per_rank) < 2 or len(sources) > 1 or sources == {"whole_trace"}:
        return None
    loads = {r: row.input_fraction or 0.0 for r, row in per_rank.items()}
    walls = {r: float(row.step_p50_ns) for r, row in per_rank.items()}
    middle = median(walls.values())
    slow = [r for r, w in walls.items() if w > 1.05 * middle]
    loading = [r for r, share in loads.items() if share > median(loads.values()) + 0.1]
    if slow:
        worst = max(slow, key=lambda r: walls[r])
        return (
            f"rank {worst} takes {walls[worst] / middle - 1:.1%} longer than the median rank",
            walls[worst] / middle - 1,
            slow,
        )
    if loading:
        worst = max(loading, key=lambda r: loads[r])
        return (
            f"rank {worst} fetches data for {_pct(loads[worst])} of its step, the median rank for {_pct(median(loads.values()))}",
            loads[worst],
            loading,
        )
    return None


def _precision(context: Context) -> tuple[str, float] | None:
    rows = [r for _, p in context.main for r in p.precision if r.engine == MATRIX_ENGINE and r.dtype != "unknown"]
    total = sum(r.busy_ns for r in rows)
    if not total:
        return None
    low = sum(r.busy_ns for r in rows if is_low_precision(r.dtype)) / total
    share = context.value("compute_fraction") * (1 - low)
    return (f"{_pct(low)} of the matrix engine's time is in 16 bits or fewer", share) if low < 0.5 else None


def _memory(context: Context) -> tuple[str, float] | None:
    for _, part in context.main:
        limit = part.file.device_memory_bytes
        peak = max((r.peak_allocated_bytes or 0 for r in part.memory if r.space == "device"), default=0)
        if limit and peak > 0.9 * limit:
            return f"peak {peak / 1e9:.1f} GB of {limit / 1e9:.1f} GB", 0.01
    return None


def _blocked_copy(context: Context) -> tuple[str, float] | None:
    steps = [s for _, p in context.main for s in p.steps if s.used]
    wall = sum(s.wall_ns for s in steps)
    share = sum(s.blocked_copy_ns or 0 for s in steps) / wall if wall else 0.0
    read = context.idle.get(Cause.BLOCKING_READ, 0.0)
    evidence = f"the host waited {_pct(share)} of the step in blocking copies and reads"
    if not context.idle:
        return (evidence, share) if share >= 0.02 else None
    return (f"{evidence}; the device idled {_pct(read)} of the step during reads", read) if read >= 0.02 else None


_MEANWHILE = {"compute": "computing", "input": "fetching data", "copy": "copying", "compile": "compiling", "gc": "collecting garbage", "host": "in host code"}  # fmt: skip


def _straggler(context: Context) -> tuple[str, float, list[int]] | None:
    row = context.across.straggler
    if row is None or row.blame_fraction is None or row.steps_late_fraction is None:
        return None
    cause = f", {_MEANWHILE[row.cause]} meanwhile" if row.cause else ""
    cost = context.value("straggler_cost_fraction")
    saved = f"; without it a step would take {_pct(cost)} less" if context.across.replay else ""
    evidence = f"rank {row.rank} comes last in {_pct(row.steps_late_fraction)} of the steps{cause}{saved}"
    return evidence, max(cost, context.value("collective_wait_fraction")), [row.rank]


def _rotating(context: Context) -> tuple[str, float, list[int]] | None:
    if context.across.verdict.kind != "rotating":
        return None
    share = context.value("collective_wait_fraction")
    replay = context.across.replay
    even = (
        f"; with even ranks a step would take {_pct(max(0.0, 1 - replay.even_ns / replay.replayed_ns))} less"
        if replay
        else ""
    )
    ranks = [r.rank for r in context.across.waits if (r.blame_fraction or 0) >= 0.1]
    return f"ranks wait for one another for {_pct(share)} of their time, for changing ranks{even}", share, ranks


def _mismatch(context: Context) -> tuple[str, float, list[int]] | None:
    wrong = [g for g in context.across.groups if g.mismatched and g.known]
    if not wrong:
        return None
    first = wrong[0]
    return (
        f"in {first.mismatched} places ranks {first.ranks} ran different collectives of group {first.text or first.group!r}",
        1.0,
        [],
    )


def _stopped_early(context: Context) -> tuple[str, float, list[int]] | None:
    stopped = context.across.stopped
    if not stopped:
        return None
    worst = max(stopped, key=lambda s: s.behind)
    after = f", its last one is a {worst.last}" if worst.last else ""
    return f"rank {worst.rank} ends {worst.behind} collectives before the others{after}", 0.5, [s.rank for s in stopped]


def _clock_trouble(context: Context) -> tuple[str, float] | None:
    share = context.across.infeasible
    return (
        (f"{_pct(share)} of the matched collectives contradict the clocks", share)
        if share is not None and share > MAX_INFEASIBLE
        else None
    )


def _pipeline(context: Context) -> tuple[str, float] | None:
    bubble, uneven = context.across.bubble, context.across.imbalance
    if bubble is None or bubble < 0.1:
        return None
    stages = f"; the busiest rank computes {_pct(uneven)} more than the mean" if uneven is not None else ""
    return f"ranks stand still for {_pct(bubble)} of the step until a peer sends{stages}", bubble


RULES: tuple[Rule, ...] = (
    Rule("HP201", "Operators cannot be launched fast enough", "The device waits while the host accumulates, dispatches or launches operators.", "Launch less: larger batches, fused optimizers, torch.compile, or graph replay (HPU Graphs in lazy mode, CUDA graphs).", "device idle during operator accumulation and launch >= 10 % of the step", _idle_rule(Cause.OPERATOR_LAUNCH, 0.1)),
    Rule("HP202", "Data loading holds the step back", "The main thread spends the step fetching batches.", "More data-loader workers, persistent_workers, prefetching; on Gaudi the media data loader.", "device idle during data loading > 5 % of the step; without device rows, input_fraction > 5 % (the threshold of torch-tb-profiler, consistent with Intel's published outputs)", _input),
    Rule("HP203", "Values are read back in the step", "`.item()`, `.cpu()` or a device-to-host copy makes the host wait until the device is done; nothing can be launched meanwhile.", "Read losses and metrics every n steps, keep them on the device, or copy with non_blocking=True into pinned memory.", "device idle during blocking reads >= 2 % of the step; without device rows, waiting in blocking copies and reads >= 2 %", _blocked_copy),
    Rule("HP204", "Input copies stall the device", "The device waits for host-to-device copies.", "pin_memory=True in the data loader and non_blocking=True in `.to()`; copy the next batch while this one computes.", "device idle during host-to-device copies >= 3 % of the step", _idle_rule(Cause.H2D_COPY, 0.03)),
    Rule("HP205", "Graphs are compiled inside steps", "A new shape or graph appears after the first step, and compiling it stops the step.", "Keep shapes static: drop_last=True, padding or buckets; look for Python values that change per step.", "any compilation in a step after the first", _compile),
    Rule("HP206", "Communication is exposed", "Collectives run while no compute hides them.", "Overlap gradients' all-reduce with backward (DDP buckets), enlarge the batch per rank, or look for the rank that arrives last.", "exposed communication >= 10 % of the step", _exposed),
    Rule("HP207", "Most kernels are shorter than their launch", "Launching takes longer than running, so the device starves as soon as the queue runs dry.", "Fuse operators (torch.compile, foreach or fused optimizers), enlarge the batch, or replay graphs.", "short_launch_fraction >= 50 %", _short),
    Rule("HP208", "The optimizer starves the device", "The device waits while the optimizer's step runs on the host.", "Use fused=True or foreach=True, or the vendor's fused optimizer.", "device idle during the optimizer >= 5 % of the step", _idle_rule(Cause.OPTIMIZER, 0.05)),
    Rule("HP209", "Callbacks and logging stall the step", "The device waits for callbacks, loggers or checkpoints.", "Log every n steps, write checkpoints asynchronously.", "device idle during callbacks and logging >= 3 % of the step", _idle_rule(Cause.CALLBACK, 0.03)),
    Rule("HP210", "Matrix work runs in full precision", "Less than half of the matrix engine's time uses 16 bits or fewer.", "Use bf16 autocast (`precision=\"bf16-mixed\"`).", "low-precision share of MME time < 50 %", _precision),
    Rule("HP211", "Memory is allocated inside steps", "Device allocation and free synchronise the device.", "Let the caching allocator warm up; avoid empty_cache() and changing shapes.", "host path in allocation and free >= 1 % of the step", _alloc),
    Rule("HP212", "Step times vary", "Medians hide what the slow steps do.", "Look at the table of steps; log, evaluate and collect garbage at fixed steps.", "median absolute deviation > 10 % of the median step", _unstable),
    Rule("HP213", "Host code that is no operator holds the device back", "The device waits for Python between operators.", "Record with stacks (with_stack=True) to see which; move work off the training thread.", "device idle during Python >= 10 % of the step", _idle_rule(Cause.PYTHON, 0.1)),
    Rule("HP214", "Ranks are uneven", "One rank takes longer, or fetches data longer, than the others, and collectives make all wait for it.", "Look at that rank's table: its input, its host, its compute.", "a rank's median step > 5 % over the median rank, or its input share > 10 points over", _imbalance),
    Rule("HP215", "Explicit synchronisation stalls the device", "The host waits for the device and launches nothing meanwhile.", "Remove synchronize() calls from the step; time with events.", "device idle during synchronisation >= 3 % of the step", _idle_rule(Cause.SYNCHRONISE, 0.03)),
    Rule("HP216", "Device memory is nearly full", "Little room is left for larger batches or captured graphs.", "Activation checkpointing, a smaller batch, or sharding.", "peak allocation > 90 % of the device's memory", _memory),
    Rule("HP230", "One rank holds the others back", "The same rank comes last to collectives in most steps, and the others stand still until it does.", "Look at what that rank does longer than the others: its data, its host, its device's clocks and neighbours.", "waiting >= 2 % of all ranks' time, and one rank causes the most of it in > 60 % of the steps", _straggler),
    Rule("HP231", "Ranks take turns at holding the others back", "Every collective waits for the slowest rank of that moment: garbage collection, uneven batches, a shared machine.", "Collect garbage on all ranks at the same step, balance batches by length, leave cores to the data loader.", "waiting >= 2 % of all ranks' time, and no rank causes the most of it in > 60 % of the steps", _rotating),
    Rule("HP232", "Ranks run different collectives", "Members of one process group disagree on operation, size or type at the same place: a hang, or a crash soon.", "Look for branches that depend on the rank or on data around collectives.", "members of one group run different collectives at one position", _mismatch),
    Rule("HP233", "Ranks stop early", "A rank's collectives end at least a step before those of its group: it crashed, hangs before the next one, or its recording ended.", "Look at the end of that rank's trace and log.", "a rank's last collective lies a step's worth of collectives before its group's", _stopped_early),
    Rule("HP234", "Clocks of hosts contradict the collectives", "No offset and drift per host fit: collectives were matched wrongly, or a clock was stepped during the recording.", "Do not trust comparisons of ranks; record a shorter window with whole steps, or give `--clock manifest:FILE`.", "infeasible_match_fraction > 1 %", _clock_trouble),
    Rule("HP235", "The pipeline has bubbles", "Stages stand still until their neighbours send.", "More micro-batches per step, an interleaved schedule, or layers moved from the busiest stage.", "pipeline_bubble_fraction >= 10 %", _pipeline),
)  # fmt: skip

BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}
_NEEDS_SOUND_DEVICE = {"HP201", "HP204", "HP206", "HP207", "HP208", "HP209", "HP210", "HP213", "HP215"}


def find(
    main: Sequence[tuple[RankRow, RankPartial]],
    values: Values,
    idle: Mapping[Cause, int],
    wall_ns: int,
    across: AcrossRanks,
) -> list[Finding]:
    """Apply every rule; the weightiest finding comes first. Rules on device time are not asked of degenerate device rows."""
    sound = bool(main) and all(part.sound for _, part in main)
    shares = {c: ns / wall_ns for c, ns in idle.items()} if wall_ns and sound else {}
    context = Context(main, values, shares, across)
    out = []
    for rule in RULES:
        if rule.code in _NEEDS_SOUND_DEVICE and not sound:
            continue
        result = rule.test(context)
        if result:
            ranks = result[2] if len(result) == 3 else []
            out.append(
                Finding(
                    code=rule.code,
                    title=rule.title,
                    evidence=result[0],
                    advice=rule.advice,
                    weight=round(result[1], 6),
                    ranks=ranks,
                )
            )
    return sorted(out, key=lambda f: (-f.weight, f.code))
