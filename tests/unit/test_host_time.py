"""Host time: what the host path waited for, by kind, and what is work."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import Cause

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def blocked(part: RankPartial) -> dict[str, int]:
    """Waiting of the first step by kind [µs], kinds without any left out."""
    step = part.steps[0]
    kinds = {k: getattr(step, f"blocked_{k}_ns") // 1000 for k in ("sync", "queue", "alloc", "join", "copy", "loader")}
    assert sum(kinds.values()) == step.host_blocked_ns // 1000
    assert step.host_working_ns == step.wall_ns - step.host_blocked_ns - (step.no_operator_ns or 0)
    return {k: v for k, v in kinds.items() if v}


@pytest.mark.parametrize(
    ("name", "cat", "kinds"),
    [
        ("cudaStreamSynchronize", "cuda_runtime", {"sync": 30}),
        ("hipDeviceSynchronize", "cuda_runtime", {"sync": 30}),
        ("cudaMalloc", "cuda_runtime", {"alloc": 30}),
        ("cudaFree", "cuda_runtime", {"alloc": 30}),
        ("cudaMemcpy", "cuda_runtime", {"copy": 30}),
        (LOADER, "user_annotation", {"loader": 30}),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", {}),
        ("cudaLaunchKernel", "cuda_runtime", {}),
        ("cudaMemcpyAsync", "cuda_runtime", {}),
        ("cudaMallocAsync", "cuda_runtime", {}),
        ("cudaStreamWaitEvent", "cuda_runtime", {}),
        ("aten::item", "cpu_op", {}),
    ],
)
def test_kinds_of_waiting(tmp_path: Path, name: str, cat: str, kinds: dict[str, int]):
    assert (
        blocked(TraceBuilder().step(0, 0, 100).host("aten::add", 0, 10).host(name, 20, 30, cat=cat).reduce(tmp_path))
        == kinds
    )


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("JoinPendingLaunchThread", {"join": 30}), ("_local_scalar_dense_hpu_lazy", {"copy": 30}), ("add_hpu_lazy", {})],
)
def test_kinds_of_waiting_on_hpu(tmp_path: Path, name: str, kinds: dict[str, int]):
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100).host("aten::add", 0, 10).lane("gemm", 5, 10)
    assert blocked(b.host(name, 20, 30, cat="privateuse1_runtime").reduce(tmp_path)) == kinds


def without_its_last_copy(*, busy: float = 400, launches: int = 0, read: float = 500) -> TraceBuilder:
    """Ten launches of `busy` µs of work in all, and a copy of `read` µs behind them whose row is lost."""
    b = TraceBuilder().step(0, 0, 1000)
    for i in range(10):
        b.host("aten::mm", 10 * i, 8).kernel("gemm", 20 + busy / 10 * i, busy / 10, launch=10 * i + 2, call_dur=4)
    b.host("aten::copy_", 100, read + 10).host("cudaMemcpyAsync", 102, read, cat="cuda_runtime", correlation=900)
    for i in range(launches):
        b.host("cudaLaunchKernel", 800 + 10 * i, 4, cat="cuda_runtime", correlation=901 + i)
    return b


def test_a_copy_that_lost_its_row_and_waits_behind_the_last_launch_is_a_read(tmp_path: Path):
    """The step is judged up to the end of what was recorded: 420 µs, in 102 of which it waits for nothing."""
    assert blocked(without_its_last_copy().reduce(tmp_path)) == {"copy": 420 - 102}


@pytest.mark.parametrize("other", [{"busy": 200}, {"launches": 1}, {"read": 90}])
def test_a_copy_without_its_row_that_may_be_another_is_none(tmp_path: Path, other: dict[str, float]):
    """The device is idle for most of it, launches follow that may use it, or it is short."""
    assert blocked(without_its_last_copy(**other).reduce(tmp_path)) == {}


def test_of_copies_alone_none_is_said_to_read(tmp_path: Path):
    """Nothing was launched whose result it could be."""
    b = TraceBuilder().step(0, 0, 1000)
    copy = {"call": "cudaMemcpyAsync", "call_dur": 5, "cat": "gpu_memcpy"}
    for i in range(10):
        b.kernel("Memcpy HtoD (Pinned -> Device)", 20 + 50 * i, 50, launch=10 * i, **copy)
    b.host("cudaMemcpyAsync", 102, 400, cat="cuda_runtime", correlation=900)
    assert blocked(b.reduce(tmp_path)) == {}


def test_kinds_are_exclusive_and_sync_comes_first(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).host("aten::add", 0, 1)
    b.host("cudaStreamSynchronize", 20, 20, cat="cuda_runtime").host("cudaFree", 30, 20, cat="cuda_runtime").annotation(
        LOADER, 10, 50
    )
    # 20..40 sync; of the free's 30..50 only 40..50 is left; of the loader's 10..60 only 10..20 and 50..60.
    assert blocked(b.reduce(tmp_path)) == {"sync": 20, "alloc": 10, "loader": 20}


def test_waiting_is_clipped_to_steps(tmp_path: Path):
    part = (
        TraceBuilder()
        .steps(2, 100)
        .host("aten::add", 0, 1)
        .host("cudaDeviceSynchronize", 80, 50, cat="cuda_runtime")
        .reduce(tmp_path)
    )
    assert [s.blocked_sync_ns for s in part.steps] == [20_000, 30_000]


def test_a_copy_call_that_outlives_its_pageable_copy_waits(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).host("aten::add", 0, 1)
    copy = {"call": "cudaMemcpyAsync", "cat": "gpu_memcpy"}
    b.kernel(
        "Memcpy DtoH (Device -> Pageable)", 20, 10, launch=15, call_dur=20, **copy
    )  # call 15..35, copy 20..30: waits
    b.kernel("Memcpy HtoD (Pinned -> Device)", 42, 4, launch=40, call_dur=10, **copy)  # pinned upload: asynchronous
    b.kernel("Memcpy HtoD (Pageable -> Device)", 70, 10, launch=60, call_dur=5, **copy)  # returned before the copy
    assert blocked(b.reduce(tmp_path)) == {"copy": 20}


def full_queue(count: int, slow: float) -> TraceBuilder:
    """`count` launches of 2 µs, 5 µs apart, of kernels that start late; the last launch takes `slow` µs."""
    b = TraceBuilder().step(0, 0, 2000).host("aten::add", 0, 1)
    for i in range(count):
        b.kernel("k", 1000 + 5 * i, 5, launch=10 + 5 * i, call_dur=slow if i == count - 1 else 2)
    return b


def test_a_slow_launch_into_a_full_queue_waits_for_what_it_took_beyond_the_median(tmp_path: Path):
    assert blocked(full_queue(100, 52).reduce(tmp_path)) == {"queue": 50}


def test_a_slow_launch_into_a_short_queue_does_not_count_as_waiting(tmp_path: Path):
    assert blocked(full_queue(40, 52).reduce(tmp_path)) == {}


def test_only_the_main_and_autograd_threads_are_the_host_path(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).host("aten::add", 0, 1).thread("pt_autograd_0", AUTOGRAD)
    b.host("MulBackward0", 10, 5, thread=AUTOGRAD).host(
        "cudaStreamSynchronize", 20, 10, cat="cuda_runtime", thread=AUTOGRAD
    )
    b.host("cudaStreamSynchronize", 40, 30, cat="cuda_runtime", thread=(100, 102))
    part = b.reduce(tmp_path)
    assert blocked(part) == {"sync": 10}
    roles = {t.role: (t.threads, t.traced_ns, t.blocked_ns) for t in part.threads}
    assert roles == {"main": (1, 1000, 0), "autograd": (1, 5000, 10_000), "other": (1, 0, 30_000)}


def test_traced_time_is_the_union_of_operators_and_calls_without_waiting(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).annotation("forward", 5, 90)
    b.host("aten::linear", 10, 30).host("aten::addmm", 15, 20).host("cudaLaunchKernel", 20, 5, cat="cuda_runtime")
    b.host("aten::item", 50, 20).host("cudaStreamSynchronize", 55, 10, cat="cuda_runtime")
    [step] = b.reduce(tmp_path).steps
    # Operators cover 10..40 and 50..70, of which 55..65 is waiting; no device shows, so the rest is no work.
    assert (step.host_traced_ns, step.host_blocked_ns, step.host_working_ns) == (40_000, 10_000, 40_000)


def test_host_device_overlap(tmp_path: Path):
    b = (
        TraceBuilder()
        .step(0, 0, 100)
        .kernel("k", 20, 60, launch=5)
        .host("cudaDeviceSynchronize", 50, 40, cat="cuda_runtime")
    )
    [step] = b.reduce(tmp_path).steps
    # Device busy 20..80; the host is blocked 50..90: both run in 20..50. The shorter of 60 working and 60 busy is 60.
    assert (step.host_device_overlap_ns, step.overlap_degree) == (30_000, 0.5)


def test_without_host_rows_host_time_is_unknown(tmp_path: Path):
    [step] = TraceBuilder().device("k", 0, 10).device("k", 20, 10).reduce(tmp_path).steps
    assert (step.host_working_ns, step.host_blocked_ns, step.blocked_sync_ns, step.host_device_overlap_ns) == (
        None,
        None,
        None,
        None,
    )
    assert step.device_busy_ns == 20_000


def test_a_copy_into_a_full_queue_waits_like_a_launch(tmp_path: Path):
    b = full_queue(100, 2)
    b.kernel(
        "Memcpy HtoD (Pinned -> Device)", 1990, 5, launch=520, call_dur=52, call="cudaMemcpyAsync", cat="gpu_memcpy"
    )
    assert blocked(b.reduce(tmp_path)) == {"queue": 50}


def test_pageable_memory_is_copied_by_the_host_itself(tmp_path: Path):
    b = full_queue(100, 2)
    row = "Memcpy HtoD (Pageable -> Device)"
    b.kernel(row, 1990, 5, launch=520, call_dur=52, call="cudaMemcpyAsync", cat="gpu_memcpy")
    assert blocked(b.reduce(tmp_path)) == {}


def test_a_queue_that_is_full_of_unrecorded_work_makes_launches_wait(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 9000)
    for i in range(80):  # the device is at other work for the first 5 ms
        b.kernel("k", 5000 + 10 * i, 10, launch=50 * i, call_dur=42 if i == 20 else 2)
    assert blocked(b.reduce(tmp_path)) == {"queue": 40}


def _loading(trace: TraceBuilder, tmp_path) -> list[tuple[int, int]]:
    """Return the stretches in which operators load, us."""
    loads = RankView.of(trace.trace(tmp_path)).hosts.loads
    return list(zip((loads.start // 1000).tolist(), (loads.end // 1000).tolist(), strict=True))


def test_an_operator_loads_the_kernel_that_it_launches_next(tmp_path):
    """TorchScript's fuser compiles two kernels in one operator; later launches of one follow as long a pause."""
    trace = TraceBuilder().host("aten::add", 0, 10).kernel("add", 20, 5, launch=2, call_dur=4)
    trace.host("delta_r2", 100, 9_000).host("aten::mul", 110, 20).kernel("mul", 140, 5, launch=115, call_dur=4)
    trace.host("fused_a", 3_000, 50).kernel("fused_a", 3_040, 5, launch=3_020, call="cuLaunchKernel", call_dur=4)
    trace.host("fused_b", 6_000, 50).kernel("fused_b", 6_040, 5, launch=6_020, call="cuLaunchKernel", call_dur=4)
    trace.host("fused_a", 8_500, 50).kernel("fused_a", 8_540, 5, launch=8_520, call="cuLaunchKernel", call_dur=4)
    assert _loading(trace, tmp_path) == [(130, 3_000), (3_050, 6_000)]
    view = RankView.of(trace.trace(tmp_path))
    assert int(view.gaps.by_cause[Cause.FIRST_USE].total_ns) == (3_000 - 145 + 6_000 - 3_050) * 1000


