"""Where windows lie: edges of a single pass, steps of servers' engines, steps behind another's work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder

from hpuprof.analysis.engine_markers import phase_of
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.partial import RankPartial
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel


def launched(out: TraceBuilder, number: int, at: float, dur: float = 50, begin: float | None = None) -> TraceBuilder:
    """Add an operator that launches a kernel; operators differ, so that nothing repeats."""
    out.host(f"aten::op_{number}", at, 20)
    return out.kernel("gemm", at + 10 if begin is None else begin, dur, launch=at + 4)


def replayed(out: TraceBuilder, folder: Path) -> tuple[RankView, LaunchModel]:
    view = RankView.of(out.trace(folder))
    model = LaunchModel.of(view, constants_for(view.trace.family, view.trace.mode, None))
    assert model is not None
    return view, model


def test_a_pass_lasts_from_its_first_launch_to_its_last_event(tmp_path):
    """Calls that start and stop the recording, and silence around them, are no idle time of the host's."""
    out = TraceBuilder().host("cudaGetDeviceCount", 0, 5, cat="cuda_runtime")
    for k in range(4):
        launched(out, k, 3_000 + 100 * k, 90)
    out.kernel("late", 3_410, 200, launch=3_320)
    out.host("cudaDeviceSynchronize", 3_400, 2_000, cat="cuda_runtime").host("aten::detach", 9_000, 5)
    view, model = replayed(out, tmp_path)
    window = view.steps.window
    assert (window.start_ns, window.end_ns) == (3_000_000, 3_610_000)
    assert (window.source, window.count, window.used, window.kind) == ("single_pass", 1, 1, "one pass")
    assert model.errors == pytest.approx((0.0, 0.0), abs=1e-9)


def test_host_work_before_the_first_launch_is_part_of_the_pass(tmp_path):
    """The inputs are made on the CPU for 600 ms; that is what takes long."""
    out = TraceBuilder().host("aten::randn", 0, 600_000)
    for k in range(4):
        launched(out, k, 600_800 + 100 * k)
    assert replayed(out, tmp_path)[0].steps.window.start_ns == 0


def test_launches_without_rows_are_part_of_the_pass(tmp_path):
    """The rows end after 4 of 24 launches: the rest is no silence."""
    out = TraceBuilder()
    for k in range(4):
        launched(out, k, 100 * k)
    for k in range(20):
        out.host("cudaLaunchKernel", 9_000 + 100 * k, 2, cat="cuda_runtime", correlation=1_000 + k)
    assert RankView.of(out.trace(tmp_path)).steps.end.tolist() == [10_902_000]


def test_a_pass_is_played_once(tmp_path):
    """Launched in 400 us, the device works for 1,000: no second pass begins behind the launches of the first."""
    out = TraceBuilder()
    for k in range(4):
        launched(out, k, 100 * k, 250, 10 + 250 * k)
    view, model = replayed(out, tmp_path)
    assert view.steps.wall.tolist() == [1_010_000]
    assert model.errors == pytest.approx((0.0, 0.0), abs=1e-9)
    assert model.nominal(np.zeros(1), np.ones(1)).tolist() == pytest.approx([1_010_000])


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_1(1024)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_32(32)", "decode"),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", "decode"),
        ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk37)", "prefill with decode"),
        ("execute_context_0(0)_generation_0(0)", ""),
        ("execute_new_1_cached_3", ""),
        ("execute_model", ""),
        ("gpu_model_runner: forward", ""),
        ("step[DECODE bs=32 g_sq=32 g_sqsk=50923]", "decode"),
        ("step[EXTEND bs=15 toks=15360]", "prefill"),
        ("step[MIXED bs=2]", "prefill with decode"),
        ("[Executor] _forward_step 7: 0 ctx reqs, 32 gen reqs", "decode"),
        ("[Executor] _forward_step 60000: 2 ctx reqs, 512 ctx tokens, 0 gen reqs", "prefill"),
        ("execute_plan", None),
        ("gpu_model_runner: sample", None),
    ],
)
def test_engines_say_what_a_step_is_for(name, phase):
    assert phase_of(name) == phase


