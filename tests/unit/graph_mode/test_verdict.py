"""From predictions to a verdict: dead band, ranks together, refusals, blockers, and what is printed of it."""

from __future__ import annotations

import ast

import msgspec
import numpy as np
import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.errors import ConfigError
from hpuprof.graph_mode.interfaces import Situation, api_name
from hpuprof.graph_mode.job import ONE_STEP_SPREAD
from hpuprof.graph_mode.refusals import LOADER
from hpuprof.graph_mode.region_names import RegionName
from hpuprof.graph_mode.snippets import code_for
from hpuprof.graph_mode.verdict import decide
from hpuprof.model.prediction import DeviceSpan, Interval, Option, Prediction
from hpuprof.model.tables import DiagnosticRow, ObstacleRow
from hpuprof.what_if.constants import constants_for, draw, read_profile
from hpuprof.what_if.uncertainty import NORMAL_95, OTHER_RUN, SAMPLES, Draws, pack

UNIFORM = Draws.make().uniform[0]
SIMPLE_DIAGNOSTIC = DiagnosticRow(code="", severity="warning", path="", count=1, text="rows are lost", offset=None)


def option(low: float, high: float, region: str = "step", **more) -> Option:
    ratio = pack(low + (high - low) * UNIFORM)
    return Option(
        **{
            "region": region,
            "launches": 100.0,
            "graphs": 1.0,
            "inputs": 1.0,
            "ratio": ratio,
            "uncorrected_ns": 1e6,
            "host_outside_ns": 0.1e6,
            **more,
        }
    )


def prediction(*options: Option, **more) -> Prediction:
    return Prediction(
        **{
            "method": "replay",
            "steps": 5,
            "base": "unprofiled",
            "base_step_ns": 10e6,
            "profiled_step_ns": 12e6,
            "replay_error": 0.001,
            "busy_ns": 2e6,
            "critical_ns": 2e6,
            "host_ns": 9e6,
            "options": list(options),
            **more,
        }
    )


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    builder = TraceBuilder().steps(6, 1000)
    for i in range(6):
        for k in range(5):
            at = 1000.0 * i + 100 * k
            builder.host("aten::mm", at, 80).kernel("gemm", at + 70, 20, launch=at + 60)
    return builder.reduce(tmp_path_factory.mktemp("trace"))


@pytest.fixture
def judge(part):
    def judged(*predictions: Prediction, **changes):
        file = msgspec.structs.replace(part.file, **changes)
        return decide([msgspec.structs.replace(part, prediction=p, file=file) for p in predictions]).answer

    return judged


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.2, 1.5, "yes"), (0.98, 1.04, "no"), (0.8, 0.9, "no"), (1.0, 1.1, "marginal"), (1.04, 1.3, "yes")],
)
def test_the_verdict_follows_the_probability_of_a_gain_above_the_dead_band(judge, low, high, verdict):
    graph = judge(prediction(option(low, high)))
    assert graph.verdict == verdict
    assert graph.probability_gain == pytest.approx(np.mean(low + (high - low) * UNIFORM > 1.05))
    assert graph.speedup.median == pytest.approx((low + high) / 2, rel=0.01)
    assert bool(graph.code) == (verdict != "no")


def test_without_the_step_time_it_says_so_only_when_that_would_decide(judge):
    open_question = judge(prediction(option(0.9, 1.3), base="profiled"))
    assert (open_question.verdict, open_question.reason) == ("likely", "step_time")
    unlikely = judge(prediction(option(0.9, 1.15), base="profiled"))
    assert (unlikely.verdict, unlikely.reason) == ("unlikely", "step_time")
    assert "--step-time" in open_question.command
    assert judge(prediction(option(1.2, 1.5), base="profiled")).verdict == "yes"
    # The answer does not hang on the profiler's cost when the samples are mixed.
    mixed = option(0, 1)
    ratio = np.where(np.arange(SAMPLES) % 2 == 0, 1.0, 1.2)[np.argsort(np.argsort(UNIFORM))]
    assert judge(prediction(msgspec.structs.replace(mixed, ratio=pack(ratio)), base="profiled")).verdict == "marginal"