@pytest.mark.parametrize(
    ("call", "operator", "inside", "loads"),
    [
        ("cuLaunchKernelEx", (100, 5_000), "", [(100, 4_000)]),
        ("hipExtModuleLaunchKernel", (100, 5_000), "", [(100, 4_000)]),
        ("cudaLaunchKernel", (100, 5_000), "", []),  # its module loads in the call itself
        ("cuLaunchKernel", (4_000, 100), "", []),  # whatever the host does between operators
        ("cuLaunchKernel", (3_010, 1_500), "", []),  # less than a millisecond
        ("cuLaunchKernel", (100, 5_000), "cudaStreamSynchronize", []),  # the call tells what the host waits for
    ],
)
def test_only_silence_in_an_operator_before_a_first_launch_loads(tmp_path, call, operator, inside, loads):
    trace = TraceBuilder().host("aten::add", 0, 10).kernel("add", 20, 5, launch=2, call_dur=4)
    trace.host("region", *operator)
    if inside:
        trace.host(inside, 101, 3_898, cat="cuda_runtime")
    trace.host("fused", 4_000, 50).kernel("fused", 4_040, 5, launch=4_020, call=call, call_dur=4)
    assert _loading(trace, tmp_path) == loads


@pytest.mark.parametrize(("silent", "loads"), [(990, []), (1_010, [(3_010, 4_020)])])
def test_a_launch_right_behind_another_loads_where_its_operator_is_silent_for_long(tmp_path, silent, loads):
    trace = TraceBuilder().host("aten::add", 3_000, 10).kernel("add", 3_020, 5, launch=3_002, call_dur=4)
    trace.kernel("fused", 3_040 + silent, 5, launch=3_010 + silent, call="cuLaunchKernel", call_dur=4)
    trace.host("region", 3_010, 1_500).host("aten::empty", 0, 5)
    assert _loading(trace, tmp_path) == loads


