"""The table of host calls: which rows are calls, what each does, what it waits for, and which count as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builder import AUTOGRAD, TraceBuilder

from hpuprof.analysis.host_calls import Awaited, HostCallKind
from hpuprof.analysis.placement import Phase
from hpuprof.analysis.rank_view import RankView

OTHER = (100, 200)


def view_of(builder: TraceBuilder, folder: Path) -> RankView:
    return RankView.of(builder.trace(folder))


def calls(view: RankView) -> list[tuple[str, str, str, bool]]:
    """Name, kind, what it awaits, whether it counts."""
    names, table = view.trace.names, view.calls
    return [
        (names[view.trace.host.name[row]], HostCallKind(kind).name, Awaited(awaited).name, bool(counted))
        for row, kind, awaited, counted in zip(table.row, table.kind, table.awaits, table.counted, strict=True)
    ]


def waits(view: RankView) -> tuple[float, float, float]:
    return view.calls.waits_per_step(np.arange(len(view.steps)))


def copied(b: TraceBuilder, what: str, at: float, *, end: float, call: str = "cudaMemcpyAsync") -> TraceBuilder:
    """A copy called at `at` for 2 µs, done at `end`."""
    return b.kernel(what, end - 1, 1, launch=at, call=call, cat="gpu_memcpy")


def test_kinds_and_what_each_waits_for(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 500)
    b.kernel("k", 5, 5, launch=1).kernel("k", 15, 5, launch=11, call="cudaGraphLaunch")
    copied(b, "Memcpy DtoH (Device -> Pinned)", 20, end=30)
    copied(b, "Memcpy HtoD (Pinned -> Device)", 40, end=50)
    copied(b, "Memcpy DtoD (Device -> Device)", 60, end=70)
    copied(b, "Memcpy HtoD (Pageable -> Device)", 80, end=82)  # the call outlives it
    copied(b, "Memcpy DtoD (Device -> Device)", 85, end=87, call="cudaMemcpy")
    copied(b, "dma", 88, end=90, call="enqueueCommand memcpyDtoHAsync")  # no rule knows it
    b.host("cudaMalloc", 90, 5, cat="cuda_runtime").host("JoinPendingLaunchThread", 100, 5, cat="cuda_runtime")
    b.host("c10d::allreduce_", 110, 20).host("record_param_comms", 112, 16).kernel("ncclKernel", 130, 5, launch=115)
    b.host("cudaEventSynchronize", 140, 0, cat="cuda_runtime")
    b.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 150, 20)
    b.kernel("record", 185, 5, launch=175, call="cudaEventRecord")
    b.host("cudaEventQuery", 180, 5, cat="cuda_runtime").host("aten::relu", 190, 5)
    assert calls(view_of(b, tmp_path)) == [
        ("cudaLaunchKernel", "LAUNCH", "NOTHING", True),
        ("cudaGraphLaunch", "GRAPH_LAUNCH", "NOTHING", True),
        ("cudaMemcpyAsync", "READ", "NOTHING", True),
        ("cudaMemcpyAsync", "UPLOAD", "NOTHING", True),
        ("cudaMemcpyAsync", "COPY", "NOTHING", True),
        ("cudaMemcpyAsync", "UPLOAD", "DEVICE", True),
        ("cudaMemcpy", "COPY", "DEVICE", True),
        ("enqueueCommand memcpyDtoHAsync", "READ", "NOTHING", True),
        ("cudaMalloc", "ALLOCATION", "ALLOCATOR", True),
        ("JoinPendingLaunchThread", "JOIN", "LAUNCH_THREAD", True),
        ("c10d::allreduce_", "COLLECTIVE", "NOTHING", True),
        ("cudaLaunchKernel", "LAUNCH", "NOTHING", True),
        ("cudaEventSynchronize", "WAIT", "DEVICE", True),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "WAIT", "LOADER", True),
        ("cudaEventRecord", "OTHER", "NOTHING", True),
    ]


def test_a_copy_and_the_wait_behind_it_in_one_operator_are_one_call(tmp_path: Path):
    b = TraceBuilder().steps(2, 200)
    for at in (0, 200):
        b.host("aten::copy_", at + 10, 30)
        copied(b, "Memcpy DtoH (Device -> Pageable)", at + 12, end=at + 20)
        b.host("cudaStreamSynchronize", at + 15, 6, cat="cuda_runtime")
        b.host("aten::copy_", at + 50, 30)
        copied(b, "Memcpy HtoD (Pageable -> Device)", at + 52, end=at + 60)
        b.host("cudaStreamSynchronize", at + 55, 6, cat="cuda_runtime")
        b.host("cudaStreamSynchronize", at + 90, 6, cat="cuda_runtime")  # outside
        b.host("mine", at + 100, 50).host("cudaStreamSynchronize", at + 101, 6, cat="cuda_runtime")
        b.host("cudaStreamSynchronize", at + 120, 6, cat="cuda_runtime")  # no copy in it: two waits
    view = view_of(b, tmp_path)
    assert [c[1] for c in calls(view) if c[3]] == ["READ", "UPLOAD", "WAIT", "WAIT", "WAIT"] * 2
    assert waits(view) == (5, 1, 1)
    assert view.calls.waits_per_step(np.array([1])) == (5, 1, 1)


def test_the_first_copy_or_wait_in_an_operator_that_reads_a_value_is_the_read(tmp_path: Path):
    """Where the copy's device row is not in the trace, or the call is not drawn."""
    b = TraceBuilder().step(0, 0, 200).device("k", 0, 10)
    b.host("aten::_local_scalar_dense", 20, 30).host("cudaMemcpyAsync", 21, 5, cat="cuda_runtime")
    b.host("cudaStreamSynchronize", 30, 15, cat="cuda_runtime")
    b.host("aten::_local_scalar_dense", 60, 30).host("cudaStreamSynchronize", 61, 15, cat="cuda_runtime")
    view = view_of(b, tmp_path)
    assert calls(view) == [
        ("cudaMemcpyAsync", "READ", "NOTHING", True),
        ("cudaStreamSynchronize", "WAIT", "DEVICE", False),
        ("cudaStreamSynchronize", "READ", "DEVICE", True),
    ]
    assert waits(view) == (2, 2, 0)