@pytest.mark.parametrize(
    ("given_ns", "why"),
    [(1e3, "shorter than the device's own work"), (3e9, "250 times the recorded one"), (10e6, ""), (14e6, "")],
)
def test_a_given_step_time_must_be_that_of_these_steps(judge, given_ns, why):
    graph = judge(prediction(option(1.2, 1.5), base="given", base_step_ns=given_ns, device_ns=2e6))
    assert (graph.verdict == "cannot say") == bool(why)
    assert why in graph.sentence
    if why:
        assert (graph.speedup, graph.base_step_ns) == (None, None)
        assert "--step-time" in graph.command
    longer = any("longer than the recorded one" in text for text in graph.assumptions)
    assert longer == (given_ns == 14e6)


def test_no_gain_says_that_the_step_stays_as_it_is(judge):
    graph = judge(prediction(option(0.93, 1.075)))
    assert graph.verdict == "no"
    assert graph.sentence == "No: graph mode would change little; the step stays at 10.00 ms (±7 %)."
    assert judge(prediction(option(0.93, 1.2))).verdict == "marginal"


@pytest.mark.parametrize(("low", "high", "verdict"), [(0.97, 1.02, "no"), (1.2, 1.5, "yes"), (1.0, 1.15, "marginal")])
def test_graphs_that_are_there_are_told_with_what_they_carry(judge, low, high, verdict):
    graph = judge(prediction(option(low, high), replays=14.0, covered=0.934))
    assert graph.verdict == verdict
    assert "replayed already: 14 graph launches per step carry 93 % of the device's work" in graph.sentence


@pytest.mark.parametrize(("covered", "verdict"), [(0.95, "no"), (0.5, "cannot say")])
def test_where_graphs_carry_nearly_all_work_a_step_that_cannot_be_replayed_is_still_answered(judge, covered, verdict):
    graph = judge(prediction(option(1.2, 1.5), replay_error=0.5, replays=1.0, covered=covered, steps=1))
    assert graph.verdict == verdict
    assert f"replayed already: 1 graph launch carries {100 * covered:.0f} % of the device's work" in graph.sentence


@pytest.mark.parametrize(("code", "verdict"), [("HP151", "no"), ("HP108", "cannot say")])
def test_earlier_work_leaves_what_graphs_carry_as_it_is_and_lost_rows_do_not(part, code, verdict):
    found = [msgspec.structs.replace(SIMPLE_DIAGNOSTIC, code=code)]
    seen = prediction(span=SPAN, replays=1.0, covered=0.97, steps=1)
    assert decide([msgspec.structs.replace(part, prediction=seen, diagnostics=found)]).answer.verdict == verdict


def test_what_profiling_is_believed_to_cost_is_told(judge):
    cost = Interval(low=0.5, median=1.0, high=1.5)
    graph = judge(prediction(option(1.2, 1.5), base="profiled", overhead=cost, overhead_source="rows"))
    assert (graph.overhead, graph.overhead_source) == (cost, "rows")
    told = "profiling cost 0.5 to 1.5 times the nominal cost per row: the rows lie too close together for more"
    assert told in graph.assumptions


def test_the_step_time_now_is_as_sure_as_other_runs_are_alike(judge):
    graph = judge(prediction(option(1.2, 1.5), base="profiled"))
    known = graph.base_range_ns
    assert np.log(known.high / known.low) == pytest.approx(2 * NORMAL_95 * OTHER_RUN, rel=0.1)
    assert known.median == pytest.approx(graph.base_step_ns)
    assert judge(prediction(option(1.2, 1.5), base="given")).base_range_ns is None


