"""Cases of a CUDA device: which step, which machine, and the truth of each mode."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from typing import Any

from . import cuda_trace, modes
from .case import BLOCK_STEPS, ROUNDS, Case, summary
from .host import run
from .machine import Machine
from .program import Step
from .workloads import BLOCKS, ENCODER, NET, Shape, build

MODES = (modes.EAGER, modes.STEP, modes.FORWARD_BACKWARD, modes.OPTIMIZER, f"module:{NET}", f"module:{ENCODER}")


def make_cuda_case(seed: int, family: str, *, clean: bool = False) -> Case:
    """Return the case of a seed in a family."""
    rng = random.Random(f"case {seed}")
    machine, shape = draw_machine(rng, family), draw_shape(rng, family)
    block = rng.choice(BLOCKS)
    if clean:
        machine = machine.clean()
    step = build(shape, block, f"step {seed}")
    profile = {
        "steps": rng.choice((6, 8, 8, 10)) if not shape.sync.startswith("every") else 2 * int(shape.sync.split("-")[1]),
        "lead": 0 if clean else rng.choice((2, 5, 20)),
        "drained": clean or rng.random() < 0.5,
    }
    return assemble(
        f"des-{family}-{seed}",
        family,
        step,
        machine,
        shape,
        model=f"{block} x{shape.blocks}",
        seed=seed,
        profile=profile,
    )


def assemble(
    name: str,
    family: str,
    step: Step,
    machine: Machine,
    shape: Shape,
    *,
    model: str,
    seed: int,
    profile: dict[str, Any],
) -> Case:
    """Run a step's program in all modes and under the profiler; return the case. Equal arguments give an equal case."""
    step_ns: dict[str, list[int]] = {}
    wanted = [*MODES, *([modes.DROP_SYNC] if shape.sync != "none" else [])]
    device_ns = 0
    for mode in wanted:
        program = modes.rewrite(step, mode, machine)
        runs = [run(program, machine, steps=BLOCK_STEPS, seed=f"{seed} {mode} {r}") for r in range(ROUNDS)]
        step_ns[mode] = [r.step_ns() for r in runs]
        if mode == modes.EAGER:
            device_ns = runs[0].busy_ns // BLOCK_STEPS
    seen = run(step, machine, seed=f"{seed} profiled", profile=True, **profile)
    hidden = {
        "seed": seed,
        "model": NET,
        "machine": machine.hidden(),
        "shape": asdict(shape),
        "profile": profile,
        "launches": step.launches(),
        "device_busy_ns": device_ns,
        "profiled_step_ns": seen.step_ns(),
    }
    document = cuda_trace.trace(seen, machine, unprofiled=summary(step_ns[modes.EAGER]), seed=f"{seed} trace")
    return Case(name, family, document, step_ns, shape.sync, model, hidden, seen.step_ns())


def draw_machine(rng: random.Random, family: str) -> Machine:
    """Draw the constants of a machine."""
    defects = family == "defects"
    return Machine(
        latency_ns=rng.randint(4_000, 9_000),
        gap_ns=rng.randint(700, 2_000),
        event_gap_ns=rng.randint(800, 2_500),
        graph_gap_ns=rng.randint(400, 1_600),
        graph_kernel_factor=rng.uniform(0.92, 1.01),
        queue_limit=rng.choice((256, 1022, 1022, 1022)),
        comm_slows_compute=rng.uniform(1.0, 1.25),
        compute_slows_comm=rng.uniform(1.0, 1.4),
        compute_slows_compute=rng.uniform(1.0, 1.6),
        graph_call_ns=rng.randint(5_000, 25_000),
        graph_node_ns=10 ** rng.uniform(0, 2.2),
        copy_call_ns=rng.randint(3_000, 10_000),
        copy_work_ns=rng.randint(1_500, 6_000),
        wake_ns=rng.randint(1_500, 5_000),
        gc_every_ns=rng.choice((0, 0, 40_000_000, 150_000_000)),
        gc_pause_ns=rng.randint(500_000, 6_000_000),
        host_sigma=rng.uniform(0.02, 0.25),
        step_sigma=rng.uniform(0.0, 0.03),
        run_sigma=rng.choice((0.003, 0.01, 0.02, 0.04)),
        kernel_sigma=rng.uniform(0.002, 0.03),
        op_cost_ns=rng.randint(500, 3_000),
        python_cost_ns=rng.randint(500, 2_000),
        runtime_cost_ns=rng.randint(800, 6_000),
        cost_sigma=rng.uniform(0.1, 0.5),
        clock_offset_ns=rng.randint(-3_000, 3_000) if defects or rng.random() < 0.2 else 0,
        lost_flows=rng.choice((0.01, 0.05, 0.2)) if defects else 0.0,
        whole_microseconds=defects and rng.random() < 0.5,
        shuffled=defects or rng.random() < 0.2,
        sync_rows=rng.random() < 0.6,
    )


def draw_shape(rng: random.Random, family: str) -> Shape:
    """Draw what kind of step a case runs. Host time per operator and kernel time are drawn independently, except where a family says so."""
    host = round(10 ** rng.uniform(3.9, 4.6))
    kernel = round(host * 10 ** rng.uniform(-1.3, 0.1))
    if family == "device-bound":
        kernel = round(host * 10 ** rng.uniform(0.1, 0.8))
    sync = "none"
    if family == "synced":
        sync = rng.choice(("each-step", "each-step", "mid-step"))
    elif family == "periodic":
        sync = rng.choice(("every-2", "every-4", "every-5", "every-10"))
    elif family in ("defects", "ddp", "streams"):
        sync = rng.choice(("none", "each-step"))
    shape = Shape(
        blocks=rng.choice((1, 2, 3, 4, 6, 8)),
        op_host_ns=host,
        kernel_ns=kernel,
        sync=sync,
        buckets=rng.randint(1, 4) if family == "ddp" else 0,
        side=family == "streams",
        inputs_on_device=rng.random() < 0.3,
        loader_ns=round(10 ** rng.uniform(4.0, 5.7)),
        tail_ns=round(10 ** rng.uniform(4.0, 5.5)),
        foreach=rng.random() < 0.75,
        stacks=rng.random() < 0.7,
        launch_ns=rng.randint(2_500, 6_000),
    )
    if family == "streams" and rng.random() < 0.4:
        return replace(shape, buckets=2)  # three streams
    return shape
