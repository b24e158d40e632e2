"""Device idle time by cause: each cause, their order, and that every nanosecond has exactly one."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder

from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import Cause


def causes(part: RankPartial, step: int = 0) -> dict[str, int]:
    """Idle time of a step by cause [µs]; checks that the causes sum to the idle time."""
    found = {g.cause: g.idle_ns for g in part.gap_causes if g.step == step}
    assert sum(found.values()) == part.steps[step].device_idle_ns
    return {c: ns // 1000 for c, ns in found.items()}


def idle_during(*rows: tuple[str, str]) -> TraceBuilder:
    """A step of 100 µs whose device is busy in 0..20 and 80..100, with host rows from 30 to 60 in between."""
    b = TraceBuilder().step(0, 0, 100).device("k", 0, 20).device("k", 80, 20)
    for name, cat in rows:
        b.host(name, 30, 30, cat=cat)
    return b


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("name", "cat", "cause"),
    [
        ("nvrtcCompileProgram", "cuda_driver", "compilation"),
        ("_compile.compile_inner (dynamo_timed)", "cpu_op", "compilation"),
        ("cuModuleLoadData", "cuda_driver", "first_use"),
        ("cudaGetDeviceProperties_v2", "cuda_runtime", "first_use"),
        ("aten::_local_scalar_dense", "cpu_op", "blocking_read"),
        ("nccl:all_reduce", "user_annotation", "collective"),
        ("c10d::allreduce_", "cpu_op", "collective"),
        ("[pl][profile][Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", "h2d_copy"),
        ("cudaFree", "cuda_runtime", "allocation"),
        ("cudaDeviceSynchronize", "cuda_runtime", "synchronise"),
        (LOADER, "user_annotation", "data_loader"),
        ("Optimizer.step#SGD.step", "user_annotation", "optimizer"),
        ("[pl][profile][Callback]ModelCheckpoint.on_train_batch_end", "user_annotation", "callback"),
        ("aten::add", "cpu_op", "operator_launch"),
        ("cudaLaunchKernel", "cuda_runtime", "operator_launch"),
        ("forward", "user_annotation", None),
        ("model.py(7): forward", "python_function", None),
    ],
)
def test_each_cause(tmp_path: Path, name: str, cat: str, cause: str | None):
    # Whatever the row does not explain lies inside ProfilerStep: Python.
    assert causes(idle_during((name, cat)).reduce(tmp_path)) == ({cause: 30, "python": 30} if cause else {"python": 60})


def test_outside_of_everything_the_cause_is_unknown(tmp_path: Path):
    b = TraceBuilder().host("aten::add", 0, 10).device("k", 10, 20).device("k", 660, 20).host("aten::add", 680, 20)
    assert causes(b.reduce(tmp_path)) == {"operator_launch": 30, "unknown": 630}


def test_a_short_pause_between_operators_is_python(tmp_path: Path):
    b = TraceBuilder().host("aten::add", 0, 10).device("k", 10, 20).device("k", 60, 20).host("aten::add", 80, 20)
    assert causes(b.reduce(tmp_path)) == {"operator_launch": 30, "python": 30}


def test_a_long_pause_is_unknown_though_a_step_or_a_range_is_around_it(tmp_path: Path):
    # A rank that slept a second in each forward was told to run Python.
    b = TraceBuilder().step(0, 0, 800).annotation("forward", 0, 750).host("aten::add", 0, 10).device("k", 10, 20)
    b.device("k", 660, 20).host("aten::add", 680, 20)
    assert causes(b.reduce(tmp_path)) == {"operator_launch": 30, "python": 100, "unknown": 630}


def test_launched_work_that_has_not_started_is_the_devices_own_latency(tmp_path: Path):
    b = (
        TraceBuilder()
        .step(0, 0, 100)
        .kernel("k", 30, 20, launch=5, call_dur=5)
        .kernel("k", 60, 20, launch=12, call_dur=5)
    )
    # Idle 0..30: the first kernel is queued from 10, its call covers 5..10. Idle 50..60: the second one is queued. Then nothing.
    assert causes(b.reduce(tmp_path)) == {"device_latency": 30, "operator_launch": 5, "python": 25}


ROWS = {
    Cause.COMPILATION: ("nvrtcCompileProgram", "cuda_driver"),
    Cause.FIRST_USE: ("cuModuleLoadData", "cuda_driver"),
    Cause.BLOCKING_READ: ("aten::_local_scalar_dense", "cpu_op"),
    Cause.COLLECTIVE: ("nccl:all_reduce", "user_annotation"),
    Cause.ALLOCATION: ("cudaFree", "cuda_runtime"),
    Cause.H2D_COPY: ("[pl][profile][Strategy]S.batch_to_device", "user_annotation"),
    Cause.SYNCHRONISE: ("cudaDeviceSynchronize", "cuda_runtime"),
    Cause.DATA_LOADER: (LOADER, "user_annotation"),
    Cause.OPTIMIZER: ("Optimizer.step#SGD.step", "user_annotation"),
    Cause.CALLBACK: ("[pl][profile][Callback]C.on_train_batch_end", "user_annotation"),
    Cause.OPERATOR_LAUNCH: ("aten::add", "cpu_op"),
    Cause.PYTHON: ("forward", "user_annotation"),
}


@pytest.mark.parametrize(
    ("winner", "loser"), list(zip(list(ROWS)[:-1], list(ROWS)[1:], strict=True)), ids=lambda c: c.name.lower()
)
def test_the_more_specific_cause_wins(tmp_path: Path, winner: Cause, loser: Cause):
    assert winner < loser
    found = causes(idle_during(ROWS[winner], ROWS[loser]).reduce(tmp_path))
    assert found == {winner.name.lower(): 30, "python": 30}


def test_the_wait_that_completes_a_read_is_part_of_it(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).device("k", 0, 20).device("k", 80, 20).host("aten::copy_", 30, 40)
    copy = {"call": "cudaMemcpyAsync", "cat": "gpu_memcpy", "call_dur": 5}
    b.kernel("Memcpy DtoH (Device -> Pageable)", 38, 2, launch=31, **copy)
    b.host("cudaStreamSynchronize", 40, 20, cat="cuda_runtime")
    # Idle 20..38 and 40..80; the copy is queued 36..38.
    found = causes(b.reduce(tmp_path))
    assert found == {"blocking_read": 25, "device_latency": 2, "operator_launch": 11, "python": 20}


@pytest.mark.parametrize(
    ("between", "cause"),
    [((), "blocking_read"), (("cudaEventRecord",), "blocking_read"), (("cudaStreamSynchronize",), "synchronise")],
)
def test_outside_of_operators_a_wait_completes_the_read_that_is_the_call_before_it(tmp_path: Path, between, cause):
    b = TraceBuilder().step(0, 0, 100).device("k", 0, 20).device("k", 80, 20)
    b.kernel("Memcpy DtoH (Device -> Pinned)", 38, 2, launch=31, call="cudaMemcpyAsync", cat="gpu_memcpy", call_dur=5)
    for name in between:
        b.host(name, 37, 2, cat="cuda_runtime")
    b.host("cudaDeviceSynchronize", 42, 20, cat="cuda_runtime")
    assert causes(b.reduce(tmp_path))[cause] >= 20


def test_causes_partition_a_gap(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).device("k", 0, 10).device("k", 90, 10)
    b.host("Optimizer.step#SGD.step", 10, 60, cat="user_annotation").host("aten::add", 20, 60)
    b.host("aten::_local_scalar_dense", 30, 10)
    assert causes(b.reduce(tmp_path)) == {"blocking_read": 10, "optimizer": 50, "operator_launch": 10, "python": 10}


def test_idle_time_is_cut_at_steps(tmp_path: Path):
    part = (
        TraceBuilder()
        .steps(2, 100)
        .device("k", 0, 60)
        .device("k", 150, 50)
        .host(LOADER, 80, 50, cat="user_annotation")
        .reduce(tmp_path)
    )
    assert causes(part, 0) == {"data_loader": 20, "python": 20}
    assert causes(part, 1) == {"data_loader": 30, "python": 20}


def test_lightnings_closure_runs_inside_the_optimizer_and_is_not_the_optimizers(tmp_path: Path):
    b = idle_during(("Optimizer.step#SGD.step", "user_annotation")).annotation(
        "[pl][profile][Strategy]S.training_step", 35, 20
    )
    assert causes(b.reduce(tmp_path)) == {"optimizer": 10, "python": 50}


def test_of_a_copy_operator_only_the_copy_and_its_wait_are_copying(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).host("aten::to", 10, 50).host("aten::copy_", 25, 30)
    b.host("cudaGetDeviceProperties", 12, 8, cat="cuda_runtime").host(
        "cudaStreamSynchronize", 40, 10, cat="cuda_runtime"
    )
    b.kernel(
        "Memcpy HtoD (Pageable -> Device)", 32, 16, launch=30, call="cudaMemcpyAsync", call_dur=10, cat="gpu_memcpy"
    )
    b.device("k", 90, 10)
    # Idle 0..32 and 48..90: set-up in 12..20, the copy's call in 30..40, its wait in 40..50, aten::to in 10..60.
    assert causes(b.reduce(tmp_path)) == {"first_use": 8, "h2d_copy": 4, "operator_launch": 22, "python": 40}


def test_a_wait_inside_a_reading_operator_is_a_blocking_read(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).host("aten::to", 10, 60)
    b.kernel("Memcpy DtoH (Device -> Pageable)", 30, 5, launch=20, call="cudaMemcpyAsync", call_dur=8, cat="gpu_memcpy")
    b.host("cudaStreamSynchronize", 35, 20, cat="cuda_runtime").device("k", 90, 10)
    # Idle 0..30 and 35..90: the call in 20..28, queued in 28..30, the wait in 35..55.
    expected = {"blocking_read": 28, "device_latency": 2, "operator_launch": 25, "python": 30}
    assert causes(b.reduce(tmp_path)) == expected


def test_a_trace_that_begins_with_a_long_free_creates_the_context(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 5000).device("k", 0, 100).device("k", 4900, 100)
    b.host("cudaFree", 500, 2000, cat="cuda_runtime").host("cudaFree", 3000, 1500, cat="cuda_runtime")
    part = b.reduce(tmp_path)
    assert causes(part) == {"first_use": 2000, "allocation": 1500, "python": 800, "unknown": 500}
    assert part.steps[0].blocked_alloc_ns == 1_500_000


@pytest.mark.parametrize(("usual", "found"), [(5, 3000), (145, 3000), (155, None)])
def test_a_kernels_first_launch_loads_its_module(tmp_path: Path, usual: int, found: int | None):
    """Unless all launches are long; a later launch of it is as long as well."""
    b = TraceBuilder().step(0, 0, 10_000)
    for i in range(8):
        b.kernel("usual", 4370 + 200 * i, 10, launch=4200 + 200 * i, call_dur=usual)
    b.kernel("new", 4100, 10, launch=1000, call_dur=3000).kernel("new", 9100, 10, launch=6000, call_dur=3000)
    assert causes(b.reduce(tmp_path)).get("first_use") == found


@pytest.mark.parametrize(
    ("first", "others", "launches", "found"),
    [
        (3000, [30, 30, 30], True, 2994),
        (3000, [30], True, None),
        (900, [30, 30, 30], True, None),
        (3000, [30, 30, 30], False, None),
        (3000, [160, 160, 160], True, None),
        (2500, [50, 150], True, 2494),
    ],
    ids=[
        "sets a library up",
        "has no other to be unlike",
        "is short",
        "computes on the CPU",
        "is long anyway",
        "is no measure of itself",
    ],
)
def test_the_first_call_of_an_operator_may_set_a_library_up(tmp_path: Path, first, others, launches, found):
    b = TraceBuilder().step(0, 0, 10_000).host("aten::cudnn_convolution", 1000, first)
    ends = [1000 + first]
    for i, length in enumerate(others):
        b.host("aten::cudnn_convolution", 5000 + 200 * i, length)
        ends.append(5000 + 200 * i + length)
    for end in ends if launches else ():
        b.kernel("conv", end, 10, launch=end - 8)
    b.device("k", 9000, 1000)
    assert causes(b.reduce(tmp_path)).get("first_use") == found


@pytest.mark.parametrize(
    ("calls", "first", "later", "busy", "found"),
    [
        (["cudaFree", "cudaFree"], 0, (), False, 4000),  # a library's handle
        (["cudaMalloc"], 0, (), False, 2000),
        (["cudaMalloc"], 2, (), False, None),  # not the operator's first call
        (["cudaMalloc"], 0, (1500,), False, None),  # the allocator's: it comes again
        (["cudaMalloc"], 0, (1500, 10, 10), False, None),
        (["cudaMalloc"], 0, (50,), False, 2000),
        (["cudaMalloc"], 0, (150,), False, None),  # more than a twentieth of it: as long as such calls are
        (["cudaFree", "cudaFree"], 0, (), True, None),  # waits for the device
        (["cudaMalloc"], -1, (), False, 2000),  # before the first launch, in no operator
        (["cudaMalloc"], -1, (1500,), False, None),
    ],
)
def test_long_first_calls_of_the_allocator_are_first_use(tmp_path: Path, calls, first, later, busy, found):
    """The device begins with a launched kernel; `aten::mm` comes four times, `first`: in which of them the calls lie."""
    b = TraceBuilder().step(0, 0, 20_000)
    at = 10.0
    if first < 0:
        for name in calls:
            b.host(name, at, 2000, cat="cuda_runtime")
            at += 2000
    b.host("aten::relu", at, 20).kernel("relu", at + 20, 4500 if busy else 20, launch=at + 5)
    at += 100
    for i in range(4):
        begin, inside = at, calls if i == first else []
        for name in inside:
            b.host(name, at + 2, 2000, cat="cuda_runtime")
            at += 2002
        for length in later if i == 3 else ():
            b.host(calls[0], at + 2, length, cat="cuda_runtime")
            at += length + 2
        b.host("aten::mm", begin, at + 30 - begin).kernel("gemm", max(at + 40, 4700 * busy), 10, launch=at + 8)
        at += 100
    part = b.reduce(tmp_path)
    assert causes(part).get("first_use") == found
    assert (part.steps[0].blocked_alloc_ns == 0) == (found is not None and not later)


def test_what_an_operators_first_call_waits_for_is_not_its_own(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 10_000).host("aten::mm", 1000, 3000)
    b.host("cudaStreamSynchronize", 1100, 2800, cat="cuda_runtime").kernel("gemm", 4000, 10, launch=3950)
    for i in range(3):
        b.host("aten::mm", 5000 + 100 * i, 30).kernel("gemm", 5030 + 100 * i, 10, launch=5010 + 100 * i)
    b.device("k", 9000, 1000)
    assert "first_use" not in causes(b.reduce(tmp_path))


def test_a_copy_operator_without_an_upload_is_a_launch(tmp_path: Path):
    assert causes(idle_during(("aten::to", "cpu_op")).reduce(tmp_path)) == {"operator_launch": 30, "python": 30}


def test_work_on_other_threads_does_not_explain_idle_time(tmp_path: Path):
    b = (
        idle_during()
        .host("cudaDeviceSynchronize", 30, 30, cat="cuda_runtime", thread=(100, 102))
        .host("aten::add", 30, 30, thread=(100, 102))
    )
    assert causes(b.reduce(tmp_path)) == {"python": 60}


def test_the_autograd_thread_launches_too(tmp_path: Path):
    b = idle_during().thread("pt_autograd_0", AUTOGRAD).host("MmBackward0", 30, 30, thread=AUTOGRAD)
    assert causes(b.reduce(tmp_path)) == {"operator_launch": 30, "python": 30}


def test_lazy_accumulation_and_reads_on_hpu(tmp_path: Path):
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100).lane("gemm", 80, 20)
    b.host("add_hpu_lazy", 10, 20, cat="privateuse1_runtime").host(
        "_local_scalar_dense_hpu_lazy", 40, 30, cat="privateuse1_runtime"
    )
    assert causes(b.reduce(tmp_path)) == {"blocking_read": 30, "operator_launch": 20, "python": 30}


def test_the_longest_gaps(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 200).device("k", 20, 30).device("k", 100, 90)
    b.host("aten::add", 0, 15).host("aten::linear", 52, 36).host("aten::addmm", 60, 20)
    gaps = [(g.start_ns, g.dur_ns, g.cause, g.cause_fraction, g.host_row) for g in b.reduce(tmp_path).gaps]
    assert gaps == [
        (50_000, 50_000, "operator_launch", 0.72, "aten::addmm"),
        (0, 20_000, "operator_launch", 0.75, "aten::add"),
        (190_000, 10_000, "python", 1.0, "ProfilerStep#0"),
    ]


def test_a_gap_over_a_step_border_is_two(tmp_path: Path):
    part = TraceBuilder().steps(2, 100).device("k", 0, 60).device("k", 150, 50).reduce(tmp_path)
    assert [(g.step, g.start_ns, g.dur_ns) for g in part.gaps] == [(1, 100_000, 50_000), (0, 60_000, 40_000)]