def served(folder: Path, *phases: str) -> RankPartial:
    """Steps of 1,000 us, the annotation over 800 of it, with an inner one; the sampler runs behind it."""
    out = TraceBuilder()
    names = {"P": "execute_context_1(512)_generation_0(0)", "D": "execute_context_0(0)_generation_4(4)"}
    for i, phase in enumerate(phases):
        at = 1_000 * i
        out.annotation(names[phase], at, 800).annotation("gpu_model_runner: forward", at + 5, 400)
        for k in range(6):
            launched(out, k, at + 10 + 60 * k, 40)
        out.kernel("sample", at + 860, 20, launch=at + 850)
    return out.reduce(folder)


def test_annotations_of_an_engine_are_markers_and_kinds_are_phases(tmp_path):
    """A prefill that launches as much as a decode is none."""
    part = served(tmp_path, "P", *"DDDPDDDD")
    assert (part.file.step_source, part.file.steps_total) == ("engine", 9)
    assert [(kind.kind, kind.steps) for kind in part.step_kinds] == [("decode", 7), ("prefill", 2)]
    assert [step.wall_ns for step in part.steps if step.used] == [1_000_000] * 6
    assert "HP109" not in {d.code for d in part.diagnostics}


def test_frames_of_an_engine_s_turns_are_markers(tmp_path):
    """Without annotations; turns of other length and work, so that nothing repeats by itself."""
    out, at = TraceBuilder(), 0.0
    for i in range(8):
        length = 600.0 + 100 * (i % 3)
        frame = "/opt/lib/python3.11/site-packages/vllm/v1/engine/core.py(1193): _process_engine_step"
        out.host(frame, at, length - 50, cat="python_function")
        for k in range(2 + i % 3):
            launched(out, 10 * i + k, at + 10 + 60 * k, 40)
        at += length
    part = out.reduce(tmp_path)
    assert (part.file.step_source, part.file.steps_total) == ("engine", 8)
    assert [step.wall_ns for step in part.steps][:4] == [600_000, 700_000, 800_000, 600_000]


def test_one_step_of_an_engine_is_enough(tmp_path):
    part = served(tmp_path, "D")
    assert (part.file.step_source, part.file.steps_total, part.file.steps_used) == ("engine", 1, 1)
    assert part.prediction.options


def behind(before: int, after: int) -> TraceBuilder:
    """A prefill's 3 ms of device work; the decode behind it waits for that, the others for their own 0.6 ms."""
    out = TraceBuilder()
    free = begin = 0.0
    for i in range(before + 1 + after):
        prefill = i == before
        out.annotation("prefill 512" if prefill else "decode 4", begin, 100)
        work = 500 if prefill else 100
        for k in range(6):
            start = max(begin + 10 + 10 * k, free)
            out.host("aten::mm", begin + 2 + 10 * k, 8).kernel("gemm", start, work, launch=begin + 4 + 10 * k)
            free = start + work
        if prefill:
            begin += 100
            continue
        out.host("cudaStreamSynchronize", begin + 80, free - begin - 80 + 2, cat="cuda_runtime")
        begin = free + 20
    return out


def test_a_step_behind_a_prefill_is_no_equal_of_the_others(tmp_path):
    view, model = replayed(behind(3, 9), tmp_path)
    assert view.steps.excluded[:5] == ["first", "", "", "another kind", "behind another"]
    assert model.positions.tolist() == list(range(5, 12))
    assert model.timed.dur.tolist() == [630_000] * 7
    assert model.error < 0.02


