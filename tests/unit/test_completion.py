"""Windows of completion: the pace of a device that the host runs ahead of, and work from before the recording."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder
from rank_traces import ALL_REDUCE, comm, header

import hpuprof
from hpuprof.model.partial import RankPartial

GEMM = "gemm"


def ahead(steps: int = 8, lag: int = 3, *, unit: float = 1.0, shift: float = 0.0, lead: float = 0.0) -> TraceBuilder:
    """A host that enqueues a step of two kernels every 100 µs, until it is `lag` steps ahead; the device takes 400.

    `lead`: how long the device still works on what was launched before the recording.
    """
    out = TraceBuilder()
    done = [lead] * lag
    now = 0.0
    for i in range(steps):
        begin, now = now, max(now + 100, done[-lag] if i >= lag else 0.0)
        first = max(done[-1], begin + 20)
        for j, start in enumerate((first, first + 200)):
            at = shift + unit * (begin + 10 * (j + 1))
            out.kernel(GEMM, shift + unit * start, unit * 200, launch=at, call_dur=unit * 5)
        done.append(first + 400)
        out.step(i, shift + unit * begin, unit * (now - begin))
    return out


def walls(part: RankPartial) -> list[float]:
    return [s.wall_ns / 1000 for s in part.steps]


@pytest.mark.parametrize("lag", [1, 2, 3, 5])
def test_a_step_takes_from_completion_to_completion_however_far_the_host_is_ahead(tmp_path: Path, lag: int):
    part = ahead(lag=lag).reduce(tmp_path)
    assert walls(part)[1:] == [400] * 7
    assert {s.device_busy_ns for s in part.steps[1:]} == {400_000}
    assert {s.device_idle_ns for s in part.steps[1:]} == {0}
    assert [s.launches for s in part.steps] == [2] * 8
    assert "outlier" not in {s.excluded for s in part.steps}


def test_both_paces_are_told_and_one_is_used(tmp_path: Path):
    report = hpuprof.analyze(ahead(lag=5).write(tmp_path / "t.json"))
    values = {name: metric.value for name, metric in report.metrics.items()}
    assert values["step_time_p50"] == values["step_time_mean"] == 400_000
    assert values["host_step_time_p50"] == 100_000
    assert values["device_busy_fraction"] == 1.0
    (told,) = [d.text for d in report.data.diagnostics if d.code == "HP152"]
    assert told == "a step takes 100.0 µs on the host, 400.0 µs from completion to completion"


def test_a_host_that_the_device_waits_for_keeps_its_own_windows(tmp_path: Path):
    b = TraceBuilder().steps(6, 100)
    for i in range(6):
        b.kernel(GEMM, 100 * i + 60, 50, launch=100 * i + 55)  # done 10 µs into the next step, which launches at 55
    report = hpuprof.analyze(b.write(tmp_path / "t.json"))
    assert [s.start_ns for s in report.data.steps] == [100_000 * i for i in range(6)]
    assert report.metrics["host_step_time_p50"].value is None
    assert "HP152" not in {d.code for d in report.data.diagnostics}


def test_a_single_step_lasts_until_its_work_is_done(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).kernel(GEMM, 20, 150, launch=10).kernel(GEMM, 170, 30, launch=20)
    (step,) = b.reduce(tmp_path).steps
    assert (step.wall_ns, step.host_wall_ns, step.device_busy_ns) == (200_000, 100_000, 180_000)
    # 10 µs before the first launch and its call; after its last row the host is not at work.
    assert step.host_working_ns == 100_000


def test_work_in_the_background_completes_no_step(tmp_path: Path):
    b = ahead()
    b.kernel("Memcpy DtoH (Device -> Pinned)", 30, 1500, launch=15, cat="gpu_memcpy", stream=9, call="cudaMemcpyAsync")
    assert walls(b.reduce(tmp_path)) == [420] + [400] * 7


def test_all_device_work_lies_in_steps_or_outside(tmp_path: Path):
    b = ahead()
    b.device(GEMM, 9000, 500)  # long after the last step
    part = b.reduce(tmp_path)
    assert part.file.device_outside_ns == 500_000
    assert part.file.device_busy_ns == sum(s.device_busy_ns for s in part.steps) + 500_000
    (told,) = [d.text for d in part.diagnostics if d.code == "HP150"]
    assert told == "14% of the device's work lies in no step"


@pytest.mark.parametrize(("unit", "shift"), [(1.0, 5000.0), (10.0, 0.0)])
def test_shift_and_unit_of_time_change_nothing(tmp_path: Path, unit: float, shift: float):
    plain, other = (walls(b.reduce(tmp_path)) for b in (ahead(), ahead(unit=unit, shift=shift)))
    assert other == [unit * w for w in plain]


def test_windows_follow_one_another_from_the_first_launch_to_the_last_completion(tmp_path: Path):
    steps = ahead().reduce(tmp_path).steps
    ends = [s.start_ns + s.wall_ns for s in steps]
    assert [s.start_ns for s in steps] == [0, *ends[:-1]]
    assert ends[-1] == (20 + 8 * 400) * 1000


def test_work_from_before_the_recording_belongs_to_no_step(tmp_path: Path):
    part = ahead(lead=30_000).reduce(tmp_path)
    assert walls(part) == [400] * 8
    assert sum(s.device_idle_ns for s in part.steps) == 0


def behind_unseen_work() -> TraceBuilder:
    """Three steps that wait for the device, whose first row begins 20 ms after its launch."""
    b = TraceBuilder()
    for i, (begin, end) in enumerate(((0, 20_110), (20_110, 20_300), (20_300, 20_490))):
        start = max(begin + 20, 20_000)
        b.step(i, begin, end - begin).kernel(GEMM, start, 100, launch=begin + 10)
        b.host("cudaDeviceSynchronize", begin + 15, start + 105 - begin - 15, cat="cuda_runtime")
    return b


def test_a_device_at_unrecorded_work_is_not_idle_between_queued_kernels(tmp_path: Path):
    report = hpuprof.analyze(behind_unseen_work().write(tmp_path / "t.json"))
    causes = {(g.step, g.cause): g.idle_ns for g in report.data.gap_causes}
    assert causes[0, "unrecorded"] == 20_000_000
    assert (0, "device_latency") not in causes
    assert report.headline.bound == "unknown"
    assert "launched before the recording" in report.headline.sentence
    assert report.graph_mode.verdict == "cannot say"


def test_a_device_that_is_being_set_up_has_no_earlier_work(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 20_200).device(GEMM, 19_500, 10).kernel(GEMM, 20_000, 100, launch=19_990)
    b.host("aten::empty", 990, 18_020).host("cudaGetDeviceProperties", 1_000, 18_000, cat="cuda_runtime")
    causes = {g.cause: g.idle_ns for g in b.reduce(tmp_path).gap_causes}
    assert (causes["first_use"], causes["unrecorded"]) == (18_000_000, 1_500_000)


def test_rows_without_a_launch_ahead_of_all_others_were_launched_before_the_recording(tmp_path: Path):
    b = TraceBuilder().steps(3, 1000)
    for start in (10, 130):
        b.device(GEMM, start, 100)
    for i in range(3):
        b.kernel(GEMM, 1000 * i + 500, 300, launch=1000 * i + 490)
    causes = {(g.step, g.cause): g.idle_ns for g in b.reduce(tmp_path).gap_causes}
    assert causes[0, "unrecorded"] == 30_000  # 0 to 10 and 110 to 130


def test_without_launches_the_host_s_windows_are_taken(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    for i in range(4):
        b.device(GEMM, 100 * i + 60, 95)
    assert walls(b.reduce(tmp_path)) == [100] * 4


def test_memory_allocated_inside_a_copy_is_allocation(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 1000).host("aten::to", 100, 600).host("cudaMalloc", 110, 500, cat="cuda_runtime")
    b.kernel("Memcpy HtoD (Pinned -> Device)", 700, 100, launch=620, call="cudaMemcpyAsync", cat="gpu_memcpy")
    part = b.kernel(GEMM, 800, 150, launch=690).reduce(tmp_path)
    found = {g.cause: g.idle_ns // 1000 for g in part.gap_causes}
    assert found["allocation"] == 500
    assert found.get("h2d_copy", 0) <= 2


def test_a_rank_that_is_far_ahead_never_waits_for_longer_than_a_step(tmp_path: Path):
    """Rank 0's host is done at once; its device waits in a collective of each step for rank 1, which takes 1 ms."""
    for rank in range(2):
        b = TraceBuilder(**header(rank, 2))
        for i in range(8):
            begin, own = (50 * i, 50) if rank == 0 else (1000 * i, 1000)
            b.step(i, begin, own)
            came, done = max(1000 * i, begin) + 30 + 800 * rank, 1000 * i + 900
            b.kernel(ALL_REDUCE, came, done - came, launch=begin + 20, stream=20, **comm())
            b.kernel(GEMM, done, 20, launch=begin + 30)
        b.write(tmp_path / f"rank{rank}.json")
    report = hpuprof.analyze(tmp_path)
    assert [s.wall_ns for s in report.data.steps if s.used] == [1_000_000] * 12
    waiting = [r.waiting_ns for r in report.data.step_waits if r.rank == 0]
    assert waiting[1:] == [800_000] * 7
    assert report.metrics["collective_wait_fraction"].value == pytest.approx(0.4)
