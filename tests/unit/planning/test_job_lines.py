"""The plan of a job whose ranks were played together: lines, order, and what is left for those after the first."""

from __future__ import annotations

import msgspec
import pytest

import hpuprof
from hpuprof.model.plan_rows import PlanRow
from hpuprof.model.prediction import GraphMode, GraphOption, Interval
from hpuprof.planning.job_prices import Graphed, JobPrice, JobPrices
from hpuprof.report.job_lines import lines_of

EFFORTS = {"data_loading": "argument", "fused_optimizer": "argument", "read_backs": "few_lines", "lower_precision": "numerics"}  # fmt: skip


OPTION = GraphOption(
    region="step", api="torch.cuda.graph", speedup=Interval(low=2, median=2.5, high=4),
    step_time_ns=Interval(low=300, median=400, high=500), regret=0.0, needs_changes=True, drops_sync=False,
    asynchronous=False, launches=9.0, graphs=1.0, memory_bytes=None, break_even_steps=None, blocked_by=["HP302"],
    note="",
)  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> GraphMode:
    """Graphs do not help; a step takes 1000 ns."""
    found = hpuprof.analyze("sample_traces/cpu_1_rank", cache="off").graph_mode
    return msgspec.structs.replace(found, base_step_ns=1000.0, base_range_ns=None)


def row(name: str, **more) -> PlanRow:
    known = {"order": None, "title": name, "where": "everywhere", "per_step": 1.0}
    return PlanRow(remedy=name, **{**known, "effort": EFFORTS.get(name, "few_lines"), **more})


def price(name: str, low: float, middle: float, high: float, p_gain: float = 1.0) -> JobPrice:
    return JobPrice(Interval(low=low, median=middle, high=high), p_gain, row(name))


def job(together: tuple[float, float, float] | None, *prices: JobPrice) -> JobPrices:
    every = None if together is None else Interval(low=together[0], median=together[1], high=together[2])
    done = frozenset(p.row.remedy for p in prices if p.row.effort != "numerics")
    return JobPrices(1000.0, None, {p.row.remedy: p for p in prices}, every, done)


def test_lines_stand_by_worth_and_share_what_the_first_one_leaves(graph):
    """Of 1000: 300 and 200 alone, 400 together, so that the second saves 100; each counts for its effort."""
    prices = job((350, 400, 450), price("read_backs", 180, 200, 220), price("data_loading", 280, 300, 320))
    first, second = (r for r in lines_of(prices, [], graph) if r.order)
    assert (first.remedy, first.order, second.remedy, second.order) == ("data_loading", 1, "read_backs", 2)
    assert (first.before_ns, first.gain_ns, first.after_ns) == (1000, 300, 700)
    assert (second.before_ns, second.gain_ns, second.after_ns) == (700, 100, 600)
    assert (second.gain_low_ns, second.gain_high_ns) == (70, 130)
    assert second.alone_ns == 200


def test_two_that_hide_behind_each_other_are_not_promised_more_than_alone(graph):
    prices = job((500, 500, 500), price("read_backs", 20, 20, 20), price("data_loading", 100, 100, 100))
    first, second = (r for r in lines_of(prices, [], graph) if r.order)
    assert (first.gain_ns, second.gain_ns) == (100, 20)


def test_what_adds_less_than_a_hundredth_after_the_others_is_no_line(graph):
    prices = job((305, 305, 305), price("read_backs", 200, 200, 200), price("data_loading", 300, 300, 300))
    rows = lines_of(prices, [], graph)
    assert [r.remedy for r in rows if r.order] == ["data_loading"]
    assert next(r for r in rows if r.remedy == "read_backs").reason == "adds_nothing"


def test_other_numerics_save_their_share_of_what_is_left(graph):
    prices = job((300, 300, 300), price("data_loading", 300, 300, 300), price("lower_precision", 100, 100, 100))
    first, second = (r for r in lines_of(prices, [], graph) if r.order)
    assert (first.remedy, second.remedy) == ("data_loading", "lower_precision")
    assert second.gain_ns == pytest.approx(70)


