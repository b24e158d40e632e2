"""The event graph against a solver that goes event by event, and the laws that hold for every graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import needs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof import native
from hpuprof.model.arrays import Floats, Ints
from hpuprof.what_if.graph import HUB, NEVER, CrosswiseError, Graph

SAMPLES = 3


@pytest.fixture(params=["native", "numpy"], scope="module", autouse=True)
def _with(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs with the native loop and without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(native, "longest_paths", None)
        elif native.longest_paths is None:
            needs.absent("native", "the native loop is not built")
        yield


@dataclass(frozen=True)
class Case:
    """A random graph with weights of whole ns, so that sums are exact."""

    chain: Ints
    source: Ints
    target: Ints
    step: Floats
    delay: Floats
    begin: Floats
    given: Floats | None

    def times(self) -> Floats:
        return Graph.of(self.chain, self.source, self.target).times(self.step, self.delay, self.begin, self.given)

    def naive(self) -> Floats:
        """Go event by event, as often as it takes."""
        t: dict[int, Floats] = {}
        while len(t) < len(self.chain):
            for v, chain in enumerate(self.chain.tolist()):
                before = [u for u in range(v) if chain != HUB and self.chain[u] == chain]
                into = np.flatnonzero(self.target == v)
                needed = [*before[-1:], *self.source[into].tolist()]
                if v in t or any(u not in t for u in needed):
                    continue
                come = [t[int(self.source[e])] + self.delay[e] for e in into]
                if chain != HUB:
                    come.append((t[before[-1]] if before else self.begin[chain]) + self.step[v])
                if self.given is not None:
                    come.append(self.given[v])
                t[v] = np.max(come, axis=0) if come else np.full(SAMPLES, NEVER)
        return np.stack([t[v] for v in range(len(t))])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, chains = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    chain = rng.integers(HUB if rng.random() < 0.5 else 0, chains, count)
    edges = int(rng.integers(0, 2 * count))
    # Events are numbered in an order in which they can happen; then the chains are shuffled among each other.
    ends = np.sort(rng.integers(0, count, (edges, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    number = np.argsort(np.argsort(rng.random(chains + 1))[chain + 1], kind="stable")
    place = np.argsort(number)
    weights = [rng.integers(0, 50, (size, SAMPLES)).astype(float) for size in (count, len(ends), chains)]
    weights[2][rng.random(chains) < 0.3] = NEVER
    given_times = np.where(rng.random((count, 1)) < 0.2, rng.integers(0, 99, (count, SAMPLES)), NEVER)
    given_ = given_times.astype(float) if rng.random() < 0.5 else None
    return Case(chain[number], place[ends[:, 0]], place[ends[:, 1]], *weights, given_)


@settings(max_examples=600, deadline=None)
@given(cases())
def test_equals_going_event_by_event(case: Case) -> None:
    np.testing.assert_array_equal(case.times(), case.naive())


@settings(max_examples=200, deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_order_of_edges_and_of_chains_among_each_other_changes_nothing(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    by = rng.permutation(len(case.source))
    rank = rng.random(len(case.chain))
    for chain in np.unique(case.chain[case.chain != HUB]):  # within a chain events keep their order
        mine = np.flatnonzero(case.chain == chain)
        rank[mine] = np.sort(rank[mine])
    events = np.argsort(rank)
    place = np.argsort(events)
    shuffled = replace(
        case,
        chain=case.chain[events],
        source=place[case.source[by]],
        target=place[case.target[by]],
        step=case.step[events],
        delay=case.delay[by],
        given=None if case.given is None else case.given[events],
    )
    np.testing.assert_array_equal(shuffled.times(), case.times()[events])


@settings(max_examples=200, deadline=None)
@given(cases())
def test_unit_and_shift_of_time_change_nothing(case: Case) -> None:
    scaled = replace(case, step=case.step * 8, delay=case.delay * 8, begin=case.begin * 8)
    scaled = replace(scaled, given=None if case.given is None else case.given * 8)
    np.testing.assert_array_equal(scaled.times(), case.times() * 8)
    shifted = replace(case, begin=case.begin + 1000, given=None if case.given is None else case.given + 1000)
    np.testing.assert_array_equal(shifted.times(), case.times() + 1000)


@settings(max_examples=200, deadline=None)
@given(cases(), st.data())
def test_later_weights_make_nothing_earlier(case: Case, data: st.DataObject) -> None:
    which = data.draw(st.sampled_from(["step", "delay", "begin"]))
    more = getattr(case, which).copy()
    if len(more):
        more[data.draw(st.integers(0, len(more) - 1))] += 7
    assert (replace(case, **{which: more}).times() >= case.times()).all()


@settings(max_examples=200, deadline=None)
@given(cases(), st.data())
def test_paths_from_one_event_are_times_after_it_alone(case: Case, data: st.DataObject) -> None:
    graph = Graph.of(case.chain, case.source, case.target)
    place = data.draw(st.integers(0, len(graph) - 1))
    only = np.full((len(graph), 1), NEVER)
    only[graph.order[place]] = 0.0
    alone = replace(case, begin=np.full_like(case.begin, NEVER), given=only).times()[graph.order]
    paths = graph.after(place, case.step[graph.order], case.delay[graph.edges])
    np.testing.assert_array_equal(paths, alone[place:])
    assert (alone[:place] == NEVER).all()


@settings(max_examples=200, deadline=None)
@given(cases())
def test_one_sample_serves_for_all(case: Case) -> None:
    first = replace(case, step=case.step[:, :1], delay=case.delay, begin=case.begin[:, :1], given=None)
    spread = replace(first, step=np.tile(first.step, SAMPLES), begin=np.tile(first.begin, SAMPLES))
    np.testing.assert_array_equal(np.broadcast_to(first.times(), spread.times().shape), spread.times())


def test_events_that_wait_for_each_other_are_refused() -> None:
    # Two lanes: the first row of each waits for the second row of the other.
    chain = np.array([0, 0, 1, 1])
    with pytest.raises(CrosswiseError, match=r"4 of 4 events wait for each other crosswise"):
        Graph.of(chain, np.array([3, 1]), np.array([0, 2]))
    with pytest.raises(CrosswiseError):
        Graph.of(chain, np.array([1]), np.array([0]))  # waits for what comes behind it on its own chain
    with pytest.raises(CrosswiseError):
        Graph.of(np.array([HUB]), np.array([0]), np.array([0]))


def test_a_small_graph_by_hand() -> None:
    """Host calls at 10 and 20; a row each, launched 5 after the call and 30 long; the host then waits for the second.

    Rows end at 45 and 75; the host goes on at 75.
    """
    chain = np.array([0, 0, 0, 1, 1])  # three calls, two rows
    graph = Graph.of(chain, source=np.array([0, 1, 4]), target=np.array([3, 4, 2]))
    step = np.array([[10.0], [10.0], [1.0], [30.0], [30.0]])
    delay = np.array([[35.0], [35.0], [0.0]])
    t = graph.times(step, delay, np.array([[0.0], [NEVER]]))
    assert t[:, 0].tolist() == [10, 20, 75, 45, 75]