def test_a_step_that_waits_for_a_prefill_launched_earlier_is_not_simulated_with_the_others(tmp_path):
    """The host runs a step ahead, and ends each by waiting for the one before: so long that its device time is usual."""
    out, at, free, done = TraceBuilder(), 0.0, 0.0, [0.0]
    for i in range(14):
        prefill = i == 6
        begin = at
        for k in range(20):
            start = max(free, at + 10 + 60 * k)
            work = 1_800.0 if prefill else 300.0
            out.host("aten::mm", at + 60 * k, 40).kernel("gemm", start, work, launch=at + 60 * k + 5)
            free = start + work
        at += 1_210
        wait = max(10.0, done[-1] - at)
        out.host("cudaEventSynchronize", at, wait, cat="cuda_runtime")
        done.append(free)
        at += wait + 20
        out.annotation("prefill 512" if prefill else "decode 4", begin, at - begin - 10)
    view, model = replayed(out, tmp_path)
    assert view.steps.excluded[6:8] == ["another kind", ""]
    assert model.positions.tolist() == [1, 2, 3, 4, 5]
    assert model.error < 0.02


def test_work_from_before_the_recording_that_the_busiest_lane_waits_for_is_no_idle_time(tmp_path):
    """A copy on another lane runs at once; the kernels wait 50 ms for what was launched earlier."""
    out = TraceBuilder().annotation("step[DECODE bs=4]", 0, 1_000)
    out.host("aten::copy_", 0, 20).kernel("Memcpy HtoD", 10, 5, launch=4, stream=9, cat="gpu_memcpy")
    for k in range(6):
        launched(out, k, 100 + 100 * k, 500, 50_000 + 500 * k)
    view, model = replayed(out, tmp_path)
    assert (view.steps.window.start_ns, view.steps.window.end_ns) == (50_000_000, 53_000_000)
    assert not view.steps.played_once
    assert model.error < 0.02


@pytest.mark.parametrize(
    ("ends", "reads", "source"),
    [(True, False, "single_pass"), (True, True, "operator_period"), (False, False, "operator_period")],
)
def test_layers_between_an_embedding_and_a_head_are_no_steps(tmp_path, ends, reads, source):
    """Without modules or annotations; steps read a result or copy an input, and nothing comes once at both ends."""
    out = TraceBuilder()

    def launching(name: str, at: float) -> None:
        out.host(name, at, 20).kernel("gemm", at + 25, 20, launch=at + 4)

    if ends:
        launching("aten::embedding", 0)
        launching("aten::argmax", 2_100)
    for layer in range(10):
        for k, name in enumerate(("aten::linear", "aten::gelu", "aten::mul", "aten::layer_norm")):
            launching(name, 60 + 200 * layer + 40 * k)
        if reads:
            out.host("cudaStreamSynchronize", 60 + 200 * layer + 165, 20, cat="cuda_runtime")
    assert out.reduce(tmp_path).file.step_source == source


@pytest.mark.parametrize(
    ("mark", "source"),
    [
        ("train_batch", "annotation"),
        ("ProfilerStep#{}", "profiler_step"),
        ("execute_context_0(0)_generation_32(32)", "engine"),
    ],
)
def test_marks_hold_the_work_though_one_row_outside_takes_longer(tmp_path, mark, source):
    """Early ranks wait for the last one to start recording, in a collective before the first step; layers are named."""
    out = TraceBuilder().kernel("ncclDevKernel_AllReduce_Sum_f32", 10, 60_000, launch=2)
    for step in range(6):
        at = 60_100 + 10_000.0 * step
        out.annotation(mark.format(step), at, 9_900)
        for i in range(8):
            begin = at + 1_000 * i
            if source != "annotation":
                out.annotation("decoder_block", begin - 1, 900)
            out.host("aten::mm", begin, 40).kernel("gemm", begin + 45, 500, launch=begin + 5)
    steps = RankView.of(out.trace(tmp_path)).steps
    assert (steps.source, len(steps)) == (source, 6)
    assert steps.used.sum() >= 4