def test_ranks_that_do_not_meet_gain_between_the_least_and_the_most_of_them(judge):
    fast, slow = prediction(option(2.0, 2.0)), prediction(option(1.25, 1.25, uncorrected_ns=7e6), replay_error=0.02)
    graph = judge(fast, slow, fast)
    assert graph.speedup.median == pytest.approx(2.5**0.5, rel=0.01)
    assert 1.25 < graph.speedup.low < 1.3
    assert 1.9 < graph.speedup.high < 2.0
    assert (graph.uncorrected_step_ns, graph.replay_error) == (7e6, 0.02)
    assert graph.step_time_ns.median == pytest.approx(10e6 / 2.5**0.5, rel=0.01)
    assert "all ranks use graph mode" in graph.assumptions
    assert judge(slow, fast, fast).speedup == graph.speedup


def test_ranks_whose_recorded_steps_differ_gain_of_the_median_one(judge):
    ranks = [prediction(option(1.2, 1.2), base_step_ns=ns) for ns in (8e6, 10e6, 16e6)]
    graph = judge(*ranks)
    assert graph.base_step_ns == pytest.approx(10e6)
    assert graph.speedup.median == pytest.approx(1.2)
    assert graph.step_time_ns.median == pytest.approx(10e6 / 1.2)
    # One that gains nothing may hold the others up, or wait for them.
    held = judge(*ranks[:2], prediction(option(1.0, 1.0), base_step_ns=16e6)).speedup
    assert 1.0 <= held.low < 1.02
    assert 1.18 < held.high <= 1.2


def test_nothing_is_promised_beyond_the_ceiling(judge):
    graph = judge(prediction(option(3.0, 9.0), critical_ns=5e6, busy_ns=4.5e6, kernel_scale=0.9))
    assert graph.ceiling == pytest.approx(10 / (0.9 * 5))
    assert graph.speedup.high <= graph.ceiling + 1e-9
    assert graph.unreachable >= graph.ceiling
    assert graph.speedup.at_most
    assert not judge(prediction(option(1.1, 2.0), critical_ns=5e6)).speedup.at_most


def test_a_part_never_beats_the_whole_that_contains_it(judge):
    # Sample by sample: the median of the optimizer alone is lower, single samples are not.
    graph = judge(prediction(option(1.2, 1.6), option(1.0, 1.5, "module:Net_0"), option(1.5, 1.1, "optimizer")))
    speedup = {o.region: o.speedup for o in graph.options}
    assert speedup["module:Net_0"].median == pytest.approx(1.25, rel=0.01)
    assert speedup["optimizer"].high == pytest.approx(1.34, rel=0.02)  # where both samples cross


def test_a_step_time_that_is_unknown_widens_the_gain_and_not_the_time_with_graphs(judge):
    base = 10e6 * (0.5 + UNIFORM)
    ratio = base / 5e6
    graph = judge(prediction(msgspec.structs.replace(option(1, 1), ratio=pack(ratio)), base_samples=pack(base)))
    assert graph.step_time_ns.low == pytest.approx(graph.step_time_ns.high)
    assert graph.speedup.high > 2 * graph.speedup.low


def test_options_are_ranked_and_close_ones_by_simplicity(judge):
    graph = judge(
        prediction(
            option(2.0, 2.0),
            option(1.99, 1.99, "model"),
            option(1.5, 1.5, "optimizer"),
            option(2.5, 2.5, drops_sync=True),
        )
    )
    assert [o.region for o in graph.options] == ["model", "step", "optimizer", "step"]
    assert graph.options[-1].drops_sync
    assert [o.needs_changes for o in graph.options] == [False, False, False, True]
    assert graph.options[-1].regret == 0.0
    assert graph.options[0].regret == pytest.approx(2.0 / 1.99 - 1)
    assert graph.options[2].regret == pytest.approx(2.0 / 1.5 - 1)


def test_an_option_that_is_as_fast_and_sure_to_pay_is_recommended(judge):
    """The encoder gains 0 to 16 %; the decoder 7.5 % for sure, half a percent less in the middle, or too little."""
    wide = option(1.0, 1.16, "module:Encoder_0")
    graph = judge(prediction(wide, option(1.075, 1.075, "module:Decoder_0")))
    assert (graph.verdict, graph.region) == ("yes", "module:Decoder_0")
    graph = judge(prediction(wide, option(1.06, 1.06, "module:Decoder_0")))
    assert (graph.verdict, graph.region) == ("marginal", "module:Encoder_0")


