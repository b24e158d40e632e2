"""The replay of ranks: lines worked by hand, times in ns."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import asdict, replace
from rank_traces import CAME, blocking

from hpuprof.model.launch_schedule import LaunchSchedule, unpack_schedule
from hpuprof.ranks.joined import step_times
from hpuprof.ranks.launch_line import host_line
from hpuprof.ranks.lines import Line, levels
from hpuprof.ranks.main_path import ISSUE, JOIN, MARK, Plan, main_line
from hpuprof.what_if.graph import CrosswiseError


def plan(work: list[float], order: tuple[int, int] = (0, 1), **columns: list[float]) -> Line:
    """Return a rank that issues two collectives, waits for the second and ends its only step."""
    count = 5
    kind = np.array([MARK, ISSUE, ISSUE, JOIN, MARK])
    column = {name: np.array(columns.get(name, [0.0] * count)) for name in ("lag", "idle", "rest")}
    lane = np.array(columns.get("lane", [-1, 0, 0, -1, -1]), dtype=np.int64)
    item = np.array([0, *order, order[1], 1])
    name = np.where(kind == MARK, -1, item)
    return main_line(
        Plan(kind=kind, item=item, name=name, work=np.array(work, dtype=float), lane=lane, begin=0.0, **column)
    )


def replayed(*lines: Line) -> list[list[float]]:
    """Return the step of each line as recorded, and with all lines alike."""
    factors = [[np.ones(len(by)), by] for by in levels(lines)]
    return np.stack(step_times(lines, 2, factors))[:, 0].T.tolist()


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
    as_recorded, alike = replayed(*(plan([0, before, 0, 0, 0]) for before in (10, 12, 40)))
    assert as_recorded == [40.0] * 3
    assert alike == [26.0] * 3


def test_ranks_that_issue_collectives_crosswise_on_one_lane_are_refused():
    with pytest.raises(CrosswiseError):
        replayed(plan([0, 1, 1, 0, 0]), plan([0, 1, 1, 0, 0], order=(1, 0)))


def launched(host: int, compute: int, *, waits: bool = True) -> LaunchSchedule:
    """Return a rank that launches compute and a collective behind it, waits for that, and ends its only step.

    Three calls of 5, the first after `host`; rows start 3 after their call, the collective 2 after the compute.
    """
    columns = {
        "steps": [0],
        "pause": [0],
        "last": [3],
        "segment": [host, 0, 0, 10],
        "cost": [5, 5, 5, 0],
        "call": [0, 1],
        "lane": [0, 1],
        "dur": [compute, 50],
        "latency": [3, 3],
        "gap": [0, 0],
        "collective": [-1, 0],
        "wait_call": [2] if waits else [],
        "wait_row": [1] if waits else [],
        "wait_tail": [1] if waits else [],
        "late_row": [1],
        "late_source": [0],
        "late_delay": [2],
        "backlog": [-1000, -1000],
    }
    return LaunchSchedule(**{name: np.array(column, dtype=np.int64) for name, column in columns.items()})


def with_host(schedule: LaunchSchedule, begin: float = 0.0) -> Line:
    return host_line(schedule, np.array([-1, 0]), np.array([-1, 0]), np.array([0.0, 50.0]), begin)


def test_the_host_waits_for_the_collective_and_the_collective_for_the_last_rank():
    """Compute runs from 23 to 123 and from 23 to 223; the collective from 225 to 275; hosts go on at 276, for 10."""
    assert replayed(with_host(launched(20, 100)), with_host(launched(20, 200)))[0] == [286.0, 286.0]


def test_host_and_device_are_levelled_apart():
    """One rank calls the collective at 305, another computes 300 and is ready at 325.

    Up to the call, hosts work 305, 25 and 25: the medians of the others are 25, 165 and 165; those of compute 200, 100
    and 200. So the third launches at 20 * 165 / 25 = 132, computes from 135 to 335 and is ready last, at 337.
    """
    slow = replace(launched(20, 100), segment=np.array([20, 280, 0, 10]))
    as_recorded, alike = replayed(with_host(slow), with_host(launched(20, 300)), with_host(launched(20, 100)))
    assert as_recorded == [325.0 + 50 + 1 + 10] * 3
    assert alike == pytest.approx([337.0 + 50 + 1 + 10] * 3)


def test_a_cure_saves_no_more_than_hosts_allow():
    """All hosts call the collective at 305, so that it starts at 308; one rank computes until 423 and is ready at 425.

    Like the others it would be ready at 125, and the step end after 308 + 50 + 1 + 10.
    """
    hosts = np.array([20, 280, 0, 10])
    ranks = [with_host(replace(launched(20, compute), segment=hosts)) for compute in (400, 100, 100)]
    as_recorded, alike = replayed(*ranks)
    assert as_recorded == [425.0 + 50 + 1 + 10] * 3
    assert alike == pytest.approx([308.0 + 50 + 1 + 10] * 3)


def test_a_host_that_does_not_wait_ends_its_step_when_its_own_work_is_done():
    line = with_host(launched(20, 100, waits=False))
    assert replayed(line)[0] == [45.0]


def test_a_step_counts_from_its_own_beginning():
    """A rank that begins 40 later makes the other wait: 40 more for that one."""
    assert replayed(with_host(launched(20, 100)), with_host(launched(20, 100), 40.0))[0] == [226.0, 186.0]


def test_the_first_steps_of_a_schedule_are_replayed_as_with_the_others_behind_them(tmp_path):
    """From traces: the job of `four_ranks`, in which ranks wait in every step."""
    latest = [500, 600, 400]
    ranks = [blocking(rank, came, latest).reduce(tmp_path / str(rank)) for rank, came in CAME.items()]
    schedules = [unpack_schedule(part.prediction.schedule) for part in ranks]

    def steps(schedules: list[LaunchSchedule]) -> np.ndarray:
        rest = np.full(9, 100_000.0)  # the transfer; waiting is recomputed
        lines = [host_line(s, s.collective, s.collective, rest[: len(s.call)], 0.0) for s in schedules]
        return np.stack(step_times(lines, 3, [[np.ones(len(line.length))] for line in lines]))[..., 0]

    whole, some = steps(schedules), steps([s.first(2) for s in schedules])
    assert whole == pytest.approx(np.full((4, 3), 1e6))
    assert some == pytest.approx(whole[:, :2])


def test_a_schedule_survives_packing():
    one = launched(20, 100)
    two = unpack_schedule(one.pack())
    assert {name: column.tolist() for name, column in asdict(two).items()} == {
        name: column.tolist() for name, column in asdict(one).items()
    }
