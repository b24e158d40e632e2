"""Cases: which step, which machine, the trace of a profiled run, and what the same program takes in every mode."""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.graph_mode import case as layout

from . import edits, lazy, mixes
from .draw import AHEAD, BLOCK_STEPS, FAMILIES, JOBS, draw_bridge, draw_card, draw_lazy_step, draw_machine, draw_shape
from .host import Program, Run, run_ranks
from .machine import Machine
from .program import ENCODER, NET, Instr, Op, Step
from .trace import Source, cuda_trace, lazy_trace
from .training import BLOCKS, Shape, build

ROUNDS, WARM_STEPS = 5, 20
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
        timed = layout.unprofiled(self.step_ns[edits.EAGER], BLOCK_STEPS)
        told = layout.Unprofiled(timed["step_ns"], timed["spread_ns"])
        about = (self.noise, self.sync, self.model, self.hidden)
        return layout.write_case(layout.Case(self.name, "world", self.family, trace, modes, told, *about), folder)


def make_case(seed: int, *, clean: bool = False, family: str | None = None) -> Case:
    """Return the case of a seed. `clean`: without noise, profiler cost, contention and defects, so that a right replay is exact."""
    family = family or FAMILIES[seed % len(FAMILIES)]
    if family == "hpu-lazy":
        return _lazy_case(seed, clean=clean)
    if family not in (*FAMILIES, JOBS):
        raise ValueError(f"no such family: {family}; there are {', '.join((*FAMILIES, JOBS))}")
    rng, machine, shape, block = drawn(seed, family)
    profile = profiled_steps(rng, shape, family, clean=clean)
    facts = {"seed": seed, "shape": asdict(shape)}
    case = Case(f"{family}-{seed}", family, shape.sync, f"{block} x{shape.blocks}", facts)
    if family in mixes.MIXED:
        mixed = mixes.draw(family, shape, block, machine, rng)
        profile["steps"] = max(profile["steps"], 2 * len(mixed.eager.order))
        return _mixed_case(case, mixed, machine.clean() if clean else machine, profile)
    step = build(shape, block, f"step {seed}")
    steps = [step]
    if family == JOBS:
        unlike = rng.choice((0.0, 0.3, 0.8))  # how much ranks differ between two collectives
        steps = [uneven(step, rng, unlike) for _ in range(shape.ranks)]
        profile |= {"lead": WARM_STEPS, "drained": False}
        machine = even_machine(machine)
    return assemble(case, steps, machine.clean() if clean else machine, profile)


def profiled_steps(rng: random.Random, shape: Shape, family: str, *, clean: bool = False) -> dict[str, Any]:
    """Draw how many steps are recorded, and what runs before them."""
    every = int(shape.sync.split("-")[1]) if shape.sync.startswith("every") else 0
    return {
        "steps": 2 * every or rng.choice((6, 8, 8, 10)),
        "lead": 0 if clean else WARM_STEPS if family == AHEAD else rng.choice((2, 5, 20)),
        "drained": clean or (family != AHEAD and rng.random() < 0.5),
    }


def drawn(seed: int, family: str) -> tuple[random.Random, Machine, Shape, str]:
    """Return what a seed draws first, and the random numbers that follow."""
    rng = random.Random(f"case {seed}")
    machine, shape = draw_machine(rng, family), draw_shape(rng, family)
    return rng, machine, shape, rng.choice(BLOCKS)


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
    told = {"unprofiled": layout.unprofiled(case.step_ns[edits.EAGER], BLOCK_STEPS)}
    case.traces = [
        write(run, machine, Source(r, len(seen), told=told), f"{seed} trace {r}") for r, run in enumerate(seen)
    ]
    profiled_ns = max(run.step_ns() for run in seen)
    case.hidden |= {"model": NET, "machine": asdict(machine), "profile": profile, "profiled_step_ns": profiled_ns}
    return case


def _mixed_case(case: Case, mixed: mixes.Mixed, machine: Machine, profile: dict[str, Any]) -> Case:
    """Return a case whose truth is that of the kind of step that most time goes to; `hidden` has that of all kinds."""
    eager, seed, mode_ns, kinds_ns = mixed.eager, case.hidden["seed"], {}, {}
    steps = len(eager.order) * math.ceil(BLOCK_STEPS / len(eager.order)) + 1
    for mode in (*(REGIONS[:2] if mixed.serves else REGIONS), *MODULES):
        base = eager if mode in (edits.EAGER, edits.OPTIMIZER) else mixed.whole
        how: dict[str, Any] = {"steps": steps, "lead": 2 * len(eager.order), "drained": False}
        program = edits.mixed(base, mode, machine)
        runs = [run_ranks([program], machine, seed=f"{seed} {mode} {r}", **how)[0] for r in range(ROUNDS)]
        times = [mixes.by_kind(run, eager) for run in runs]
        if mode == edits.EAGER:
            heaviest = mixes.heaviest(times, eager)
        case.step_ns[mode] = [round(t[heaviest]) for t in times]
        kinds_ns[mode] = {kind: round(median(t[kind] for t in times)) for kind in eager.kinds}
        mode_ns[mode] = [round(sum(ns * mixes.share_of(k, eager) for k, ns in t.items())) for t in times]
    seen = run_ranks([eager], machine, seed=f"{seed} profiled", profile=True, label=eager.label, **profile)[0]
    told = _told(mixed, range(profile["lead"], profile["lead"] + profile["steps"]), mode_ns[edits.EAGER])
    case.traces = [cuda_trace(seen, machine, Source(told=told if seed % 2 else None), f"{seed} trace")]
    case.hidden |= {
        "model": NET, "machine": asdict(machine), "profile": profile, "profiled_step_ns": seen.step_ns(), "order": eager.order,
        "heaviest": heaviest, "kinds_ns": kinds_ns, "mix_ns": {mode: median(times) for mode, times in mode_ns.items()},
        "launches": mixes.launches(eager.kinds[heaviest]),
    }  # fmt: skip
    return case


def _told(mixed: mixes.Mixed, numbers: range, rounds: list[int]) -> dict[str, Any] | None:
    """Return what our recorder would tell of the steps of a mix: its blocks hold accumulating steps and updates alike."""
    kinds = {kind: [n for n in numbers if mixed.eager.kind(n) == kind] for kind in mixed.eager.kinds}
    if "update" in kinds:
        return mixed.told | {"steps_with_update": kinds["update"], "unprofiled": layout.unprofiled(rounds, BLOCK_STEPS)}
    return {"steps_with_validation": kinds["validated"]} if "validated" in kinds else None


def even_machine(machine: Machine) -> Machine:
    """Return the machine of a job: no contention, no garbage collection; it is about ranks that wait for each other."""
    alike = dict.fromkeys(("comm_slows_compute", "compute_slows_comm", "compute_slows_compute"), 1.0)
    return replace(machine, **alike, gc_every_ns=0, run_sigma=0.0, step_sigma=0.0)


def uneven(step: Step, rng: random.Random, unlike: float) -> Step:
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


def _lazy_case(seed: int, *, clean: bool) -> Case:
    """Return a lazy case. Keys ending in `:asynchronous` are replays on the launch thread; all others block the caller.

    With several input shapes only modules can be captured.
    """
    rng = random.Random(f"lazy case {seed}")
    machine, bridge, step = draw_card(rng), draw_bridge(rng), draw_lazy_step(rng)
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