def test_ranks_without_a_prediction_are_left_out(judge):
    one, both = judge(prediction(option(1.2, 1.5))), judge(prediction(option(1.2, 1.5)), None)
    assert (both.verdict, both.speedup) == (one.verdict, one.speedup) == ("yes", one.speedup)


def blocking(module: str) -> ObstacleRow:
    return ObstacleRow(
        code="HP301", severity="blocker", module=module, modules=[module], where="forward", count=1, per_step=1.0, steps=4,
        text="", fix="", python_line=None,
    )  # fmt: skip


def test_a_blocked_option_comes_last_and_what_removing_its_obstacle_would_bring_is_told(part):
    both = prediction(option(1.5, 1.5, "module:Encoder_0"), option(2.0, 2.0, "module:Decoder_0"))
    graph = decide([msgspec.structs.replace(part, prediction=both, obstacles=[blocking("Decoder_0")])]).answer
    assert [(o.region, o.blocked_by) for o in graph.options] == [
        ("module:Encoder_0", []),
        ("module:Decoder_0", ["HP301"]),
    ]
    assert graph.verdict == "yes"
    assert "without HP301, module Decoder_0 could be captured: 2.00×" in graph.evidence


def test_where_only_a_blocked_option_pays_the_verdict_is_not_yet(part):
    both = prediction(option(1.0, 1.0, "module:Encoder_0"), option(2.0, 2.0, "module:Decoder_0"))
    graph = decide([msgspec.structs.replace(part, prediction=both, obstacles=[blocking("Decoder_0")])]).answer
    assert (graph.verdict, graph.region) == ("not yet", "module:Decoder_0")
    assert "HP301 must be removed first" in graph.sentence
    assert not any("could be captured" in line for line in graph.evidence)


def test_a_blocked_option_that_gains_twice_as_much_comes_first(part):
    """Of a step of 10 ms, 2 are gained as it is; 3.9, or 4.1, once the obstacle is gone."""
    found = {}
    for faster in (1 / 0.61, 1 / 0.59):
        both = prediction(option(1.25, 1.25, "module:Encoder_0"), option(faster, faster, "module:Decoder_0"))
        graph = decide([msgspec.structs.replace(part, prediction=both, obstacles=[blocking("Decoder_0")])]).answer
        found[graph.region] = graph.verdict
    assert found == {"module:Encoder_0": "yes", "module:Decoder_0": "not yet"}


def test_a_blocked_option_that_is_not_sure_to_pay_does_not_come_first(part):
    both = prediction(option(1.01, 1.01, "module:Encoder_0"), option(0.97, 1.12, "module:Decoder_0"))
    graph = decide([msgspec.structs.replace(part, prediction=both, obstacles=[blocking("Decoder_0")])]).answer
    assert (graph.verdict, graph.region) == ("no", "module:Encoder_0")


def test_the_recommended_option_stands_first_where_all_are_blocked(part):
    """With its waits gone, too, a step gains more; what is recommended keeps them, and what is played is that."""
    plain, gone = option(1.5, 1.5, "step"), option(1.9, 1.9, "step", drops_sync=True)
    row = msgspec.structs.replace(blocking("Decoder_0"), modules=[], module="")
    graph = decide([msgspec.structs.replace(part, prediction=prediction(plain, gone), obstacles=[row])]).answer
    assert [(o.region, o.drops_sync) for o in graph.options] == [("step", False), ("step", True)]
    assert graph.speedup.median == pytest.approx(1.5)


def test_a_blocked_option_that_may_gain_nothing_is_not_promised(part):
    close = prediction(option(0.97, 1.09, "module:Decoder_0"))
    graph = decide([msgspec.structs.replace(part, prediction=close, obstacles=[blocking("Decoder_0")])]).answer
    assert graph.verdict == "marginal"
    assert graph.sentence.startswith("Marginal: ")
    assert graph.sentence.endswith("; too close to call, and HP301 must be removed first.")


