"""Cases: which step, which machine, the trace of a profiled run, and what the same program takes in every mode."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.graph_mode import case as layout

from . import edits, lazy
from .host import Program, Run, run_ranks
from .machine import Machine
from .program import ENCODER, NET, Instr, Op, Step
from .trace import Source, cuda_trace, lazy_trace
from .training import BLOCKS, Shape, build

FAMILIES = ("plain", "synced", "device-bound", "periodic", "streams", "ddp", "defects", "hpu-lazy")
JOBS = "jobs"  # of several ranks, by name only
BLOCK_STEPS, ROUNDS, WARM_STEPS = 20, 5, 20
REGIONS = (edits.EAGER, edits.STEP, edits.FORWARD_BACKWARD, edits.OPTIMIZER)
MODULES = (f"module:{NET}", f"module:{ENCODER}")


@dataclass
class Case:
    """One case, in memory. `traces`: the text of each rank's; `step_ns`: mode -> times per step of each round, in nanoseconds."""

    name: str
    family: str
    sync: str
    model: str
    hidden: dict[str, Any]
    traces: list[str] = field(default_factory=list)
    step_ns: dict[str, list[int]] = field(default_factory=dict)

    @property
    def noise(self) -> float:
        """Return how far the truth repeats: the spread of the mode that repeats worst."""
        return max(layout.rounds(times).spread for times in self.step_ns.values())

    def write(self, folder: Path) -> Path:
        """Write `<name>.json`, as the scorer reads it, and the trace or a folder of traces beside it; return the first."""
        trace = f"{self.name}.pt.trace.json.gz" if len(self.traces) == 1 else self.name
        for rank, text in enumerate(self.traces):
            path = folder / trace if len(self.traces) == 1 else folder / trace / f"job_{rank}.pt.trace.json.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text.encode(), 6, mtime=0))
        modes = {mode: layout.rounds(times) for mode, times in self.step_ns.items()}
        timed = unprofiled(self.step_ns[edits.EAGER])
        told = layout.Unprofiled(timed["step_ns"], timed["spread_ns"])
        about = (self.noise, self.sync, self.model, self.hidden)
        return layout.write_case(layout.Case(self.name, "world", self.family, trace, modes, told, *about), folder)


def unprofiled(rounds: list[int]) -> dict[str, Any]:
    """Return blocks of unprofiled steps as the recorder's metadata holds them."""
    return {
        "step_ns": int(median(rounds)),
        "blocks_ns": rounds,
        "steps_per_block": [BLOCK_STEPS] * len(rounds),
        "spread_ns": max(rounds) - min(rounds),
        "method": "wall clock over blocks of steps without the profiler, the device drained at both ends of each block only",
    }


def make_case(seed: int, *, clean: bool = False, family: str | None = None) -> Case:
    """Return the case of a seed. `clean`: without noise, profiler cost, contention and defects, so that a right replay is exact."""
    family = family or FAMILIES[seed % len(FAMILIES)]
    if family == "hpu-lazy":
        return _lazy_case(seed, clean=clean)
    if family not in (*FAMILIES, JOBS):
        raise ValueError(f"no such family: {family}; there are {', '.join((*FAMILIES, JOBS))}")
    rng = random.Random(f"case {seed}")
    machine, shape = draw_machine(rng, family), draw_shape(rng, family)
    block = rng.choice(BLOCKS)
    every = int(shape.sync.split("-")[1]) if shape.sync.startswith("every") else 0
    profile = {
        "steps": 2 * every or rng.choice((6, 8, 8, 10)),
        "lead": 0 if clean else rng.choice((2, 5, 20)),
        "drained": clean or rng.random() < 0.5,
    }
    step = build(shape, block, f"step {seed}")
    steps = [step]
    if family == JOBS:
        unlike = rng.choice((0.0, 0.3, 0.8))  # how much ranks differ between two collectives
        steps = [_uneven(step, rng, unlike) for _ in range(shape.ranks)]
        profile |= {"lead": WARM_STEPS, "drained": False}
        machine = _even(machine, rng)
    facts = {"seed": seed, "shape": asdict(shape)}
    case = Case(f"{family}-{seed}", family, shape.sync, f"{block} x{shape.blocks}", facts)
    return assemble(case, steps, machine.clean() if clean else machine, profile)


