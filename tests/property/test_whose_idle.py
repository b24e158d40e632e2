"""Idle time is the device's own while enqueued work has not started, and never while nothing is enqueued."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.analysis.rank_view import RankView
from hpuprof.errors import HpuprofError
from hpuprof.ingest.read import read_trace
from hpuprof.model.intervals import EMPTY, intersect, subtract, union
from hpuprof.model.schema import Activity, Cause, DeviceKind
from hpuprof.model.trace import Trace

OWN = (Cause.DEVICE_LATENCY, Cause.UNRECORDED)


def check(trace: Trace) -> int:
    """Check each piece of enqueued work one by one; return for how many the device idled before it."""
    view = RankView.of(trace)
    causes = view.gaps.by_cause
    own = [causes.get(cause, EMPTY) for cause in OWN]
    own_ns = sum(each.total_ns for each in own)
    device, links = trace.device, view.links
    enqueued = []
    for row in np.flatnonzero(links.launch >= 0).tolist():
        begin, start = int(links.queued[row]), int(device.start[row])
        if begin < start and device.kind[row] != DeviceKind.COMMUNICATION:
            enqueued.append((begin, start, row))
    # What waits behind a collective waits for other ranks with it.
    peers = causes.get(Cause.COLLECTIVE, EMPTY)
    waited = 0
    times = np.array([(begin, start) for begin, start, _ in enqueued], dtype=np.int64).reshape(-1, 2)
    queue = union(times[:, 0], times[:, 1])
    idle = intersect(queue, view.gaps.idle)
    waited = len(idle)
    left = subtract(subtract(subtract(idle, own[0]), own[1]), peers)
    assert not left.total_ns, "idle time beside enqueued work was put down to the host"
    every = np.flatnonzero(links.launch >= 0)
    queued = union(links.queued.take(every), device.start.take(every))
    assert not subtract(own[0], queued).total_ns, "the device was blamed while nothing was enqueued"
    assert own_ns <= view.gaps.idle.total_ns
    return waited


def check_all(folder: Path) -> int:
    waited = 0
    for path in sorted(p for form in ("*.json", "*.json.gz") for p in folder.rglob(form)):
        try:
            waited += check(read_trace(path))
        except HpuprofError:
            continue
    return waited


def test_on_the_samples(samples: Path):
    assert check_all(samples) > 1_000


def test_on_every_small_case():
    assert check_all(Path(__file__).parents[1] / "cases") > 10


def test_on_traces_of_others(real_traces: Path):
    assert check_all(real_traces) > 10_000


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(0, 80)), min_size=2, max_size=12),
    st.sampled_from(["cuda", "hpu", "xpu", "rocm"]),
    st.integers(0, 1),
)
def test_on_launches_of_all_families(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int, int]], family: str, reads: int
):
    """A queue of launches: pause of the host, length of the kernel, wait of the device before it."""
    b = TraceBuilder()
    host = free = 0.0
    for i, (pause, length, wait) in enumerate(made):
        host += pause
        begin = max(host + 6, free) + wait
        if family == "hpu":
            b.host("LaunchRecipeTask", host, 5, cat="privateuse1_runtime")
            b.lane("gemm", begin, length, recipeId=i + 1)
        else:
            name, cat = {
                "cuda": ("cudaLaunchKernel", "cuda_runtime"),
                "xpu": ("zeCommandListAppendLaunchKernel", "xpu_runtime"),
                "rocm": ("hipLaunchKernel", "hip_runtime"),
            }[family]
            b.host(name, host, 5, cat=cat, correlation=i).device("gemm", begin, length, correlation=i)
        host += 5
        free = begin + length
    if reads:
        b.host("aten::item", host, max(1.0, free - host))
    b.step(0, 0, max(free, host) + 10)
    check(b.trace(tmp_path_factory.mktemp("queue")))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(0, 20)), min_size=8, max_size=24),
    st.tuples(st.floats(0, 0.5), st.floats(0.6, 1)),
    st.booleans(),
)
def test_links_of_work_in_flight_are_right_or_doubted(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[tuple[int, int, int]],
    window: tuple[float, float],
    recipes: bool,
):
    """A recording opens and closes while the host is ahead: where several alignments fit, the links are doubted."""
    program, host, free = [], 0.0, 0.0
    for pause, length, wait in made:
        host += pause
        begin = max(host + 6, free) + wait
        program.append((host, begin, length))
        host, free = host + 5, begin + length
    low, high = (free * share for share in window)
    b, truth = TraceBuilder().step(0, low, high - low), {}
    for i, (call, begin, length) in enumerate(program):
        if low <= call < high:
            if recipes:
                b.host("enqueueWithExternalEventsExt", call, 5, cat="hpu_op", recipeId=7, recipeHandle="1")
            else:
                b.host("LaunchRecipe", call, 5, cat="privateuse1_runtime")
        if low <= begin < high:
            b.lane("gemm", begin, length, **({"recipeId": 7, "recipeHandle": "1"} if recipes else {"recipeId": i + 1}))
        truth[begin] = call
    trace = b.trace(tmp_path_factory.mktemp("window"))
    links = RankView.of(trace).links
    starts = sorted(begin for begin in truth if low <= begin < high)
    calls = sorted(call for call in truth.values() if low <= call < high)
    order = np.flatnonzero(trace.host.activity == Activity.LAUNCH)
    doubt = np.append(links.activations.doubt, 0.0)[links.activations.of_row]
    for row, begin in enumerate(starts):
        if links.launch[row] >= 0 and calls[int(np.searchsorted(order, links.launch[row]))] != truth[begin]:
            assert doubt[row] > 0, "a wrong link is not doubted"
