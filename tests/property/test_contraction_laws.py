"""The law of contracted ranks: they step as whole ones do.

Times are whole ns and factors halves, so that sums are exact: whole and contracted agree to the bit. Of real and
simulated jobs, cured by any factor, sums round differently: by less than 1e-12 of the times added (1e10 ns at most).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpuprof
from benchmarks.world.ranks import Scenario, truth
from hpuprof.ranks import joined
from hpuprof.ranks.contraction import contract
from hpuprof.ranks.lines import Line
from hpuprof.what_if.graph import HUB, CrosswiseError, Graph

ROUNDING_NS = 0.01


def whole(lines: Sequence[Line], collectives: int, factors: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return the step times of lines, no event left out."""
    first = np.cumsum([0, *(len(line.chain) for line in lines)])
    chains = np.cumsum([0, *(len(line.begin) for line in lines)])
    source, target = (
        np.concatenate([np.where(e >= 0, e + low, first[-1] + ~e) for e, low in zip(side, first, strict=False)])
        for side in ([line.source for line in lines], [line.target for line in lines])
    )
    chain = [line.chain + low for line, low in zip(lines, chains, strict=False)]
    graph = Graph.of(np.concatenate([*chain, np.full(collectives, HUB)]), source, target)
    weights = [line.weights(np.stack(by, axis=1)) for line, by in zip(lines, factors, strict=True)]
    step = [w[: len(line.chain)] for w, line in zip(weights, lines, strict=True)]
    delay = [w[len(line.chain) :] for w, line in zip(weights, lines, strict=True)]
    free = np.zeros((collectives, len(factors[0])))
    begin = np.concatenate([line.begin for line in lines])[:, None]
    t = graph.times(np.concatenate([*step, free]), np.concatenate(delay), begin)
    borders = [t[low + line.marks] + line.lag[..., None] for line, low in zip(lines, first, strict=False)]
    return [border[:, 1] - border[:, 0] for border in borders]


def drawn(rng: np.random.Generator, collectives: int, *, backwards: bool = False) -> Line:
    """Return a rank of up to four chains; edges lead forward in time, in which events and collectives take turns.

    `backwards`: one of them does not.
    """
    events, chains, edges = int(rng.integers(2, 40)), int(rng.integers(1, 5)), int(rng.integers(0, 40))
    ends = np.concatenate([np.arange(events), ~np.arange(collectives)])
    when = np.concatenate([rng.random(events), (np.arange(collectives) + 0.5) / max(1, collectives)])
    when[:events].sort()
    one, two = rng.integers(0, len(ends), (2, edges))
    apart = (when[one] != when[two]) & ((one < events) | (two < events))
    one, two = one[apart], two[apart]
    early, late = np.where(when[one] < when[two], (one, two), (two, one))
    if backwards and len(early):
        early[0], late[0] = late[0], early[0]
    count, pieces = events + len(early), 6
    return Line(
        chain=rng.integers(0, chains, events),
        source=ends[early],
        target=ends[late],
        fixed=rng.integers(-20, 100, count).astype(float),
        work=rng.integers(0, 100, count).astype(float),
        piece=rng.integers(-1, pieces, count),
        length=np.ones(pieces),
        kind=np.zeros(pieces, dtype=np.int64),
        item=np.zeros(pieces, dtype=np.int64),
        stretch=np.zeros(pieces, dtype=np.int64),
        keys=[None],
        moved=np.full(pieces, -1),
        begin=rng.integers(0, 50, chains).astype(float),
        marks=np.sort(rng.integers(0, events, (3, 2))),
        lag=rng.integers(0, 9, (3, 2)).astype(float),
    )


def factors(rng: np.random.Generator, lines: Sequence[Line]) -> list[list[np.ndarray]]:
    """Return the factors of three scenarios; the first and the last share an array, as those do that leave a rank."""
    both = [[rng.integers(0, 5, len(line.length)) / 2 for _ in range(2)] for line in lines]
    return [[one, two, one] for one, two in both]


