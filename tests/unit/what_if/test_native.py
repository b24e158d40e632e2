"""The native loop: the numbers of numpy, wrong arguments refused before anything is read, and doing without it."""

from __future__ import annotations

import os
import subprocess
import sys

import hand_schedule
import needs
import numpy as np
import pytest
from msgspec.structs import asdict, replace

from hpuprof import native
from hpuprof.errors import ConfigError, MissingDependencyError
from hpuprof.native import choose
from hpuprof.what_if.graph import NEVER, CrosswiseError, Graph
from hpuprof.what_if.period import Period
from hpuprof.what_if.play import HostWork, Sample, Weights, pace, pass_through, play
from hpuprof.what_if.schedule import GRAPH_COSTS, KINDS, Calls, Schedule, Wait, Waits

EVENTS, EDGES, CHAINS, SAMPLES = 2000, 3000, 6, 7


@pytest.fixture
def built() -> native.LongestPaths:
    return native.longest_paths or needs.absent("native", "the native loop is not built")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("whole", [True, False])
def test_numbers_are_those_of_numpy(built, monkeypatch, whole, seed):
    """To the last bit with whole ns; else as close as sums of doubles are."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, EVENTS, (EDGES, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    graph = Graph.of(
        np.sort(rng.integers(-1, CHAINS, EVENTS)) if seed % 2 else rng.integers(-1, CHAINS, EVENTS), *ends.T
    )
    wide = rng.random(4) < 0.6  # else one sample serves for all
    wide[0] |= not wide.any()
    shapes = [(n, SAMPLES if w else 1) for n, w in zip((EVENTS, len(ends), CHAINS, EVENTS), wide, strict=True)]
    step, delay, begin, given = (rng.uniform(0, 1e6, shape) for shape in shapes)
    if whole:
        step, delay, begin, given = (np.floor(weights) for weights in (step, delay, begin, given))
    begin[0] = NEVER
    given[rng.random(EVENTS) < 0.9] = NEVER
    t = []
    for loop in (built, None):
        monkeypatch.setattr(native, "longest_paths", loop)
        t += [graph.times(step, delay, begin), graph.times(step, delay, begin, given)]
    for mine, numpys in zip(t[:2], t[2:], strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=0 if whole else 1e-9)


def test_what_is_not_a_number_stays_so_in_all_that_waits_for_it(built, monkeypatch):
    graph = Graph.of(np.array([0, 0, 1, 1, 2, 2]), np.array([1]), np.array([3]))
    step, delay, begin = np.ones((6, 1)), np.ones((1, 2)), np.zeros((3, 1))
    delay[0, 1] = step[4] = np.nan
    for loop in (built, None):
        monkeypatch.setattr(native, "longest_paths", loop)
        assert graph.times(step, delay, begin)[3].tolist() == pytest.approx([3, np.nan], nan_ok=True)
        assert np.isnan(graph.times(step, delay, begin)).sum() == 5


def call(built, **other):
    """Two events of one chain, the second of which also waits for the first through an edge, in three samples."""
    arrays = {
        "times": np.zeros((2, 3)),
        "before": np.array([~1, 0]),
        "first": np.array([0, 0, 1]),
        "source": np.array([0]),
        "step": np.ones((2, 1)),
        "delay": np.full((1, 3), 5.0),
        "begin": np.array([[10.0]]),
        "given": None,
        **other,
    }
    times, before, first, source, *weights = arrays.values()
    built(times, (before, first, source), tuple(weights))
    return times


def test_a_small_graph_by_hand(built):
    assert call(built).tolist() == [[11] * 3, [16] * 3]
    assert call(built, given=np.array([[12.0], [17.0]])).tolist() == [[12] * 3, [17] * 3]
    assert call(built, times=np.zeros((2, 0)), delay=np.zeros((1, 0)), step=np.zeros((2, 0))).shape == (2, 0)


LEAST = -(2**63)
WRONG = {
    "times": [np.zeros((2, 3), np.float32), np.zeros(6), np.zeros((3, 3)), np.zeros((3, 2)).T, np.zeros((2, 3), ">f8")],
    "before": [[~1, 1], [~1, 2], [~2, 0], [LEAST, 0], [0, 0], [~1], [~1, 0, 0], np.zeros(2, np.int32), np.zeros(2)],
    "first": [[0, 0, 2], [1, 0, 1], [0, 2, 1], [0, -1, 1], [0, LEAST, 1], [0, 0, 0], [0, 1], [0, 0, 1, 1], []],
    "source": [[1], [-1], [2], [LEAST], [2**62], [], [0, 0], [[0]]],
    "step": [np.ones((2, 2)), np.ones((1, 3)), np.ones((3, 1)), np.ones(2), np.ones((2, 0)), np.ones((2, 1), int)],
    "delay": [np.ones((2, 1)), np.ones((0, 3)), np.ones((1, 4))],
    "begin": [np.ones((1, 2)), np.ones((0, 1)), np.ones(1)],
    "given": [np.ones((2, 2)), np.ones((1, 3)), np.ones((2, 6))[:, ::2]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_arrays_that_do_not_fit_are_refused(built, name, value):
    array = value if isinstance(value, np.ndarray) else np.array(value, dtype=np.int64)
    with pytest.raises(ValueError, match=r"\w"):
        call(built, **{name: array})


def test_graphs_of_any_integers_are_solved_or_refused(built):
    """What the sanitizers of `make sanitize` look at: places before the beginning, behind the end, and far away."""
    rng = np.random.default_rng(5)
    solved = 0
    for _ in range(5000):
        events, edges, chains = rng.integers(0, 5, 3)
        odd = np.array([LEAST, -3, -2, -1, 0, 1, 2, 5, 2**40, 2**63 - 1])
        before = np.minimum(rng.integers(-1 - chains, 5, events), np.arange(events) - 1)
        first = np.sort(np.r_[0, rng.integers(0, edges + 1, max(events - 1, 0)), np.full(min(events, 1), edges)])
        source = rng.integers(0, max(events - 1, 1), edges)
        changed = (before, first, source)[rng.integers(3)]
        if rng.random() < 0.5 and len(changed):
            changed[rng.integers(len(changed))] = rng.choice(odd)
        step, delay, begin = (rng.random((n, rng.choice((1, 3)))) for n in (events, edges, chains))
        times = np.full((events, 3), np.nan)
        try:
            built(times, (before, first, source), (step, delay, begin, None))
        except ValueError:
            assert np.isnan(times).all()
            continue
        solved += 1
        assert not np.isnan(times).any()
    assert 500 < solved < 4500


def test_what_cannot_be_written_and_what_is_no_array_is_refused(built):
    fixed = np.zeros((2, 3))
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        call(built, times=fixed)
    for arguments in ((), (fixed, (), ()), (None, (None,) * 3, (None,) * 4), (fixed, [1, 2], 3)):
        with pytest.raises(TypeError):
            built(*arguments)


def test_it_can_be_left_out_and_asked_for(monkeypatch):
    assert choose("off") is None
    with pytest.raises(ConfigError, match="HPUPROF_NATIVE is 'on'"):
        choose("on")
    monkeypatch.setitem(sys.modules, "hpuprof._native", None)  # as where no compiler was
    assert choose("auto") is None
    with pytest.raises(MissingDependencyError, match="native part of hpuprof is not there"):
        choose("require")


def test_the_package_works_without_it(built, tmp_path):  # where it is built, so that leaving it out means something
    program = (
        "import sys; from numpy import array, ones; from hpuprof.what_if.graph import Graph\n"
        "t = Graph.of(array([0, 0]), array([0]), array([1])).times(ones((2, 1)), ones((1, 1)), ones((1, 1)))\n"
        "print('hpuprof._native' in sys.modules, t.ravel().tolist())"
    )
    for value, expected in (("off", "False [2.0, 3.0]"), ("require", "True [2.0, 3.0]")):
        ask = [sys.executable, "-c", program]  # from elsewhere: what is installed, not the checkout, may hold it
        environment = {**os.environ, "HPUPROF_NATIVE": value}
        done = subprocess.run(ask, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("seed", range(8))
def test_events_are_sorted_as_in_python(built, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, EVENTS, (EDGES, 2)), axis=1)
    columns = rng.integers(-1, CHAINS, EVENTS), *ends[ends[:, 0] < ends[:, 1]].T
    mine = Graph.of(*columns)
    monkeypatch.setattr(native, "sort_events", None)
    pythons = Graph.of(*columns)
    for name, column in asdict(mine).items():
        np.testing.assert_array_equal(column, asdict(pythons)[name], name)


@pytest.mark.parametrize("threads", [1, 2])
def test_host_work_is_that_of_numpy_to_the_last_bit(built, monkeypatch, threads):
    rng = np.random.default_rng(threads)
    work, rows = rng.uniform(0, 1e5, (EVENTS, 2)), rng.integers(0, 4, (EVENTS, 2, KINDS)) * 1.0
    rows[: EVENTS // 2, :, 1] = rows[:, :, 2] = 0
    work[:50] = 0
    of, none = rng.integers(0, threads, EVENTS), np.zeros(EVENTS, dtype=bool)
    calls = Calls(
        of, of, of, of, none, work[:, 0], rows[:, 0], work[:, 1], rows[:, 1], np.zeros((EVENTS, len(GRAPH_COSTS)))
    )
    schedule = Schedule(calls, None, None, None, 1, None, None)
    drawn = {name: rng.uniform(0.5, 5.0, shape.shape) for name, shape in asdict(Sample.unchanged(SAMPLES)).items()}
    sample = Sample(**(drawn | {"row_costs": 1e3 * drawn["row_costs"]}))
    mine = HostWork.of(schedule, sample)
    monkeypatch.setattr(native, "host_work", None)
    pythons = HostWork.of(schedule, sample)
    np.testing.assert_array_equal(mine.segment, pythons.segment)
    np.testing.assert_array_equal(mine.cost, pythons.cost)


def odd_schedule() -> tuple[Schedule, Sample]:
    """With times beyond 2**42 ns, where doubles are coarser than what weights are rounded to, and drawn costs."""
    rng, alone = np.random.default_rng(1), hand_schedule.schedule(lanes=(0, 1))
    lanes = Waits.of([(int(Wait.LANE), 2 * step + 1, 2 * step, 0.3) for step in range(hand_schedule.STEPS)])
    rows = replace(alone.rows, dur=rng.uniform(0, 1e5, 6), gap=np.append(rng.uniform(0, 1e5, 5), 5e12))
    schedule = Schedule.of(alone.calls, rows, alone.waits.also(lanes), alone.backlog, alone.steps)
    schedule = schedule.reweighted(elastic=np.arange(6) % 2 > 0, captured=np.arange(6) % 3 > 0)
    return schedule, Sample(**{n: rng.uniform(0.5, 1e4, x.shape) for n, x in asdict(Sample.unchanged(SAMPLES)).items()})


@pytest.mark.parametrize("host", [True, False])
def test_a_play_is_that_of_numpy_to_the_last_bit(built, monkeypatch, host):
    schedule, sample = odd_schedule()
    mine = play(schedule, sample, repeats=2, host=host)
    for loop in ("play_weights", "latest_of_groups"):
        monkeypatch.setattr(native, loop, None)
    numpys = play(schedule, sample, repeats=2, host=host)
    for name in ("done", "times"):
        np.testing.assert_array_equal(asdict(mine)[name], asdict(numpys)[name], name)
    np.testing.assert_array_equal(mine.weights.delay, numpys.weights.delay)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("count", [1, 8, 19])
def test_passing_through_is_that_of_numpy_to_the_last_bit(built, monkeypatch, host, count, seed):
    rng, (schedule, _) = np.random.default_rng(seed), odd_schedule()
    calls, rows = schedule.calls, schedule.rows
    apart = np.random.default_rng(seed + 3)  # those of `rng` would wait crosswise for some seeds
    thread = apart.integers(0, 2, len(calls)) if seed % 2 else calls.thread
    drawn = {
        name: rng.integers(0, 3, column.shape) * rng.uniform(0, 1e5, column.shape)
        for name, column in asdict(calls).items()
        if column.dtype == np.float64
    }
    waits = schedule.waits if seed % 3 else schedule.waits.only(schedule.waits.kind == Wait.LANE)
    schedule = Schedule.of(replace(calls, thread=thread, **drawn), rows, waits, schedule.backlog + 7e3, schedule.steps)
    sample = Sample(**{n: rng.uniform(0.5, 9.0, x.shape) for n, x in asdict(Sample.unchanged(count)).items()})
    begin = rng.uniform(0, 1e5, (len(schedule.backlog), count))
    at, finals = rng.permutation(len(schedule.topology.graph))[:5], schedule.topology.calls[-2:]
    found = []
    for loop in (native.play_steps, None):
        monkeypatch.setattr(native, "play_steps", loop)
        through = pass_through(schedule, sample, host=host, begin=begin, at=at, finals=finals)
        found.append((pace(schedule, sample, host=host), through))
    (mine, through), (numpys, other) = found
    np.testing.assert_array_equal(mine.step_times, numpys.step_times)
    for name, column in asdict(through).items():
        np.testing.assert_allclose(column, asdict(other)[name], rtol=1e-15 if (name, count) == ("work", 1) else 0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [1, 8, 11])
def test_steady_steps_and_their_cycles_are_those_of_numpy_to_the_last_bit(built, monkeypatch, count, seed):
    rng, (schedule, _) = np.random.default_rng(seed), odd_schedule()
    schedule = schedule.reweighted(dur=np.floor(rng.uniform(0, 1e5, 6)), gap=rng.uniform(0, 1e4, 6))
    sample = Sample(**{n: rng.uniform(0.5, 9.0, x.shape) for n, x in asdict(Sample.unchanged(count)).items()})
    weights = Weights.of(schedule, sample)
    found = []
    values = np.floor(rng.uniform(0, 1e5, (len(schedule.topology.chains.mutual), count)))
    for loops in ((native.end_times, native.walk_back), (None, None)):
        for name, loop in zip(("end_times", "walk_back"), loops, strict=True):
            monkeypatch.setattr(native, name, loop)
        period = Period(schedule, weights)
        found.append(((period.ns, *period._product(values)), period.cycles()))
    (mine, walked), (numpys, other) = found
    for one, two in zip(mine, numpys, strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(walked, other, strict=True):
        np.testing.assert_array_equal(one.places, two.places)
        np.testing.assert_array_equal(one.through, two.through)


def test_ends_and_walks_of_what_does_not_fit_are_refused(built):
    graph, one, at = (np.array([~1, 0]), np.array([0, 0, 1]), np.array([0])), np.ones((2, 3)), np.zeros(1, np.int64)
    weights, out, way = (one, np.ones((1, 3))), np.zeros((1, 3)), np.zeros((2, 2), np.int64)
    before, values = np.ones((1, 3), np.int64), np.full((1, 3), 5.0)
    native.end_times(out, before, graph, weights, (values, at, at + 1))
    assert (out.tolist(), before.tolist()) == ([[7.0] * 3], [[0] * 3])
    assert native.walk_back(way, graph, weights, np.array([[1.0] * 3, [2.0] * 3]), (1, 0, 2), 0.0) == 2
    assert way.tolist() == [[1, -1], [0, -1]]
    for changed in (
        (np.zeros((2, 3)), before, graph, weights, (values, at, at + 1)),
        (out, before[:, :2].copy(), graph, weights, (values, at, at + 1)),
        (out, before, graph, weights, (values.T.copy(), at, at + 1)),
        (out, before, (graph[0] + 1, *graph[1:]), weights, (values, at, at)),
        (out, before, graph, (one, one), (values, at, at)),
        (out, before, graph, weights, (values, at, at + 2)),
        (out, before, graph, weights, (values, at - 1, at)),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            native.end_times(*changed)
    for columns, begin in ((3, (1, 0, 3)), (3, (2, 0, 0)), (3, (1, 0, -1)), (2, (1, 0, 0))):
        with pytest.raises(ValueError, match="walk"):
            native.walk_back(way, graph, weights, np.zeros((2, columns)), begin, 0.0)


_FEW = np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("group", "which", "wrong"),
    [
        *((0, i, np.zeros((4, columns))) for i in range(5) for columns in (6, 7)),
        *((1, i, np.zeros((2, 4))) for i in range(5)),
        *((1, 5, array) for array in (_FEW, np.full(9, 2))),
        *((2, i, np.zeros(5)) for i in range(4)),
        *((2, i, np.full(6, 9)) for i in (4, 5)),
        *((3, i, np.zeros(1)) for i in range(2)),
        *((4, i, np.zeros((1, 7))) for i in (0, 1, 2, 3)),
        *((4, i, np.zeros((4, 6))) for i in range(5)),
        *((5, i, np.full(3, value)) for i in range(17) for value in (-3, 2**40)),
        (5, 15, _FEW),
    ],
)
def test_passages_of_what_does_not_fit_are_refused(built, monkeypatch, group, which, wrong):
    schedule, sample = odd_schedule()
    kept, whole = [], native.play_steps
    monkeypatch.setattr(native, "play_steps", lambda *given: kept.append(given) or whole(*given))
    pace(schedule, sample)
    groups, floor, host = kept[0]
    changed = [list(columns) for columns in groups]
    changed[group][which] = wrong
    with pytest.raises(ValueError, match=r"\w"):
        whole(tuple(tuple(columns) for columns in changed), floor, host)
    with pytest.raises(ValueError, match="takes 41 arrays"):
        whole(groups[:-1], floor, host)
    with pytest.raises(ValueError, match="tuples of arrays"):
        whole((None, *groups[1:]), floor, host)


_CALLS, _EVENTS = np.arange(2), np.arange(4)


@pytest.mark.parametrize(
    ("which", "wrong", "why"),
    [
        (0, _CALLS - 2, "previous"),
        (1, _CALLS + 3, "calls"),
        (2, _CALLS[:1], "rows"),
        (3, _CALLS + 2, "launches"),
        (4, np.array([3]), "waits"),
        (5, np.array([2]), "behind"),
        (6, np.array([2]), "waiting"),
        (6, _CALLS, "waiting"),
        (7, _CALLS + 1, "length"),
        (8, _CALLS + 1, "captured"),
    ],
)
def test_weights_of_a_topology_that_does_not_fit_are_refused(built, which, wrong, why):
    given = [_CALLS - 1, _CALLS, _CALLS + 2, _CALLS, np.array([2]), np.array([-1]), np.array([0]), _CALLS - 1, _CALLS]
    step, delay, two = (np.zeros(shape) for shape in ((4, 7), (3, 7), (2, 7)))

    def weigh() -> None:
        rows, drawn = (*[np.zeros(2)] * 4, np.zeros(1)), (np.zeros(7),) * 3
        native.play_weights((step, delay), (two, two), rows, drawn, two, tuple(given[7:]), tuple(given[:7]))

    weigh()
    given[which] = wrong
    with pytest.raises(ValueError, match=why):
        weigh()
    with pytest.raises(ValueError, match="groups"):
        native.latest_of_groups(two, step, (_EVENTS, _EVENTS))


@pytest.mark.parametrize(
    ("which", "shape", "why"),
    [(0, (2,), "work"), (1, (4, 3), "rows"), (2, (3, 6), "per_row"), (2, (2, 7), "per_row"), (3, (2, 7), "factor")],
)
def test_host_work_of_wrong_shapes_is_refused(built, which, shape, why):
    given = [np.zeros(s) for s in ((3,), (3, 3), (3, 7), (1, 7))]
    given[which] = np.zeros(shape)
    with pytest.raises(ValueError, match=f"{why} has the wrong shape"):
        native.host_work(np.empty((3, 7)), tuple(given), 0.15)


@pytest.mark.parametrize("python", [True, False])
def test_crosswise_events_are_refused(built, monkeypatch, python):
    if python:
        monkeypatch.setattr(native, "sort_events", None)
    with pytest.raises(CrosswiseError, match="4 of 4 events"):
        Graph.of(np.array([0, 0, 1, 1]), np.array([1, 3]), np.array([2, 0]))


@pytest.mark.parametrize(
    ("which", "wrong", "why"),
    [
        (0, np.empty((3, 3), dtype=np.int64), "stretches has the wrong shape"),
        (1, np.array([2]), "line must be one of"),
        (1, np.array([1, 2]), "length must count"),
        (2, np.array([0, 0, 2]), "line must be one of"),
        (2, np.array([0, -1, 0]), "line must be one of"),
        (3, np.array([0, 2, 0]), "position must be on its line"),
        (3, np.array([1, 1, 0]), "position must differ"),
        (3, np.array([0, 1]), "position has the wrong shape"),
        (4, np.array([3]), "edges must be of events"),
        (5, np.array([-1]), "edges must be of events"),
        (5, np.array([0, 1]), "target has the wrong shape"),
    ],
)
def test_what_cannot_be_sorted_is_refused(built, which, wrong, why):
    given = [np.empty((3, 4), dtype=np.int64), *map(np.array, ([2, 1], [0, 0, 1], [0, 1, 0], [0], [2]))]
    given[which] = wrong
    with pytest.raises(ValueError, match=why):
        native.sort_events(given[0], tuple(given[1:]))