@pytest.mark.parametrize(
    ("text", "kind", "module", "wraps"),
    [
        ("step", "step", None, False),
        ("model", "model", None, True),
        ("modules", "modules", None, True),
        ("module:net.a:b", "module", "net.a:b", True),
    ],
)
def test_the_name_of_a_region_holds_its_kind_and_its_module(text, kind, module, wraps):
    region = RegionName.of(text)
    assert (region.kind, region.module, region.wraps_modules) == (kind, module, wraps)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"replay_error": 0.2}, "20 % off"),
        ({"unexplained": 0.3}, "start late"),
        ({"method": "none", "reason": "no_device_rows"}, "no device rows"),
        ({"method": "none", "reason": "not_explained"}, "recorded steps take no time"),
        ({"options": [option(np.nan, np.nan)]}, "no finite speed-up"),
    ],
)
def test_it_refuses_with_a_reason_and_a_remedy(judge, changes, why):
    graph = judge(prediction(option(2.0, 2.0), **changes))
    assert graph.verdict == "cannot say"
    assert why in graph.sentence
    assert graph.speedup is None
    assert graph.reason in ("not_explained", "late_rows", "no_device_rows")
    assert graph.next_measurement
    assert graph.command


@pytest.mark.parametrize(("other_ns", "verdict"), [(110e6, "yes"), (121e6, "cannot say")])
def test_ranks_whose_steps_differ_tenfold_are_not_of_one_job(judge, other_ns, verdict):
    graph = judge(prediction(option(2.0, 2.0)), prediction(option(2.0, 2.0), profiled_step_ns=other_ns))
    assert graph.verdict == verdict
    assert ("a step takes 12.00 ms on one rank and 121.0 ms on another" in graph.sentence) == (verdict == "cannot say")


def test_an_option_whose_gain_is_no_number_is_no_option(judge):
    graph = judge(prediction(option(1.3, 1.4), option(np.nan, np.nan, region="optimizer")))
    assert (graph.verdict, [o.region for o in graph.options]) == ("yes", ["step"])


def test_steps_that_are_complete_together_are_no_base_of_a_speed_up(tmp_path):
    """Copies in the background outlive every second step: it is complete when the one before is, after no time at all."""
    builder = TraceBuilder().steps(6, 1000)
    for step in range(6):
        at = 1000 * step
        for call in range(at + 60, at + 860, 100):
            builder.host("aten::mm", call, 60).kernel("gemm", call + 40, 70, launch=call + 10)
        copied, took, stream = (at + 920, 1150, 20) if step % 2 == 0 else (at + 30, 900, 21)
        copy = {"call": "cudaMemcpyAsync", "cat": "gpu_memcpy", "stream": stream}
        builder.kernel("Memcpy DtoH (Device -> Pinned)", copied, took, launch=copied - 10, **copy)
    report = hpuprof.analyze(builder.write(tmp_path / "t.json"), jobs=1)
    graph = report.graph_mode
    assert [s.wall_ns for s in report.data.steps if s.used] == [0, 2_000_000, 0, 2_000_000]
    assert (graph.speedup, graph.reason, graph.basis) == (None, "not_explained", "device_rows")
    assert {row.reason for row in report.data.plan} == {"not_explained"}


@pytest.mark.parametrize(("share", "verdict"), [(0.24, "yes"), (0.25, "cannot say")])
def test_the_allocator_comes_before_graphs(part, share, verdict):
    steps = [msgspec.structs.replace(s, blocked_alloc_ns=round(share * s.wall_ns)) for s in part.steps]
    alone = msgspec.structs.replace(part, steps=steps, prediction=prediction(option(15, 16)))
    graph = decide([alone]).answer
    assert graph.verdict == verdict
    assert ("the allocator comes first" in graph.sentence) == (verdict == "cannot say")