def assemble(case: Case, steps: Sequence[Step], machine: Machine, profile: dict[str, Any]) -> Case:
    """Run the program of each rank in all modes and under the profiler; return the case with its truth and its traces."""
    modes = [*REGIONS, *(MODULES if len(steps) == 1 else ()), *((edits.DROP_SYNC,) if case.sync != "none" else ())]
    programs: dict[str, Sequence[Program]] = {m: [edits.in_mode(s, m, machine) for s in steps] for m in modes}
    launches = sum(i.op in (Op.LAUNCH, Op.GRAPH) for i in steps[0].instrs)
    return _played(replace(case, hidden=case.hidden | {"launches": launches}), programs, machine, profile, cuda_trace)


def _played(
    case: Case,
    programs: Mapping[str, Sequence[Program]],
    machine: Machine,
    profile: dict[str, Any],
    write: Callable[[Run, Machine, Source, str], str],
) -> Case:
    seed, job = case.hidden["seed"], len(programs[edits.EAGER]) > 1
    for mode, ranks in programs.items():
        # hosts of a job run ahead of the slowest rank: its step time is that of a run that has gone on for a while
        how: dict[str, Any] = {"steps": BLOCK_STEPS, "lead": WARM_STEPS if job else 0, "drained": False}
        runs = [run_ranks(ranks, machine, seed=f"{seed} {mode} {r}", **how) for r in range(ROUNDS)]
        case.step_ns[mode] = [max(r.steady_ns() if job else r.step_ns() for r in played) for played in runs]
        if mode == edits.EAGER:
            case.hidden |= {
                "device_busy_ns": runs[0][0].busy_ns // BLOCK_STEPS,
                "recipes_per_step": runs[0][0].graphs // BLOCK_STEPS,
            }
    seen = run_ranks(programs[edits.EAGER], machine, seed=f"{seed} profiled", profile=True, **profile)
    told = unprofiled(case.step_ns[edits.EAGER])
    case.traces = [
        write(run, machine, Source(r, len(seen), unprofiled=told), f"{seed} trace {r}") for r, run in enumerate(seen)
    ]
    profiled_ns = max(run.step_ns() for run in seen)
    case.hidden |= {"model": NET, "machine": asdict(machine), "profile": profile, "profiled_step_ns": profiled_ns}
    return case


def _even(machine: Machine, rng: random.Random) -> Machine:
    """Return the machine of a job: no contention, no garbage collection, cheap rows; it is about ranks that wait for each other."""
    alike = dict.fromkeys(("comm_slows_compute", "compute_slows_comm", "compute_slows_compute"), 1.0)
    costs = dict.fromkeys(("op_cost_ns", "python_cost_ns", "runtime_cost_ns"), rng.randint(200, 600))
    return replace(machine, **alike, **costs, gc_every_ns=0, run_sigma=0.0, step_sigma=0.0)


def _uneven(step: Step, rng: random.Random, unlike: float) -> Step:
    """Return the step of one rank of a job, whose speed in forward and backward differs from collective to collective."""
    out: list[Instr] = []
    host, work = rng.lognormvariate(0, unlike), rng.lognormvariate(0, 0.3 * unlike)
    for i in step.instrs:
        if i.kind == "comm":
            host, work = rng.lognormvariate(0, unlike), rng.lognormvariate(0, 0.3 * unlike)
        mine = i.phase in ("forward", "backward")
        ns = round(i.ns * host) if mine and i.op is Op.HOST else i.ns
        out.append(i._replace(ns=ns, work_ns=round(i.work_ns * work) if mine else i.work_ns))
    return replace(step, instrs=tuple(out))


# ---------------------------------------------------------------------------------------------------------------- draws


_CONSTANTS: dict[str, Any] = {
    "latency_ns": (4_000, 9_000), "gap_ns": (700, 2_000), "event_gap_ns": (800, 2_500), "graph_gap_ns": (400, 1_600),
    "graph_kernel_factor": (0.92, 1.01), "queue_limit": [256, 1022, 1022, 1022], "comm_slows_compute": (1.0, 1.25),
    "compute_slows_comm": (1.0, 1.4), "compute_slows_compute": (1.0, 1.6), "graph_call_ns": (5_000, 25_000),
    "graph_node_ns": (0.0, 2.2), "copy_call_ns": (3_000, 10_000), "copy_work_ns": (1_500, 6_000), "wake_ns": (1_500, 5_000),
    "gc_every_ns": [0, 0, 40_000_000, 150_000_000], "gc_pause_ns": (500_000, 6_000_000), "op_cost_ns": (500, 3_000),
    "python_cost_ns": (500, 2_000), "runtime_cost_ns": (800, 6_000),
}  # fmt: skip
_CARD: dict[str, Any] = {
    "latency_ns": (12_000, 25_000), "gap_ns": (2_000, 6_000), "queue_limit": [4, 8, 16], "wake_ns": (15_000, 60_000),
    "op_cost_ns": (500, 4_000), "runtime_cost_ns": (500, 4_000),
}  # fmt: skip
_BRIDGE: dict[str, Any] = {
    "sync_ns": (15_000, 60_000), "collect_op_ns": (500, 3_000), "hand_over_ns": (5_000, 15_000), "launch_ns": (30_000, 200_000),
    "syn_launch_ns": (15_000, 29_000), "replay_ns": (50_000, 300_000), "hash_ns": (15_000, 40_000), "copy_op_ns": (8_000, 20_000),
    "copy_work_ns": (2_000, 8_000), "upload_call_ns": (20_000, 60_000), "upload_work_ns": (10_000, 60_000),
}  # fmt: skip