def test_what_may_lose_is_no_first_line_of_a_job(graph):
    prices = job(None, price("read_backs", -50, 80, 120, p_gain=0.7))
    rows = lines_of(prices, [], graph)
    assert [(r.remedy, r.order, r.reason) for r in rows] == [("read_backs", None, "may_lose")]


def test_what_may_lose_stands_behind_what_does_not(graph):
    """It is worth more than the other, and than a third, which stays in its place behind it."""
    prices = (price("read_backs", -50, 400, 500, p_gain=0.7), price("uploads", 50, 60, 70), price("copies", 40, 50, 60))
    assert list(gains(job(None, *prices), graph)) == ["uploads", "read_backs", "copies"]
    alike = frozenset({frozenset({"uploads", "read_backs"})})
    assert list(gains(msgspec.structs.replace(job(None, *prices), apart=alike), graph)) == ["uploads", "copies"]


def test_graphs_save_more_behind_what_held_them_up_and_no_more_than_they_may(graph):
    """Workers set the pace of half of the samples: alone they save 50 (0 to 600), after more workers what they may."""
    option = msgspec.structs.replace(OPTION, blocked_by=[])
    known = {"verdict": "likely", "region": "step", "api": "torch.cuda.graph", "options": [option], "speedup": None}
    then = Interval(low=400, median=950, high=1000)
    held = msgspec.structs.replace(graph, step_time_ns=then, probability_gain=0.5, **known)
    prices = job((100, 100, 100), price("data_loading", 100, 100, 100))
    free = msgspec.structs.replace(prices, graphed=Graphed("step", {"data_loading": 0.5}, None))
    first, second = (r for r in lines_of(free, [], held) if r.order)
    assert (first.remedy, second.remedy) == ("data_loading", "graphs")
    assert (second.gain_low_ns, second.gain_ns, second.gain_high_ns) == (0, pytest.approx(425), 600)
    freer = msgspec.structs.replace(prices, graphed=Graphed("step", {"data_loading": 0.1}, None))
    assert next(r for r in lines_of(freer, [], held) if r.order == 2).gain_ns == 600


def test_what_saves_nothing_of_the_job_has_no_place_in_it(graph):
    """The rank waits for the others all the same; what only one rank has a price for stays, at its own."""
    prices = job(None, price("read_backs", 0, 0, 0))
    own = [
        row("read_backs", alone_low_ns=90.0, alone_ns=90.0, alone_high_ns=90.0),
        row("buckets", alone_low_ns=30.0, alone_ns=40.0, alone_high_ns=50.0, order=1),
        row("fills", reason="no_place", why="none"),
    ]
    rows = {r.remedy: r for r in lines_of(prices, own, graph)}
    assert (rows["read_backs"].reason, rows["read_backs"].alone_ns) == ("no_place", None)
    assert (rows["buckets"].order, rows["buckets"].gain_ns) == (1, 40)
    assert rows["fills"].why == "none"


def test_times_of_what_one_rank_alone_has_a_price_for_are_parts_of_the_jobs_step(graph):
    """Its steps take 500 before its first line and 400 after it; those of the job 1000."""
    own = [
        row("uploads", alone_low_ns=90.0, alone_ns=100.0, alone_high_ns=110.0, before_ns=500.0, order=1),
        row("buckets", alone_low_ns=30.0, alone_ns=40.0, alone_high_ns=50.0, before_ns=400.0, start_ns=7, order=2),
    ]
    found = {r.remedy: r for r in lines_of(job(None), own, graph)}
    assert [(found[name].alone_ns, found[name].gain_high_ns) for name in ("uploads", "buckets")] == [
        (200, 220),
        (80, pytest.approx(80)),
    ]
    assert found["buckets"].start_ns == 7