def test_one_step_gives_a_wider_interval_and_no_certainty(judge):
    idle = 1 - 2 / 12
    graph = judge(prediction(option(2, 2)), steps_used=1)
    assert (graph.verdict, graph.basis, graph.reason) == ("likely", "one_step", "one_step")
    assert graph.speedup.high / graph.speedup.low == pytest.approx(np.exp(2 * 1.645 * ONE_STEP_SPREAD * idle), rel=0.05)
    assert judge(prediction(option(0.8, 0.8)), steps_used=1).verdict == "unlikely"
    sure = judge(prediction(option(2, 2), critical_ns=11e6), steps_used=1)
    assert (sure.verdict, sure.reason) == ("no", ""), "nothing is left to measure"
    busy = judge(prediction(option(2, 2), busy_ns=12e6), steps_used=1)
    assert busy.speedup.high == busy.speedup.low  # the device's work repeats


@pytest.mark.parametrize(
    ("low", "high", "steps", "verdict"),
    [
        (1.01, 1.08, 1, "unlikely"),
        (1.01, 1.08, 5, "marginal"),
        (1.03, 1.09, 1, "marginal"),
        (0.99, 1.12, 1, "marginal"),
    ],
)
def test_of_one_step_a_small_gain_that_is_less_likely_than_none_is_unlikely(judge, low, high, steps, verdict):
    graph = judge(prediction(option(low, high), busy_ns=12e6), steps_used=steps)
    assert graph.verdict == verdict
    assert bool(graph.reason) == (steps == 1)


SPAN = DeviceSpan(wall_ns=1000, busy_ns=400, least_ns=390.0, launching_ns=500, rows=50, launched=50)


@pytest.mark.parametrize(
    ("span", "verdict", "high"),
    [
        ({}, "likely", 1 / 0.39),
        ({"launching_ns": 100}, "marginal", 1 / 0.39),
        ({"launching_ns": 40}, "unlikely", 1 / 0.39),
        ({"launching_ns": 40, "untraced_ns": 150}, "unlikely", 1 / 0.39),
        ({"launching_ns": 300, "untraced_ns": 200, "one_off_fraction": 0.9}, "likely", 1 / 0.39),
        ({"launching_ns": None}, "cannot say", 1 / 0.39),
        ({"least_ns": 960.0, "launching_ns": 30}, "no", 1 / 0.96),
    ],
)
def test_without_a_replay_device_rows_bound_the_gain_and_say_where_it_points(judge, span, verdict, high):
    seen = prediction(option(2, 2), base="profiled", replay_error=0.5, span=msgspec.structs.replace(SPAN, **span))
    graph = judge(seen)
    assert (graph.verdict, graph.basis, graph.reason) == (verdict, "device_rows", "not_explained")
    assert (graph.bounds.low, graph.bounds.high) == (1.0, pytest.approx(high))
    assert graph.speedup is None
    assert graph.command
    assert f"at most {high:.2f}×" in graph.sentence


@pytest.mark.parametrize(
    ("span", "reason", "why"),
    [
        ({"launching_ns": 40, "untraced_ns": 170}, "untraced_host", "17 % of the time idle while nothing is traced"),
        (
            {"launching_ns": 40, "one_off_fraction": 0.6},
            "first_use",
            "setting the device up take 60 % of the recording",
        ),
    ],
)
def test_idle_time_that_may_be_launching_does_not_make_a_gain_unlikely(judge, span, reason, why):
    seen = prediction(option(2, 2), base="profiled", replay_error=0.5, span=msgspec.structs.replace(SPAN, **span))
    graph = judge(seen)
    assert (graph.verdict, graph.basis, graph.reason) == ("cannot say", "device_rows", reason)
    assert why in graph.sentence
    assert graph.command


def test_the_step_time_without_the_profiler_bounds_what_cannot_be_replayed(judge):
    """Recorded 1,200 ns, 1,000 without the profiler: it cost 200 ns of launching, and the device still needs 390."""
    span = msgspec.structs.replace(SPAN, wall_ns=1200, launching_ns=500)
    graph = judge(prediction(option(2, 2), base="given", replay_error=0.5, span=span))
    assert graph.bounds.high == pytest.approx(1000 / 390)
    assert "30.0 % of the time idle while the host launches" in graph.sentence


