"""What sets the steady step: cycles worked by hand, and laws on generated schedules and real steps."""

from __future__ import annotations

import numpy as np
import pytest
from hand_schedule import LAUNCHES, PER_STEP, STEPS, nth, row, schedule
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hpuprof.model.arrays import Ints
from hpuprof.what_if import edit
from hpuprof.what_if.critical_rows import _with_model_error, critical_rows, sensitivity_rows
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.kernel_sequences import sequence_rows
from hpuprof.what_if.parts import LATENCIES, Owners, Parts
from hpuprof.what_if.period import Period, steady_step
from hpuprof.what_if.play import HostWork, Sample, Weights, play
from hpuprof.what_if.schedule import Schedule, Wait, Waits
from hpuprof.what_if.sensitivity import LEVELS, curve, no_gain_below
from hpuprof.what_if.uncertainty import GAIN_ERROR, NORMAL_95

NAMES = [("first", "kernel"), ("second", "kernel"), ("launching", "operator"), ("rest", "host range")]


def base(of: Schedule, sample: Sample | None = None, *, halves: bool = False) -> Base:
    """The steps with a kernel for each row and two names on the host. `halves`: half of each segment is `rest`."""
    sample = sample or Sample.unchanged()
    calls = np.arange(len(of.calls))
    launching = np.where(np.isin(calls % PER_STEP, LAUNCHES), 2, 3)
    pieces = np.repeat(calls, 2) if halves else calls
    owner = np.where(np.arange(len(pieces)) % 2, 3, launching[pieces]) if halves else launching
    which: Ints = np.arange(len(of.rows)) % 2
    net = Owners(*(np.zeros(len(x), dtype=np.int64) for x in (which, launching, owner)))
    parts = Parts(
        labels=[*NAMES, *((name, "latency") for name in LATENCIES)],
        owners=Owners(which, launching, owner),
        latency=np.arange(4, 8),
        modules=["Net"],
        places=net,
        module_of=np.zeros(1, dtype=np.int64),
        piece_call=pieces,
        piece_share=np.full(len(pieces), 0.5 if halves else 1.0),
    )
    return Base(of, sample, HostWork.of(of, sample), parts)


def steady(of: Schedule) -> float:
    sample = Sample.unchanged()
    return float(steady_step(of, Weights.of(of, sample))[0])


def on_cycle(of: Base) -> dict[str, float]:
    names = [what for what, _ in of.parts.labels]
    return {n: ns / 1000 for n, ns in zip(names, of.on_cycle.parts[:, 0].tolist(), strict=True) if ns}


def test_a_waiting_step_is_made_of_host_launch_rows_and_return():
    # 10 to the first launch, 4 to its start, 30 and 20 with a gap of 1, seen 2 later, then 5 of host work.
    found = on_cycle(base(schedule()))
    assert found == {
        "first": 30,
        "second": 20,
        "launching": 10,
        LATENCIES[0]: 4,
        LATENCIES[1]: 1,
        LATENCIES[3]: 2,
    }


def test_the_cycle_of_free_steps_goes_through_one_chain_from_step_to_step():
    free = edit.without_waits(schedule(), nth(2), free=False)
    # The lane: 30 + 20 and two gaps, whatever the host does meanwhile and however the last step ends.
    assert on_cycle(base(free)) == pytest.approx({"first": 30, "second": 20, LATENCIES[1]: 2})
    fast = edit.scaled_rows(free, row(0) | row(1), 0.1)
    assert on_cycle(base(fast)) == pytest.approx({"launching": 22, "rest": 5})


def test_a_cycle_may_take_two_runs_to_close():
    # Each lane's second row waits for the other lane's first one, so that a run swaps the lanes.
    free = edit.without_waits(schedule((30, 20), lanes=(0, 1)), nth(2), free=False)
    lane = int(Wait.LANE)
    of = edit.with_waits(free, Waits.of([(lane, 2, 1, 100_000.0), (lane, 3, 0, 50_000.0)]))
    solved = Period(of, Weights.of(of, Sample.unchanged()))
    (cycle,) = solved.cycles()
    # Gap and 20, 100 and 30, gap and 30; gap and 30, 50 and 20, gap and 20.
    assert (solved.ns.tolist(), cycle.runs) == ([(182_000 + 122_000) / 2], 2)
    assert sorted(cycle.places.tolist()) == sorted(of.topology.rows.tolist())


def test_slack_is_what_a_part_may_take_longer_in_every_step():
    of = base(schedule())
    slack = of.slack()[:, 0]
    assert slack[:2].tolist() == [0, 0]
    free = edit.without_waits(schedule(), nth(2), free=False)
    lazy = base(free)
    assert steady(free) == 52_000
    # The host has 27 of 52: all its calls of the run together may take 25 longer in each of the steps.
    assert lazy.slack()[2, 0] == pytest.approx(25_000 * STEPS)
    longer = np.where(np.arange(len(free.calls)) == 0, (10_000 + 25_000 * STEPS) / 10_000, 1.0)
    stretched = replace(free, calls=replace(free.calls, segment=free.calls.segment * longer))
    assert steady(stretched) == 52_000
    assert steady(replace(stretched, calls=replace(stretched.calls, segment=stretched.calls.segment + 1))) > 52_000


