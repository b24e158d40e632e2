"""Cases of HPU lazy mode: which step, which machine, and the truth of each way to capture it."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

from . import lazy_trace
from .case import BLOCK_STEPS, ROUNDS, Case, summary
from .lazy import run_lazy
from .lazy_program import LazyMachine, LazyOp, LazyStep
from .workloads import ENCODER, NET

_MARKS = (
    frozenset({"backward", "optimizer"}),
    frozenset({"optimizer"}),
    frozenset({"forward", "backward", "optimizer"}),
)
_FORWARD = (("aten::addmm", "MME", "AddmmBackward0", 2.0), ("aten::native_layer_norm", "TPC", "NativeLayerNormBackward0", 0.7),
            ("aten::gelu", "TPC", "GeluBackward0", 0.5), ("aten::add", "TPC", "AddBackward0", 0.4))  # fmt: skip
_BACKWARD = {"AddmmBackward0": (("aten::mm", "MME", 2.0), ("aten::mm", "MME", 2.0), ("aten::sum", "TPC", 0.4)),
             "NativeLayerNormBackward0": (("aten::native_layer_norm_backward", "TPC", 1.0),), "GeluBackward0": (("aten::gelu_backward", "TPC", 0.6),),
             "AddBackward0": ()}  # fmt: skip


def make_lazy_case(seed: int, *, clean: bool = False) -> Case:
    """Return the lazy case of a seed. Keys ending in `:asynchronous` are replays on the launch thread; all others block the caller.

    With several input shapes only modules can be captured, by ModuleCacher with ten graphs: first come, first served, no eviction.
    """
    rng = random.Random(f"lazy case {seed}")
    machine, step = draw_lazy_machine(rng), draw_lazy_step(rng)
    if clean:
        machine = machine.clean()
    modules = [f"module:{NET}", f"module:{ENCODER}"]
    whole = ["step", "forward+backward", "optimizer"] if len(step.shapes) == 1 else []
    modes = ["eager", *whole, *modules, *(f"{m}:asynchronous" for m in (*whole, *modules))]
    step_ns: dict[str, list[int]] = {}
    busy = recipes = 0
    for mode in modes:
        runs = [run_lazy(step, machine, mode=mode, steps=BLOCK_STEPS, seed=f"{seed} {mode} {r}") for r in range(ROUNDS)]
        step_ns[mode] = [r.step_ns() for r in runs]
        if mode == "eager":
            busy, recipes = runs[0].busy_ns // BLOCK_STEPS, runs[0].recipes // BLOCK_STEPS
    seen_steps = 20 if step.read_every > 4 else rng.choice((6, 8, 10)) if len(step.shapes) == 1 else 20
    seen = run_lazy(step, machine, mode="eager", steps=seen_steps, seed=f"{seed} profiled", profile=True)
    hidden: dict[str, Any] = {
        "seed": seed,
        "model": NET,
        "machine": machine.hidden(),
        "step": {k: v for k, v in asdict(step).items() if k not in ("ops", "marks")} | {"marks": sorted(step.marks)},
        "recipes_per_step": recipes,
        "device_busy_ns": busy,
        "profiled_step_ns": seen.step_ns(),
    }
    document = lazy_trace.trace(seen, machine, unprofiled=summary(step_ns["eager"]), seed=f"{seed} trace")
    sync = "none" if not step.read_every else "each-step" if step.read_every == 1 else f"every-{step.read_every}"
    model = f"lazy, {len(step.ops)} operators, {len(step.shapes)} shapes"
    return Case(f"des-hpu-lazy-{seed}", "hpu-lazy", document, step_ns, sync, model, hidden, seen.step_ns())


def draw_lazy_machine(rng: random.Random) -> LazyMachine:
    """Draw the constants of a Gaudi machine."""
    launch = rng.randint(30_000, 200_000)
    return LazyMachine(
        sync_ns=rng.randint(15_000, 60_000),
        collect_op_ns=rng.randint(500, 3_000),
        hand_over_ns=rng.randint(5_000, 15_000),
        launch_ns=launch,
        syn_launch_ns=rng.randint(15_000, 29_000),
        latency_ns=rng.randint(12_000, 25_000),
        recipe_gap_ns=rng.randint(2_000, 6_000),
        queue_limit=rng.choice((4, 8, 16)),
        replay_ns=rng.randint(50_000, 300_000),
        hash_ns=rng.randint(15_000, 40_000),
        copy_op_ns=rng.randint(8_000, 20_000),
        copy_work_ns=rng.randint(2_000, 8_000),
        upload_call_ns=rng.randint(20_000, 60_000),
        upload_work_ns=rng.randint(10_000, 60_000),
        wake_ns=rng.randint(15_000, 60_000),
        host_sigma=rng.uniform(0.02, 0.2),
        step_sigma=rng.uniform(0.0, 0.03),
        run_sigma=rng.choice((0.003, 0.01, 0.02, 0.04)),
        kernel_sigma=rng.uniform(0.002, 0.03),
        cost_sigma=rng.uniform(0.1, 0.5),
        op_cost_ns=rng.randint(1_000, 8_000),
        row_cost_ns=rng.randint(500, 4_000),
        whole_microseconds=rng.random() < 0.2,
        shuffled=rng.random() < 0.3,
    )


def draw_lazy_step(rng: random.Random) -> LazyStep:
    """Draw a step: a net of stem, encoder and head, its backward pass and a per-parameter or a fused optimizer."""
    host = 10 ** rng.uniform(4.2, 5.0)
    work = host * 10 ** rng.uniform(-0.9, 0.7)

    def about(ns: float) -> int:
        return round(ns * rng.uniform(0.7, 1.4))

    def op(
        name: str, engine: str, weight: float, phase: str, module: tuple[str, ...], node: str = "", sequence: int = 0
    ) -> LazyOp:
        return LazyOp(name, about(host), about(work * weight), engine, phase, module, node, sequence)

    ops: list[LazyOp] = []
    forward: list[tuple[str, tuple[str, ...], int]] = []
    places = [(NET, "Stem_0"), *[(NET, ENCODER, f"Block_{i}") for i in range(rng.choice((2, 4, 8)))], (NET, "Head_0")]
    for place in places:
        for name, engine, node, weight in _FORWARD:
            forward.append((node, place, len(forward) + 1))
            ops.append(op(name, engine, weight, "forward", place, sequence=len(forward)))
    ops.append(op("aten::_log_softmax", "TPC", 0.2, "loss", ()))
    ops.append(
        op("aten::_log_softmax_backward_data", "TPC", 0.2, "backward", (), "LogSoftmaxBackward0", len(forward) + 1)
    )
    for node, place, sequence in reversed(forward):
        for name, engine, weight in _BACKWARD[node]:
            ops.append(op(name, engine, weight, "backward", place, node, sequence))
    updates = 1 if rng.random() < 0.5 else 4 * len(places)
    ops += [op("aten::add_", "TPC", 0.3, "optimizer", ()) for _ in range(updates)]
    count = rng.choice((1, 1, 1, 1, 3, 14))
    shapes = tuple(1.0 if count == 1 else rng.uniform(0.6, 1.4) for _ in range(count))
    order = tuple(rng.randrange(count) for _ in range(BLOCK_STEPS)) if count > 1 else (0,)
    return LazyStep(
        tuple(ops), rng.choice(_MARKS), read_every=rng.choice((0, 0, 1, 1, 5, 10)), inputs=rng.randint(1, 3),
        loader_ns=about(10 ** rng.uniform(4.3, 6.0)), tail_ns=about(30_000), shapes=shapes, order=order, named=rng.random() < 0.6,
    )  # fmt: skip