def test_fixes_that_are_wished_for_are_the_lines_whatever_they_save(graph):
    prices = job((5, 5, 5), price("read_backs", 200, 200, 200), price("uploads", 5, 5, 5))
    wished = msgspec.structs.replace(prices, wished=frozenset({"uploads"}))
    rows = {r.remedy: r for r in lines_of(wished, [], graph)}
    assert (rows["uploads"].order, rows["uploads"].gain_ns) == (1, 5)
    assert (rows["read_backs"].order, rows["read_backs"].reason) == (None, "not_chosen")


def test_the_step_time_of_a_job_has_its_interval_where_no_one_gave_it(graph):
    prices = job((100, 100, 100), price("read_backs", 80, 100, 120))
    guessed = msgspec.structs.replace(prices, known=Interval(low=900, median=990, high=1200))
    (first,) = (r for r in lines_of(guessed, [], graph) if r.order)
    assert (first.before_low_ns, first.before_ns, first.before_high_ns) == (900, 1000, 1200)
    assert (first.after_low_ns, first.after_ns, first.after_high_ns) == (880, 900, 920)


def test_graphs_of_all_ranks_are_a_line_at_the_verdicts_price(graph):
    """From 1000 to 400 ns, blocked: they are worth half, and come after what saves 250 by an argument."""
    known = {"verdict": "not yet", "region": "step", "api": "torch.cuda.graph", "options": [OPTION]}
    blocked = msgspec.structs.replace(
        graph, step_time_ns=OPTION.step_time_ns, speedup=OPTION.speedup, probability_gain=1.0, **known
    )
    prices = job((250, 250, 250), price("data_loading", 250, 250, 250))
    first, second = (r for r in lines_of(prices, [], blocked) if r.order)
    assert (first.remedy, second.remedy) == ("data_loading", "graphs")
    assert second.where == "step, with torch.cuda.graph, once HP302 is out of the way"
    assert (second.alone_ns, second.gain_ns) == (600, 450)


def test_what_clears_the_way_of_graphs_stands_before_them(graph):
    """Reads that save 30 by a few lines are worth less than graphs that save 600, and block them."""
    known = {"verdict": "not yet", "region": "step", "api": "torch.cuda.graph", "options": [OPTION]}
    blocked = msgspec.structs.replace(
        graph, step_time_ns=OPTION.step_time_ns, speedup=OPTION.speedup, probability_gain=1.0, **known
    )
    prices = job((60, 60, 60), price("read_backs", 30, 30, 30), price("uploads", 30, 30, 30))
    assert [r.remedy for r in lines_of(prices, [], blocked) if r.order] == ["read_backs", "graphs", "uploads"]


def test_fixes_after_graphs_share_their_part_of_what_is_left(graph):
    """Graphs save 600 of 1000 ns; what saves 250 together with nothing else saves two fifths of that after them."""
    prices = job((250, 250, 250), price("read_backs", 250, 250, 250))
    ready = msgspec.structs.replace(graph, step_time_ns=Interval(low=390, median=400, high=410), probability_gain=1.0)
    option = msgspec.structs.replace(OPTION, blocked_by=[])
    known = {"verdict": "yes", "region": "step", "api": "torch.cuda.graph", "options": [option], "speedup": None}
    first, second = (r for r in lines_of(prices, [], msgspec.structs.replace(ready, **known)) if r.order)
    assert (first.remedy, first.where, second.remedy) == ("graphs", "step, with torch.cuda.graph", "read_backs")
    assert (first.alone_low_ns, first.alone_ns, first.alone_high_ns) == (590, 600, 610)
    assert second.gain_ns == pytest.approx(100)
    assert (second.before_ns, second.after_ns) == pytest.approx((400, 300))


def test_graphs_that_do_not_help_are_no_row(graph):
    told = msgspec.structs.replace(graph, verdict="no", step_time_ns=Interval(low=390, median=400, high=410))
    assert "graphs" not in {r.remedy for r in lines_of(job(None, price("read_backs", 80, 90, 100)), [], told)}