def _drawn(rng: random.Random, ranges: Mapping[str, Any]) -> dict[str, Any]:
    """Draw from ranges of integers or floats, or from lists."""

    def one(among: Any) -> Any:
        if isinstance(among, list):
            return rng.choice(among)
        return rng.uniform(*among) if isinstance(among[0], float) else rng.randint(*among)

    return {name: one(among) for name, among in ranges.items()}


def _noise(rng: random.Random, host: float) -> dict[str, float]:
    sigmas = {"host_sigma": (0.02, host), "step_sigma": (0.0, 0.03), "run_sigma": [0.003, 0.01, 0.02, 0.04]}
    return _drawn(rng, {**sigmas, "kernel_sigma": (0.002, 0.03), "cost_sigma": (0.1, 0.5)})


def draw_machine(rng: random.Random, family: str) -> Machine:
    """Draw the constants of a machine."""
    defects, constants = family == "defects", _drawn(rng, _CONSTANTS)
    return Machine(
        **constants | {"graph_node_ns": 10 ** constants["graph_node_ns"]},
        clock_offset_ns=rng.randint(-3_000, 3_000) if defects or rng.random() < 0.2 else 0,
        lost_flows=rng.choice((0.01, 0.05, 0.2)) if defects else 0.0,
        whole_microseconds=defects and rng.random() < 0.5,
        shuffled=defects or rng.random() < 0.2,
        sync_rows=rng.random() < 0.6,
        **_noise(rng, 0.25),
    )


def draw_shape(rng: random.Random, family: str) -> Shape:
    """Draw what kind of step a case runs. Host time per operator and kernel time are drawn independently, except where a family says so."""
    host = round(10 ** rng.uniform(3.9, 4.6))
    kernel = round(host * 10 ** rng.uniform(-1.3, 0.1))
    if family == "device-bound":
        kernel = round(host * 10 ** rng.uniform(0.1, 0.8))
    syncs = {
        "synced": ("each-step", "each-step", "mid-step"),
        "periodic": ("every-2", "every-4", "every-5", "every-10"),
        **dict.fromkeys(("defects", "ddp", "streams", JOBS), ("none", "each-step")),
    }
    buckets = rng.randint(1, 4) if family in ("ddp", JOBS) else 2 if family == "streams" and rng.random() < 0.4 else 0
    return Shape(
        blocks=rng.choice((1, 2, 3, 4, 6, 8) if family != JOBS else (1, 2)),
        op_host_ns=host,
        kernel_ns=kernel,
        sync=rng.choice(syncs.get(family, ("none",))),
        buckets=buckets,
        overlap=family != JOBS or rng.random() < 0.5,
        ranks=rng.choice((2, 2, 3, 4, 8)) if family == JOBS else 1,
        side=family == "streams",
        inputs_on_device=rng.random() < 0.3,
        loader_ns=round(10 ** rng.uniform(4.0, 5.0 if family == JOBS else 5.7)),
        tail_ns=round(10 ** rng.uniform(4.0, 5.0 if family == JOBS else 5.5)),
        foreach=rng.random() < 0.75,
        stacks=rng.random() < 0.7,
        launch_ns=rng.randint(2_500, 6_000),
    )


# -------------------------------------------------------------------------------------------------------------- lazy mode

_MARKS = (("backward", "optimizer"), ("optimizer",), ("forward", "backward", "optimizer"))
_FORWARD = (("aten::addmm", "MME", "AddmmBackward0", 2.0), ("aten::native_layer_norm", "TPC", "NativeLayerNormBackward0", 0.7),
            ("aten::gelu", "TPC", "GeluBackward0", 0.5), ("aten::add", "TPC", "AddBackward0", 0.4))  # fmt: skip
