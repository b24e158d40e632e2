"""Where steps come from, and which of them are left out of medians."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.model.partial import RankPartial

BATCH = "[pl][profile]run_training_batch"


def steps_of(part: RankPartial) -> list[tuple[str, int, int, str]]:
    """Label, start, wall [µs] and reason of each step."""
    return [(s.label, s.start_ns // 1000, s.wall_ns // 1000, s.excluded) for s in part.steps]


def with_steps(*walls: float, names: str = "ProfilerStep#{}") -> TraceBuilder:
    """Steps of the given lengths, back to back, with one operator in each."""
    builder, start = TraceBuilder(), 0.0
    for i, wall in enumerate(walls):
        builder.annotation(names.format(i), start, wall).host("aten::add", start + 1, 2)
        start += wall
    return builder


def test_profiler_steps(tmp_path: Path):
    part = with_steps(100, 110, 120).reduce(tmp_path)
    assert steps_of(part) == [
        ("ProfilerStep#0", 0, 100, ""),
        ("ProfilerStep#1", 100, 110, ""),
        ("ProfilerStep#2", 210, 120, ""),
    ]
    assert (part.file.step_source, part.file.step_name) == ("profiler_step", "ProfilerStep#")


def test_profiler_steps_that_overlap_are_cut_at_the_next_one(tmp_path: Path):
    part = TraceBuilder().step(1, 0, 105).step(2, 100, 100).step(3, 200, 90).reduce(tmp_path)
    assert [(s.start_ns, s.wall_ns) for s in part.steps] == [(0, 100_000), (100_000, 100_000), (200_000, 90_000)]


def test_gaps_between_profiler_steps_belong_to_no_step(tmp_path: Path):
    part = TraceBuilder().step(1, 0, 80).step(2, 100, 80).reduce(tmp_path)
    assert [(s.start_ns, s.wall_ns) for s in part.steps] == [(0, 80_000), (100_000, 80_000)]


def test_lightning_steps_run_from_batch_to_batch_whatever_profiler_step_says(tmp_path: Path):
    # As recorded: ProfilerStep runs from forward to forward, its numbers read 2, 1, 2, 3; loading lies between the batches.
    b = TraceBuilder()
    for i, (number, begin, end) in enumerate([(2, 0, 50), (1, 50, 150), (2, 150, 250), (3, 250, 350)]):
        b.step(number, begin, end - begin).annotation(BATCH, 100 * i + 10, 60)
        b.annotation("[pl][profile][_TrainingEpochLoop].train_dataloader_next", 100 * i + 75, 20)
    part = b.reduce(tmp_path)
    assert steps_of(part) == [
        ("batch 0", 10, 100, "first"),
        ("batch 1", 110, 100, ""),
        ("batch 2", 210, 100, ""),
        ("batch 3", 310, 60, "last"),
    ]
    assert (part.file.step_source, part.file.step_name) == ("lightning", BATCH)


def test_lightning_validation_batches(tmp_path: Path):
    name = "[pl][profile][Strategy]SingleDeviceStrategy.validation_step"
    part = (
        TraceBuilder()
        .step(3, 0, 95)
        .step(4, 95, 90)
        .annotation(name, 20, 50)
        .annotation(name, 120, 60)
        .reduce(tmp_path)
    )
    assert steps_of(part) == [("batch 0", 20, 100, ""), ("batch 1", 120, 60, "last")]


def test_an_annotation_that_repeats(tmp_path: Path):
    b = TraceBuilder()
    for i in range(4):
        b.annotation(f"## iteration {i} ##", 100 * i, 90).annotation(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100 * i + 1, 80
        )
    part = b.reduce(tmp_path)
    assert steps_of(part) == [
        (f"## iteration {i} ##", 100 * i, w, e)
        for i, (w, e) in enumerate([(100, "first"), (100, ""), (100, ""), (90, "last")])
    ]
    assert (part.file.step_source, part.file.step_name) == ("annotation", "## iteration # ##")
    assert "HP109" in {d.code for d in part.diagnostics}


def test_an_annotation_that_covers_little_or_comes_twice_is_no_step(tmp_path: Path):
    b = TraceBuilder().host("aten::add", 0, 5).host("aten::add", 1000, 5)
    for i in range(4):
        b.annotation("checkpoint", 10 * i, 5)
    assert (
        b.annotation("epoch", 0, 400).annotation("epoch", 500, 400).reduce(tmp_path).file.step_source == "single_pass"
    )


def test_updates_are_steps_however_long_the_recording_ran_before_the_first(tmp_path: Path):
    """Workers start for nine tenths of the recording, and one update does what the others do not."""
    b = TraceBuilder().host("aten::empty", 0, 1)
    for i in range(6):
        begin, extra = 10_000 + 200 * i, 40 * (i % 2)
        for k in range(3 + i % 2):
            call = begin + 20 + 30 * k
            b.host(f"aten::op{k}", call, 20).kernel(f"kernel{k}", call + 15, 10, launch=call + 5)
        b.annotation("Optimizer.step#AdamW.step", begin + 120 + extra, 30)
    part = b.reduce(tmp_path)
    assert (part.file.step_source, part.file.step_name) == ("annotation", "Optimizer.step#AdamW.step")
    assert len(part.steps) == 6


def test_the_period_of_the_operators(tmp_path: Path):
    b = TraceBuilder()
    for i in range(5):
        for j, name in enumerate(["aten::linear", "aten::relu", "aten::mse_loss", "aten::add_"]):
            b.host(name, 100 * i + 15 * j, 10)
    part = b.reduce(tmp_path)
    # A period begins after the longest pause: at aten::linear.
    assert [(s.start_ns, s.wall_ns) for s in part.steps] == [(100_000 * i, 100_000) for i in range(4)] + [
        (400_000, 55_000)
    ]
    assert (part.file.step_source, part.file.step_name) == ("operator_period", "aten::linear")


def test_the_whole_trace(tmp_path: Path):
    part = TraceBuilder().host("aten::add", 10, 5).host("aten::mul", 90, 10).reduce(tmp_path)
    assert steps_of(part) == [("one pass", 0, 90, "")]
    assert {d.code for d in part.diagnostics} >= {"HP109", "HP110"}


@pytest.mark.parametrize(
    ("walls", "excluded"),
    [
        ([100], [""]),
        ([100, 100, 100], ["", "", ""]),
        ([100, 100, 100, 100], ["first", "", "", ""]),
        ([100, 100, 100, 100, 100], ["first", "", "", "", "last"]),
        ([100, 300, 101, 100, 99, 100, 100], ["first", "warm-up", "", "", "", "", "last"]),
        ([100, 300, 200, 100, 101, 99, 100, 100], ["first", "warm-up", "warm-up", "", "", "", "", "last"]),
        # What follows the long step is not even, so nothing can be said of a warm-up.
        ([100, 300, 100, 200, 110, 210, 100, 190, 100], ["first", "", "", "", "", "", "", "", "last"]),
        ([100, 140, 101, 100, 99, 100, 100], ["first", "outlier", "", "", "", "", "last"]),
        (
            [100, 150, 101, 100, 99, 100, 100],
            ["first", "outlier", "", "", "", "", "last"],
        ),  # half as long again: settled
        ([100, 100, 101, 300, 99, 100, 100], ["first", "", "", "outlier", "", "", "last"]),
        # Far from the median by spread, but not by a fifth of it: kept.
        ([100, 100, 100, 115, 100, 100, 100], ["first", "", "", "", "", "", "last"]),
    ],
)
def test_exclusions(tmp_path: Path, walls: list[float], excluded: list[str]):
    part = with_steps(*walls).reduce(tmp_path)
    assert [s.excluded for s in part.steps] == excluded
    assert (part.file.steps_total, part.file.steps_used) == (len(walls), excluded.count(""))


@pytest.mark.parametrize(
    ("steps", "long", "fetch", "work", "pauses"),
    [
        (10, 300, 0, 60, True),
        (11, 300, 0, 60, True),
        (8, 300, 0, 60, False),  # three that are open may alternate by chance
        (10, 126, 0, 60, True),
        (10, 124, 0, 60, False),  # no more than an outlier among the long ones would have to differ
        (10, 300, 100, 60, True),
        (10, 300, 101, 60, False),  # batches that come by turns, not a pause, fill most of what they take longer
        (10, 300, 0, 160, False),  # they do more
    ],
)
def test_of_steps_that_pause_by_turns_the_others_are_typical(
    tmp_path: Path, steps: int, long: int, fetch: int, work: int, *, pauses: bool
):
    b, at = TraceBuilder(), 0.0
    for i in range(steps):
        wall = 100 if i % 2 else long
        b.step(i, at, wall).host("aten::mm", at + 2, 10).kernel("gemm", at + 8, 60 if i % 2 else work, launch=at + 4)
        if fetch and not i % 2:
            b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 190, fetch)
        at += wall
    inner = [s.excluded for s in b.reduce(tmp_path).steps[1:-1]]
    assert inner == ["" if i % 2 or not pauses else "outlier" for i in range(1, steps - 1)]


def test_what_recurs_is_steady_and_what_was_seen_once_is_not(tmp_path: Path):
    walls = [100, 100, 300, 100, 101, 100, 300, 99, 100, 100, 300, 100]
    part = with_steps(*walls).reduce(tmp_path)
    assert [s.standing for s in part.steps] == [
        *("left out", "typical", "recurs", "typical", "typical", "typical", "recurs", "typical", "typical", "typical"),
        *("recurs", "left out"),
    ]
    assert [s.above_ns for s in part.steps if s.slow] == [200_000] * 3
    once = with_steps(100, 100, 100, 300, 100, 100, 100).reduce(tmp_path)
    assert [s.standing for s in once.steps].count("once") == 1
    named = with_steps(100, 100, 100, 300, 100, 100, 100).annotation("Trainer.save_checkpoint", 310, 199)
    assert [s.standing for s in named.reduce(tmp_path).steps][3] == "recurs"


@pytest.mark.parametrize(
    ("rows", "cause", "row"),
    [
        ([], "nothing traced on the host", ""),
        (["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"], "data loading", ""),
        (["gc.collect"], "garbage collection", "gc.collect"),
        (["Trainer.save_checkpoint", "aten::copy_"], "callback or checkpoint", "Trainer.save_checkpoint"),
        (["evaluate", "aten::mul"], "host work", "aten::mul"),
    ],
)
def test_groups_of_steps_say_what_fills_pauses(tmp_path: Path, rows: list[str], cause: str, row: str):
    walls = [300 if i in (6, 12, 18, 24) else 100 for i in range(30)]
    b = with_steps(*walls)
    for i in (6, 12, 18, 24):
        for depth, name in enumerate(rows):
            start, dur = sum(walls[:i]) + 4 + depth, 190 - 2 * depth
            (b.host if name.startswith("aten") else b.annotation)(name, start, dur)
    groups = {g.standing: g for g in b.reduce(tmp_path).step_groups}
    slow, typical = groups["recurs"], groups["typical"]
    assert (slow.reason, slow.steps, slow.every, slow.above_ns) == ("slow", 4, 6, 200_000)
    assert (slow.cause, slow.row) == (cause, row or (rows[0] if rows else ""))
    assert (slow.cost_ns, slow.cost_low_ns, slow.cost_high_ns) == pytest.approx((8e5 / 28, 8e5 / 28, 10e5 / 28))
    assert (typical.steps, sum(g.steps for g in groups.values()), typical.cost_ns) == (24, 30 - 1, None)


def test_time_outside_of_steps_is_in_groups_of_its_own(tmp_path: Path):
    b = TraceBuilder().host("aten::empty", 0, 5).host("aten::copy_", 700, 30)
    for i in range(6):
        b.annotation(f"ProfilerStep#{i}", 20 + 110 * i, 100).host("aten::add", 21 + 110 * i, 2)
    part = b.reduce(tmp_path)
    times = {g.reason: g.time_ns for g in part.step_groups if g.standing == "outside"}
    assert times == {"before the first step": 20_000, "between steps": 50_000, "after the last step": 60_000}
    assert sum(g.time_ns for g in part.step_groups) == part.file.span_ns == 730_000
    assert sum(g.time_fraction for g in part.step_groups) == pytest.approx(1.0)


def test_what_was_seen_once_has_the_interval_of_one_event(tmp_path: Path):
    part = with_steps(*[300 if i == 8 else 100 for i in range(20)]).reduce(tmp_path)
    [once] = [g for g in part.step_groups if g.standing == "once"]
    assert once.cost_ns == pytest.approx(200_000 / 18)
    # Poisson's 90 % of one event: 0.05 to 4.74.
    assert once.cost_low_ns == pytest.approx(0.05 * once.cost_ns, abs=0.02 * once.cost_ns)
    assert once.cost_high_ns == pytest.approx(4.74 * once.cost_ns, rel=0.01)


def test_steps_that_compile(tmp_path: Path):
    b = with_steps(100, 100, 100, 100, 100, 100)
    b.host("nvrtcCompileProgram", 10, 3, cat="cuda_driver").host("nvrtcCompileProgram", 210, 1, cat="cuda_driver")
    part = b.reduce(tmp_path)
    assert [(s.excluded, s.compile_ns) for s in part.steps] == [
        ("compiling", 3000),
        ("", 0),
        ("", 1000),
        ("", 0),
        ("", 0),
        ("last", 0),
    ]


def test_a_step_that_sets_the_device_up_is_warm_up(tmp_path: Path):
    b = with_steps(100, 100, 100, 100, 100, 100)
    b.host("cuModuleLoadData", 110, 3, cat="cuda_driver").host("cudaGetDeviceProperties", 210, 1, cat="cuda_runtime")
    part = b.reduce(tmp_path)
    assert [s.excluded for s in part.steps] == ["first", "warm-up", "", "", "", "last"]


@pytest.mark.parametrize("kind", ["launch", "malloc", "operator"])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_first_call_that_no_name_shows_is_warm_up_for_all_numbers(tmp_path: Path, kind: str, count: int):
    b, at = TraceBuilder(), 0.0
    for i in range(count):
        first = 9_000.0 if i == 0 else 0.0
        b.step(i, at, 1_000 + first)
        for k in range(8):
            longer = first if k == 0 else 0.0
            b.host("aten::mm", at, 60 + longer)
            if longer and kind == "malloc":
                b.host("cudaMalloc", at + 1, longer, cat="cuda_runtime")
            call = at + 5 if kind == "launch" else at + 5 + longer
            b.kernel("gemm", at + longer + 20, 50, launch=call, call_dur=2 + longer * (kind == "launch"))
            at += 100 + longer
        at = 1_000 * (i + 1) + 9_000.0
    report = hpuprof.analyze(b.write(tmp_path / "t.json"), jobs=1)
    assert report.data.steps[0].excluded == "warm-up"
    assert report.metrics["step_time_mean"].value == pytest.approx(1e6)
    assert report.answer.base.counted.ns < 1.1e6
    assert {f.code for f in report.findings}.isdisjoint({"HP217", "HP218"})


def test_when_every_step_has_a_reason_the_ones_that_do_not_compile_are_used(tmp_path: Path):
    b = (
        TraceBuilder()
        .annotation(BATCH, 0, 90)
        .annotation(BATCH, 100, 90)
        .host("nvrtcCompileProgram", 10, 30, cat="cuda_driver")
    )
    part = b.reduce(tmp_path)
    assert [s.excluded for s in part.steps] == ["compiling", ""]
    assert "HP124" in {d.code for d in part.diagnostics}


def test_no_number_depends_on_the_step_numbers(tmp_path: Path):
    part = TraceBuilder().step(7, 0, 100).step(7, 100, 100).step(1, 200, 100).reduce(tmp_path)
    assert steps_of(part) == [
        ("ProfilerStep#7", 0, 100, ""),
        ("ProfilerStep#7", 100, 100, ""),
        ("ProfilerStep#1", 200, 100, ""),
    ]


@pytest.mark.parametrize(
    ("kind", "count", "excluded"),
    [
        ("async", 2, ["", ""]),
        ("async", 3, ["first", "", ""]),
        ("async", 6, ["first", "", "", "", "", ""]),
        ("sync", 6, ["", "", "", "", "", ""]),
    ],
)
def test_borders_of_our_own_recordings(tmp_path: Path, kind: str, count: int, excluded: list[str]):
    b = TraceBuilder(hpuprof={"window_kind": kind}).steps(count, 100)
    b.annotation("[pl][profile]run_training_batch", 10, 80)  # not needed: the recorder's steps are whole batches
    part = b.reduce(tmp_path)
    assert (part.file.step_source, [s.excluded for s in part.steps]) == ("profiler_step", excluded)


def test_training_between_two_batches_of_a_validation_is_no_step_of_it(tmp_path: Path):
    builder = TraceBuilder()
    for step in range(8):
        builder.step(step, 100 * step, 100)
        builder.kernel("gemm", 100 * step + 20, 40, launch=100 * step + 10)
        if step in (2, 6):
            builder.annotation("[pl][profile][Strategy]SingleDeviceStrategy.validation_step", 100 * step + 70, 20)
            builder.kernel("gemm", 100 * step + 80, 9, launch=100 * step + 72)
    part = builder.reduce(tmp_path)
    assert part.file.step_source == "profiler_step"
    assert [s.excluded for s in part.steps].count("validation") == 2


def test_a_step_that_holds_a_validation_is_no_typical_step(tmp_path: Path):
    told = with_steps(100, 100, 400, 100, 100)
    told.header["hpuprof"] = {"window_kind": "sync", "steps_with_validation": [2, "x"]}
    assert [s.excluded for s in told.reduce(tmp_path).steps] == ["", "", "validation", "", ""]
    seen = with_steps(100, 400, 100, names=BATCH)
    seen.annotation("[pl][profile][Strategy]SingleDeviceStrategy.validation_step", 250, 30)
    assert [s.excluded for s in seen.reduce(tmp_path).steps] == ["", "validation", "last"]


def test_batches_of_a_validation_are_what_they_are(tmp_path: Path):
    told = with_steps(100, 100, 100)
    told.header["hpuprof"] = {"window_kind": "sync", "steps_with_validation": [0, 1, 2]}
    assert [s.excluded for s in told.reduce(tmp_path).steps] == ["", "", ""]


@pytest.mark.parametrize("first_launch", [5, 3_000])
@pytest.mark.parametrize("forward", [("nn.Module: Net_0", "python_function"), ("model_forward", "user_annotation")])
def test_layers_of_a_pass_are_no_steps(tmp_path: Path, first_launch, forward):
    """One call of six layers; the first launch of a kernel loads its module or does not."""
    b = TraceBuilder().host(forward[0], 0, 10_000, cat=forward[1])
    for layer in range(6):
        for k, name in enumerate(("linear", "gelu", "mul", "layer_norm")):
            begin = 1_000 * layer + 200 * k + (3_000 if layer + k else 0)
            call = first_launch if layer + k == 0 else 5
            b.host(f"aten::{name}", begin, call + 20).kernel(
                f"{name}_kernel", begin + call + 30, 40, launch=begin + 5, call_dur=call
            )
    assert b.reduce(tmp_path).file.step_source == "single_pass"


def test_the_card_says_how_long_left_out_steps_set_the_device_up(tmp_path):
    """A first launch of 200 ms, then three steps of 1 ms."""
    b = TraceBuilder()
    at = 0.0
    for i, launch in enumerate((200_000, 20, 20, 20)):
        b.step(i, at, launch + 980)
        b.host("aten::mm", at + 5, launch + 50).kernel("gemm", at + 20 + launch, 800, launch=at + 10, call_dur=launch)
        at += launch + 980
    answer = hpuprof.analyze(b.write(tmp_path / "t.json"), jobs=1, cache="off").data.answer
    assert "Left out: 201.0 ms in which the device was set up." in answer.base.sentence
