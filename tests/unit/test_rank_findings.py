"""What only several ranks show: hangs, early ends, clocks that cannot be, parallelism, and how it is told."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rank_traces import ALL_REDUCE, LATEST, blocking, comm, four_ranks, header
from sample_reports import report_of

import hpuprof
from hpuprof.errors import ConfigError
from hpuprof.model.collective_calls import PackedCalls, unpack
from hpuprof.ranks import prices
from hpuprof.ranks.matching import Group, Kind, Matching, RankCalls
from hpuprof.ranks.parallelism import uses
from hpuprof.ranks.rank_tables import ranges

US = 1000


def codes(report) -> set[str]:
    return {f.code for f in report.findings}


def noted(report) -> set[str]:
    return {d.code for d in report.data.diagnostics}


def write(folder, ranks):
    for number, builder in enumerate(ranks):
        builder.write(folder / f"node_{number}.1.pt.trace.json")
    return folder


def even(rank, steps=6, **more):
    return blocking(rank, [300 + rank] * steps, [303] * steps, **more)


def test_even_ranks_have_no_straggler(tmp_path):
    report = hpuprof.analyze(write(tmp_path, [even(r) for r in range(4)]), jobs=1)
    assert codes(report).isdisjoint({"HP230", "HP231", "HP232", "HP233", "HP234", "HP235"})
    assert not any(r.straggler for r in report.data.rank_waits)


def test_ranks_that_take_turns(tmp_path):
    """In step i rank i % 4 comes 300 µs after the others."""
    steps = 8
    came = [[600 if i % 4 == r else 300 for i in range(steps)] for r in range(4)]
    report = hpuprof.analyze(write(tmp_path, [blocking(r, came[r], [600] * steps) for r in range(4)]), jobs=1)
    assert "HP231" in codes(report)
    assert "HP230" not in codes(report)
    assert report.metrics["collective_wait_fraction"].value == pytest.approx(0.75 * 0.3)


def test_the_straggler_comes_first_and_explains_what_the_others_show(tmp_path):
    """Rank 1 comes 500 µs after the others, which then wait for it."""
    ranks = [blocking(r, [800 if r == 1 else 300] * 6, [800] * 6) for r in range(4)]
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    first, *others = report.findings
    assert (first.code, first.caused_by, first.ranks) == ("HP230", "", [1])
    assert first.share_fraction == report.metrics["straggler_cost_fraction"].value
    explained = {f.code: f.caused_by for f in others}
    assert explained == dict.fromkeys(("HP206", "HP214", "HP222"), "HP230")  # it has one kernel, which computes longer
    assert report.headline.sentence.startswith("Rank 1 holds up all 4 ranks, because it is computing: if it kept pace")
    assert "rank 1's device" in first.advice


def test_one_step_shows_who_comes_last_and_not_how_often(tmp_path):
    """Of four ranks in one step one is always last: four used steps would show that it is always the same."""
    ranks = [blocking(r, [800 if r == 1 else 300], [800]) for r in range(4)]
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    assert "HP230" not in codes(report)
    assert not any(row.named for row in report.data.suspects)
    assert [row.steps_needed for row in report.data.suspects if row.name == "1"] == [4]
    (told,) = [f for f in report.findings if f.code == "HP236"]
    assert told.evidence == (
        "ranks wait for one another 37.5 % of the time, rank 0 most, 100.0 % of it for rank 1; no rank is named, as so few "
        "steps could show it by chance (even ranks would save 50.0 %): record 4 steps"
    )
    assert "active=4" in told.advice


def test_what_only_the_straggler_does_is_told_under_it():
    """Rank 5 loads data for half of each step; the host launches slowly on every rank."""
    causes = {f.code: f.caused_by for f in report_of("hpu_g3_lazy_8_ranks").findings}
    told = {"HP206": "HP230", "HP214": "HP230", "HP202": "HP230"}
    assert causes == {"HP230": "", **told, "HP201": ""}
    assert list(causes)[-1] == "HP201"


def test_communication_that_waiting_does_not_explain_stands_for_itself(tmp_path):
    """Rank 1 comes 50 µs late of 1000, and the transfer takes another 100."""
    ranks = [blocking(r, [350 if r == 1 else 300] * 6, [350] * 6) for r in range(4)]
    causes = {f.code: f.caused_by for f in hpuprof.analyze(write(tmp_path, ranks), jobs=1).findings}
    assert causes["HP206"] == ""
    assert "HP230" in causes


def test_different_operations_are_a_likely_hang(tmp_path):
    ranks = [even(r, op={4: "_allgather_base"} if r == 2 else None) for r in range(4)]
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    (finding,) = [f for f in report.findings if f.code == "HP232"]
    assert "in 1 places" in finding.evidence


def test_a_rank_that_stops_early(tmp_path):
    report = hpuprof.analyze(write(tmp_path, [even(r, 10 if r != 1 else 4) for r in range(4)]), jobs=1)
    (finding,) = [f for f in report.findings if f.code == "HP233"]
    assert finding.ranks == [1]
    assert "rank 1 stops 6 collectives before the others" in finding.evidence
    assert "all_reduce" in finding.evidence


def test_ranks_of_one_host_that_contradict_each_other_get_clocks_of_their_own(tmp_path):
    """Rank 3's stamps are moved by 10 ms: who holds whom back does not change, and it is told."""
    report = hpuprof.analyze(four_ranks(tmp_path, r3={"shift": 10_000}), jobs=1)
    assert "HP141" in noted(report)
    assert [r.blame_ns for r in report.data.rank_waits] == [300 * US, 0, 0, 1480 * US]
    assert [round(c.offset_ns / US) for c in report.data.clocks] == [0, 0, 0, -10_000]


