"""The replay of ranks by its event loop and by the event graph: equal on random plans."""

from __future__ import annotations

import numpy as np
import pytest

from hpuprof.ranks.scenarios import ISSUE, JOIN, MARK, Model, Plan, run, step_times


def plan(rng: np.random.Generator, collectives: int, steps: int) -> Plan:
    """Return a rank that issues every collective, waits for some of them, and marks steps."""
    kind, item = [MARK], [0]
    for c in range(collectives):
        kind.append(ISSUE)
        item.append(c)
        if rng.random() < 0.6:
            kind.append(JOIN)
            item.append(int(rng.integers(max(0, c - 2), c + 1)))
        if (c + 1) % (collectives // steps) == 0:
            kind.append(MARK)
            item.append((c + 1) // (collectives // steps))
    count = len(kind)
    lane = np.where(np.array(kind) == ISSUE, rng.integers(-1, 2, count), -1)
    work, lag, idle = rng.uniform(0, 100, (3, count))
    lag[np.array(kind) == JOIN] = 0
    rest = rng.uniform(20, 50, count)
    return Plan(np.array(kind), np.array(item), work, lag, idle, lane, rest, float(rng.uniform(0, 500)))


@pytest.mark.parametrize("seed", range(20))
def test_the_graph_gives_what_the_loop_gave(seed):
    rng = np.random.default_rng(seed)
    ranks, collectives, steps = int(rng.integers(2, 6)), 12, 3
    plans = [plan(rng, collectives, steps) for _ in range(ranks)]
    model = Model(plans, np.full(collectives, ranks), list(range(steps)), np.zeros((ranks, steps)))
    scenarios = [[p.work * rng.uniform(0.1, 2) for p in plans] for _ in range(3)]
    old = np.stack([run(model, works) for works in scenarios])
    np.testing.assert_allclose(step_times(model, scenarios), old, rtol=1e-9)
