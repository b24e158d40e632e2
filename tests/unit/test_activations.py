"""Joining calls to device work first in, first out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.analysis.activations import align


@pytest.mark.parametrize(
    ("calls", "made", "expected"),
    [
        ([0, 10, 20], [5, 15, 25], [0, 1, 2]),
        ([10, 20], [5, 15, 25], [-1, 0, 1]),  # the first was launched before the recording
        ([0, 10, 20], [5, 15], [0, 1]),  # the last call's work lies behind the recording
        ([0, 10, 20], [12, 25], [1, 2]),  # where both places are possible, the one with less waiting
        ([0, 10], [50, 60], [0, 1]),  # a full queue: late, and in order all the same
        ([30, 40], [5, 15], [-1, -1]),  # nothing begins before its call
        ([], [1, 2], [-1, -1]),
        ([1, 2], [], []),
    ],
)
def test_align(calls: list[int], made: list[int], expected: list[int]) -> None:
    assert align(np.array(calls, dtype=np.int64), np.array(made, dtype=np.int64)).tolist() == expected


@given(st.lists(st.integers(0, 1000), max_size=40), st.lists(st.integers(0, 1000), max_size=40))
def test_no_work_begins_before_its_call_and_the_order_is_kept(calls: list[int], made: list[int]) -> None:
    called, work = np.array(sorted(calls), dtype=np.int64), np.array(sorted(made), dtype=np.int64)
    found = align(called, work)
    paired = [(int(call), int(work[i])) for i, call in enumerate(found.tolist()) if call >= 0]
    assert all(called[call] <= begins for call, begins in paired)
    places = [call for call, _ in paired]
    assert places == list(range(places[0], places[0] + len(places))) if places else True


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 30))
def test_work_that_follows_its_call_at_once_is_found_again(gaps: list[int], late: int) -> None:
    called = np.cumsum(np.array(gaps, dtype=np.int64))
    assert align(called, called + late).tolist() == list(range(len(called)))