def as_graphs(graph: GraphMode, region: str = "step", *, drops_sync: bool = False) -> GraphMode:
    """Graphs bring 1000 ns down to 400."""
    option = msgspec.structs.replace(OPTION, blocked_by=[], region=region, drops_sync=drops_sync)
    known = {"verdict": "yes", "region": region, "api": "torch.cuda.graph", "options": [option], "speedup": None}
    return msgspec.structs.replace(
        graph, step_time_ns=Interval(low=390, median=400, high=410), probability_gain=1.0, **known
    )


def gains(prices: JobPrices, graph: GraphMode) -> dict[str, float]:
    return {r.remedy: round(r.gain_ns) for r in lines_of(prices, [], graph) if r.order}


FIXES = (price("data_loading", 200, 200, 200), price("fused_optimizer", 250, 250, 250))


def test_fixes_after_graphs_save_what_they_were_played_to_save_of_them(graph):
    """Of 400 ns as graphs, the loader's 200 go, and of the optimizer's host nothing is left: 4 ns, no line."""
    played = Graphed("step", {"data_loading": 0.5, "fused_optimizer": 0.99}, 0.49)
    prices = msgspec.structs.replace(job((440, 440, 440), *FIXES), graphed=played)
    assert gains(prices, as_graphs(graph)) == {"graphs": 600, "data_loading": 200}


def test_two_fixes_after_graphs_save_together_what_was_played(graph):
    played = Graphed("step", {"data_loading": 0.5, "fused_optimizer": 0.5}, 0.4)
    prices = msgspec.structs.replace(job((440, 440, 440), *FIXES), graphed=played)
    found = gains(prices, as_graphs(graph))
    assert list(found) == ["graphs", "fused_optimizer", "data_loading"]
    assert (found["fused_optimizer"], found["data_loading"]) == (200, 40)


def test_graphs_after_a_fix_leave_what_was_played_with_both(graph):
    """The loader comes first; with it, steps as graphs take 0.6 of the 400 ns without it."""
    loader = price("data_loading", 700, 700, 700)
    prices = msgspec.structs.replace(job((700, 700, 700), loader), graphed=Graphed("step", {"data_loading": 0.6}, None))
    assert gains(prices, as_graphs(graph)) == {"data_loading": 700, "graphs": 60}


def test_what_graphs_leave_alone_or_already_take_away_is_not_counted_twice(graph):
    """Graphs of the model leave the optimizer as it is; those without the reads have their price without them."""
    played = Graphed("step", {"read_backs": 0.5, "fused_optimizer": 1.0}, 0.5)
    prices = job((440, 440, 440), price("read_backs", 200, 200, 200), FIXES[1])
    prices = msgspec.structs.replace(prices, graphed=played)
    assert gains(prices, as_graphs(graph, "model")) == {"graphs": 600, "fused_optimizer": 100, "read_backs": 150}
    assert gains(prices, as_graphs(graph, drops_sync=True)) == {"graphs": 600, "read_backs": 80}


@pytest.mark.parametrize(("region", "saved"), [("optimizer", 80), ("module:Head_0", 80), ("forward+backward", 200)])
def test_graphs_of_a_part_of_the_model_are_not_taken_for_those_that_were_played(graph, region, saved):
    """The loader saves a fifth of what they leave, as alone, and half of what graphs of the whole step leave."""
    played = Graphed("step", {"data_loading": 0.5}, None)
    prices = msgspec.structs.replace(job((200, 200, 200), FIXES[0]), graphed=played)
    assert gains(prices, as_graphs(graph, region)) == {"graphs": 600, "data_loading": saved}


def test_of_two_fixes_of_the_same_calls_the_better_one_is_a_line(graph):
    """Products in 16 bits are in 16 bits already: TF32 has nothing to do after that."""
    halves, tf32 = price("lower_precision", 200, 200, 200), price("tf32", 100, 100, 100)
    prices = job(None, halves, tf32)
    assert list(gains(prices, graph)) == ["lower_precision", "tf32"]
    apart = msgspec.structs.replace(prices, apart=frozenset({frozenset({"tf32", "lower_precision"})}))
    assert gains(apart, graph) == {"lower_precision": 200}