def outcome(times, *job) -> list[list[list[float]]] | None:
    """Return step times as lists, None where ranks wait for each other crosswise."""
    try:
        return [found.tolist() for found in times(*job)]
    except CrosswiseError:
        return None


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.integers(0, 8), st.booleans())
def test_contracted_ranks_step_as_whole_ones_do(seed, ranks, collectives, backwards):
    rng = np.random.default_rng(seed)
    lines = [drawn(rng, collectives, backwards=backwards and not r) for r in range(ranks)]
    job = lines, collectives, factors(rng, lines)
    assert outcome(joined.step_times, *job) == outcome(whole, *job)


def test_between_two_collectives_one_edge_is_left_of_a_chain_of_events():
    """A thousand calls launch rows, then a collective; one more waits for it. Left: the first, the last, the last row."""
    calls = np.arange(1000)
    rows = 1001 + calls
    line = Line(
        chain=np.repeat([0, 1], [1001, 1000]),
        source=np.concatenate([calls, [2000, ~0]]),
        target=np.concatenate([rows, [~0, 1000]]),
        fixed=np.ones(3003),
        work=np.zeros(3003),
        piece=np.full(3003, -1),
        length=np.ones(1),
        kind=np.zeros(1, dtype=np.int64),
        item=np.zeros(1, dtype=np.int64),
        stretch=np.zeros(1, dtype=np.int64),
        keys=[None],
        moved=np.array([-1]),
        begin=np.zeros(2),
        marks=np.array([[0, 1000]]),
        lag=np.zeros((1, 2)),
    )
    left = contract(line, np.ones((1, 1)))
    assert left.chain.tolist() == [0, 0, 1]
    edges = dict(zip(zip(left.source.tolist(), left.target.tolist(), strict=True), left.delay[:, 0], strict=True))
    # The first call happens at 1, launches the first row 1 later, and 999 follow; the rows are over as long after the last.
    assert edges == {(0, 2): 1000.0, (2, ~0): 1.0, (~0, 1): 1.0}


def assert_agrees(monkeypatch: pytest.MonkeyPatch, traces: Path) -> None:
    jobs, step_times = [], joined.step_times

    def noted(*job):
        jobs.append(job)
        return step_times(*job)

    monkeypatch.setattr(joined, "step_times", noted)
    hpuprof.analyze(traces, jobs=1)
    assert jobs
    for job in jobs:
        lines = job[0]
        for one, two in zip(step_times(*job), whole(*job), strict=True):
            assert np.array_equal(one[:, 0], two[:, 0])  # as recorded, to the bit
            assert np.abs(one - two).max() < ROUNDING_NS
        assert sum(len(contract(line, np.ones((len(line.length), 1))).chain) for line in lines) < sum(
            len(line.chain) for line in lines
        )


@pytest.mark.parametrize("style", ["ddp", "fsdp", "tp_dp", "moe", "pp_dp"])
@pytest.mark.parametrize("lost", [0.0, 0.01])
def test_simulated_jobs_step_the_same_contracted(monkeypatch, tmp_path, style, lost):
    """Launch by launch, and with rows lost by their main paths."""
    wide = 4 if "_" in style or style == "moe" else 0
    truth(Scenario(ranks=8, style=style, wide=wide, kind="compute", kernels=3, steps=4, lost=lost)).write(tmp_path)
    assert_agrees(monkeypatch, tmp_path)


@pytest.mark.parametrize("sample", ["hpu_g3_lazy_8_ranks", "cpu_2_ranks_ddp"])
def test_samples_step_the_same_contracted(monkeypatch, sample):
    assert_agrees(monkeypatch, Path(__file__).resolve().parents[2] / "sample_traces" / sample)


def test_real_ranks_step_the_same_contracted(monkeypatch, real_traces):
    assert_agrees(monkeypatch, real_traces / "dlrm_8_ranks")
