"""Pairing the ends of flow arrows."""

from __future__ import annotations

import numpy as np

from hpuprof.viewers.flows import END, START, STEP, pair


def arrows(*points: tuple[int, int, int]):
    """Pair points of (key, time, phase)."""
    key, when, phase = zip(*points, strict=True)
    return pair(np.array(key, dtype=np.int32), np.array(when, dtype=np.int64), np.array(phase, dtype=np.int8))


def test_each_pair_has_a_number_of_its_own():
    found = arrows((7, 1, START), (8, 2, START), (7, 3, END), (8, 4, END))
    assert found.ids.tolist() == [1, 2, 1, 2]
    assert found.count == 2


def test_a_number_that_is_used_again_is_a_new_arrow():
    assert arrows((7, 1, START), (7, 2, END), (7, 5, START), (7, 6, END)).ids.tolist() == [1, 1, 2, 2]


def test_one_start_with_three_ends_gives_three_arrows():
    found = arrows((7, 1, START), (7, 2, END), (7, 3, END), (7, 4, END))
    assert found.ids.tolist() == [1, 1, 2, 3]
    assert found.copies == [(0, 2), (0, 3)]


def test_steps_belong_to_their_chain():
    assert arrows((7, 1, START), (7, 2, STEP), (7, 3, STEP), (7, 4, END)).ids.tolist() == [1, 1, 1, 1]


def test_points_without_a_partner_have_no_number():
    assert arrows((1, 1, START), (2, 1, END), (3, 5, START), (3, 4, END)).ids.tolist() == [0, 0, 0, 0]


def test_an_end_that_stands_before_its_start_at_the_same_time_is_told():
    found = arrows((7, 5, END), (7, 5, START))
    assert found.ids.tolist() == [1, 1]
    assert found.early == [(0, 1)]
