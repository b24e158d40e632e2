"""The replay of ranks: plans worked by hand, times in ns."""

from __future__ import annotations

import numpy as np
import pytest

from hpuprof.ranks.scenarios import ISSUE, JOIN, MARK, Model, Plan, levelled, step_times
from hpuprof.what_if.graph import CrosswiseError


def plan(work: list[float], order: tuple[int, int] = (0, 1), **columns: list[float]) -> Plan:
    """Return a rank that issues two collectives, waits for the second and ends its only step."""
    count = 5
    kind = np.array([MARK, ISSUE, ISSUE, JOIN, MARK])
    column = {name: np.array(columns.get(name, [0.0] * count)) for name in ("lag", "idle", "rest")}
    lane = np.array(columns.get("lane", [-1, 0, 0, -1, -1]), dtype=np.int64)
    item = np.array([0, *order, order[1], 1])
    return Plan(kind=kind, item=item, work=np.array(work), lane=lane, begin=0.0, **column)


def replayed(*plans: Plan) -> list[list[float]]:
    model = Model(list(plans), np.full(2, len(plans)), [0], np.zeros((len(plans), 1)))
    return step_times(model, [[p.work for p in plans], levelled(model)])[:, :, 0].tolist()


def test_a_collective_starts_when_its_last_member_has_come_and_its_lane_is_free():
    """The first one starts at 30 and takes 100; the second waits for it, 5 idle and 20 long: 155, then 7 of work."""
    columns = {"rest": [0.0, 100.0, 20.0, 0.0, 0.0], "idle": [0.0, 0.0, 5.0, 0.0, 0.0]}
    one, two = plan([0, 10, 2, 0, 7], **columns), plan([0, 30, 2, 0, 7], **columns)
    assert replayed(one, two)[0] == [162.0, 162.0]


def test_a_call_on_a_lane_of_its_own_waits_for_no_other():
    """Issued at 32, it takes 20."""
    columns = {"rest": [0.0, 100.0, 20.0, 0.0, 0.0], "lane": [-1, 0, 1, -1, -1]}
    assert replayed(*(plan([0, 30, 2, 0, 7], **columns) for _ in range(2)))[0] == [59.0, 59.0]


def test_a_rank_like_the_others_is_the_median_of_the_others_between_the_same_calls():
    """Of 10, 12 and 40 before the first call, each rank gets the median of the other two: 26, 25, 11."""
    ranks = [plan([0, before, 0, 0, 0], rest=[0.0, 0.0, 0.0, 0.0, 0.0]) for before in (10.0, 12.0, 40.0)]
    as_recorded, alike = replayed(*ranks)
    assert as_recorded == [40.0] * 3
    assert alike == [26.0] * 3


def test_ranks_that_issue_collectives_crosswise_on_one_lane_are_refused():
    with pytest.raises(CrosswiseError):
        replayed(plan([0, 1, 1, 0, 0]), plan([0, 1, 1, 0, 0], order=(1, 0)))
