"""Draws: the constants of machines and bridges, and what kind of step a case runs.

What profiling costs is drawn as a multiple of 0.4 to 2.5 µs a row: lognormal with median 2.5 and 95 % below 7, which holds the five
multiples measured on GPUs (1.1, 3.4, 3.6, 5.4, 6.8). Distances of kernels inside graphs and their times follow RTX 3060, H200 and MI300X.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from . import lazy
from .machine import Machine
from .mixes import MIXED
from .program import ENCODER, NET
from .training import Shape

FAMILIES = ("plain", "synced", "device-bound", "periodic", "streams", "ddp", "defects", "hpu-lazy", "ahead", *MIXED)
AHEAD, JOBS = "ahead", "jobs"  # jobs: of several ranks, by name only
BLOCK_STEPS = 20
_CONSTANTS: dict[str, Any] = {
    "latency_ns": (4_000, 9_000), "gap_ns": (700, 2_000), "event_gap_ns": (800, 2_500),
    "graph_short_factor": (0.84, 1.0), "graph_middle_factor": (0.90, 0.99), "graph_long_factor": (0.99, 1.01), "queue_limit": [256, 1022, 1022, 1022], "comm_slows_compute": (1.0, 1.25),
    "compute_slows_comm": (1.0, 1.4), "compute_slows_compute": (1.0, 1.6), "graph_call_ns": (5_000, 25_000),
    "graph_node_ns": (0.0, 2.2), "copy_call_ns": (3_000, 10_000), "copy_work_ns": (1_500, 6_000), "wake_ns": (1_500, 5_000),
    "gc_every_ns": [0, 0, 40_000_000, 150_000_000], "gc_pause_ns": (500_000, 6_000_000), "op_cost_ns": (400, 1_000),
    "python_cost_ns": (500, 1_000), "runtime_cost_ns": (700, 2_500),
}  # fmt: skip
_CARD: dict[str, Any] = {
    "latency_ns": (12_000, 25_000), "gap_ns": (2_000, 6_000), "queue_limit": [4, 8, 16], "wake_ns": (15_000, 60_000),
    "op_cost_ns": (400, 1_000), "runtime_cost_ns": (700, 2_500),
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


def _multiple(rng: random.Random) -> float:
    return rng.lognormvariate(math.log(2.5), math.log(7 / 2.5) / 1.645)


def draw_machine(rng: random.Random, family: str) -> Machine:
    """Draw the constants of a machine."""
    defects, constants = family == "defects", _drawn(rng, _CONSTANTS)
    return Machine(
        **constants | {"graph_node_ns": 10 ** constants["graph_node_ns"]},
        graph_gap_ns=round(rng.triangular(0, 600, 0)),
        cost_multiple=_multiple(rng),
        clock_offset_ns=rng.randint(-3_000, 3_000) if defects or rng.random() < 0.2 else 0,
        lost_flows=rng.choice((0.01, 0.05, 0.2)) if defects else 0.0,
        whole_microseconds=defects and rng.random() < 0.5,
        shuffled=defects or rng.random() < 0.2,
        sync_rows=rng.random() < 0.6,
        unresolved_events=rng.random() < 0.25,
        unseen_lead=rng.random() < 0.5,
        **_noise(rng, 0.25),
    )


def draw_shape(rng: random.Random, family: str) -> Shape:
    """Draw what kind of step a case runs. Host time per operator and kernel time are drawn independently, except where a family says so."""
    host = round(10 ** rng.uniform(3.9, 4.6))
    kernel = round(host * 10 ** rng.uniform(-1.3, 0.1))
    if family == "device-bound":
        kernel = round(host * 10 ** rng.uniform(0.1, 0.8))
    if family == AHEAD:
        kernel = round(host * 10 ** rng.uniform(-0.2, 0.5))
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
        views=rng.randint(0, 6),
    )


_MARKS = (("backward", "optimizer"), ("optimizer",), ("forward", "backward", "optimizer"))
_FORWARD = (("aten::addmm", "MME", "AddmmBackward0", 2.0), ("aten::native_layer_norm", "TPC", "NativeLayerNormBackward0", 0.7),
            ("aten::gelu", "TPC", "GeluBackward0", 0.5), ("aten::add", "TPC", "AddBackward0", 0.4))  # fmt: skip
_BACKWARD = {"AddmmBackward0": (("aten::mm", "MME", 2.0), ("aten::mm", "MME", 2.0), ("aten::sum", "TPC", 0.4)),
             "NativeLayerNormBackward0": (("aten::native_layer_norm_backward", "TPC", 1.0),), "GeluBackward0": (("aten::gelu_backward", "TPC", 0.6),),
             "AddBackward0": ()}  # fmt: skip


def draw_card(rng: random.Random) -> Machine:
    written = {"whole_microseconds": 0.2, "shuffled": 0.3}
    return Machine(
        **_drawn(rng, _CARD),
        **{k: rng.random() < p for k, p in written.items()},
        cost_multiple=_multiple(rng),
        **_noise(rng, 0.2),
    )


def draw_bridge(rng: random.Random) -> lazy.Bridge:
    return lazy.Bridge(**_drawn(rng, _BRIDGE))


def draw_lazy_step(rng: random.Random, blocks: int = 0) -> lazy.LazyStep:
    """Draw a step: a net of stem, encoder (of so many blocks, if told) and head, its backward pass and a per-parameter or a fused optimizer."""
    host = 10 ** rng.uniform(4.2, 5.0)
    work = host * 10 ** rng.uniform(-0.9, 0.7)
    ops: list[lazy.LazyOp] = []

    def about(ns: float) -> int:
        return round(ns * rng.uniform(0.7, 1.4))

    def add(name: str, engine: str, weight: float, phase: str, *where: Any) -> None:
        ops.append(lazy.LazyOp(name, about(host), about(work * weight), engine, phase, *where))

    forward: list[tuple[str, tuple[str, ...], int]] = []
    places = [
        (NET, "Stem_0"),
        *[(NET, ENCODER, f"Block_{i}") for i in range(blocks or rng.choice((2, 4, 8)))],
        (NET, "Head_0"),
    ]
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
