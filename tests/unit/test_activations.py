"""Joining calls to device work first in, first out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.analysis.alignment import align
from hpuprof.analysis.links import link, linked_share
from hpuprof.model.intervals import Intervals
from hpuprof.model.trace import Trace


@pytest.mark.parametrize(
    ("calls", "made", "expected"),
    [
        ([0, 10, 20], [5, 15, 25], [0, 1, 2]),
        ([10, 20], [5, 15, 25], [-1, 0, 1]),  # the first was launched before the recording
        ([0, 10, 20], [5, 15], [0, 1]),  # the last call's work lies behind the recording
        ([0, 10, 20], [12, 25], [0, 1]),  # however long it waited
        ([10, 20, 30], [5, 32, 42], [-1, 0, 1]),  # what begins before any call was launched before the recording
        ([0, 10], [50, 60], [0, 1]),  # a full queue: late, and in order all the same
        ([30, 40], [5, 15], [-1, -1]),  # nothing begins before its call
        # Two were launched before the recording, as otherwise some would begin before their calls; two calls wait.
        ([10, 250, 260, 450, 460, 650, 660], [20, 120, 220, 320, 420, 520, 620], [-1, -1, 0, 1, 2, 3, 4]),
        ([], [1, 2], [-1, -1]),
        ([1, 2], [], []),
    ],
)
def test_align(calls: list[int], made: list[int], expected: list[int]) -> None:
    assert align(np.array(calls, dtype=np.int64), np.array(made, dtype=np.int64)).at.tolist() == expected


@pytest.mark.parametrize(
    ("waited", "expected"),
    [
        ([], [-1, 0, 1, 2]),  # what began was launched
        ([0], [0, 1, 2, -1]),
        ([1], [-1, 0, 1, 2]),
        ([1, 0, 1], [-1, 0, 1, 2]),  # a wait that ends later than need be, or a launch beside it, is outvoted
        ([-2], [-1, 0, 1, 2]),  # no call of the recording is without work while work has no call
        ([9], [-1, 0, 1, 2]),
        ([4], [-1, 0, 1, 2]),  # some of the work has a call
    ],
)
def test_waits_tell_how_much_was_launched_before_the_recording(waited: list[int], expected: list[int]) -> None:
    calls, made = np.array([0, 10, 20], dtype=np.int64), np.array([5, 15, 25, 35], dtype=np.int64)
    assert align(calls, made, np.array(waited, dtype=np.int64)).at.tolist() == expected


def test_waits_that_would_have_work_begin_before_its_call_do_not_count() -> None:
    calls, made = np.array([0, 10, 20], dtype=np.int64), np.array([5, 15, 18, 35], dtype=np.int64)
    assert align(calls, made, np.array([0], dtype=np.int64)).at.tolist() == [-1, 0, 1, 2]


@pytest.mark.parametrize(
    ("waits", "ahead", "doubt"),
    [
        (0, 250_000, 1.0),
        (0, 250_001, 0.0),  # the device idled ahead of the first: nothing was launched before it
        (100_000, 400_000, 1.0),  # no more than five times what work usually waits
        (100_000, 400_001, 0.0),
        (250_000, 0, 1.0),
        (250_001, 0, 0.0),  # made by the call before, all would have waited for longer while the device was idle
    ],
)
def test_calls_are_doubted_unless_the_ones_before_them_would_leave_the_device_idle(
    waits: int, ahead: int, doubt: float
) -> None:
    calls = 1_000_000 * np.arange(1, 11)
    idle = Intervals(np.append(0, calls), np.append(ahead, calls + waits))
    found = align(calls, calls + 300_000, idle=idle)
    assert (found.at.tolist(), found.doubt) == (list(range(10)), doubt)


@given(st.lists(st.integers(0, 1000), max_size=40), st.lists(st.integers(0, 1000), max_size=40))
def test_no_work_begins_before_its_call_and_the_order_is_kept(calls: list[int], made: list[int]) -> None:
    called, work = np.array(sorted(calls), dtype=np.int64), np.array(sorted(made), dtype=np.int64)
    found = align(called, work).at
    paired = [(int(call), int(work[i])) for i, call in enumerate(found.tolist()) if call >= 0]
    assert all(called[call] <= begins for call, begins in paired)
    places = [call for call, _ in paired]
    assert places == sorted(set(places))
    assert len({i - call for i, call in enumerate(found.tolist()) if call >= 0}) <= 1


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 30))
def test_work_that_follows_its_call_at_once_is_found_again(gaps: list[int], late: int) -> None:
    called = np.cumsum(np.array(gaps, dtype=np.int64))
    assert align(called, called + late).at.tolist() == list(range(len(called)))


def launched(trace: Trace) -> list[tuple[str, int | None]]:
    """Each device row with the start of the call that launched it, us."""
    calls = link(trace).launch.tolist()
    rows = zip(trace.device.name.tolist(), calls, strict=True)
    return [(trace.names[name], int(trace.host.start[call]) // 1000 if call >= 0 else None) for name, call in rows]


def copying(builder: TraceBuilder, steps: int) -> TraceBuilder:
    """Steps of 1 ms: an upload, a recipe, and a read of a value whose copy no call shows."""
    for i in range(steps):
        at = i * 1000.0
        builder.host("memcpyAsync", at, 5, cat="privateuse1_runtime")
        builder.lane("memcpy", at + 20, 30, engine="PCI DMA 0 (DRAM/HOST)", tid=3010, cat="gpu_memcpy")
        builder.host("LaunchRecipeTask", at + 60, 5, cat="privateuse1_runtime").lane("gemm", at + 80, 500, recipeId=7)
        builder.lane("memcpyD2H", at + 590, 5, engine="PCI DMA 1 (DRAM/HOST)", tid=3011, cat="gpu_memcpy")
    return builder


def test_copies_in_and_copies_out_are_queues_of_their_own(tmp_path: Path) -> None:
    b = copying(TraceBuilder(), 3)
    for i in range(3):
        b.host("aten::item", i * 1000 + 100, 600)
    assert launched(b.trace(tmp_path)) == [
        ("memcpy", 0), ("gemm", 60), ("memcpyD2H", 100), ("memcpy", 1000), ("gemm", 1060), ("memcpyD2H", 1100),
        ("memcpy", 2000), ("gemm", 2060), ("memcpyD2H", 2100),
    ]  # fmt: skip


def test_a_queue_whose_work_would_have_waited_beside_an_idle_device_stays_without_launches(tmp_path: Path) -> None:
    # Ten calls and twenty copies, and nothing tells which copies they made: any whole shift is wrong for half of them.
    found = launched(copying(TraceBuilder(), 10).trace(tmp_path))
    assert {call for name, call in found if name.startswith("memcpy")} == {None}
    assert [call for name, call in found if name == "gemm"] == [i * 1000 + 60 for i in range(10)]


def test_a_wait_for_the_device_anchors_work_that_the_window_found_in_flight(tmp_path: Path) -> None:
    """Recipes of 100 µs, launched two ahead; the first two were launched before the recording."""
    b = TraceBuilder()
    for i in range(10):
        b.lane("gemm", 5 + 100 * i, 99, recipeId=i % 2 + 7)
    for i in range(8):
        b.host("LaunchRecipeTask", 2 + 100 * i, 2, cat="privateuse1_runtime")
    b.host("synchronizeDevice", 710, 300, cat="privateuse1_runtime")
    assert [call for _, call in launched(b.trace(tmp_path))] == [None, None, *range(0, 800, 100)]


def test_a_wait_beside_which_another_thread_launches_tells_nothing(tmp_path: Path) -> None:
    b = TraceBuilder()
    for i in range(3):
        at = 1000.0 * i
        b.host("LaunchRecipeTask", at, 2, cat="privateuse1_runtime").lane("gemm", at + 10, 400, recipeId=7)
        b.host("LaunchRecipeTask", at + 100, 2, cat="privateuse1_runtime", thread=(1, 9))
        b.lane("adam", at + 411, 80, recipeId=8)
        b.host("synchronizeStream", at + 50, 500, cat="privateuse1_runtime")
    assert [call for _, call in launched(b.trace(tmp_path))] == [0, 100, 1000, 1100, 2000, 2100]


def test_what_the_writer_says_comes_first_row_by_row(tmp_path: Path) -> None:
    b = TraceBuilder()
    for i in range(3):
        b.host("LaunchRecipeTask", i * 100, 5, cat="privateuse1_runtime", correlation=i)
    b.lane("a", 210, 5, correlation=1).lane("b", 216, 5, correlation=0).lane("c", 222, 5)
    assert launched(b.trace(tmp_path)) == [("a", 100), ("b", 0), ("c", 200)]


def test_order_tells_nothing_where_the_writer_gives_correlations(tmp_path: Path) -> None:
    b = (
        TraceBuilder()
        .kernel("a", 20, 5, launch=0)
        .kernel("b", 30, 5)
        .host("cudaLaunchKernel", 25, 2, cat="cuda_runtime")
    )
    trace = b.trace(tmp_path)
    assert launched(trace) == [("a", 0), ("b", None)]
    assert linked_share(link(trace)) == 0.5


def test_work_that_waits_beside_an_idle_device_is_doubted_and_stays_linked(tmp_path: Path) -> None:
    """A host milliseconds ahead is usual; nothing else tells which launch made which work."""
    b = TraceBuilder()
    for i in range(10):
        b.host("LaunchRecipeTask", i * 20, 5, cat="privateuse1_runtime")
        b.lane("gemm", 1000 + 1000 * i, 400, recipeId=7)
    links = link(b.trace(tmp_path))
    assert linked_share(links) == 1.0
    assert links.activations.doubt.tolist() == [1.0] * 10


@pytest.mark.parametrize("ran", [8, 9, 12])
def test_a_recording_may_stop_while_a_third_of_the_launches_is_queued(tmp_path: Path, ran: int) -> None:
    b = TraceBuilder()
    for i in range(12):
        b.host("LaunchRecipe", 100 * i, 20, cat="privateuse1_runtime")
    for i in range(ran):
        b.lane("gemm", 130 + 300 * i, 290, recipeId=i + 1)
    assert [call for _, call in launched(b.trace(tmp_path))] == [100 * i for i in range(ran)]


def test_many_launches_without_work_on_a_device_that_follows_at_once_leave_the_queue_unmatched(tmp_path: Path) -> None:
    b = TraceBuilder()
    for i in range(12):
        b.host("LaunchRecipe", 100 * i, 20, cat="privateuse1_runtime")
    for i in range(8):
        b.lane("gemm", 130 + 140 * i, 50, recipeId=i + 1)
    assert {call for _, call in launched(b.trace(tmp_path))} == {None}


def test_neighbors_with_one_id_and_different_handles_are_two_recipes(tmp_path: Path) -> None:
    b = TraceBuilder()
    for i in range(8):
        b.host("LaunchRecipe", 20 * i, 5, cat="privateuse1_runtime")
        b.lane("gemm", 200 + 20 * i, 9, recipeId=7, recipeHandle=f"{i % 2 + 1}")
        b.lane("copy", 209 + 20 * i, 9, engine="DMA 0", tid=4000, recipeId=7)
    found = launched(b.trace(tmp_path))
    assert found == [(name, 20 * i) for i in range(8) for name in ("gemm", "copy")]
