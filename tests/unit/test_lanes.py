"""Spreading slices over lanes: nothing crosses, nothing is lost, no lane too many."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.viewers import lanes as lanes_module
from hpuprof.viewers.lanes import arrange, disjoint, nest, nested, spread

FRAME, DEVICE, ANNOTATION = 0, 1, 2
Slices = list[tuple[int, int]]

slices = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=40).map(
    lambda rows: sorted(((s, s + d) for s, d in rows), key=lambda r: (r[0], -r[1]))
)


def cross(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Two slices cross when they overlap and neither lies within the other."""
    return a[0] < b[0] < a[1] < b[1] or b[0] < a[0] < b[1] < a[1]


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """`a` begins no later than `b` and still runs when that begins."""
    return a[1] > b[0]


def lanes_of(rows: Slices, lanes: list[int]) -> dict[int, Slices]:
    out: dict[int, Slices] = {}
    for row, lane in zip(rows, lanes, strict=True):
        out.setdefault(lane, []).append(row)
    return out


@given(slices)
def test_spread_lanes_are_disjoint_and_as_few_as_possible(rows: Slices):
    lanes = spread([r[0] for r in rows], [r[1] for r in rows])
    for members in lanes_of(rows, lanes).values():
        assert not any(overlap(a, b) for i, a in enumerate(members) for b in members[i + 1 :])
    # Slices that run at one moment need a lane each: the fewest lanes are the most that run when one begins.
    most = max((1 + sum(overlap(a, b) for a in rows[:i]) for i, b in enumerate(rows)), default=0)
    assert sorted(set(lanes)) == list(range(most))


@given(slices)
def test_nest_never_crosses(rows: Slices):
    lanes = nest([r[0] for r in rows], [r[1] for r in rows])
    for members in lanes_of(rows, lanes).values():
        assert not any(cross(a, b) for i, a in enumerate(members) for b in members[i + 1 :])


@given(slices)
def test_nested_agrees_with_the_definition(rows: Slices):
    crossing = any(cross(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :])
    assert nested([r[0] for r in rows], [r[1] for r in rows]) == (not crossing)
    if not crossing:
        assert set(nest([r[0] for r in rows], [r[1] for r in rows])) <= {0}


@given(slices, st.data())
def test_arrange_places_every_slice_and_crosses_nowhere(rows: Slices, data: st.DataObject):
    groups = data.draw(st.lists(st.sampled_from([FRAME, DEVICE, ANNOTATION]), min_size=len(rows), max_size=len(rows)))
    start, end = (np.array([r[i] for r in rows], dtype=np.int64) for i in (0, 1))
    places = arrange(start, end, np.array(groups, dtype=np.int64), apart=DEVICE)
    assert len(places) == len(rows)
    for place in set(places):
        members = [i for i, p in enumerate(places) if p == place]
        for i, a in enumerate(members):
            for b in members[i + 1 :]:
                assert not cross(rows[a], rows[b])
                if groups[a] == groups[b] == DEVICE:
                    assert not overlap(rows[a], rows[b])


def place(*rows: tuple[int, int, int]) -> list[tuple[int, int]]:
    start, end, group = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return arrange(start, end, group, apart=DEVICE)


def test_a_track_that_nests_stays_as_it_is():
    assert place((0, 10, FRAME), (0, 10, ANNOTATION), (2, 8, FRAME), (8, 10, FRAME)) == [(0, 0)] * 4


def test_annotations_that_half_overlap_a_frame_all_move_together():
    # The frame 0-5 enters the annotation 3-9; the annotation 20-30 harms nobody but belongs beside the first.
    rows = ((0, 5, FRAME), (3, 9, ANNOTATION), (10, 12, FRAME), (20, 30, ANNOTATION))
    assert place(*rows) == [(0, 0), (ANNOTATION, 0), (0, 0), (ANNOTATION, 0)]


def test_kernels_that_run_at_the_same_time_get_lanes_even_where_one_lies_within_the_other():
    assert place((0, 10, DEVICE), (2, 4, DEVICE), (3, 6, DEVICE), (5, 7, DEVICE)) == [(0, 0), (0, 1), (0, 2), (0, 1)]


def test_an_annotation_around_kernels_stays_with_them():
    assert place((0, 10, ANNOTATION), (1, 4, DEVICE), (4, 9, DEVICE)) == [(0, 0)] * 3


def test_touching_slices_are_disjoint():
    assert disjoint(np.array([0, 5]), np.array([5, 6]))
    assert not disjoint(np.array([0, 4]), np.array([5, 6]))


@given(slices)
def test_many_lanes_are_chosen_as_few_are(rows: Slices):
    start, end = [r[0] for r in rows], [r[1] for r in rows]
    with patch.object(lanes_module, "_FEW", 1):
        assert nest(start, end) == _first_that_fits(rows)


def _first_that_fits(rows: Slices) -> list[int]:
    lanes: list[Slices] = []
    out = []
    for row in rows:
        fits = [i for i, lane in enumerate(lanes) if not any(cross(row, other) for other in lane)]
        out.append(fits[0] if fits else len(lanes))
        lanes.append([]) if not fits else None
        lanes[out[-1]].append(row)
    return out
