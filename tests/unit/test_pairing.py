"""Begin and end rows to slices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.ingest.pairing import pair, pair_columns

NAMELESS = 0
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.booleans(), st.integers(0, 2)), min_size=1, max_size=24
)
CALLS = st.recursive(st.just([]), lambda inner: st.lists(st.tuples(st.integers(0, 2), inner), max_size=3), max_leaves=8)


def columns(rows):
    track, time, begins, name = zip(*rows, strict=True)
    return np.array(track, int), np.array(time, int), np.array(begins, bool), np.array(name, int)


def both(rows):
    expected = pair([(*row, 0) for row in rows], NAMELESS)
    slices, cut, lone = pair_columns(*columns(rows), nameless=NAMELESS)
    assert [tuple(pair) for pair in slices.tolist()] == expected.slices
    assert (cut, lone) == (len(expected.cut), len(expected.lone))
    return slices.tolist()


@given(ROWS)
def test_columns_pair_as_rows_do(rows):
    both(rows)


@given(CALLS.filter(bool), CALLS)
def test_nested_calls_on_two_tracks(first, second):
    def rows(track, calls):
        for name, inner in calls:
            yield track, True, name
            yield from rows(track, inner)
            yield track, False, name

    marks = [
        (track, time, begins, name) for time, (track, begins, name) in enumerate([*rows(0, first), *rows(1, second)])
    ]
    assert 2 * len(both(marks)) == len(marks)


def test_a_track_whose_calls_do_not_nest_is_paired_beside_those_that_do():
    a, b = 1, 2
    crossing = [(7, 0, True, a), (7, 1, True, b), (7, 2, False, a)]  # b is cut
    nested = [(3, 0, True, a), (3, 5, False, NAMELESS)]
    assert both([*crossing, *nested]) == [[3, 4], [0, 2]]