def test_reads_without_a_call_count_if_they_take_long_enough_to_reach_the_device(tmp_path: Path):
    def read(*, device: bool, calls_drawn: bool = False) -> list[tuple[str, str, str, bool]]:
        b = TraceBuilder().step(0, 0, 200)
        b.host("aten::equal", 10, 50).host("aten::item", 70, 5).host("aten::_local_scalar_dense", 71, 3)
        if device:
            b.device("k", 0, 10)
        if calls_drawn:
            b.host("cudaStreamSynchronize", 100, 5, cat="cuda_runtime")
        return calls(view_of(b, tmp_path))

    assert read(device=True) == [("aten::equal", "READ", "DEVICE", True)]
    assert read(device=True, calls_drawn=True) == [("cudaStreamSynchronize", "WAIT", "DEVICE", True)]
    # Without device rows nothing tells which memory they read.
    assert read(device=False) == [("aten::equal", "READ", "NOTHING", True), ("aten::item", "READ", "NOTHING", True)]


def test_a_call_inside_another_one_is_part_of_it_unless_it_launches(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 200).lane("k", 0, 10)
    b.host("_local_scalar_dense_hpu_lazy", 10, 100, cat="privateuse1_runtime")
    b.host("LaunchSyncTensorsGraph", 20, 30, cat="privateuse1_runtime")
    b.host("synLaunchWithExternalEvents", 25, 20, cat="privateuse1_runtime")
    b.host("JoinPendingLaunchThread", 60, 10, cat="privateuse1_runtime")
    b.host("synMemCopyAsync", 80, 10, cat="privateuse1_runtime")
    view = view_of(b, tmp_path)
    assert calls(view) == [
        ("_local_scalar_dense_hpu_lazy", "READ", "DEVICE", True),
        ("LaunchSyncTensorsGraph", "LAUNCH", "NOTHING", True),
    ]
    assert view.calls.inside.tolist() == [False, True]
    assert waits(view) == (1, 1, 0)


def test_step_phase_module_and_operator(tmp_path: Path):
    b = TraceBuilder().steps(2, 500).annotation("Net", 20, 100).annotation("Optimizer.step#SGD.step", 300, 100)
    b.host("aten::mm", 30, 20, **{"Sequence number": 1, "Fwd thread id": 0}).kernel("k", 50, 5, launch=35)
    back = {"Sequence number": 1, "Fwd thread id": 1, "thread": AUTOGRAD}
    b.host("autograd::engine::evaluate_function: MmBackward0", 150, 50, **back).host("MmBackward0", 151, 40, **back)
    b.kernel("k", 170, 5, launch=160, thread=AUTOGRAD)
    b.kernel("k", 315, 5, launch=310).host("cudaDeviceSynchronize", 450, 5, cat="cuda_runtime")
    b.host("cudaDeviceSynchronize", 1100, 5, cat="cuda_runtime")
    view = view_of(b, tmp_path)
    table, nesting, host = view.calls, view.links.nesting, view.trace.host
    assert [
        (int(step), Phase(phase).name, int(module), view.trace.names[host.name[nesting.rows[at]]] if at >= 0 else "")
        for step, phase, module, at in zip(table.step, table.phase, table.module_call, table.operator, strict=True)
    ] == [
        (0, "FORWARD", 0, "aten::mm"),
        (0, "BACKWARD", 0, "MmBackward0"),
        (0, "OPTIMIZER", -1, ""),
        (0, "BETWEEN", -1, ""),
        (-1, "BETWEEN", -1, ""),
    ]
    assert waits(view) == (0.5, 0, 0)


def test_a_thread_with_its_share_of_launches_belongs_to_the_program_and_others_do_not(tmp_path: Path):
    def other(launches: int) -> list[bool]:
        b = TraceBuilder().step(0, 0, 1000).host("aten::mm", 0, 1)
        for i in range(20):
            b.kernel("k", 20 * i + 5, 5, launch=20 * i + 2)
        for i in range(launches):
            b.kernel("k", 20 * i + 12, 5, launch=20 * i + 11, call_dur=1, thread=OTHER)
        b.host("aten::relu", 900, 1, thread=OTHER).host(
            "cudaStreamSynchronize", 910, 5, cat="cuda_runtime", thread=OTHER
        )
        return [counted for name, _, _, counted in calls(view_of(b, tmp_path)) if name == "cudaStreamSynchronize"]

    assert (other(1), other(2)) == ([False], [True])


def test_a_slow_launch_into_a_full_queue_waits_for_room(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 2000).host("aten::add", 0, 1)
    for i in range(100):
        b.kernel("k", 1000 + 5 * i, 5, launch=10 + 5 * i, call_dur=52 if i == 99 else 2)
    view = view_of(b, tmp_path)
    assert view.calls.awaits.tolist() == [Awaited.NOTHING] * 99 + [Awaited.QUEUE]
    assert waits(view) == (0, 0, 0)