def test_a_recording_that_begins_with_a_launch_does_not_show_what_came_before(tmp_path):
    """A kernel's launch behind 2 ms of silence is not its first one."""
    trace = TraceBuilder().kernel("fused", 20, 5, launch=0, call="cuLaunchKernel", call_dur=4)
    trace.host("region", 10, 3_000).kernel("fused", 2_020, 5, launch=2_010, call="cuLaunchKernel", call_dur=4)
    assert _loading(trace, tmp_path) == []


@pytest.mark.parametrize(
    ("operator", "first", "calls", "launches", "loads"),
    [
        ("aten::convolution", 3_000, 3, True, [(105, 3_105)]),
        ("aten::convolution", 3_000, 2, True, []),  # one other call is not what is usual
        ("aten::convolution", 900, 3, True, []),  # less than a millisecond
        ("aten::convolution", 3_000, 3, False, []),  # what launches nothing takes as long as its work does
        ("aten::item", 3_000, 3, True, []),  # waits for the device
    ],
)
def test_the_first_call_of_an_operator_around_others_loads(tmp_path, operator, first, calls, launches, loads):
    """A convolution sets its library up before it calls the operator that launches; later ones take 20 us of their own."""
    trace = TraceBuilder().host("aten::add", 0, 10).kernel("add", 20, 5, launch=2, call_dur=4)
    at = 100.0
    for k in range(calls):
        silent = first if k == 0 else 20
        trace.host(operator, at, silent + 40)
        trace.host("aten::empty", at + 1, 4)
        inner = at + 5 + silent
        trace.host("aten::cudnn_convolution", inner, 30)
        if launches or k:
            trace.kernel("conv", inner + 20, 5, launch=inner + 10, call_dur=5)
        at += silent + 100
    assert _loading(trace, tmp_path) == loads


def test_an_operator_that_is_as_long_every_time_loads_nothing(tmp_path):
    trace = TraceBuilder().host("aten::add", 0, 10).kernel("add", 20, 5, launch=2, call_dur=4)
    for k in range(4):
        at = 100 + 4_000 * k
        trace.host("region", at, 3_000).host("aten::mul", at + 2_950, 20)
        trace.kernel("mul", at + 2_970, 5, launch=at + 2_955, call_dur=5)
    assert _loading(trace, tmp_path) == []
