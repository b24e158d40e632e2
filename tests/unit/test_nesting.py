"""How viewers nest slices: by hand, at the borders of their arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from hpuprof.viewers.nesting import count_crossing, crossed_in_chrome, dropped_by_perfetto, perfetto_ns, perfetto_track

EPOCH = 1_712_195_495_520_906


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1694128201545000", 1_694_128_201_545_000_000),  # a whole number is exact, however large
        ("1712195495520906.460", 1_712_195_495_520_906_496),  # the double .5, times 1000 as a double
        ("5114209665899.086", 5_114_209_665_899_086),  # between 2^52 and 2^53 ns, where adding a half rounds up
        ("3.9999", 4000),
        ("4.0005", 4000),
        ("1e3", 1_000_000),
    ],
)
def test_perfetto_reads_stamps_so(text: str, ns: int):
    assert perfetto_ns(np.array([float(text)])).tolist() == [ns]


def test_perfetto_puts_rows_that_it_cannot_number_on_the_main_thread():
    assert perfetto_track(7, 2**40) == perfetto_track(7, -1) == perfetto_track(7, None) == (7, 7)
    assert perfetto_track(-1, 5) == (0, 5)
    assert perfetto_track("7", "5") != perfetto_track(7, 5)


def test_whole_microseconds_of_epoch_size_do_not_cross():
    start = np.array([EPOCH, EPOCH + 1, EPOCH + 4], dtype=float)
    dur = np.array([10.0, 9.0, 6.0])
    track = np.zeros(3, dtype=np.int64)
    assert dropped_by_perfetto(track, start, dur, np.ones(3, dtype=bool)) == 0
    assert crossed_in_chrome(track, start, dur, unit="ms") == 0


def test_chrome_forgives_less_than_a_microsecond_unless_the_file_counts_in_ns():
    start, dur, track = np.array([0.0, 5.0]), np.array([10.0, 5.4]), np.zeros(2, dtype=np.int64)
    assert [crossed_in_chrome(track, start, dur, unit=unit) for unit in ("ms", "ns")] == [0, 1]
    assert count_crossing(track, np.array([0, 5000]), np.array([10000, 10400])) == 1


def test_a_begin_row_neither_drops_nor_is_dropped_in_perfetto():
    start, dur, track = np.array([0.0, 5.0]), np.array([10.0, 10.0]), np.zeros(2, dtype=np.int64)
    complete = [[True, True], [False, True], [True, False]]
    assert [dropped_by_perfetto(track, start, dur, np.array(c)) for c in complete] == [1, 0, 0]


def test_a_row_that_ends_takes_begin_rows_inside_it_along_in_perfetto():
    # The begin row at 6 would let the row from 12 to 120 stay; it goes with the one from 5 to 10, which holds it.
    start, dur, track = (
        np.array([0.0, 5.0, 6.0, 12.0]),
        np.array([100.0, 5.0, 44.0, 108.0]),
        np.zeros(4, dtype=np.int64),
    )
    assert dropped_by_perfetto(track, start, dur, np.array([True, True, False, True])) == 1
