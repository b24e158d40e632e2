"""Interval algebra against a bitmap: one cell per nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.model.intervals import (
    EMPTY,
    Intervals,
    clip,
    complement,
    contains,
    covered_before,
    intersect,
    measure,
    subtract,
    union,
    union_of,
)

SIZE = 60
PAIRS = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)
INSTANTS = st.lists(st.integers(-5, SIZE + 5), min_size=1, max_size=8)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p[0] for p in pairs], dtype=np.int64), np.array([p[1] for p in pairs], dtype=np.int64)


def bitmap(pairs: list[tuple[int, int]]) -> np.ndarray:
    cells = np.zeros(SIZE, dtype=bool)
    for start, end in pairs:
        cells[start:end] = True
    return cells


def make(pairs: list[tuple[int, int]]) -> Intervals:
    return union(*columns(pairs))


def cells(a: Intervals) -> np.ndarray:
    """Bitmap of a canonical set; checks that it is canonical."""
    assert (a.end > a.start).all()
    assert (a.start[1:] > a.end[:-1]).all()
    assert (a.start.dtype, a.end.dtype) == (np.int64, np.int64)
    return bitmap(list(zip(a.start.tolist(), a.end.tolist(), strict=True)))


@given(PAIRS)
def test_union_covers_what_any_row_covers_and_is_no_longer_than_the_sum(pairs):
    a = make(pairs)
    assert (cells(a) == bitmap(pairs)).all()
    assert a.total_ns == bitmap(pairs).sum() == a.dur.sum()
    assert a.total_ns <= sum(max(0, e - s) for s, e in pairs)


@given(PAIRS, PAIRS, PAIRS)
def test_set_operations_agree_with_the_bitmap(x, y, z):
    a, b, c = make(x), make(y), make(z)
    assert (cells(intersect(a, b)) == (bitmap(x) & bitmap(y))).all()
    assert (cells(subtract(a, b)) == (bitmap(x) & ~bitmap(y))).all()
    assert (cells(union_of(a, b, c)) == (bitmap(x) | bitmap(y) | bitmap(z))).all()
    assert (cells(union_of(a, EMPTY)) == bitmap(x)).all()


@given(PAIRS, st.integers(0, SIZE), st.integers(0, SIZE))
def test_busy_and_idle_fill_the_window(pairs, low, high):
    a = make(pairs)
    window = bitmap([(low, high)])
    busy, idle = clip(a, low, high), complement(a, low, high)
    assert (cells(busy) == (bitmap(pairs) & window)).all()
    assert (cells(idle) == (~bitmap(pairs) & window)).all()
    assert busy.total_ns + idle.total_ns == max(0, high - low)


@given(PAIRS, INSTANTS)
def test_covered_before_and_contains_agree_with_the_bitmap(pairs, instants):
    a, when = make(pairs), np.array(instants, dtype=np.int64)
    assert covered_before(a, when).tolist() == [int(bitmap(pairs)[: max(0, t)].sum()) for t in instants]
    assert contains(a, when).tolist() == [bool(0 <= t < SIZE and bitmap(pairs)[t]) for t in instants]


@given(PAIRS, PAIRS)
def test_measure_agrees_with_the_bitmap_in_overlapping_windows(pairs, windows):
    windows = [(min(w), max(w)) for w in windows]
    assert measure(make(pairs), *columns(windows)).tolist() == [int(bitmap(pairs)[s:e].sum()) for s, e in windows]


@given(PAIRS, PAIRS, st.integers(-(2**61), 2**61))
def test_shifting_everything_shifts_the_result(x, y, shift):
    def moved(a: Intervals) -> Intervals:
        return Intervals(a.start + shift, a.end + shift)

    for operation in (intersect, subtract, union_of):
        here, there = operation(make(x), make(y)), operation(moved(make(x)), moved(make(y)))
        assert (here.start + shift).tolist() == there.start.tolist()
        assert (here.end + shift).tolist() == there.end.tolist()
