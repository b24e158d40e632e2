"""Which rows a call waited for, against a look at each lane by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.what_if.host_waits import LATE, WAITED, _drained, _earlier_on_lane

LANES = 4


def lane_by_lane(lanes: list[int], ends: list[int], begin: int, end: int) -> list[int]:
    found = []
    for lane in range(LANES):
        launched = [row for row, on in enumerate(lanes) if on == lane]
        over = [row for row in launched[-64:] if ends[row] <= end + LATE]
        if over and (over[-1] == launched[-1] or max(end - WAITED, begin + 1) <= ends[over[-1]]):
            found.append(over[-1])
    return found


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, LANES - 1), st.integers(-20, 20)), max_size=12),
    st.integers(0, 70),
    st.integers(0, 30),
)
def test_each_lane_s_last_row_that_was_over_counts(rows, again, waited):
    # Ends in multiples of 2 µs about the return of the call at 0; one lane is far ahead.
    lanes = [lane for lane, _ in rows] + [0] * again
    ends = [2_000 * end for _, end in rows] + [1_000_000] * again
    latest = np.full(LANES, -1)
    latest[lanes] = np.arange(len(lanes))
    earlier = _earlier_on_lane(np.array(lanes, dtype=np.int64))
    found = _drained(latest, earlier, np.array(ends, dtype=np.int64), -2_000 * waited, 0)
    assert found.tolist() == lane_by_lane(lanes, ends, -2_000 * waited, 0)
