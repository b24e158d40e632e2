"""Data-parallel training on many ranks with injected stragglers, and on clocks that are wrong: what comparisons of ranks are judged by.

python -m benchmarks.world.ranks OUT [--ranks 8] [--kind compute] [--style ddp] [--seed 0] ...

Styles: `ddp` (gradients all-reduced in buckets behind the backward pass) and `fsdp` (parameters gathered before each layer, forward and
backward; gradients reduce-scattered); `tp`, `tp_dp`, `moe`, `pp`, `pp_dp` are in `parallel`. Slow is a rank (`compute`, `input`, `host`), a
host (`node`), a group's network (`link`), a pipeline stage (`stage`), in turn another rank (`rotating`, `gc`), or nobody. Each random number
is drawn before the run, so that it can be run again with the slow part cured.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from sample_traces.generator.rows import write_text

from . import parallel
from .host import Program, Run, run_ranks
from .machine import Machine
from .program import COMM, COMPUTE, Instr
from .rank import US, Draws, Rank, Scenario
from .trace import BASE_NS, Source, cuda_trace

KINDS = ("none", "compute", "input", "host", "rotating", "gc", "node", "link", "stage")
OF_A_RANK = ("compute", "input", "host")
EPOCH_NS = 1_790_000_000_000_000_000
MACHINE = Machine(latency_ns=8 * US, gap_ns=1 * US, event_gap_ns=2 * US, wake_ns=5 * US)
SIZE_BYTES, EVENT_NS = 16 << 20, 500


@dataclass
class Truth:
    """What was injected and what came of it. `walls`: true step lengths, the mean over ranks, shape (steps,)."""

    scenario: Scenario
    draws: Draws
    offsets: np.ndarray
    drifts: np.ndarray
    walls: np.ndarray
    runs: list[Run] = field(default_factory=list)

    @property
    def middle(self) -> float:
        """The middle of the run, where offsets hold [ns]."""
        return float(self.walls.sum() / 2)

    def local_ns(self, host: int, true_ns: float) -> int:
        """Return what a host's clock shows, from the base: its stamp t is true when t + offset + drift * (t - middle) is the time."""
        drift = self.drifts[host]
        return EPOCH_NS - BASE_NS + round((true_ns - self.offsets[host] + drift * self.middle) / (1 + drift))

    def write(self, folder: Path) -> None:
        """Write all ranks' traces, one small file each."""
        s = self.scenario
        for rank, run in enumerate(self.runs):
            host = rank // s.per_host
            clock = partial(self.local_ns, host)
            source = Source(rank, s.ranks, f"node{host:03d}", clock=clock, lost=s.lost, config="cuda:nccl")
            path = folder / f"node{host:03d}_{1000 + rank}.{EPOCH_NS + rank}.pt.trace.json.gz"
            write_text(path, cuda_trace(run, MACHINE, source, f"{s.seed} {rank}"))


def draw(s: Scenario) -> Draws:
    """Draw a run's random numbers."""
    rng = np.random.default_rng(s.seed)
    compute = np.exp(rng.normal(0, s.jitter, (s.steps, s.ranks, 2 * s.layers + 1)))
    ends = rng.gamma(2.0, s.end_jitter_ns / 2, (s.steps, 4 * s.layers, s.ranks))
    fetch = s.input_ns * np.exp(rng.normal(0, 0.05, (s.steps, s.ranks)))
    slow = np.zeros((s.steps, s.ranks))
    stalls = np.where(rng.random(compute.shape) < s.stall, s.layer_ns * rng.uniform(0.5, 1.5, compute.shape), 0.0)
    culprits = _culprits(s, int(rng.integers(s.ranks)))
    if culprits and s.kind != "link":
        slow[:, culprits] = s.severity * rng.uniform(0.9, 1.1, (s.steps, len(culprits)))
    elif s.kind in ("rotating", "gc"):
        turn = rng.permutation(s.ranks)[: max(3, min(s.ranks, s.steps))]
        for step in range(s.steps):
            if s.kind == "rotating" or rng.random() < 0.8:
                slow[step, turn[step % len(turn)]] = s.severity * rng.uniform(0.7, 1.3)
    return Draws(compute, ends, fetch, slow, stalls, culprits, 1 + 8 * s.severity if s.kind == "link" else 1.0)


def _culprits(s: Scenario, one: int) -> tuple[int, ...]:
    """Return the ranks that are slow as one of them is."""
    if s.kind in OF_A_RANK:
        return (one,)
    if s.kind == "node":
        first = one // s.per_host * s.per_host
        return tuple(range(first, min(first + s.per_host, s.ranks)))
    if s.kind == "link" and s.style.startswith("pp"):
        width = s.ranks // s.wide
        return (one, one + width) if one + width < s.ranks else (one - width, one)
    if s.kind in ("stage", "link"):
        return next(group for group in parallel.groups(s) if one in group)
    return ()


