"""Findings about the steps of a rank: what they lose on host and device. HP201 to HP224 but HP214 and HP221."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Any

from hpuprof.analysis.bound import ALLOCATOR_FIRST, EXPOSED_COPY
from hpuprof.analysis.device_time import is_low_precision
from hpuprof.efficiency.utilization import AT_THE_ROOF
from hpuprof.ingest.dialect_activities import copies_pageable, copies_within
from hpuprof.ingest.dialect_engines import MATRIX_ENGINE
from hpuprof.model.durations import duration
from hpuprof.model.kernel_names import readable
from hpuprof.model.schema import CAUSE_CLAUSE, Cause
from hpuprof.report.rule import Context, Found, Rule, longest, percent

MOSTLY = 0.5
"""From this share of the copying on, one kind of copies decides what to do."""
WORTH_OVERLAPPING = 0.1
"""Compute of at least this share of the step is worth hiding copies behind, by judgment."""
IN_LAYERS = 0.25
"""From this share of the all-reduces' time in forward, they are the layers' own. By judgment: tensor parallelism has
half of them there, data parallelism hardly any."""
TENSOR_PARALLEL = (
    "Layers wait for these collectives (tensor or expert parallelism), so overlap with backward does not apply: keep "
    "such a group within the fastest links, make it smaller, use sequence parallelism or fused and custom all-reduce "
    "kernels, or larger batches, which hide more of it."
)
READ_FRAMES = "Look at the Python frames in the longest gaps and at what they call; move work off the main thread."
PIN = "Pin the memory (pin_memory=True in the data loader, or `Tensor.pin_memory()`) and copy with non_blocking=True."
OVERLAP = "Copy the next batch or layer on a stream of its own while this one computes."
MOVE_LESS = (
    "The device only moves data, and nothing runs that could hide it: copy less, in smaller types, or keep it there."
)


def _idle(*causes: Cause) -> Callable[[Context, float], Found | None]:
    def test(context: Context, limit: float) -> Found | None:
        share = sum(context.idle.get(cause, 0.0) for cause in causes)
        if share < limit:
            return None
        cause = max(causes, key=lambda each: context.idle.get(each, 0.0))
        line = context.line(cause)
        advice = READ_FRAMES if cause == Cause.PYTHON and (line or context.stacks) else ""
        evidence = f"the device sat idle {percent(share)} of the step {CAUSE_CLAUSE[cause]}"
        return Found(evidence + _at(line), share, advice=advice)

    return test


def _on_the_cpu(context: Context, limit: float) -> Found | None:
    share, cause = context.idle.get(Cause.CPU_OPERATOR, 0.0), Cause.CPU_OPERATOR.name.lower()
    if share < limit:
        return None
    rows = (r for _, part in context.main for r in part.gap_operators if r.cause == cause)
    name, _ = longest((row.host_row, row.idle_ns) for row in rows)
    line = context.line(Cause.CPU_OPERATOR)
    named = (f", most in {name}" if name else "") + (f" ({line})" if line else "")
    return Found(f"the device sat idle {percent(share)} of the step {CAUSE_CLAUSE[Cause.CPU_OPERATOR]}{named}", share)


def _at(line: str) -> str:
    return f", longest in {line}" if line else ""


def _input(context: Context, limit: float) -> Found | None:
    share = context.value("input_fraction")
    evidence = f"the main thread fetched batches for {percent(share)} of the step"
    if not context.idle:
        return Found(evidence, share) if share > limit else None
    idle = context.idle.get(Cause.DATA_LOADER, 0.0)
    if idle <= limit:
        return None
    line = context.line(Cause.DATA_LOADER)
    return Found(f"{evidence}; the device sat idle {percent(idle)} of it meanwhile{_at(line)}", idle)


def _blocked_copy(context: Context, limit: float) -> Found | None:
    share = context.share("blocked_copy_ns")
    read = context.idle.get(Cause.BLOCKING_READ, 0.0)
    evidence = f"the host waited {percent(share)} of the step in blocking copies and reads"
    if not context.idle:
        return Found(evidence, share) if share >= limit else None
    if read < limit:
        return None
    during = f"the device sat idle {percent(read)} of the step during reads{_at(context.line(Cause.BLOCKING_READ))}"
    return Found(f"{evidence}; {during}", read)


def _compile(context: Context, _: float) -> Found | None:
    steps = [s for _, p in context.main for s in p.steps]
    late = [s for s in steps if s.compile_ns and s.step > 0]
    if not late:
        return None
    spent = sum(s.compile_ns for s in late)
    share = spent / max(1, sum(s.wall_ns for s in steps))
    evidence = f"{len(late)} of {len(steps)} steps compile after the first one, {percent(share)} of the time"
    return Found(evidence, share)


def _exposed(context: Context, limit: float) -> Found | None:
    share = context.value("exposed_communication_fraction")
    if share < limit:
        return None
    evidence = f"for {percent(share)} of the step, communication ran without compute"
    forward = [f for _, part in context.main if (f := part.file.forward_reduction_fraction) is not None]
    within = sum(forward) / len(forward) if forward else 0.0
    roles = {group.role for group in context.across.groups}
    if within >= IN_LAYERS:
        evidence += f"; {percent(within)} of the all-reduces' time was launched in forward"
    layers = not context.trains or within >= IN_LAYERS or ("tensor" in roles and "data" not in roles)
    return Found(evidence, share, advice=TENSOR_PARALLEL if layers else "")


def _short(context: Context, limit: float) -> Found | None:
    share = context.value("short_launch_fraction")
    if share < limit:
        return None
    evidence = f"{percent(share)} of the launched rows are shorter than the call that launched them"
    return Found(evidence, context.idle.get(Cause.OPERATOR_LAUNCH, 0.0))


def _alloc(*, below: float) -> Callable[[Context, float], Found | None]:
    def test(context: Context, limit: float) -> Found | None:
        share = context.share("blocked_alloc_ns")
        evidence = f"the host path spent {percent(share)} of the step allocating and freeing device memory"
        return Found(evidence, share) if limit <= share < below else None

    return test


def _copies(context: Context, limit: float) -> Found | None:
    share = context.value("exposed_copy_fraction")
    if share < limit:
        return None
    rows = [r for _, part in context.main for r in part.kernels if r.kind == "copy"]
    total = sum(r.total_ns for r in rows) or 1
    within, pageable = (sum(r.total_ns for r in rows if of(r.name)) / total for of in (copies_within, copies_pageable))
    evidence = f"for {percent(share)} of the step, the device only copied"
    if pageable >= MOSTLY:
        return Found(f"{evidence}; {percent(pageable)} of the copying is of pageable memory", share, advice=PIN)
    if within >= MOSTLY:
        return Found(f"{evidence}; {percent(within)} of the copying is within its memory", share, advice=MOVE_LESS)
    computing = context.value("compute_fraction")
    more = f"; it computed for {percent(computing)}"
    return Found(evidence + more, share, advice=OVERLAP if computing >= WORTH_OVERLAPPING else MOVE_LESS)


def _unstable(context: Context, limit: float) -> Found | None:
    spread = context.value("step_time_spread")
    if spread <= limit:
        return None
    walls = [[s.wall_ns for s in part.steps if s.used] for _, part in context.main]
    beyond = sum(max(0.0, wall - median(of)) for of in walls for wall in of)
    whole = sum(map(sum, walls)) or 1
    return Found(f"the median absolute deviation is {percent(spread)} of the median step", beyond / whole)


def _precision(context: Context, limit: float) -> Found | None:
    rows = [r for _, p in context.main for r in p.precision if r.engine == MATRIX_ENGINE and r.dtype != "unknown"]
    total = sum(r.busy_ns for r in rows)
    if not total:
        return None
    low = sum(r.busy_ns for r in rows if is_low_precision(r.dtype)) / total
    saves = context.value("compute_fraction") * (1 - low)
    evidence = f"{percent(low)} of the matrix engine's time uses 16 bits or fewer"
    return Found(evidence, saves) if low < limit else None


def _memory(context: Context, limit: float) -> Found | None:
    for _, part in context.main:
        size = part.file.device_memory_bytes
        peak = max((r.peak_allocated_bytes or 0 for r in part.memory if r.space == "device"), default=0)
        if size and peak > limit * size:
            return Found(f"peak {peak / 1e9:.1f} GB of {size / 1e9:.1f} GB", None)
    return None


def _idle_rule(code: str, causes: Cause | tuple[Cause, ...], during: str, *, limit: float, **words: Any) -> Rule:
    """Return the rule on idle time of causes; `during`: what the host did; `words`: the other fields of the rule."""
    causes = causes if isinstance(causes, tuple) else (causes,)
    return Rule(
        code=code,
        found_when=f"device idle during {during} >= {{limit}} of the step",
        limit=limit,
        needs_sound_device=True,
        saves=" + ".join(f"idle_{cause.name.lower()}_fraction" for cause in causes),
        test=_idle(*causes),
        **words,
    )


# Limits are by judgment, not measured, unless a comment says otherwise: 1 to 5 % of the step where a line or two of
# the script fixes it, 10 % where the fix takes more work.
def _one_kernel(context: Context, limit: float) -> Found | None:
    wall = sum(s.wall_ns for _, part in context.main for s in part.steps if s.steady)
    kernels = [r for _, part in context.main for r in part.kernels]
    name, time = longest((r.name, r.total_ns) for r in kernels if r.kind == "compute")
    if not wall or time < limit * wall:
        return None
    rows = [r for r in kernels if r.name == name]
    operators = {r.operator for r in rows}
    known = [
        (r.device_per_step_ns, r.roofline_fraction)
        for _, part in context.main
        for r in part.utilisation
        if r.name in operators and r.device_per_step_ns and r.roofline_fraction is not None
    ]
    total = sum(ns for ns, _ in known)
    reached = sum(ns * of for ns, of in known) / total if total else None
    if reached is not None and reached >= AT_THE_ROOF:
        return None
    share = time / wall
    each = median(r.p50_ns for r in rows)
    runs = sum(r.count_per_step for r in rows) / len(rows)
    count = f"{runs:,.0f} run{'s' * (runs >= 1.5)} of {duration(each)}"
    evidence = f"{readable(name)} takes {percent(share)} of the step, {count}"
    if reached is not None:
        evidence += f", at {percent(reached)} of what the device could do"
    return Found(evidence, share * (1.0 - (reached or 0.0)))


def _no_operator(context: Context, limit: float) -> Found | None:
    share = context.value("no_operator_fraction")
    if share < limit or context.across.waits or not context.on_cpu_alone:
        return None
    return Found(f"for {percent(share)} of the step no operator ran", share)


def _one_operator(context: Context, limit: float) -> Found | None:
    """Find the operator that computes longest by itself, where all of them compute on the CPU."""
    if not context.on_cpu_alone:
        return None
    parts = [part for _, part in context.main]
    steps = [s for part in parts for s in part.steps]
    wall = sum(s.wall_ns for s in steps if s.steady)
    operators = [r for part in parts for r in part.operators]
    # Those of torch.distributed wait for other ranks.
    name, time = longest((r.name, r.host_self_ns) for r in operators if not r.name.startswith("c10d::"))
    if not wall or time < limit * wall:
        return None
    rows = [r for r in operators if r.name == name]
    calls = sum(r.count_per_step for r in rows) / len(rows)
    count = f"{calls:,.0f} call{'s' * (calls >= 1.5)} of {duration(median(r.host_p50_ns for r in rows))}"
    share = time / wall
    return Found(f"{readable(name)} takes {percent(share)} of the step by itself, {count}", share)


STEP_RULES: tuple[Rule, ...] = (
    _idle_rule(
        "HP201",
        (Cause.OPERATOR_LAUNCH, Cause.LAUNCH_THREAD),
        "operator accumulation and launch, on the launch thread, too,",
        title="The host launches work too slowly",
        meaning="The device waits while the host accumulates, dispatches or launches operators.",
        advice="Launch less: use larger batches, fused optimizers, torch.compile, or graph replay.",
        serving="Replay the forward pass as graphs, torch.compile the model, or use larger batches.",
        limit=0.1,
    ),
    Rule(
        code="HP202",
        title="Data loading slows the step down",
        meaning="The main thread spends much of the step fetching batches.",
        advice="Use more data-loader workers, persistent_workers and prefetching.",
        found_when="device idle during data loading > {limit} of the step; without device rows, input_fraction > "
        "{limit} (the threshold of torch-tb-profiler, consistent with Intel's published outputs)",
        # The limit of torch-tb-profiler, consistent with Intel's published outputs.
        limit=0.05,
        saves="idle_data_loader_fraction; without device rows, input_fraction",
        test=_input,
    ),
    Rule(
        code="HP203",
        title="Values are read back inside the step",
        meaning="`.item()`, `.cpu()` or a device-to-host copy makes the host wait until the device is done; it can "
        "launch nothing meanwhile.",
        advice="Read losses and metrics every n steps, keep them on the device, or copy with non_blocking=True into "
        "pinned memory.",
        serving="Copy sampled tokens with non_blocking=True into pinned memory and prepare the next step meanwhile "
        "(servers call it asynchronous or overlapped scheduling).",
        found_when="device idle during blocking reads >= {limit} of the step; without device rows, waiting in blocking "
        "copies and reads >= {limit}",
        limit=0.02,
        saves="idle_blocking_read_fraction; without device rows, waiting in blocking copies and reads",
        test=_blocked_copy,
    ),
    _idle_rule(
        "HP204",
        Cause.H2D_COPY,
        "host-to-device copies",
        title="Input copies stall the device",
        meaning="The device waits for host-to-device copies.",
        advice="Use pin_memory=True in the data loader and non_blocking=True in `.to()`; copy the next batch while "
        "this one computes.",
        limit=0.03,
    ),
    Rule(
        code="HP205",
        title="Graphs are compiled inside steps",
        meaning="A new shape or graph appears after the first step, and compiling it stops the step.",
        advice="Keep shapes static: drop_last=True, padding or buckets; look for Python values that change per step.",
        serving="Warm up every shape that is served, and pad to them.",
        found_when="any compilation in a step after the first",
        saves="the time of compiling after the first step, over all steps",
        test=_compile,
    ),
    Rule(
        code="HP206",
        title="Communication is exposed",
        meaning="Collectives run without compute that overlaps them.",
        advice="Overlap the gradient all-reduce with backward (DDP buckets), increase the batch per rank, or look for "
        "the rank that arrives last.",
        serving=TENSOR_PARALLEL,
        found_when="exposed communication >= {limit} of the step",
        limit=0.1,
        needs_sound_device=True,
        saves="exposed_communication_fraction",
        test=_exposed,
    ),
    Rule(
        code="HP207",
        title="Most kernels are shorter than their launch",
        meaning="Launching takes longer than running, so the device starves as soon as the queue runs dry.",
        advice="Fuse operators (torch.compile, foreach or fused optimizers), increase the batch, or replay graphs.",
        serving="Replay graphs, fuse operators (torch.compile), or serve larger batches.",
        found_when="short_launch_fraction >= {limit}",
        # Half: what the title says.
        limit=0.5,
        needs_sound_device=True,
        saves="idle_operator_launch_fraction",
        test=_short,
    ),
    _idle_rule(
        "HP208",
        Cause.OPTIMIZER,
        "the optimizer",
        title="The optimizer starves the device",
        meaning="The device waits while the optimizer's step runs on the host.",
        advice="Use fused=True or foreach=True, or the vendor's fused optimizer.",
        limit=0.05,
    ),
    _idle_rule(
        "HP209",
        Cause.CALLBACK,
        "callbacks and logging",
        title="Callbacks and logging stall the step",
        meaning="The device waits for callbacks, loggers or checkpoints.",
        advice="Log every n steps, and write checkpoints asynchronously.",
        limit=0.03,
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
        saves="compute_fraction times the share of the matrix engine's time in more than 16 bits",
        test=_precision,
    ),
    Rule(
        code="HP211",
        title="Memory is allocated inside steps",
        meaning="Allocating and freeing device memory synchronizes the device.",
        advice="Let the caching allocator warm up; avoid empty_cache() and changing shapes.",
        found_when=f"host path in allocation and free >= {{limit}} and < {100 * ALLOCATOR_FIRST:g} % of the step",
        limit=0.01,
        saves="allocation and free on the host path",
        test=_alloc(below=ALLOCATOR_FIRST),
    ),
    Rule(
        code="HP212",
        title="Step times vary",
        meaning="Medians hide the slow steps.",
        advice="Look at the table of steps; log, evaluate and collect garbage at fixed steps.",
        found_when="median absolute deviation > {limit} of the median step",
        limit=0.1,
        saves="what slow steps take beyond the median of their recording",
        test=_unstable,
    ),
    _idle_rule(
        "HP213",
        Cause.PYTHON,
        "Python",
        title="Python outside operators stalls the device",
        meaning="The device waits for Python between operators.",
        advice="Record with stacks (with_stack=True) to see which code; move work off the main thread.",
        limit=0.1,
    ),
    _idle_rule(
        "HP215",
        Cause.SYNCHRONISE,
        "synchronization",
        title="Explicit synchronization stalls the device",
        meaning="The host waits for the device and launches nothing meanwhile.",
        advice="Remove synchronize() calls from the step; time with events.",
        limit=0.03,
    ),
    Rule(
        code="HP216",
        title="Device memory is nearly full",
        meaning="Little memory is left for larger batches or captured graphs.",
        advice="Use activation checkpointing, a smaller batch, or sharding.",
        serving="Give the cache of keys and values less of the memory, shorten the context, or shard the model.",
        found_when="peak allocation > {limit} of the device's memory",
        limit=0.9,
        saves="unknown: room for larger batches",
        test=_memory,
    ),
    _idle_rule(
        "HP217",
        Cause.FIRST_USE,
        "first use",
        title="The device is set up inside steps",
        meaning="Creating the context and loading kernels happens once, at first use; the device waits meanwhile.",
        advice="Run a step before the first one that counts, and leave it out of timings; this is no cost of copying, "
        "though it often shows inside the first `.to()`.",
        limit=0.05,
    ),
    Rule(
        code="HP218",
        title="The allocator works without its cache",
        meaning="Memory goes back to the driver and comes from it again in every step, and both synchronize the "
        "device: the cache is off, is emptied, or fails for lack of memory and retries. No launch overhead, and "
        "graphs cannot be captured without the cache: this comes before every other fix.",
        advice="Leave the allocator's cache on and remove empty_cache() from the step. If the cache is on, memory is "
        "short or fragmented: keep shapes static, or use a smaller batch.",
        found_when="host path in allocation and free >= {limit} of the step",
        limit=ALLOCATOR_FIRST,
        saves="allocation and free on the host path",
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
        saves="exposed_copy_fraction",
        test=_copies,
    ),
    Rule(
        code="HP220",
        title="Operators compute on the CPU",
        meaning="The device waits for tensors that are made or changed in the host's memory. Graphs cannot hold such "
        "operators, so their time stays.",
        advice="Make tensors where they are used (`torch.randn(..., device=device)`), move an operator's inputs to the "
        "device first, or prepare them in the data loader's workers.",
        found_when="device idle while operators of 0.1 ms and more launch nothing >= {limit} of the step",
        limit=0.05,
        needs_sound_device=True,
        saves="idle_cpu_operator_fraction",
        test=_on_the_cpu,
    ),
    Rule(
        code="HP222",
        title="One kernel takes most of the step",
        meaning="A single kernel decides how long the step takes. It is far from the device's limits, or how far is "
        "not known.",
        advice="Tune or replace it: a fused or vendor kernel (attention, experts), tile sizes and layouts, shapes in "
        "multiples of 8 to 64, lower precision. Record with record_shapes=True to see how far from the device's "
        "limits it is.",
        found_when=f"one compute kernel >= {{limit}} of the step, below {100 * AT_THE_ROOF:g} % of the roofline",
        limit=0.3,
        needs_sound_device=True,
        saves="the kernel's share of the step, less what it takes at the roofline where that is known",
        test=_one_kernel,
    ),
    Rule(
        code="HP223",
        title="One operator takes most of the step",
        meaning="All operators compute on the CPU, and one of them decides how long the step takes.",
        advice="Run it on a device, call it less often or on smaller inputs, or replace it by a cheaper form. Give it "
        "the CPUs that this process may use (torch.set_num_threads), and try bf16 where the CPU has it.",
        found_when="no device, and the self time of one operator >= {limit} of the step",
        limit=0.3,
        saves="the operator's share of the step",
        test=_one_operator,
    ),
    Rule(
        code="HP224",
        title="Most of the step runs no operator",
        meaning="Python, waits and input or output outside of PyTorch take most of the step of a program on the CPU.",
        advice="Record with stacks (with_stack=True), or look with a profiler of Python (py-spy): vectorize loops, "
        "move logging and files out of the step, check for sleeps and locks.",
        found_when="no device, one rank, and no operator runs for {limit} of the step or more",
        limit=0.5,
        saves="no_operator_fraction",
        test=_no_operator,
    ),
)