def test_hosts_that_are_not_named(tmp_path):
    nameless = {f"r{r}": {"host": None} for r in range(4)}
    report = hpuprof.analyze(four_ranks(tmp_path, **nameless), jobs=1)
    assert "HP142" in noted(report)
    assert [c.host for c in report.data.clocks] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert [r.blame_ns for r in report.data.rank_waits] == [300 * US, 0, 0, 1480 * US]


def test_unrelated_clocks_give_no_numbers(tmp_path):
    """Two hosts whose ranks never meet: nothing across them is told, and it says so."""
    pairs = [{"Process Group Ranks": f"[{2 * p}, {2 * p + 1}]", "Group size": 2} for p in range(2)]
    ranks = [
        blocking(r, [300 + 100 * (r % 2)] * 6, [400] * 6, host=f"node{r // 2}", shift=5000 * (r // 2), **pairs[r // 2])
        for r in range(4)
    ]
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    assert "HP140" in noted(report)
    first, second = report.data.clocks
    assert (first.reference, first.offset_ns, second.reference, second.offset_ns) == (None, None, None, None)
    # Within each host the ranks can be compared all the same.
    assert [r.waiting_ns for r in report.data.rank_waits] == [400 * US, 0, 400 * US, 0]
    assert {r.clock for r in report.data.rank_waits} == {"one host"}


def test_contradicting_collectives_are_a_finding(tmp_path):
    """A clock that jumps by 10 ms in the middle of the recording: no offset and drift fit."""
    ranks = [even(r, 12, host=f"node{r // 2}") for r in range(4)]
    for builder in ranks[2:]:
        for event in builder.events:
            if event["ts"] >= 6000 and event["ph"] == "X":
                event["ts"] += 10_000
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    assert report.metrics["infeasible_match_fraction"].value > 0.01
    assert "HP234" in codes(report)


def test_pipeline_bubbles(tmp_path):
    """Stage 1 stands still for 400 of 1000 µs until stage 0 has computed and sends."""

    send, receive = TraceBuilder(**header(0, 2)), TraceBuilder(**header(1, 2))
    for i in range(6):
        t = 1000 * i
        send.step(i, t, 1000).kernel("gemm", t + 10, 390, launch=t + 1)
        send.kernel("ncclDevKernel_SendRecv", t + 410, 50, launch=t + 3, stream=20, **comm("send", **{"Dst Rank": 1}))
        receive.step(i, t, 1000)
        receive.kernel(
            "ncclDevKernel_SendRecv", t + 10, 450, launch=t + 3, stream=20, **comm("recv", **{"Src Rank": 0})
        )
        receive.kernel("gemm", t + 462, 390, launch=t + 5)
    report = hpuprof.analyze(write(tmp_path, [send, receive]), jobs=1)
    assert [r.bubble_fraction for r in report.data.rank_waits] == [0.0, 0.4]
    assert report.metrics["pipeline_bubble_fraction"].value == 0.2
    assert "HP235" in codes(report)
    (group,) = report.data.process_groups
    assert (group.role, group.ranks) == ("pipeline", "0->1")
    (row,) = report.data.collectives
    assert (row.op, row.count, row.complete) == ("send_recv", 6, 6)


def test_a_mesh_of_tensor_and_data_parallel_groups(tmp_path):
    """2 x 2 ranks: ten reductions a step in (0, 1) and (2, 3), one in (0, 2) and (1, 3). Rank 2 computes 60 µs more each time.

    Rank 1 never waits in its pair (0, 1); both wait for the pair (2, 3) at the end of the step: 10 x 60 = 600 µs.
    """

    ranks = []
    for rank in range(4):
        trace = TraceBuilder(**header(rank, 4))
        tensor = {"Process Group Name": f"t{rank // 2}", "Process Group Ranks": str([rank // 2 * 2, rank // 2 * 2 + 1])}
        data = {"Process Group Name": f"d{rank % 2}", "Process Group Ranks": str([rank % 2, rank % 2 + 2])}
        for step in range(6):
            begin, now = step * 3000, step * 3000 + 10
            trace.step(step, begin, 3000)
            pair = 160 if rank >= 2 else 100
            mine = 160 if rank == 2 else 100
            for i in range(10):
                launch = begin + 1 + 4 * i  # before what it launches, as everything is
                trace.kernel("gemm", now, mine, launch=launch)
                trace.kernel(ALL_REDUCE, now + mine, pair - mine + 20, launch=launch + 2, stream=20, **comm(**tensor))
                now += pair + 20
            trace.kernel("grad", now, 10, launch=begin + 50)
            now, all_done = now + 10, begin + 10 + 10 * 180 + 10
            trace.kernel(ALL_REDUCE, now, all_done - now + 50, launch=begin + 60, stream=21, **comm(**data))
            trace.host("cudaDeviceSynchronize", begin + 65, all_done - begin - 13, cat="cuda_runtime")
        ranks.append(trace)
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    roles = {g.ranks: g.role for g in report.data.process_groups}
    assert roles == {"0,1": "tensor", "2,3": "tensor", "0,2": "data", "1,3": "data"}
    used = sum(s.used for s in report.data.steps) // 4
    waits = report.data.rank_waits
    assert [r.waiting_ns for r in waits] == [600 * US * used, 600 * US * used, 0, 600 * US * used]
    # Rank 3 comes last to (1, 3), held back by rank 2: it takes the blame for that one, rank 2 for all else.
    assert [r.blame_ns for r in waits] == [0, 0, 1200 * US * used, 600 * US * used]
    assert [r.straggler for r in waits] == [False, False, True, False]
    # With rank 2 like the others every reduction comes 60 µs earlier.
    named = next(s for s in report.data.suspects if s.named)
    assert named.low_fraction == pytest.approx(0.2 - prices.MISSES, abs=1e-3)
    assert named.high_fraction == pytest.approx(0.2 + prices.MISSES, abs=1e-3)


def test_two_ranks_of_many_say_nothing_about_the_job(tmp_path):
    """Rank 1 comes 300 µs later in each step, but 126 ranks are missing."""
    ranks = [blocking(r, [300 + 300 * r] * 6, [600] * 6, world=128) for r in range(2)]
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    assert "HP147" in {d.code for d in report.data.diagnostics}
    assert not codes(report) & {"HP230", "HP231"}
    assert report.metrics["collective_wait_fraction"].value is None
    assert report.metrics["step_time_if_even"].value is None


def test_waiting_lies_inside_steps_though_the_host_runs_ahead(tmp_path):
    """Steps of 20 µs on the host, of 1000 on the device: rank 0 waits 300 µs in each."""

    ranks = []
    for rank in range(2):
        trace = TraceBuilder(**header(rank, 2))
        for step in range(8):
            begin, now = step * 20, 100 + step * 1000
            trace.step(step, begin, 20)
            mine = 500 + 300 * rank
            trace.kernel("gemm", now, mine, launch=begin + 1)
            trace.kernel(ALL_REDUCE, now + mine, 990 - mine, launch=begin + 5, stream=20, **comm())
        trace.host("cudaDeviceSynchronize", 165, 8000, cat="cuda_runtime")
        ranks.append(trace)
    report = hpuprof.analyze(write(tmp_path, ranks), jobs=1)
    assert report.metrics["collective_wait_fraction"].value == pytest.approx(0.15, abs=0.02)


def test_many_ranks_are_predicted_in_part(tmp_path, monkeypatch):
    whole = hpuprof.analyze(four_ranks(tmp_path), jobs=1)
    monkeypatch.setattr("hpuprof.analysis_run.MOST_PREDICTED", 2)
    replayed: list[bool] = []

    def price(model, *more):
        replayed.append(model.hosts)
        return prices.price(model, *more)

    monkeypatch.setattr("hpuprof.ranks.named_suspects.price", price)
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert replayed == [True]  # launch by launch, as if all were predicted
    assert report.data.suspects == whole.data.suspects
    (told,) = [d for d in report.data.diagnostics if d.code == "HP163"]
    assert told.count == 2
    assert report.data.suspects[0].name == "3"


def test_a_wrong_manifest_is_told(tmp_path):
    folder = four_ranks(tmp_path / "t")
    for text in (
        "[1]",
        "{",
        '{"node0": "soon"}',
        '{"node0": {"drift_ppm": 1}}',
        '{"node0": {"offset_ns": 1, "drift_ppm": 1}}',
    ):
        (tmp_path / "m.json").write_text(text)
        with pytest.raises(ConfigError, match="not a clock manifest"):
            hpuprof.analyze(folder, clock=f"manifest:{tmp_path / 'm.json'}")
    with pytest.raises(ConfigError, match="not a clock manifest"):
        hpuprof.analyze(folder, clock="manifest:nowhere.json")
    with pytest.raises(ConfigError, match="clock is 'sundial'"):
        hpuprof.analyze(folder, clock="sundial")


def test_one_rank_alone_has_collectives_and_no_waiting(tmp_path):
    report = hpuprof.analyze(write(tmp_path, [blocking(0, [300] * 3, LATEST)]), jobs=1)
    (row,) = report.data.collectives
    assert (row.count, row.duration_p50_ns, row.transfer_p50_ns, row.wait_mean_ns) == (3, 300 * US, None, None)
    assert report.data.rank_waits == []
    assert report.metrics["collective_wait_fraction"].value is None


@pytest.mark.parametrize(
    ("ranks", "text"),
    [((0,), "0"), ((0, 1), "0,1"), ((0, 1, 2), "0-2"), ((0, 8, 16), "0-16:8"), ((1, 5, 6, 7), "1,5-7"), ((), "")],
)
def test_ranks_are_written_short(ranks, text):
    assert ranges(ranks) == text


# ------------------------------------------------------------------------------------------------------------ parallelism


def matching(groups: list[Group], traffic: list[tuple[int, str, int, int]]) -> Matching:
    """Return a matching with (group, operation, bytes, count); members do not matter here."""
    import numpy as np

    kinds = [Kind(g, op, size, "float") for g, op, size, _ in traffic]
    kind = np.repeat(np.arange(len(kinds)), [n for *_, n in traffic])
    none = np.zeros(len(kind), dtype=np.int64)
    return Matching(groups, kinds, kind, none, np.zeros(len(kind) + 1, dtype=np.int64), none[:0], none[:0], none)


WORLD = tuple(range(4))
RANKS = [RankCalls(rank, None, 0, unpack(PackedCalls())) for rank in WORLD]


@pytest.mark.parametrize(
    ("traffic", "sharding"),
    [
        ([(0, "all_reduce", 100, 10)], "none"),
        ([(0, "all_reduce", 100, 10), (0, "all_gather", 100, 10)], "ZeRO-1"),
        ([(0, "reduce_scatter", 100, 10), (0, "all_gather", 100, 10)], "ZeRO-1 or 2"),
        ([(0, "reduce_scatter", 100, 10), (0, "all_gather", 100, 20)], "ZeRO-3"),
        ([(0, "all_reduce", 100, 10), (0, "all_gather", 100, 20)], "ZeRO-3"),  # as gloo scatters
        ([(0, "reduce_scatter", 100, 10), (0, "all_gather", 100, 70)], "unknown"),
        ([(0, "broadcast", 100, 10)], "unknown"),
    ],
)
def test_sharding_by_what_moves(traffic, sharding):
    (use,) = uses(RANKS, matching([Group("0", "default_pg", WORLD, known=True)], traffic))
    assert (use.role, use.sharding) == ("data", sharding)


GATHERS, SCATTERS = (comm(name) for name in ("_allgather_base", "_reduce_scatter_base"))


@pytest.mark.parametrize(
    ("ahead", "collectives", "role"),
    [
        (0, [comm()], "tensor"),
        (60, [comm()], "data"),
        (0, [GATHERS, GATHERS, SCATTERS], "data"),  # sharded parameters, whose gathers are not hidden
        (0, [GATHERS, SCATTERS], "tensor"),  # sequence parallelism
    ],
)
def test_the_only_group_is_tensor_if_compute_stops_for_it(tmp_path, ahead, collectives, role):
    """Six collectives of 50 µs a step behind 100 µs of compute each; `ahead`: by how much compute goes on beside them."""
    group = {"Process Group Name": "3", "Process Group Description": "undefined", "Process Group Ranks": "[0, 1]"}
    ranks = []
    for rank in range(2):
        trace = TraceBuilder(**header(rank, 2, group=False))
        for step in range(4):
            begin = step * 1000
            trace.step(step, begin, 1000)
            for i in range(6):
                at, mine = begin + 20 + 150 * i, collectives[i % len(collectives)] | group
                trace.kernel("gemm", at, 100 + ahead if i < 5 else 100, launch=begin + 2 + 3 * i)
                trace.kernel(ALL_REDUCE, at + 100, 45, launch=begin + 3 + 3 * i, stream=20, **mine)
            trace.host("cudaDeviceSynchronize", begin + 30, 940, cat="cuda_runtime")
        ranks.append(trace)
    (found,) = hpuprof.analyze(write(tmp_path, ranks), jobs=1).data.process_groups
    assert (found.role, found.text) == (role, "undefined")


def test_roles_by_description_and_by_traffic():
    told = [
        Group("1", t, (0, 1), known=True) for t in ("mesh_tp", "DATA_PARALLEL_GROUP", "pp", "EXPERT_MODEL_PARALLEL")
    ]
    found = uses(RANKS, matching(told, [(i, "all_reduce", 8, 1) for i in range(4)]))
    assert [u.role for u in found] == ["tensor", "data", "pipeline", "expert"]
    mesh = [Group("1", "", (0, 1), known=True), Group("2", "", (2, 3), known=True)]
    mesh += [Group("3", "", (0, 2), known=True), Group("4", "", (1, 3), known=True)]
    found = uses(
        RANKS,
        matching(
            mesh, [(0, "all_reduce", 8, 90), (1, "all_reduce", 8, 90), (2, "all_reduce", 8, 9), (3, "all_reduce", 8, 9)]
        ),
    )
    assert [u.role for u in found] == ["tensor", "tensor", "data", "data"]
    (expert,) = uses(
        RANKS, matching([Group("5", "", (0, 1), known=True)], [(0, "all_to_all", 8, 9), (0, "all_reduce", 8, 1)])
    )
    assert expert.role == "expert"


def test_what_fits_nothing_is_unknown():
    (use,) = uses(RANKS, matching([Group("", "", WORLD, known=False)], [(0, "all_reduce", 8, 9)]))
    assert (use.role, use.sharding) == ("unknown", None)
