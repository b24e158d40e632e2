"""Launches known by recipe id and handle: what the rows say decides, not streams, pauses or order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builder import TraceBuilder

from hpuprof.analysis.activations import How
from hpuprof.analysis.evidence import doubts
from hpuprof.analysis.launches import launch_rows
from hpuprof.analysis.links import link, linked_share
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.intervals import EMPTY
from hpuprof.model.schema import Cause
from hpuprof.model.trace import Trace

SYNAPSE = (22101, 4294966298)


def enqueue(b: TraceBuilder, at: float, recipe: Any, handle: Any = None, *, dur: float = 5, **more: Any) -> None:
    args = {"recipeId": recipe, "recipeName": ".graph_dumps/graph_17", "hidden": 1}
    if handle is not None:
        args["recipeHandle"] = handle
    b.host("enqueueWithExternalEventsExt (accel0)", at, dur, cat="hpu_op", thread=SYNAPSE, **{**args, **more})


def run(
    b: TraceBuilder,
    at: float,
    recipe: Any,
    handle: Any = None,
    *,
    names: Iterable[str] = ("gemm",),
    each: float = 10,
    tid: int = 7000,
) -> None:
    for i, name in enumerate(names):
        args = {"recipeId": recipe, "HW event name": "TPC_SPU_START_TO_SPU_HALT"}
        if handle is not None:
            args["recipeHandle"] = handle
        b.lane(name, at + i * each, each - 1, engine=f"TPC {tid - 7000}", tid=tid, cat="kernel", **args)


def launched(trace: Trace) -> list[tuple[int, int | None]]:
    """Each device row's start and that of its launch [µs]."""
    calls = link(trace).launch
    starts = zip(trace.device.start.tolist(), calls.tolist(), strict=True)
    zero = int(trace.host.start[0])
    return [
        ((start - zero) // 1000, (int(trace.host.start[call]) - zero) // 1000 if call >= 0 else None)
        for start, call in starts
    ]


def test_recipes_with_one_id_are_told_apart_by_their_handles(tmp_path: Path):
    """Two graphs on two streams; the one enqueued later starts first."""
    b = TraceBuilder()
    enqueue(b, 0, 7, "140512")
    enqueue(b, 200, 7, "140999")
    run(b, 215, 7, "140999", tid=7001)
    run(b, 595, 7, "140512")
    trace = b.trace(tmp_path)
    assert launched(trace) == [(215, 200), (595, 0)]
    assert set(link(trace).how.tolist()) == {How.RECIPE}


def test_rows_that_are_lost_here_and_there_leave_the_runs_apart(tmp_path: Path):
    """As the last lane of a short kernel, whose rows of no length are left out."""
    b = TraceBuilder()
    for k in range(8):
        enqueue(b, 100 * k, 7, "1")
        run(b, 100 * k + 20, 7, "1", names=["a", "b", "c"][: 2 if k in (2, 5) else 3])
    told = launched(b.trace(tmp_path))
    assert told == [(100 * k + 20 + 10 * i, 100 * k) for k in range(8) for i in range(2 if k in (2, 5) else 3)]


@pytest.mark.parametrize(
    ("called", "ran"),
    [(60914, 60914), ("60914", 60914), (60914, " 60914 "), ("0xEDF2", "0xEDF2"), ("recipe-a", "recipe-a")],
)
def test_an_id_may_be_a_number_or_any_text(tmp_path: Path, called: Any, ran: Any):
    b = TraceBuilder()
    for at in (0, 100):
        enqueue(b, at, called)
        run(b, at + 20, ran)
    assert launched(b.trace(tmp_path)) == [(20, 0), (120, 100)]


def test_the_id_alone_counts_where_a_side_has_no_handle(tmp_path: Path):
    b = TraceBuilder()
    for at, handle in ((0, "1"), (100, "2")):
        enqueue(b, at, 7, handle)
        run(b, at + 20, 7)
    assert launched(b.trace(tmp_path)) == [(20, 0), (120, 100)]


def two_recipes() -> TraceBuilder:
    """Ten times two recipes with one id, on two streams; the second starts first."""
    b = TraceBuilder()
    for at in range(0, 10_000, 1000):
        enqueue(b, at, 7, "1")
        enqueue(b, at + 100, 7, "2")
        run(b, at + 150, 7, "2", tid=7001)
        run(b, at + 300, 7, "1")
    return b


OF_TWO = [call for at in range(0, 10_000, 1000) for call in ((at + 150, at + 100), (at + 300, at))]


def test_a_row_without_a_handle_is_of_the_recipe_before_it(tmp_path: Path):
    b = two_recipes()
    run(b, 5600, 7, tid=7002)
    found = launched(b.trace(tmp_path))
    assert found == sorted([*OF_TWO, (5600, 5000)])


def test_an_enqueue_without_a_handle_is_of_the_recipe_that_runs_next(tmp_path: Path):
    b = two_recipes()
    enqueue(b, 20_000, 7)
    run(b, 20_100, 7, "1")
    assert launched(b.trace(tmp_path)) == [*OF_TWO, (20_100, 20_000)]


@pytest.mark.parametrize(("enqueued", "ran", "every", "first"), [(31, 30, 400, 300), (20, 18, 100, 3000)])
def test_a_recording_that_stops_early_cuts_off_the_last_runs(
    tmp_path: Path, enqueued: int, ran: int, every: float, first: float
):
    """Far ahead, the host may have been so before the recording as well: the links are doubted."""
    b = TraceBuilder()
    for i in range(enqueued):
        enqueue(b, 100 * i, 7, "1")
    for i in range(ran):
        run(b, first + every * i, 7, "1", names="abc")
    trace = b.trace(tmp_path)
    assert [call for _, call in launched(trace)] == [100 * (i // 3) for i in range(3 * ran)]
    view = RankView.of(trace)
    shown = [found.text for found in doubts(view) if found.code == "HP190"]
    assert set(view.links.activations.doubt.tolist()) == {1.0}
    assert shown == [f"another launch fits {3 * ran} of {3 * ran} device rows as well"]


@pytest.mark.parametrize("late", [[20 - 0.6 * i for i in range(100)], [8.0] * 80 + [-15.0] * 20])
def test_clocks_that_drift_apart_leave_the_links_that_they_do_not_contradict(tmp_path: Path, late: list[float]):
    b = TraceBuilder()
    for i, offset in enumerate(late):
        enqueue(b, 1000 * i, 7, "1")
        run(b, 1000 * i + offset, 7, "1", each=50)
    found = [call for _, call in launched(b.trace(tmp_path))]
    assert found == [1000 * i if offset >= -10 else None for i, offset in enumerate(late)]


def test_where_an_enqueue_is_lost_its_run_alone_has_none(tmp_path: Path):
    b = TraceBuilder()
    for i in range(20):
        if i != 10:
            enqueue(b, 1000 * i, 7, "1")
        run(b, 1000 * i + 20, 7, "1", names="abc")
    trace = b.trace(tmp_path)
    assert [call for _, call in launched(trace)] == [1000 * i if i != 10 else None for i in range(20) for _ in "abc"]
    assert set(link(trace).activations.doubt.tolist()) == {0.55}  # of what is older, each may be of the next


def test_runs_in_flight_that_begin_after_the_first_enqueue_are_known_by_their_number(tmp_path: Path):
    b = TraceBuilder()
    for i in range(20):
        run(b, 10 + 150 * i, 7, "1", names="abc")
        if i < 18:
            enqueue(b, 100 * i, 7, "1")
    runs = [None, None, *range(0, 1800, 100)]
    assert [call for _, call in launched(b.trace(tmp_path))] == [call for call in runs for _ in "abc"]


def test_a_kernel_that_lost_some_of_its_lanes_still_counts_once(tmp_path: Path):
    """One row of 25 is lost, on any lane of any kernel."""
    b, made = TraceBuilder(), 0
    for i in range(20):
        enqueue(b, 100 * i, 7, "1")
        for k, name in enumerate("abac"):
            for lane in range(4):
                made += 1
                if made % 25:
                    run(b, 2000 + 100 * i + 20 * k + lane / 10, 7, "1", names=[name], tid=7000 + lane)
    trace = b.trace(tmp_path)
    began = (trace.device.start - trace.host.start[0]) // 1000
    assert [call for _, call in launched(trace)] == ((began - 2000) // 100 * 100).tolist()


def test_names_that_repeat_in_other_numbers_are_no_run_each(tmp_path: Path):
    """Twenty of thirty replays ran: as many rows as two for each enqueue."""
    b = TraceBuilder()
    for i in range(30):
        enqueue(b, 100 * i, 7, "1")
    for i in range(20):
        run(b, 3000 + 100 * i, 7, "1", names="abc")
    assert [call for _, call in launched(b.trace(tmp_path))] == [100 * (i // 3) for i in range(60)]


@pytest.mark.parametrize("name", ["enqueue (accel0)", "enqueueRecipe (accel0)", "enqueueGraph"])
def test_enqueues_have_several_names(tmp_path: Path, name: str):
    b = TraceBuilder()
    for at in (0, 100):
        b.host(name, at, 5, cat="hpu_op", thread=SYNAPSE, recipeId=7, recipeHandle="1")
        run(b, at + 20, 7, "1")
    assert launched(b.trace(tmp_path)) == [(20, 0), (120, 100)]


@pytest.mark.parametrize("name", ["enqueueMemcpy (accel0)", "enqueueEventRecord (accel0)", "enqueueWaitEvent"])
def test_what_enqueues_no_recipe_is_no_launch(tmp_path: Path, name: str):
    b = TraceBuilder()
    for at in (0, 100):
        b.host(name, at, 2, cat="hpu_op", thread=SYNAPSE)
        enqueue(b, at + 10, 7, "1")
        run(b, at + 20, 7, "1")
    assert launched(b.trace(tmp_path)) == [(20, 10), (120, 110)]


@pytest.mark.parametrize("outlasts", [50, 550])
@pytest.mark.parametrize("thread", [(100, 100), (100, 109)])
def test_work_is_queued_from_the_end_of_its_enqueue_however_long_the_call_around_it(
    tmp_path: Path, outlasts: float, thread: tuple[int, int]
):
    b = TraceBuilder().steps(8, 2000)
    for at in range(0, 16_000, 2000):
        b.host("aten::linear", at + 5, 40)
        b.host("LaunchRecipe", at + 50, 50 + outlasts, cat="privateuse1_runtime", thread=thread)
        enqueue(b, at + 60, 7, "1", dur=30)
        run(b, at + 450, 7, "1", each=801)
    view = RankView.of(b.trace(tmp_path))
    assert view.gaps.by_cause[Cause.DEVICE_LATENCY].total_ns == 8 * 360_000
    handed = view.gaps.by_cause.get(Cause.LAUNCH_THREAD, EMPTY).total_ns
    assert handed == (8 * 45_000 if thread == (100, 109) else 0)  # from the operator's end to the enqueue's
    assert {row.latency_p50_ns for row in launch_rows(view)[0] if row.linked} == {360_000}


@pytest.mark.parametrize("nothing", [0, "", "0"])
def test_no_id_links_to_nothing_by_recipe(tmp_path: Path, nothing: Any):
    b = TraceBuilder()
    enqueue(b, 0, nothing)
    run(b, 20, nothing)
    assert How.RECIPE not in link(b.trace(tmp_path)).how.tolist()


def test_the_kth_enqueue_made_the_kth_run_whatever_the_pauses(tmp_path: Path):
    """Ten replays of three kernels, launched within 0.1 ms, the device seconds behind and idle longer than in pauses."""
    b, at = TraceBuilder(), 400.0
    for i in range(10):
        enqueue(b, 10 * i, 7, "1")
    for _ in range(10):
        for name in ("a", "b", "c"):
            run(b, at, 7, "1", names=(name,))
            at += 10 + 300 * (name == "b")  # within a replay longer than between two
    found = launched(b.trace(tmp_path))
    assert [call for _, call in found] == [10 * (i // 3) for i in range(30)]
    assert linked_share(link(b.trace(tmp_path))) == 1.0


def test_runs_begin_anew_where_the_recording_cut_the_first(tmp_path: Path):
    """The window opens in the middle of a run that was launched before it."""
    b = TraceBuilder()
    run(b, 0, 7, "1", names=("b", "c"))
    for i in range(3):
        enqueue(b, 10 + 100 * i, 7, "1")
        run(b, 40 + 100 * i, 7, "1", names=("a", "b", "c"))
    assert [call for _, call in launched(b.trace(tmp_path))] == [None, None, *np.repeat([0, 100, 200], 3).tolist()]


def test_only_a_run_that_begins_before_its_enqueue_is_dropped(tmp_path: Path):
    b = TraceBuilder()
    for i in range(20):
        enqueue(b, 100 * i, 7, "1")
        run(b, 100 * i + (20 if i != 5 else -50), 7, "1")
    found = [call for _, call in launched(b.trace(tmp_path))]
    assert found == [100 * i if i != 5 else None for i in range(20)]


def test_a_few_microseconds_before_the_enqueue_are_the_clocks(tmp_path: Path):
    b = TraceBuilder()
    for i in range(4):
        enqueue(b, 100 * i, 7, "1")
        run(b, 100 * i - 6 if i == 3 else 100 * i + 3, 7, "1")
    assert [call for _, call in launched(b.trace(tmp_path))] == [0, 100, 200, 300]


def test_the_outermost_of_nested_launch_rows_is_the_launch(tmp_path: Path):
    b = TraceBuilder().host("aten::mm", 0, 5, thread=(1, 8))
    for at in (0, 100):
        for name, inside in (("LaunchRecipeTask", 0), ("launch_recipe", 2), ("Launch", 4)):
            b.host(name, at + inside, 40 - 2 * inside, cat="privateuse1_runtime", thread=(1, 9))
        enqueue(b, at + 10, 7, "1", dur=20)
        run(b, at + 60, 7, "1")
    assert launched(b.trace(tmp_path)) == [(60, 0), (160, 100)]


def test_launch_recipe_rows_serve_where_synapse_has_none(tmp_path: Path):
    b = TraceBuilder()
    for at, handle in ((0, "1"), (50, "2")):
        b.host("LaunchRecipe", at, 20, cat="privateuse1_runtime", thread=(1, 9), recipeId=7, recipeHandle=handle)
    run(b, 100, 7, "2", tid=7001)
    run(b, 150, 7, "1")
    assert launched(b.trace(tmp_path)) == [(100, 50), (150, 0)]


def decode(pause: float) -> TraceBuilder:
    """Ten recipes of kernels with a pause between any two, all launched within 1 ms; the host reads the result."""
    b, at = TraceBuilder(), 150.0
    for i in range(10):
        enqueue(b, 100 * i, 7, "1", dur=60)
    for i in range(10):
        at = max(at, 100.0 * i + 70)
        for kernel in range(25):
            run(b, at, 7, "1", names=(f"k{kernel}",), each=57)
            at += 56 + pause
    b.host("aten::item", 1000, at - 1000)
    return b.step(0, 0, at + 20)


@pytest.mark.parametrize("pause", [1, 8])
def test_pauses_of_enqueued_work_are_the_devices_own(tmp_path: Path, pause: float):
    view = RankView.of(decode(pause).trace(tmp_path))
    assert linked_share(view.links) == 1.0
    causes = {cause: found.total_ns for cause, found in view.gaps.by_cause.items() if found.total_ns}
    read = causes.pop(Cause.BLOCKING_READ, 0)
    own = causes[Cause.DEVICE_LATENCY]
    assert own >= 249 * pause * 1000
    assert read <= 30_000  # what is left once all is done
    assert not view.gaps.by_cause.get(Cause.SYNCHRONISE, EMPTY).total_ns
