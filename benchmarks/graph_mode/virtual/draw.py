"""Draws a case: what is trained, how the host waits, and what the device costs. The same seed and number give the same case."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from benchmarks.graph_mode.virtual.device import Constants

SYNCS = {"none": 0.3, "step": 0.3, "every": 0.15, "mid-loss": 0.1, "mid-norm": 0.08, "upload": 0.07}
MODELS = {"mlp": 1, "cnn": 1, "transformer": 1.5, "recommender": 1, "recurrent": 0.7, "branches": 1}
OPTIMIZERS = {"sgd foreach": 1, "sgd loop": 0.7, "adamw foreach": 1.2, "adamw loop": 0.5, "adamw fused": 0.6}
RATIO = (0.05, 3.0)
BACKWARD_THREAD = 0.7
"""Share of cases whose backward pass has a thread of its own, as on every accelerator; the rest runs it as a CPU does."""


SYNC_ROWS = 0.5
"""Share of cases recorded with `enable_cuda_sync_events`; without it a trace does not tell which event a stream waited for."""


@dataclass(frozen=True)
class Drawn:
    """A case before it runs. `ratio`: device work per step over the host's time per step, when the device is never waited for."""

    family: str  # cuda, or hpu in eager mode
    seed: int
    number: int
    model: str
    optimizer: str
    sync: str  # none, step (loss.item() at its end), every (k-th step), mid-loss, mid-norm (before the optimizer), upload (blocking)
    every: int
    clip: bool
    scheduler: bool
    loader: str
    input_bytes: int
    ratio: float
    record_shapes: bool
    with_stack: bool
    active: int
    backward_thread: bool
    constants: Constants

    @property
    def name(self) -> str:
        """The case's name, that of its files."""
        return f"virtual-{'' if self.family == 'cuda' else self.family + '-'}{self.seed}-{self.number:03d}"


def _pick(rng: random.Random, weights: dict[str, float]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def draw(seed: int, number: int, family: str = "cuda") -> Drawn:
    """Draw a case. Ranges of the constants: those that published measurements span; for an HPU, guesses (none are published)."""
    rng = random.Random(f"hpuprof virtual device {seed} {number}")
    sync = _pick(rng, SYNCS)
    stalls = rng.random() < 0.25
    constants = Constants(
        latency=rng.uniform(4000, 10_000),
        gap=rng.uniform(800, 2000),
        graph_gap=rng.uniform(400, 1600),
        graph_scale=rng.uniform(0.90, 1.0),
        replay=rng.uniform(3000, 25_000),
        replay_node=min(200.0, max(1.0, _log_uniform(rng, 1, 60) * (4 if rng.random() < 0.1 else 1))),
        input_copy=rng.uniform(3000, 10_000),
        launch=rng.uniform(2000, 6000),
        event=rng.uniform(500, 1500),
        sync=rng.uniform(1000, 4000),
        profiled_call=rng.uniform(1000, 4000),
        profiled_inside=rng.random(),
        jitter=_log_uniform(rng, 0.01, 0.12),
        latency_jitter=rng.uniform(0.02, 0.2),
        stall_chance=rng.uniform(3.6, 4.2) if stalls else 0.0,
        stall=_log_uniform(rng, 30_000, 300_000),
        queue=float(rng.choice([256, 512, 1024])),
        bytes_per_ns=rng.uniform(10, 25),
        copy_latency=rng.uniform(1000, 2500),
    )
    with_stack = rng.random() < 0.25
    drawn = Drawn(
        family=family,
        seed=seed,
        number=number,
        model=_pick(rng, MODELS),
        optimizer=_pick(rng, OPTIMIZERS),
        sync=sync,
        every=rng.choice([5, 10]),
        clip=sync == "mid-norm" or rng.random() < 0.25,
        scheduler=rng.random() < 0.25,
        loader=rng.choice(["loader", "loader", "slices"]),
        input_bytes=int(_log_uniform(rng, 1 << 12, 4 << 20)),
        ratio=_log_uniform(rng, *RATIO),
        record_shapes=rng.random() < 0.5,
        with_stack=with_stack,
        active=rng.choice([8, 10, 12]),
        backward_thread=rng.random() < BACKWARD_THREAD,
        constants=replace(constants, sync_rows=float(rng.random() < SYNC_ROWS)),
    )
    return as_hpu(drawn, rng) if family == "hpu" else drawn


def as_hpu(drawn: Drawn, rng: random.Random) -> Drawn:
    """Return a case with costs of an HPU in eager mode: dearer launches, no gaps in a graph but a dear replay, and one stream."""
    constants = replace(
        drawn.constants,
        latency=rng.uniform(10_000, 20_000),
        launch=rng.uniform(8000, 20_000),
        gap=rng.uniform(500, 3000),
        graph_gap=rng.uniform(0, 300),
        graph_scale=rng.uniform(0.98, 1.0),
        replay=_log_uniform(rng, 50_000, 400_000),
        replay_node=0.0,
        input_copy=rng.uniform(10_000, 40_000),
        copy_latency=rng.uniform(4000, 10_000),
        sync=rng.uniform(4000, 12_000),
        queue=float(rng.choice([128, 256, 512])),
        sync_rows=0.0,
    )
    model = "transformer" if drawn.model == "branches" else drawn.model
    return replace(drawn, model=model, constants=constants)
