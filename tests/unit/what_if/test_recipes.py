"""Recipes in a queue of three stages, worked by hand: two recipes a step, each stage the slowest in turn, waits, regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder
from lazy_steps import BRIDGE, BUILD, lazy
from msgspec.structs import replace

import hpuprof
from hpuprof.analysis.modules import backward_windows, module_calls
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.collective_skeleton import together_ns
from hpuprof.graph_mode.predict import Settings, predict
from hpuprof.graph_mode.verdict_words import assumptions, evidence
from hpuprof.ingest.read import read_trace
from hpuprof.model.intervals import union
from hpuprof.planning.lazy_actions import early_flushes, flushes, last_flush, matrix_time, reads
from hpuprof.planning.matrix_rows import SINGLE_TYPE
from hpuprof.planning.remedies.flushes import find_flushes
from hpuprof.planning.situation import Situation
from hpuprof.what_if.capture import Region
from hpuprof.what_if.constants import KERNEL_SCALES, constants_for
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.recipe_schedule import asynchronously, capture_recipes, recorded_recipes
from hpuprof.what_if.recipes import Kind, build_recipes
from hpuprof.what_if.schedule import LAUNCHER as LAUNCH_THREAD
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.skeleton import Collectives, find_skeletons
from hpuprof.what_if.uncertainty import unpack


def view_of(builder: TraceBuilder, folder) -> RankView:
    return RankView.of(builder.trace(folder))


def predicted(builder: TraceBuilder, folder, **options):
    view = view_of(builder, folder)
    calls = module_calls(view)
    return predict(view, calls, backward_windows(view, calls), Settings(**options))


def program_of(builder: TraceBuilder, folder):
    return build_recipes(view_of(builder, folder))


def costs(replay: float = 7, flush: float = 4, *, scale: float = 1.0) -> Sample:
    """Costs in µs of one replay and of copying inputs, and how much longer kernels take in a graph."""
    return replace(
        Sample.unchanged(),
        graph_costs=np.array([[replay, 0.0, 0.0, flush, 0.0]]) * 1000,
        kernel_scale=np.full((1, len(KERNEL_SCALES)), scale),
    )


def times(schedule: Schedule, sample: Sample | None = None) -> list[float]:
    played = play(schedule, Sample.unchanged() if sample is None else sample, repeats=3)
    return (played.step_times(schedule.steps)[0] / 1000).tolist()


def windows(program, low: float, high: float):
    """The host window [low, high) µs of each step."""
    return union(program.low + int(low * 1000), program.low + int(high * 1000))


def test_each_launch_finds_its_flush_and_each_recipe_its_launch(tmp_path):
    program = program_of(lazy(), tmp_path)
    assert program.steps == 4  # first and last are set aside
    assert len(program.dur) == 8
    assert program.dur.tolist() == [30_000, 10_000] * 4
    assert program.launch.tolist() == [20_000] * 8
    acts = program.actions
    assert [Kind(k) for k in acts.kind[:3].tolist()] == [Kind.FLUSH, Kind.FLUSH, Kind.MARK]
    assert (acts.stop - acts.first).tolist() == [1, 1, 0] * 4
    assert np.bincount(program.op_action, minlength=len(acts)).tolist() == [2, 2, 0] * 4
    assert program.typical_latency == 5000


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, 100),  # main path: 40 + 10 + 30 + 10 + 10
        (
            {"launch": 80},
            180,
        ),  # launch thread: each flush of 10 waits for the launch before it, then hands over: 2 * (10 + 80)
        ({"work": (150, 60)}, 214),  # device: 150 + 2 + 60 + 2
        ({"wait": True}, 138),  # d1 = 50 + 20 + 5 + 30 = 105, d2 = 90 + 20 + 5 + 10 = 125, seen at 128, then 10
    ],
)
def test_the_slowest_stage_decides_and_replayed_unchanged_it_is_the_recorded_step(tmp_path, changes, step):
    program = program_of(lazy(12, **changes), tmp_path)
    recorded = recorded_recipes(program)
    assert times(recorded) == pytest.approx([step] * program.steps)
    assert play(recorded, Sample.unchanged()).done[0, -1] == pytest.approx(program.completed(), abs=2)
    assert program.unexplained == 0


def test_a_captured_step_keeps_its_end_and_pays_a_replay_for_each_recipe(tmp_path):
    program = program_of(lazy(8), tmp_path)
    whole = capture_recipes(program, windows(program, 0, 90))
    assert (whole.launches, whole.graphs, whole.split) == (4, 2, 0)
    # 4 for copies, 20 to launch them, 7 for each recipe, 10 that stay; the device needs 30 + 1 + 10 + 1 (no gap is seen: 1).
    assert times(whole.schedule, costs()) == pytest.approx([48] * program.steps)
    apart = asynchronously(capture_recipes(program, windows(program, 0, 90)))
    # Beside the main path the launch thread has 20 + 7 + 7, so the device decides; twice as slow recipes take 60 + 1 + 20 + 1.
    assert times(apart.schedule, costs()) == pytest.approx([42] * program.steps)
    assert times(apart.schedule, costs(scale=2.0)) == pytest.approx([82] * program.steps)


def test_a_wait_in_each_step_stays_unless_it_is_dropped(tmp_path):
    program = program_of(lazy(8, wait=True), tmp_path)
    whole = capture_recipes(program, windows(program, 0, 90))
    # Launched at 31 and 38; done at 31 + 5 + 30 = 66 and 66 + 1 + 10 = 77; seen at 80, then 10.
    assert times(whole.schedule, costs()) == pytest.approx([90] * program.steps)
    free = capture_recipes(program, windows(program, 0, 90), drop=True)
    assert times(free.schedule, costs()) == pytest.approx([48] * program.steps)


def test_a_region_of_one_recipe_leaves_the_other_as_it_was(tmp_path):
    program = program_of(lazy(8, work=(30, 10)), tmp_path)
    second = capture_recipes(program, windows(program, 50, 90))
    assert (second.launches, second.graphs, second.split) == (2, 1, 0)
    # Flushed at 50, launched until 70; at 54 the copies wait for that and are launched until 90, replayed until 97; 10 more.
    assert times(second.schedule, costs()) == pytest.approx([107] * program.steps)
    # Nothing to copy: the replay follows the launch at 70.
    bare = capture_recipes(program, windows(program, 50, 90), inputs=0)
    assert times(bare.schedule, costs()) == pytest.approx([87] * program.steps)
    # Only the captured recipe changes: 30 + 1 + 1000 + 1 on the device.
    assert times(bare.schedule, costs(scale=100.0)) == pytest.approx([1032] * program.steps)


def test_a_region_that_covers_part_of_a_recipe_splits_it(tmp_path):
    program = program_of(lazy(8, work=(300, 10)), tmp_path)
    half = capture_recipes(program, windows(program, 0, 20))
    assert (half.launches, half.graphs, half.split) == (1, 1, 1)
    rows = half.schedule.rows
    assert rows.dur[:3].tolist() == [150_000, 150_000, 10_000]
    assert rows.elastic[:3].tolist() == [True, False, False]
    assert (half.schedule.calls.thread[rows.call] == LAUNCH_THREAD).all()
    # The parts run one after the other, a gap apart: 150 + 2 + 150 + 2 + 10 + 2.
    assert times(half.schedule, costs()) == pytest.approx([316] * program.steps)


def test_uploads_and_operators_inside_operators_are_no_part_of_a_recipe(tmp_path):
    builder = lazy(8)
    for step in range(8):
        builder.host("empty_hpu_lazy", 100 * step + 5, 3, cat="Runtime", thread=BRIDGE)
        builder.host("copy_hpu_lazy_H2D", 100 * step + 91, 4, cat="Runtime", thread=BRIDGE)
        builder.host("copy_hpu_lazy_", 100 * step + 91, 4, cat="Runtime", thread=BRIDGE)
    program = program_of(builder, tmp_path)
    assert np.bincount(program.op_action).tolist() == [2, 2, 0] * 5 + [2, 2]


def test_a_border_makes_two_graphs_of_one_recipe(tmp_path):
    program = program_of(lazy(8), tmp_path)
    split = capture_recipes(program, windows(program, 0, 50), borders=program.low + 20_000)
    assert split.graphs == 2
    assert capture_recipes(program, windows(program, 0, 50)).graphs == 1


def test_one_recipe_that_runs_back_to_back_is_cut_where_it_repeats(tmp_path):
    work = view_of(lazy(6, host=(40,), work=(200,), recipes=(7,)), tmp_path).links.work
    assert len(work) == 6
    assert (work.end - work.start).tolist() == [200_000] * 6
    assert work.call.min() >= 0


def test_without_a_match_the_totals_decide_and_the_report_says_so(tmp_path):
    matched = predicted(lazy(8), tmp_path)
    assert (matched.method, matched.recipes, matched.waits) == ("pipeline", 2, 0)
    assert matched.replay_error == pytest.approx(0, abs=1e-4)
    lost = lazy(8)
    # A launch of a used step is not drawn: which recipe is whose cannot be told.
    gone = [e for e in lost.events if e.get("name") == "LaunchSyncTensorsGraph"][5]
    lost.events.remove(gone)
    totals = predicted(lost, tmp_path)
    assert (totals.method, totals.recipes) == ("pipeline", 0)
    assert totals.options
    assert any(f"{2 * matched.steps} recipes" in e for e in evidence(matched, matched.options[0], 1.0))
    assert any("first in, first out" in a for a in assumptions(matched, "", 1))
    assert any("totals" in a for a in assumptions(totals, "", 1))


def test_modules_are_candidates_with_replays_of_their_own(tmp_path):
    prediction = predicted(lazy(8, host=(4000, 30), children=True), tmp_path, unprofiled_ns=4_060_000.0)
    found = {(o.region, o.asynchronous): (o.launches, o.graphs) for o in prediction.options}
    # The net's four operators in one graph, its children's in one each, which split the recipe.
    assert found[("module:Net_0", False)] == (4, 1)
    assert found[("modules", False)] == (4, 2)
    split = {o.region: o for o in prediction.options}
    assert (split["step"].split, split["module:Net_0"].split, split["module:Block_0"].split) == (0, 0, 1)
    assert "1.0 recipes per step straddle the region's border and are split there" in evidence(
        prediction, split["module:Block_0"], 1.0
    )
    assert found[("module:Block_0", False)] == (2, 1)
    assert found[("module:Block_1", True)] == (2, 1)
    assert found[("step", False)] == (6, 2)
    assert prediction.modules == ["Block_0", "Block_1"]
    best = {o.region: float(np.median(unpack(o.ratio))) for o in prediction.options if not o.asynchronous}
    assert best["module:Net_0"] > best["modules"] > best["module:Block_0"]


def test_a_step_that_only_waits_belongs_to_the_steps_before_it(tmp_path):
    """Where the device is the slowest stage and the host waits for it in one of ten steps, that step alone takes long."""
    program = program_of(lazy(12, work=(150, 60), wait_in=(5,)), tmp_path)
    assert program.steps == 10
    walls = (program.high - program.low) / 1000
    assert walls.max() > 5 * np.median(walls)
    # From the last recipe's end to the next one's start: 3 until it is seen, 10, 40 + 10 of host, 20, 5; instead of a gap of 2.
    assert sum(times(recorded_recipes(program))) == pytest.approx(10 * 214 + 88 - 2)


def test_profiler_rows_are_taken_off_host_work(tmp_path):
    recorded = recorded_recipes(program_of(lazy(8), tmp_path))
    profiled = replace(Sample.unchanged(), overhead=np.ones(1), row_costs=np.array([[1000.0, 0, 0, 500.0]]))
    # Per step 4 operators of 1 µs; 4 accumulations and 2 flushes of 0.5 µs. Those of the launch thread do not show.
    assert times(recorded, profiled) == pytest.approx([93] * recorded.steps)


def test_of_many_recipes_the_steps_in_the_middle_enter(tmp_path, monkeypatch):
    monkeypatch.setattr("hpuprof.what_if.recipes.MAX_ACTIONS", 9)
    program = program_of(lazy(12), tmp_path)
    assert (program.low / 1000).tolist() == [400, 500, 600, 700]  # four steps of two flushes, of the ten that are used


def test_of_many_recipes_the_steps_that_are_as_long_as_all_enter(tmp_path, monkeypatch):
    monkeypatch.setattr("hpuprof.what_if.recipes.MAX_ACTIONS", 9)
    rest = (10, 11, 12, 11, 14, 16, 16, 16, 16, 14, 12, 11)
    program = program_of(lazy(12, rest=rest), tmp_path)
    assert (program.high - program.low).mean() / 1000 == pytest.approx(90 + sum(rest[1:11]) / 10, abs=0.5)
    assert program.steps == 4


def test_a_collective_between_two_recipes_keeps_its_place_in_the_queue(tmp_path):
    builder = lazy(8)
    for step in range(8):
        # From 5 behind the first recipe, done at 105 of its step, until 40 later; the next one began at 115 of it.
        builder.lane("hccl_allreduce", 100 * step + 105, 8, engine="NIC 0", tid=9000)
    program = program_of(builder, tmp_path)
    assert program.collectives_ns.tolist() == [8_000, 0] * program.steps
    apart = asynchronously(capture_recipes(program, windows(program, 0, 90)))
    # 30 + 8 + 1 + 10 + 1 on the device.
    assert times(apart.schedule, costs()) == pytest.approx([50] * program.steps)


def test_lazy_ranks_are_replayed_together_by_their_collectives(tmp_path):
    builder = lazy(8)
    for step in range(8):
        builder.lane("hccl_allreduce", 100 * step + 105, 8, engine="NIC 0", tid=9000)
    program = program_of(builder, tmp_path)

    def skeleton(program):
        recorded = recorded_recipes(program)
        done = asynchronously(capture_recipes(program, windows(program, 0, 90)))
        return find_skeletons(done.schedule, Collectives.of(recorded), costs())

    found = skeleton(program)
    assert found
    assert together_ns([found], [[]]) == pytest.approx(50_000)  # as played, see above
    # A rank whose first recipe takes 25 µs longer lets the other one wait; its own transfer stays.
    late = replace(program, dur=np.where(program.collectives_ns > 0, program.dur + 25_000, program.dur))
    assert together_ns([found, skeleton(late)], [[], []]) == pytest.approx(75_000)
    recorded = recorded_recipes(program)
    critical = find_skeletons(recorded, Collectives.of(recorded), Sample.unchanged(), host=False)
    assert together_ns([critical], [[]]) == pytest.approx(30_000 + 8_000 + 2_000 + 10_000 + 2_000, abs=2_100)


def test_waiting_for_a_full_queue_is_not_the_launch_threads_work(tmp_path):
    """Two recipes fit on the device: from the third on, a launch waits until the one two before it is done; it takes 20 itself."""
    builder = lazy(8, work=(150, 60), queue=2)
    rows = [e["dur"] for e in builder.events if e["name"] == "LaunchSyncTensorsGraph"]
    assert max(rows) > 100
    program = program_of(builder, tmp_path)
    assert program.launch.tolist() == pytest.approx([20_000] * len(program.launch), abs=5)
    assert np.mean(times(recorded_recipes(program))) == pytest.approx(214, abs=1)


def test_graphs_that_are_there_tell_what_they_carry(tmp_path):
    """The first recipe of each step is replayed on the main thread: 30 of 40 µs of device time, with one launch beside it."""
    builder = lazy(8)
    builder.events = [e for e in builder.events if not (e["name"] == "LaunchSyncTensorsGraph" and e["ts"] % 100 == 50)]
    for event in builder.events:
        if event["name"] == "SyncTensorsGraphInternal" and event["ts"] % 100 == 40:
            event["name"] = "ExecuteCachedGraph"
    found = predicted(builder, tmp_path)
    assert (found.replays, found.recipes) == (1, 2)
    assert found.covered == pytest.approx(0.75)
    assert found.left_out == 1


def test_the_sample_with_graphs_says_what_is_left_out():
    sample = Path(__file__).parents[3] / "sample_traces" / "hpu_g1_lazy_graph_replay"
    graph = hpuprof.analyze(sample, jobs=1, cache="off").graph_mode
    there = (
        "replayed already: 2 graph launches per step carry 93 % of the device's work; "
        "2.0 launches per step remain outside them"
    )
    assert there in graph.evidence


def test_a_flush_that_is_skipped_goes_with_the_next(tmp_path):
    # The launch thread decides: each flush of 10 waits for the launch of 80 before it. Of one a step: 40 + 30 + 20 + 10 of the main path.
    view = view_of(lazy(12, launch=80), tmp_path)
    model = RecipeModel.of(view, constants_for("hpu", "lazy", None))
    early = early_flushes(model, but_before_optimizer=False)
    assert early.per_step == 1
    assert times(model.schedule) == pytest.approx([180] * model.program.steps)
    merged = model.without_actions(early.chosen)
    assert times(merged.schedule) == pytest.approx([100] * model.program.steps)
    assert merged.schedule.rows.dur.sum() == model.schedule.rows.dur.sum()
    assert not early_flushes(model, but_before_optimizer=True).chosen.any(), "backward's flush is asked for"


def test_what_a_flush_does_before_it_waits_is_work(tmp_path):
    """Flushes of 8 + 10 and 1 for each of 2, 8 and 8 operators; the third waits for the launch of 80 behind its 8."""
    sizes = {"host": (200, 300, 32), "work": (30, 10, 10), "recipes": (1, 2, 3), "updates": 4, "optimizer": 2}
    out = lazy(12, launch=80, before=8, each=1, **sizes)
    model = RecipeModel.of(view_of(out, tmp_path), constants_for("hpu", "lazy", None))
    acts, law, steps = model.program.actions, model.program.flush_law, model.program.steps
    assert (law.fixed, law.per_op, law.least, law.most) == pytest.approx((18_000, 1_000, 1_000, 1_000), rel=1e-3)
    flushing = acts.kind == Kind.FLUSH
    assert ((acts.joins - acts.begin)[flushing] / 1000).tolist() == pytest.approx([0, 0, 8] * steps, abs=0.01)
    assert times(model.schedule) == pytest.approx([200 + 20 + 300 + 26 + 32 + 48 + 18 + 10] * steps)
    second = np.flatnonzero(flushing)[1::3]
    merged = model.without_flushes(np.isin(np.arange(len(acts)), second), 0.5)
    assert times(merged.schedule) == pytest.approx([200 + 20 + 300 + 32 + 18 + 16 + 10] * steps, rel=1e-4)


def test_flushes_of_one_size_do_not_say_what_an_operator_costs(tmp_path):
    """A flush of 10 for two operators: collecting two more takes anything up to 10."""
    model = RecipeModel.of(view_of(lazy(12), tmp_path), constants_for("hpu", "lazy", None))
    early = early_flushes(model, but_before_optimizer=False).chosen
    found = [times(model.without_flushes(early, outcome).schedule)[0] for outcome in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([90, 95, 100])


def test_a_flush_whose_recipe_is_waited_for_stays(tmp_path):
    out = lazy(8, wait=True)
    model = RecipeModel.of(view_of(out, tmp_path), constants_for("hpu", "lazy", None))
    acts = model.program.actions
    awaited = replace(acts, target=np.where(acts.target >= 0, acts.target - 1, -1))  # the first of each step's two
    model = replace(model, program=replace(model.program, actions=awaited))
    assert not early_flushes(model, but_before_optimizer=False).chosen.any()


def test_a_read_goes_with_its_wait(tmp_path):
    model = RecipeModel.of(view_of(lazy(12, wait=True, item=True), tmp_path), constants_for("hpu", "lazy", None))
    found = reads(model)
    assert found.per_step == 1
    assert times(model.schedule) == pytest.approx([139] * model.program.steps)
    left = model.without_actions(found.chosen).without_host(found.windows)
    assert times(left.schedule) == pytest.approx([100] * model.program.steps)


def test_recipes_that_take_a_share_of_their_time(tmp_path):
    model = RecipeModel.of(view_of(lazy(12, work=(150, 60)), tmp_path), constants_for("hpu", "lazy", None))
    halved = model.scaled(np.tile([0.5, 1.0], model.program.steps))
    assert times(halved.schedule) == pytest.approx([75 + 2 + 60 + 2] * model.program.steps)


def test_the_matrix_engine_s_time_is_told_by_type(tmp_path):
    model = RecipeModel.of(view_of(lazy(12, dtype="fp32"), tmp_path), constants_for("hpu", "lazy", None))
    assert matrix_time(model, SINGLE_TYPE).tolist() == [30_000, 10_000] * model.program.steps
    model = RecipeModel.of(view_of(lazy(12, dtype="bf16"), tmp_path / "b"), constants_for("hpu", "lazy", None))
    assert not matrix_time(model, SINGLE_TYPE).any()


def three(folder, **how):
    out = lazy(12, host=(40, 30, 20), work=(30, 10, 10), recipes=(1, 2, 3), optimizer=2, **how)
    return RecipeModel.of(view_of(out, folder), constants_for("hpu", "lazy", None))


def test_the_last_flush_before_the_optimizer_is_asked_for(tmp_path):
    model = three(tmp_path)
    acts, steps = model.program.actions, model.program.steps
    assert flushes(model).sum() == 3 * steps
    assert last_flush(model).sum() == steps
    first = early_flushes(model, but_before_optimizer=True)
    both = early_flushes(model, but_before_optimizer=False)
    assert (first.per_step, both.per_step) == (1, 2)
    assert (acts.first[first.chosen] % 3 == 0).all(), "the first of each step"
    assert first.windows.total_ns == BUILD * 1000 * steps
    # Main path: 40 + 10 + 30 + 10 + 20 + 10 + 10; a flush that collects six operators takes three times as long as one of two.
    assert times(model.schedule) == pytest.approx([130] * steps)
    assert times(model.without_actions(both.chosen).schedule) == pytest.approx([40 + 30 + 20 + 30 + 10] * steps)
    assert times(model.without_actions(first.chosen).schedule) == pytest.approx([40 + 30 + 20 + 20 + 10 + 10] * steps)


def test_skipping_in_two_turns_is_skipping_at_once(tmp_path):
    model = three(tmp_path, launch=80)
    first = early_flushes(model, but_before_optimizer=True).chosen
    both = early_flushes(model, but_before_optimizer=False).chosen
    at_once, in_turns = model.without_actions(both), model.without_actions(first).without_actions(both & ~first)
    assert times(model.schedule) == pytest.approx([270] * model.program.steps)
    assert times(at_once.schedule) == times(in_turns.schedule) == pytest.approx([130] * model.program.steps)


def test_without_an_optimizer_there_is_one_way_to_flush_less(tmp_path):
    out = lazy(12, host=(40, 30, 20), work=(30, 10, 10), recipes=(1, 2, 3), optimizer=3)
    model = RecipeModel.of(view_of(out, tmp_path), constants_for("hpu", "lazy", None))
    (change,) = find_flushes(Situation(model))
    assert change.where == "2 of 3 flushes a step, all but those after backward and after the optimizer"
    two = RecipeModel.of(view_of(lazy(12), tmp_path / "two"), constants_for("hpu", "lazy", None))
    (change,) = find_flushes(Situation(two))
    assert change.where == "1 of 2 flushes a step, all but the last"


def test_what_a_replay_hands_over_is_no_flush(samples):
    path = next((samples / "hpu_g1_lazy_graph_replay").glob("*.json.gz"))
    model = RecipeModel.of(RankView.of(read_trace(path)), constants_for("hpu", "lazy", None))
    acts, found = model.program.actions, flushes(model)
    assert model.program.replayed.any()
    assert not model.program.replayed[acts.first[found]].any()
    replays = (acts.stop > acts.first) & ~found
    assert model.program.replayed[acts.first[replays]].all()


def test_a_wait_for_the_first_recipe_of_all_is_a_wait(tmp_path):
    out = lazy(12, host=(40,), work=(30,), recipes=(1,), wait=True, item=True)
    model = RecipeModel.of(view_of(out, tmp_path), constants_for("hpu", "lazy", None))
    assert model.program.actions.target.max() == model.program.steps - 1
    assert (model.program.actions.target == 0).any()
    assert reads(model).per_step == 1


def test_never_waiting_is_told_apart_from_not_waiting_now(tmp_path):
    still = RecipeModel.of(view_of(lazy(12), tmp_path), constants_for("hpu", "lazy", None))
    waits = RecipeModel.of(view_of(lazy(12, wait=True), tmp_path / "w"), constants_for("hpu", "lazy", None))
    assert still.never_waiting() is None
    free = waits.never_waiting()
    assert times(waits.schedule) == pytest.approx([138] * waits.program.steps)
    assert times(free.schedule) == pytest.approx([100] * waits.program.steps)
    step, model = (Region(name, windows(waits.program, 0, 90), 0) for name in ("step", "model"))
    captured = next(free.capture(step, drop_waits=False)).schedule
    assert times(captured) == times(next(waits.capture(step, drop_waits=True)).schedule)
    assert times(captured) != times(next(waits.capture(step, drop_waits=False)).schedule)
    assert [waits.waits_in(step), waits.waits_in(model), still.waits_in(step)] == [True, False, False]


def test_a_read_in_whose_operator_the_step_is_flushed_leaves_the_flush(tmp_path):
    # The item holds the step's last flush, too: the wait goes, the flush and its 10 stay.
    out = lazy(12, wait=True)
    for step in range(12):
        begin = 138 * step
        out.host("aten::item", begin + 80, BUILD + 38)
    model = RecipeModel.of(view_of(out, tmp_path), constants_for("hpu", "lazy", None))
    found = reads(model)
    assert found.per_step == 1
    assert not (found.chosen & last_flush(model)).any()
    assert found.windows.total_ns == 38_000 * model.program.steps


def test_operators_that_no_longer_run_are_not_collected(tmp_path):
    model = RecipeModel.of(view_of(lazy(12, launch=10), tmp_path), constants_for("hpu", "lazy", None))
    # Half of the second flush's operators go with their 15; collecting takes half as long.
    gone = windows(model.program, 50, 65)
    assert times(model.without_host(gone).schedule) == pytest.approx([100 - 15 - BUILD / 2] * model.program.steps)


def test_nodes_of_recipes_that_follow_each_other_save_their_pauses(tmp_path):
    """The device decides: of 214 each of two recipes pauses for 3 between its nodes, of which two lanes work at once."""
    out = lazy(12, work=(150, 60))
    for event in [e for e in out.events if e["name"] == "op0"]:
        event["dur"] -= 3
        out.event(**event | {"tid": event["tid"] + 1, "ts": event["ts"] + 1, "dur": event["dur"] - 1})
    (row,) = out.reduce(tmp_path).kernel_sequences
    assert (row.kernels, row.basis, row.count_per_step, row.launches_saved) == (["op0", "op1"], "nodes", 2, 0)
    assert (row.device_ns, row.gap_ns) == (204_000, 6_000)
    assert row.fused_ns == pytest.approx(6_000)


def test_recipes_whose_nodes_do_not_pause_have_nothing_to_fuse(tmp_path):
    assert lazy(12, work=(150, 60)).reduce(tmp_path).kernel_sequences == []