def test_drag_is_capped_by_what_runs_beside():
    free = edit.without_waits(schedule(), nth(2), free=False)
    rows = {r.what: r for r in critical_rows(base(free))}
    assert rows["first"].drag_ns == 52_000 - 27_000  # 30 go, then the host's 27 set the step
    assert rows["second"].drag_ns == 20_000
    assert rows["launching"].drag_ns == 0
    assert rows["launching"].criticality == 0
    assert rows["launching"].total_ns == 22_000
    net = rows.pop("Net")
    assert sum(r.cycle_ns for r in rows.values()) == pytest.approx(52_000)
    # All work is the module's; without it the gaps remain.
    assert (net.cycle_ns, net.drag_ns) == pytest.approx((50_000, 50_000))


def test_what_is_cut_is_summed(monkeypatch):
    monkeypatch.setattr("hpuprof.what_if.critical_rows.MAX_ROWS", 2)
    rows = critical_rows(base(schedule()))
    assert [(r.what, r.kind) for r in rows] == [
        ("first", "kernel"),
        ("second", "kernel"),
        ("rest", "host range"),  # long and never on the cycle
        ("Net", "module"),
        ("(others)", "other"),
    ]
    assert sum(r.cycle_ns for r in rows if r.kind != "module") == pytest.approx(67_000)


def test_sensitivity_says_from_where_on_a_faster_part_gains_nothing():
    free = edit.without_waits(schedule(), nth(2), free=False)
    rows = {r.what: r for r in sensitivity_rows(base(free))}
    first = rows["first"]
    assert [first.step_100_ns, first.step_75_ns, first.step_50_ns, first.step_25_ns, first.step_0_ns] == [
        52_000,
        44_500,
        37_000,
        29_500,
        27_000,
    ]
    assert first.no_gain_below == 0
    assert rows["launching"].no_gain_below == 1
    assert next(iter(rows)) == "first"  # the largest gain first
    assert no_gain_below(np.array([100.0, 90.0, 80.0, 80.0, 80.0])) == 0.5


def test_gains_of_a_faster_part_carry_the_model_s_own_error_and_stay_below_the_step():
    first, *_ = sensitivity_rows(base(schedule()))  # one sample
    middle = first.step_100_ns - first.step_0_ns
    assert np.log(first.gain_0_high_ns / first.gain_0_low_ns) == pytest.approx(2 * NORMAL_95 * GAIN_ERROR, rel=0.1)
    assert first.gain_0_low_ns < middle < first.gain_0_high_ns
    gain, now = np.array([[0.0, 50.0], [0.0, 99.0]]), np.array([100.0, 100.0])
    assert _with_model_error(gain, now).max() == 100.0


def test_repeated_kernels_fused_save_their_gaps_and_launches():
    of = schedule((5, 5))
    host = base(edit.without_waits(of, nth(2), free=False))
    (found,) = sequence_rows(host)
    assert found.kernels == ["first", "second"]
    assert (found.count_per_step, found.launches_saved, found.gap_ns) == (1, 1, 1_000)
    # The host sets the step: only the call of the first launch goes.
    assert found.fused_ns == 1_000


@st.composite
def cases(draw):
    first, second = draw(st.integers(0, 60)), draw(st.integers(0, 60))
    of = schedule((first, second), lanes=(0, draw(st.integers(0, 1))))
    if draw(st.booleans()):
        of = edit.without_waits(of, nth(2), free=False)
    host = np.array(draw(st.lists(st.integers(0, 40), min_size=PER_STEP, max_size=PER_STEP))) * 1_000.0
    of = replace(of, calls=replace(of.calls, segment=np.tile(host, STEPS)))
    factor = np.array(draw(st.lists(st.floats(0.3, 1.5), min_size=1, max_size=4)))
    return base(of, replace(Sample.unchanged(len(factor)), host_scale=factor), halves=draw(st.booleans()))


@settings(max_examples=80, deadline=None)
@given(cases())
def test_laws_of_the_cycle(of):
    step = of.period.step_ns
    # What the engine plays in a long run, and what the cycle is made of.
    long = play(of.schedule, of.sample, repeats=12).done
    per_run = (long[:, -1] - long[:, -1 - 4 * STEPS]) / (4 * STEPS)
    np.testing.assert_allclose(step, per_run, atol=0.01 * step.max())
    np.testing.assert_allclose(of.on_cycle.parts.sum(axis=0), step, atol=0.1)
    slack = of.slack()
    named = np.isfinite(slack)
    critical = of.on_cycle.parts > 0
    assert (slack[named & critical] < 0.1).all()


@settings(max_examples=80, deadline=None)
@given(cases(), st.integers(0, len(NAMES) + len(LATENCIES) - 1))
def test_laws_of_sensitivity(of, part):
    steps = curve(of, part)
    assert (steps[0] == of.period.step_ns).all()
    assert (np.diff(steps, axis=0) <= 1e-2).all()
    assert (steps[-1] == of.step_without(part)).all() or not of.on_cycle.work[part].any()
    np.testing.assert_allclose(steps[-1], of.step_at(part, 0.0), atol=0.1)
    for level, mine in zip(LEVELS, steps, strict=True):
        np.testing.assert_allclose(mine, of.step_at(part, level), atol=0.5)
    assert (of.period.step_ns - steps[-1] <= of.on_cycle.work[part] + 0.1).all()


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([0.0, 0.25, 0.6]))
def test_a_lighter_part_is_the_edit_of_its_rows_and_calls(of, level):
    work = of.work
    for which in (0, 1):
        edited = edit.scaled_rows(of.schedule, row(which), level)
        weights = Weights.of(edited, of.sample, work=work)
        np.testing.assert_allclose(steady_step(edited, weights), of.step_at(which, level), atol=0.1)
