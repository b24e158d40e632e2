"""Step times in closed form, against the arithmetic of a worked example and a published table."""

from __future__ import annotations

import pytest

from benchmarks.graph_mode.closed_form import free_running, linear_law, periodically_synced, synced


def test_the_slower_of_host_and_device_decides_a_free_running_step():
    assert free_running(4.0, 0.5, 0.8) == 4.5
    assert free_running(4.0, 0.5, 8.0) == 8.0
    assert free_running(0.0, 0.5, 0.8, replay=0.01, copies=0.02) == pytest.approx(0.82)


def test_a_wait_in_each_step_exposes_the_host_work_outside():
    assert synced(4.0, 0.5, 3.6) == 4.5
    assert synced(0.0, 0.5, 3.6, replay=0.01, latency=0.005) == pytest.approx(4.115)


@pytest.mark.parametrize(
    ("device", "free", "waiting"),
    [(0.8, 3.7, 2.6), (2.0, 1.86, 1.54), (3.6, 1.12, 1.0), (8.0, 1.0, 1.0)],
)
def test_the_same_eager_step_supports_different_gains_by_its_waits(device, free, waiting):
    """400 kernels with gaps of 1 µs, 10 µs of host work each, 0.5 ms outside, a replay of 10 µs and two copies."""
    busy = device + 400 * 0.001
    replay, copies, latency = 0.010, 0.004, 0.005
    eager, graph = free_running(4.0, 0.5, busy), free_running(0.0, 0.5, busy, replay, copies)
    assert eager / graph == pytest.approx(free, rel=0.015)
    eager, graph = synced(4.0, 0.5, busy, latency=latency), synced(0.0, 0.5, busy, replay, copies, latency)
    assert eager / graph == pytest.approx(waiting, rel=0.015)


def test_a_periodic_wait_lies_between():
    assert periodically_synced(10, 1.0, 2.0) == pytest.approx(1.1)
    assert periodically_synced(1, 1.0, 2.0) == 2.0
    with pytest.raises(ValueError, match="at least one"):
        periodically_synced(0, 1.0, 2.0)


GAUDI = [
    (4.8, 10.937),
    (3.9, 9.747),
    (1.3, 6.191),
]  # host ms and step time: eager, graphed callables, capture and replay


@pytest.mark.parametrize("left_out", range(3))
def test_each_row_of_the_published_gaudi_table_follows_from_the_other_two(left_out):
    slope, intercept = linear_law([p for i, p in enumerate(GAUDI) if i != left_out])
    host, truth = GAUDI[left_out]
    assert intercept + slope * host == pytest.approx(truth, rel=0.02)


def test_a_line_needs_two_points():
    with pytest.raises(ValueError, match="two different"):
        linear_law([(1.0, 2.0), (1.0, 3.0)])