def test_the_rank_with_the_most_device_work_bounds_all(judge):
    other = msgspec.structs.replace(SPAN, least_ns=980.0)
    ranks = [prediction(option(2, 2), base="profiled", replay_error=0.5, span=span) for span in (SPAN, other)]
    assert judge(*ranks).verdict == "no"
    few = prediction(option(2, 2), base="profiled", replay_error=0.5, span=msgspec.structs.replace(SPAN, rows=3))
    assert judge(few).reason == "few_rows"
    assert judge(few, ranks[0]).reason == "few_rows"


def test_lost_rows_leave_the_bound_but_no_direction(part):
    lost = [msgspec.structs.replace(SIMPLE_DIAGNOSTIC, code="HP108")]
    for span, verdict in ((SPAN, "cannot say"), (msgspec.structs.replace(SPAN, least_ns=970.0), "no")):
        seen = msgspec.structs.replace(part, prediction=prediction(span=span), diagnostics=lost)
        assert decide([seen]).answer.verdict == verdict
        assert decide([seen]).answer.reason == "lost_rows"


def test_a_compiled_hpu_model_has_its_graphs_already(judge):
    graph = judge(prediction(option(1.3, 1.4)), family="hpu", mode="compile")
    assert graph.verdict == "no"
    assert "compiled" in graph.sentence


def test_waiting_for_data_loader_workers_is_said(judge):
    assert "data-loader" in judge(prediction(option(0.98, 1.02), loader_late=1.0)).sentence


def test_workers_that_may_set_the_pace_without_the_profiler_alone_leave_graphs_open(judge):
    """They did not in the recording; a step time that was given makes it one in five."""
    mixed = option(0.95, 1.5)  # a gain in 85 % of the samples
    assert judge(prediction(mixed, loader_late=0.0)).verdict == "marginal"
    doubted = judge(prediction(mixed, loader_late=0.0, loader_paces=0.2))
    assert (doubted.verdict, doubted.reason) == ("likely", LOADER.reason)
    assert "data-loader" in judge(prediction(option(0.98, 1.02), loader_late=0.0, loader_paces=1.0)).sentence


SITUATIONS = [
    Situation("cuda", "eager", modules=("Encoder_0", "Decoder_0"), optimizer="AdamW"),
    Situation("cuda", "eager", collectives=True),
    Situation("cuda", "compile"),
    Situation("rocm", "eager"),
    Situation("xpu", "eager", inputs=("[8, 3, 224, 224]",)),
    Situation("hpu", "lazy", modules=("encoder.layer",), shapes=3, max_graphs=3, accumulates=True),
    Situation("hpu", "lazy", collectives=True, last_batch=True),
    Situation("hpu", "eager", modules=("Encoder_0",), shapes=4),
]
SERVING = [
    (Situation("cuda", "eager", workload="inference"), "torch.cuda.graph"),
    (Situation("cuda", "compile", workload="inference"), 'torch.compile(mode="reduce-overhead")'),
    (Situation("xpu", "eager", workload="serving", server="vllm"), "torch.xpu.graph"),
    (Situation("hpu", "lazy", workload="inference", collectives=True), "wrap_in_hpu_graph"),
    (Situation("hpu", "eager", workload="inference", collectives=True), 'torch.compile(backend="hpu_backend")'),
    (Situation("cuda", "eager", workload="serving", server="vllm"), "vLLM: enforce_eager=False"),
    (Situation("hpu", "lazy", workload="serving", server="vllm"), "vLLM: enforce_eager=False"),
    (Situation("rocm", "graphs", workload="serving", server="sglang"), "SGLang: cuda_graph_max_bs"),
    (Situation("cuda", "eager", workload="serving", server="tensorrt_llm"), "TensorRT-LLM: cuda_graph_config"),
]
REGIONS = ("step", "forward+backward", "model", "modules", "module:Encoder_0", "module:net.encoder", "optimizer")


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("situation", [*SITUATIONS, *(s for s, _ in SERVING)], ids=lambda s: f"{s.family}-{s.mode}")
def test_the_code_to_type_is_python_of_that_device(situation, region):
    for asynchronous in (False, True):
        code = code_for(situation, RegionName.of(region), asynchronous=asynchronous)
        ast.parse(code)
        other = {"cuda": ("hpu", "xpu"), "rocm": ("hpu", "xpu"), "xpu": ("hpu", "cuda"), "hpu": ("cuda", "xpu")}
        assert not any(word in code for word in other[situation.family])
        assert api_name(situation, RegionName.of(region))


