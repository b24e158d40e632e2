"""Clocks of hosts: bounds worked out by hand, and laws on random runs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.model.clock import GivenClock
from hpuprof.ranks.clocks import RECEIVES, SENDS, contradictions, estimate, given_clocks

US, MS = 1_000, 1_000_000


def columns(rows):
    """Return arrays from (collective, host, start, end) in µs."""
    table = np.array(rows, dtype=np.float64)
    return [table[:, i].astype(np.int64) for i in (0, 1)] + [np.rint(table[:, i] * US).astype(np.int64) for i in (2, 3)]


def test_bounds_by_hand():
    """One collective: 0 starts at 100.5, ends at 200; 1 starts at 1050, ends at 1150.5. Half µs, so no slack for rounding.

    100.5 <= 1150.5 + o and 1050 + o <= 200: o in [-1050, -850]; both ends together: o = -950.5.
    """
    found = estimate(2, *columns([(0, 0, 100.5, 200), (0, 1, 1050, 1150.5)]))
    assert found.offset_ns.tolist() == [0, -950_500]
    assert found.low_ns[1] == pytest.approx(-1_050_000, abs=200)  # a drift of up to 200 ppm over half a ms
    assert found.high_ns[1] == pytest.approx(-850_000, abs=200)
    assert found.component.tolist() == [0, 0]
    assert found.infeasible.tolist() == [0, 0]


def test_a_third_host_tightens_the_bounds_of_two():
    """0 and 1 share a loose collective (bounds ±100 µs), both share tight ones with 2 (±10 µs): together ±20."""
    rows = [(0, 0, 0.5, 100), (0, 1, 0.5, 100), (1, 0, 190, 200), (1, 2, 190, 200), (2, 1, 290, 300), (2, 2, 290, 300)]
    found = estimate(3, *columns(rows))
    assert found.high_ns[1] == pytest.approx(20_000, abs=200)
    assert found.low_ns[1] == pytest.approx(-20_000, abs=200)


def test_transfers_bind_one_way():
    """0 sends at 10.5, 1 has received at 60; 1 sends at 100.5, 0 has received at 170: o >= 10.5 - 60 and o <= 170 - 100.5."""
    rows = [(0, 0, 10.5, 20), (0, 1, 5.5, 60), (1, 1, 100.5, 110), (1, 0, 90.5, 170)]
    found = estimate(2, *columns(rows), np.array([SENDS, RECEIVES, SENDS, RECEIVES]))
    assert found.low_ns[1] == pytest.approx(-49_500, abs=200)
    assert found.high_ns[1] == pytest.approx(69_500, abs=200)


def test_hosts_without_common_collectives_are_unrelated():
    found = estimate(4, *columns([(0, 0, 0, 10), (0, 1, 0, 10), (1, 2, 0, 10), (1, 3, 0, 10)]))
    assert found.component.tolist() == [0, 0, 2, 2]


def test_wrong_matches_are_counted_and_left_out():
    """Ninety-nine collectives that fit, and one whose ends are half a second apart."""
    rows = []
    for i in range(100):
        begin = 1000 * i + 0.5
        off = 500_000 if i == 50 else 0
        rows += [(i, 0, begin, begin + 100), (i, 1, begin + off, begin + 100 + off)]
    found = estimate(2, *columns(rows))
    assert found.infeasible.tolist() == [1, 1]
    assert found.matches.tolist() == [100, 100]
    assert abs(found.offset_ns[1]) < 100


def test_contradictions_on_one_host():
    seen, wrong = contradictions(*columns([(0, 0, 0.5, 10), (0, 0, 5, 15), (1, 0, 20, 30), (1, 0, 31, 40)]))
    assert (seen, wrong) == ({0: 2}, {0: 1})


def test_given_clocks_move_stamps():
    known = [GivenClock(0.0), GivenClock(-5000.0, 1.0, 1_000_000), None]
    clocks = given_clocks("manifest", known, 1_500_000)
    stamps = np.array([2_000_000, 2_000_000], dtype=np.int64)
    assert clocks.correct(stamps, np.array([0, 1])).tolist() == [2_000_000, 1_995_001]
    assert clocks.component.tolist() == [0, 0, -1]


@st.composite
def runs(draw):
    """Draw a run of several hosts in which truth is known: starts before the common end, ends after the last start."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    hosts, ranks, count = draw(st.integers(2, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 60))
    offset = rng.uniform(-50 * MS, 50 * MS, hosts)
    drift = rng.uniform(-50e-6, 50e-6, hosts)
    middle = draw(st.sampled_from([0.5, 0.3])) * count * 10 * MS
    rows = []
    for k in range(count):
        here = rng.permutation(hosts)[: int(rng.integers(2, hosts + 1))]
        begins = k * 10 * MS + rng.uniform(0, draw(st.sampled_from([1, 5])) * MS, (len(here), ranks))
        finish = begins.max() + rng.uniform(10 * US, 500 * US)
        for h, host in enumerate(here.tolist()):
            for r in range(ranks):
                times = np.array([begins[h, r], finish + rng.exponential(10 * US)])
                local = (times - offset[host] + drift[host] * middle) / (1 + drift[host])
                rows.append((k, host, *np.rint(local).astype(np.int64).tolist()))
    return hosts, np.array(rows, dtype=np.int64), offset, drift, middle


@settings(max_examples=60)
@given(runs())
def test_the_certified_interval_contains_the_truth_and_the_estimate(run):
    hosts, rows, offset, drift, middle = run
    found = estimate(hosts, rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3])
    true = offset + drift * (found.middle_ns - middle)
    for h in range(hosts):
        reference = found.component[h]
        if reference == h or not found.matches[h]:
            continue
        expected = true[h] - true[reference]
        # The middle is read on the reference's clock: 50 ppm of up to 100 ms.
        assert found.low_ns[h] - 10_000 <= expected <= found.high_ns[h] + 10_000
        assert found.low_ns[h] <= found.offset_ns[h] <= found.high_ns[h]
    assert found.infeasible.sum() == 0


@settings(max_examples=40)
@given(runs(), st.integers(-(10**9), 10**9))
def test_shifting_a_host_shifts_its_offset_alone(run, shift):
    hosts, rows, *_ = run
    moved = rows.copy()
    moved[rows[:, 1] == hosts - 1, 2:] += shift
    one, two = (estimate(hosts, r[:, 0], r[:, 1], r[:, 2], r[:, 3]) for r in (rows, moved))
    # Drift turns the move of the middle into a small change of all offsets.
    near = 2 * 60e-6 * abs(shift) + 100
    assert np.allclose(one.offset_ns[:-1], two.offset_ns[:-1], atol=near + 0 * shift)
    if one.component[hosts - 1] != hosts - 1:
        assert two.offset_ns[-1] == pytest.approx(one.offset_ns[-1] - shift, abs=near)