def cure(draws: Draws, *, all_alike: bool = False) -> Draws:
    """Return the same run without stragglers; `all_alike`: without any difference between ranks either."""
    plain = replace(draws, slow=np.zeros_like(draws.slow), link=1.0)
    if not all_alike:
        return plain
    middle = np.median(draws.compute, axis=1, keepdims=True) + np.zeros_like(draws.compute)
    fetch = np.median(draws.input, axis=1, keepdims=True) + np.zeros_like(draws.input)
    return replace(plain, compute=middle, input=fetch)


def program_of(s: Scenario, draws: Draws, rank: int) -> Program:
    """Return what a rank runs in each step."""
    # The shape of the work: layers of different weight, buckets of different size.
    weight = s.layer_ns * (1 + 0.3 * np.sin(np.arange(2 * s.layers + 1)))

    def program(number: int) -> list[Instr]:
        slow = float(draws.slow[number, rank])
        work = weight * draws.compute[number, rank]
        work[-1] = 0.2 * s.layer_ns * draws.compute[number, rank, -1]
        work *= 1 + (slow if s.kind in ("compute", "rotating", "node", "stage") else 0)
        out = Rank(s, rank, work, draws.stalls[number, rank], iter(draws.ends[number, :, rank].tolist()), draws)
        stall = slow * float(weight.sum())
        with out.row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            out.host(draws.input[number, rank] + (stall if s.kind == "input" else 0))
        if s.kind == "gc" and stall:
            with out.row("<built-in function collect>", "python_function"):
                out.host(stall)
        elif s.kind == "host":
            out.host(stall)
        {"ddp": _data, "fsdp": _data}.get(s.style, parallel.layers)(out)
        out.order(COMM, COMPUTE, EVENT_NS)
        out.kernel("adamw", work[-1])
        out.sync()
        with out.row("aten::item"):
            out.host(20 * US)
        return out.instrs

    return program


def _data(out: Rank) -> None:
    """Forward and backward of a data-parallel rank."""
    s = out.s
    for at in (*range(s.layers), *range(s.layers, 2 * s.layers)[::-1]):
        backward, layer = at >= s.layers, at % s.layers
        if s.style == "fsdp":
            out.collective("AllGather", SIZE_BYTES >> (layer % 3), 0.8)
            out.order(COMM, COMPUTE, EVENT_NS)
        out.segment(at, f"gemm_{'backward' if backward else 'forward'}_{layer}")
        if backward:
            out.order(COMPUTE, COMM, EVENT_NS)
            op = "AllReduce" if s.style == "ddp" else "ReduceScatter"
            out.collective(op, SIZE_BYTES >> (layer % 3), 0.6 + 0.4 * (layer % 3))


def simulate(s: Scenario, draws: Draws, *, keep: bool = False) -> tuple[np.ndarray, list[Run]]:
    """Run; return the step lengths, shape (steps,), the mean over ranks, and each rank's run, with its rows if they are to be kept."""
    programs = [program_of(s, draws, rank) for rank in range(s.ranks)]
    runs = run_ranks(programs, MACHINE, steps=s.steps, seed=str(s.seed), profile=keep)
    walls = [np.subtract(run.step_ends_ns, run.step_starts_ns) for run in runs]
    return np.mean(walls, axis=0), runs


def truth(s: Scenario) -> Truth:
    """Simulate a scenario and draw its clocks."""
    draws = draw(s)
    walls, runs = simulate(s, draws, keep=True)
    rng = np.random.default_rng(s.seed + 1_000_003)
    offsets = rng.uniform(-s.offset_ns, s.offset_ns, s.hosts)
    drifts = rng.uniform(-s.drift_ppm, s.drift_ppm, s.hosts) * 1e-6
    return Truth(s, draws, offsets, drifts, walls, runs)


def main() -> None:
    """Write one scenario; its truth goes to truth.txt beside the traces."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.world.ranks", description=__doc__)
    parser.add_argument("out", type=Path)
    for f in fields(Scenario):
        if isinstance(f.default, bool):
            parser.add_argument(f"--{f.name}", action="store_true")
        else:
            kwargs = {"choices": KINDS} if f.name == "kind" else {"type": type(f.default)}
            parser.add_argument(f"--{f.name.replace('_', '-')}", default=f.default, **kwargs)
    values = vars(parser.parse_args())
    folder = values.pop("out")
    run = truth(Scenario(**values))
    run.write(folder)
    facts = {"scenario": asdict(run.scenario), "culprits": run.draws.culprits,
             "offset_ns": run.offsets.tolist(), "drift": run.drifts.tolist(), "steps_ns": run.walls.tolist()}  # fmt: skip
    (folder / "truth.txt").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