@pytest.mark.parametrize(("situation", "api"), SERVING, ids=lambda s: getattr(s, "family", ""))
def test_a_program_without_gradients_gets_no_training_loop(situation, api):
    for region in ("step", "forward+backward", "model", "modules"):
        code = code_for(situation, RegionName.of(region))
        assert not any(word in code for word in ("backward()", "optimizer", "loss", "DistributedDataParallel"))
        assert api_name(situation, RegionName.of(region)) == api


def test_the_code_carries_what_the_trace_shows():
    lazy = code_for(SITUATIONS[5], RegionName("model"), asynchronous=True)
    for word in ("max_graphs=3", "have_grad_accumulation=True", "asynchronous=True", "mark_step"):
        assert word in lazy
    ddp = code_for(SITUATIONS[6], RegionName("model"))
    assert ddp.index("ModuleCacher(") < ddp.index("DistributedDataParallel(")
    assert "PT_HPU_ENABLE_LAZY_COLLECTIVES" in ddp
    assert "capturable=True" in code_for(SITUATIONS[0], RegionName("step"))
    assert 'type(m).__name__ == "Encoder"' in code_for(SITUATIONS[0], RegionName("modules"))
    assert api_name(SITUATIONS[7], RegionName("step")) == 'torch.compile(backend="hpu_backend")'


@pytest.mark.parametrize(("family", "mode"), [("cuda", "eager"), ("hpu", "lazy"), ("hpu", "eager"), ("xpu", "eager")])
def test_constants_are_drawn_within_their_ranges(family, mode):
    uniform = (np.arange(2000) + 0.5) / 2000
    for constant in constants_for(family, mode).values():
        low, middle, high = np.percentile(draw(constant, uniform), [5, 50, 95])
        assert (low, middle, high) == pytest.approx((constant.low, constant.value, constant.high), rel=0.02)
        assert constant.source


def test_a_machine_profile_replaces_constants_and_bad_ones_are_refused():
    good = {
        "hpuprof_profile": 1,
        "device": "x",
        "family": "cuda",
        "measured_at": "2026-01-01",
        "torch": "2.13",
        "constants": [{"name": "replay", "value": 5.0, "low": 4.0, "high": 6.0, "unit": "ns", "source": "measured"}],
    }
    measured = read_profile(msgspec.json.encode(good).decode())
    assert constants_for("cuda", "eager", measured)["replay"].value == 5.0
    assert constants_for("cuda", "eager", measured)["graph_gap"].source != "measured"
    wrong = [{**good["constants"][0], **ends} for ends in ({"low": 7.0}, {"high": 1e300})]
    for change in ({"hpuprof_profile": 2}, *({"constants": [one]} for one in wrong), {"constants": 3}):
        with pytest.raises(ConfigError):
            read_profile(msgspec.json.encode({**good, **change}).decode())


@pytest.mark.parametrize(
    ("busy_ns", "collectives", "why"),
    [
        (9e6, True, "waiting for other ranks inside collectives"),
        (9e6, False, "work of the device that then overlaps"),
        (2e6, True, ""),
    ],
)
def test_a_step_shorter_than_the_device_was_busy_says_why(judge, busy_ns, collectives, why):
    """Graphs take 10 ms to some 5."""
    answer = judge(prediction(option(1.9, 2.1), busy_ns=busy_ns, collectives=collectives))
    said = [line for line in answer.evidence if "less than the device was busy" in line]
    assert len(said) == bool(why)
    assert all(why in line for line in said)
