"""Intervals and nesting in the native part: numpy's numbers, and wrong arguments refused before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import needs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuprof import native
from hpuprof.analysis.forest import Nesting, forest, in_no_other
from hpuprof.model.intervals import (
    Intervals,
    contains,
    covered_before,
    intersect,
    measure,
    subtract,
    union,
    union_of,
)

LOOPS = (
    "combine_intervals",
    "contains_instants",
    "covered_before",
    "in_no_other",
    "innermost_rows",
    "nest_rows",
    "open_rows",
    "row_stops",
    "rows_around",
    "unite_intervals",
)
SIZE = 40
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, SIZE), st.integers(0, SIZE)), max_size=25)
INSTANTS = np.arange(-3, 2 * SIZE + 3)


@contextmanager
def without_loops() -> Iterator[None]:
    """Leave measuring to numpy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in LOOPS:
            patch.setattr(native, name, None)
        yield


@pytest.fixture(autouse=True, scope="module")
def built() -> None:
    """Say which tests are missing where nothing is built."""
    if native.unite_intervals is None:
        needs.absent("native", "the native loops are not built")


def both(computed: Callable[[], Any]) -> None:
    """Compare a result, arrays or tuples of them, with numpy's."""
    mine = computed()
    with without_loops():
        numpys = computed()
    for a, b in zip(mine, numpys, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Track, start and end of rows by track, start and falling end."""
    ordered = sorted((track, start, -(start + length)) for track, start, length in rows)
    track, start, end = np.array(ordered, dtype=np.int64).reshape(-1, 3).T
    return track.astype(np.int32), start.copy(), -end


@given(ROWS, st.booleans())
def test_unions_and_lengths_are_those_of_numpy(rows, ascending):
    track, start, end = columns(rows)
    some, order = track > 0, np.argsort(start, kind="stable") if ascending else np.arange(len(start))
    end = np.where(track == 1, end - 2, end)  # some are empty, or end before they begin

    def computed() -> list[np.ndarray]:
        a, b = union(start[order], end[order], some[order]), union(start, end, ~some)
        # Windows of neighboring steps touch, and one may be empty.
        steps = Intervals(np.array([3, 9, 9, 20]), np.array([9, 9, 20, 31]))
        found = [a, b, union(start, end), union_of(a, b), union_of(a, steps), *(f(a, b) for f in (intersect, subtract))]
        found += [f(*pair) for f in (intersect, subtract) for pair in ((a, steps), (steps, a))]
        lengths = [
            covered_before(a, INSTANTS),
            contains(a, INSTANTS),
            contains(steps, INSTANTS),
            measure(a, start, end),
        ]
        return [c for each in found for c in (each.start, each.end)] + lengths

    both(computed)


@given(ROWS, st.lists(st.booleans(), min_size=25, max_size=25))
def test_a_forest_is_that_of_numpy(rows, marks):
    track, start, end = columns(rows)
    marked = np.array(marks[: len(track)], dtype=bool)
    when = np.repeat(INSTANTS[None], 4, axis=0).ravel()
    lane = np.arange(4).repeat(len(INSTANTS)).astype(np.int32)  # the last has no rows

    def computed() -> list[Any]:
        nesting = forest(np.arange(len(track)), track, start, end)
        outer = in_no_other(track, start, end), nesting.outermost(marked.astype(np.int32))
        inside = nesting.innermost(lane, when), nesting.innermost(lane[::-1], when[::-1])
        return [nesting.parent, nesting.end, nesting.stop, nesting.around(marked), nesting.depth, *outer, *inside]

    both(computed)
    nesting = forest(np.arange(len(track)), track, start, end)
    found = nesting.innermost(lane, when)
    for at, on, now in zip(found.tolist(), lane.tolist(), when.tolist(), strict=True):
        holding = np.flatnonzero((track == on) & (start <= now) & (nesting.end > now))
        assert at == (holding[-1] if len(holding) else -1)


_INTS, _TRACKS, _MARKS = np.zeros(3, np.int64), np.zeros(3, np.int32), np.zeros(3, bool)
_PAIR, _FOUND = (_INTS, _INTS), np.zeros((2, 6), np.int64)
_RIGHT: dict[str, tuple[Any, ...]] = {
    "combine_intervals": ("and", _FOUND, _PAIR, _PAIR),
    "contains_instants": (_MARKS, _PAIR, _INTS),
    "covered_before": (_INTS, _PAIR, np.zeros(4, np.int64), _INTS),
    "in_no_other": (_MARKS, _TRACKS, _PAIR, 1),
    "innermost_rows": (_INTS, _PAIR, (_TRACKS, _INTS), 2),
    "nest_rows": (_INTS, _INTS, _TRACKS, _INTS),
    "open_rows": (_FOUND, (_TRACKS, _INTS, _INTS, _INTS - 1), 2),
    "row_stops": (_INTS, _INTS - 1),
    "rows_around": (_INTS, _MARKS, _INTS),
    "unite_intervals": (_FOUND[:, :3], _INTS, _INTS, _MARKS),
}


def spoilt(value: Any) -> Iterator[Any]:
    """Arguments of another type, shape or length in place of one."""
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            for wrong in spoilt(part):
                yield (*value[:i], wrong, *value[i + 1 :])
    elif isinstance(value, np.ndarray):
        yield from (value.astype(np.float64), value[None], value[..., :-1].copy())


@pytest.mark.parametrize("loop", LOOPS)
def test_wrong_arrays_are_refused(loop):
    call = getattr(native, loop)
    right = tuple(v.copy() if isinstance(v, np.ndarray) else v for v in _RIGHT[loop])
    call(*right)
    for wrong in spoilt(right):
        with pytest.raises(ValueError, match=r"must be|wrong shape"):
            call(*wrong)


def test_codes_parents_and_ways_are_checked():
    with pytest.raises(ValueError, match="codes must be less"):
        native.in_no_other(_MARKS.copy(), _TRACKS + 1, _PAIR, 1)
    with pytest.raises(ValueError, match="parent must come before"):
        native.row_stops(_INTS.copy(), np.array([-1, 1, 0]))
    with pytest.raises(ValueError, match="how must be"):
        native.combine_intervals("xor", _FOUND.copy(), _PAIR, _PAIR)


def test_intervals_out_of_order_do_not_write_past_the_end():
    whole = np.zeros(9, np.int64), np.full(9, 5)
    with pytest.raises(ValueError, match="disjoint and in order"):
        native.combine_intervals("and", np.zeros((2, 18), np.int64), whole, whole)


def test_tracks_and_times_past_63_bits_are_refused():
    """Reading lets no such trace through."""
    start, end = np.zeros(2, np.int64), np.full(2, 2**40)
    nesting = forest(np.arange(2), np.array([0, 2**20], np.int32), start, end)

    def computed() -> list[Any]:
        assert nesting.innermost(nesting.track, start).tolist() == [0, 1]
        with pytest.raises(OverflowError, match="more than 63 bits"):
            nesting.innermost(np.array([0, 2**23], np.int32), start)
        with pytest.raises(OverflowError, match="more than 63 bits"):
            _ = forest(np.arange(2), np.array([0, 2**23], np.int32), start, end)._open
        return []

    both(computed)


def test_a_deep_forest_takes_no_longer_than_a_flat_one():
    count = 200_000
    track, start = np.zeros(count, np.int32), np.arange(count)
    nesting = forest(start, track, start, 2 * count - start)
    assert isinstance(nesting, Nesting)
    assert nesting.innermost(track, start + count)[[0, -1]].tolist() == [count - 1, 0]