_BACKWARD = {"AddmmBackward0": (("aten::mm", "MME", 2.0), ("aten::mm", "MME", 2.0), ("aten::sum", "TPC", 0.4)),
             "NativeLayerNormBackward0": (("aten::native_layer_norm_backward", "TPC", 1.0),), "GeluBackward0": (("aten::gelu_backward", "TPC", 0.6),),
             "AddBackward0": ()}  # fmt: skip


def _lazy_case(seed: int, *, clean: bool) -> Case:
    """Return a lazy case. Keys ending in `:asynchronous` are replays on the launch thread; all others block the caller.

    With several input shapes only modules can be captured.
    """
    rng = random.Random(f"lazy case {seed}")
    machine, bridge, step = _draw_card(rng), _draw_bridge(rng), _draw_lazy_step(rng)
    regions = (*(REGIONS[1:] if len(step.shapes) == 1 else ()), *MODULES)
    modes = [edits.EAGER, *regions, *(r + lazy.ASYNCHRONOUS for r in regions)]
    profile = {"steps": 20 if step.read_every > 4 or len(step.shapes) > 1 else rng.choice((6, 8, 10))}
    sync = "none" if not step.read_every else "each-step" if step.read_every == 1 else f"every-{step.read_every}"
    told = {k: v for k, v in asdict(step).items() if k not in ("ops", "marks")} | {"marks": sorted(step.marks)}
    facts = {"seed": seed, "step": told, "bridge": asdict(bridge)}
    model = f"lazy, {len(step.ops)} operators, {len(step.shapes)} shapes"
    case = Case(f"hpu-lazy-{seed}", "hpu-lazy", sync, model, facts)
    programs = {mode: [lazy.lazy_program(step, bridge, mode)] for mode in modes}
    return _played(case, programs, machine.clean() if clean else machine, profile, lazy_trace)


def _draw_card(rng: random.Random) -> Machine:
    written = {"whole_microseconds": 0.2, "shuffled": 0.3}
    return Machine(**_drawn(rng, _CARD), **{k: rng.random() < p for k, p in written.items()}, **_noise(rng, 0.2))


def _draw_bridge(rng: random.Random) -> lazy.Bridge:
    return lazy.Bridge(**_drawn(rng, _BRIDGE))


def _draw_lazy_step(rng: random.Random) -> lazy.LazyStep:
    """Draw a step: a net of stem, encoder and head, its backward pass and a per-parameter or a fused optimizer."""
    host = 10 ** rng.uniform(4.2, 5.0)
    work = host * 10 ** rng.uniform(-0.9, 0.7)
    ops: list[lazy.LazyOp] = []

    def about(ns: float) -> int:
        return round(ns * rng.uniform(0.7, 1.4))

    def add(name: str, engine: str, weight: float, phase: str, *where: Any) -> None:
        ops.append(lazy.LazyOp(name, about(host), about(work * weight), engine, phase, *where))

    forward: list[tuple[str, tuple[str, ...], int]] = []
    places = [(NET, "Stem_0"), *[(NET, ENCODER, f"Block_{i}") for i in range(rng.choice((2, 4, 8)))], (NET, "Head_0")]
    for place in places:
        for name, engine, node, weight in _FORWARD:
            forward.append((node, place, len(forward) + 1))
            add(name, engine, weight, "forward", place, "", len(forward))
    add("aten::_log_softmax", "TPC", 0.2, "loss")
    add("aten::_log_softmax_backward_data", "TPC", 0.2, "backward", (), "LogSoftmaxBackward0", len(forward) + 1)
    for node, place, sequence in reversed(forward):
        for name, engine, weight in _BACKWARD[node]:
            add(name, engine, weight, "backward", place, node, sequence)
    for _ in range(1 if rng.random() < 0.5 else 4 * len(places)):
        add("aten::add_", "TPC", 0.3, "optimizer")
    count = rng.choice((1, 1, 1, 1, 3, 14))
    return lazy.LazyStep(
        tuple(ops),
        frozenset(rng.choice(_MARKS)),
        read_every=rng.choice((0, 0, 1, 1, 5, 10)),
        inputs=rng.randint(1, 3),
        loader_ns=about(10 ** rng.uniform(4.3, 6.0)),
        tail_ns=about(30_000),
        shapes=tuple(1.0 if count == 1 else rng.uniform(0.6, 1.4) for _ in range(count)),
        order=tuple(rng.randrange(count) for _ in range(BLOCK_STEPS)) if count > 1 else (0,),
        named=rng.random() < 0.6,
    )
