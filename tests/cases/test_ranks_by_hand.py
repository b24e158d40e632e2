"""Four ranks, three collectives, every number worked out by hand.

Each step is 1000 µs. A rank computes until it comes to the all-reduce of 4000 bytes, which transfers for 100 µs once all are
there; then all ranks do the rest of the step. Steps 0 to 2, ranks 0 to 3, in µs:

    come        300 300 300 500 | 300 320 300 600 | 400 300 300 300
    latest      500             | 600             | 400
    wait        200 200 200   0 | 300 280 300   0 |   0 100 100 100
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rank_traces import blocking, four_ranks

import hpuprof

US = 1000


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return hpuprof.analyze(four_ranks(tmp_path_factory.mktemp("four")), jobs=1)


def test_collectives(report):
    (row,) = report.data.collectives
    assert (row.op, row.bytes, row.dtype, row.group_ranks, row.size) == ("all_reduce", 4000, "float", "0-3", 4)
    assert (row.count, row.complete) == (3, 3)
    assert row.transfer_p50_ns == row.transfer_p90_ns == row.shortest_p50_ns == 100 * US
    assert row.wait_mean_ns == pytest.approx(1780 * US / 12, abs=1e-3)
    assert row.wait_max_ns == 300 * US
    assert (row.last_rank, row.last_fraction) == (3, 2 / 3)
    assert row.exposed_fraction == 1.0
    assert row.algorithm_bandwidth == 4000 / 100e-6
    assert row.bus_bandwidth == 1.5 * 4000 / 100e-6  # 2 (n - 1) / n with n = 4
    assert row.clock == "one host"


def test_waiting_and_blame(report):
    rows = report.data.rank_waits
    assert [r.waiting_ns for r in rows] == [500 * US, 580 * US, 600 * US, 100 * US]
    assert [r.hidden_waiting_ns for r in rows] == [0, 0, 0, 0]
    assert [r.blame_ns for r in rows] == [300 * US, 0, 0, 1480 * US]
    assert [r.blame_fraction for r in rows] == [300 / 1780, 0, 0, 1480 / 1780]
    assert [r.late_fraction for r in rows] == [1 / 3, 0, 0, 2 / 3]
    assert [r.steps_late_fraction for r in rows] == [1 / 3, 0, 0, 2 / 3]
    assert [r.straggler for r in rows] == [False] * 4
    assert [r.cause for r in rows] == ["compute", None, None, "compute"]
    assert report.metrics["collective_wait_fraction"].value == 1780 / 12000


def test_steps_add_up(report):
    rows = {(r.rank, r.step): r for r in report.data.step_waits}
    # Rank 3 in step 1: compute 595 (from 5 to 600) and 10, transfer 100, no waiting, the rest on the host.
    assert (rows[3, 1].compute_ns, rows[3, 1].communication_ns, rows[3, 1].waiting_ns) == (605 * US, 100 * US, 0)
    assert (rows[1, 1].compute_ns, rows[1, 1].communication_ns, rows[1, 1].waiting_ns) == (325 * US, 100 * US, 280 * US)
    for r in rows.values():
        assert r.compute_ns + r.communication_ns + r.waiting_ns + r.input_ns + r.host_ns == 1000 * US


def test_counterfactual(report):
    """Rank 3 like another one in another step: 300 or a little more in steps 0 and 1.

    Step 0: all come at 300, end 400, 400 remain: 800. Step 1: rank 1 comes last at 320, end 420, 300 remain: 720. Step 2 is
    rank 0's: 1000. All alike: 800, 720, and 900, as rank 0 too comes at 300.
    """
    assert report.metrics["replay_error_fraction"].value == pytest.approx(0, abs=1e-9)
    saved = {s.name: s.saved_fraction for s in report.data.suspects}
    assert saved["3"] == pytest.approx(0.16, rel=0.1)
    assert report.metrics["straggler_cost_fraction"].value is None, "no rank is named"
    assert report.metrics["step_time_without_straggler"].value is None
    assert report.metrics["step_time_if_even"].value == pytest.approx((800 + 720 + 900) / 3 * US, abs=1)


def test_three_steps_of_four_ranks_name_nobody(report):
    """One rank of four that comes last in three of three steps does so by chance once in 4 ** 2 = 16 jobs."""
    (finding,) = [f for f in report.findings if f.code in ("HP230", "HP231", "HP236")]
    assert (finding.code, finding.ranks) == ("HP236", [])
    assert "83.1 % of it for rank 3; no rank is named, as so few steps could show it by chance" in finding.evidence
    assert finding.evidence.endswith("record 4 steps")
    assert {row.steps_needed for row in report.data.suspects} == {4}


def test_a_rank_that_is_last_in_each_of_four_steps_is_named(tmp_path: Path):
    """Rank 3 comes 200 µs late in the steps behind the first, once in 64 jobs by chance. Else steps take 800 of 1000."""
    for rank in range(4):
        trace = blocking(rank, [500 if rank == 3 else 300] * 6, [500] * 6)
        trace.write(tmp_path / f"node_{rank}.1.pt.trace.json")
    report = hpuprof.analyze(tmp_path, jobs=1)
    (finding,) = [f for f in report.findings if f.code == "HP230"]
    assert finding.ranks == [3]
    assert "rank 3 holds the others back in 100.0 % of the steps, because it is computing" in finding.evidence
    (named,) = [s for s in report.data.suspects if s.named]
    assert (named.name, named.chance_fraction, named.steps_needed) == ("3", pytest.approx(1 / 64), None)
    cost = report.metrics["straggler_cost_fraction"].value
    assert cost == named.saved_fraction == pytest.approx(0.2)
    assert report.metrics["step_time_without_straggler"].value == pytest.approx(800 * US)


def test_lost_rows_leave_bounds(tmp_path: Path):
    """Without rank 1's row of step 1 its waiting passes for work there; rank 3 works 200 µs of 1000 longer than the rest."""
    for rank in range(4):
        trace = blocking(rank, [500 if rank == 3 else 300] * 6, [500] * 6, lose=(1,) if rank == 1 else ())
        trace.write(tmp_path / f"node_{rank}.1.pt.trace.json")
    (named,) = [s for s in hpuprof.analyze(tmp_path, jobs=1).data.suspects if s.named]
    assert named.name == "3"
    assert named.low_fraction <= 0.2 <= named.high_fraction


def test_a_window_that_begins_a_step_later_leaves_the_cost(tmp_path: Path):
    """Rank 2 recorded one step less: its calls are missing there, and the other steps are whole."""
    for rank in range(4):
        trace = blocking(rank, [500 if rank == 3 else 300] * 7, [500] * 7)
        if rank == 2:
            trace.events = [event for event in trace.events if event["ph"] == "M" or event["ts"] >= 1000]
        trace.write(tmp_path / f"node_{rank}.1.pt.trace.json")
    report = hpuprof.analyze(tmp_path, jobs=1)
    (named,) = [s for s in report.data.suspects if s.named]
    assert (named.name, named.saved_fraction) == ("3", pytest.approx(0.2))
    assert named.high_fraction - named.low_fraction < 0.01


def test_one_clock(tmp_path: Path):
    """Ranks 2 and 3 on a host whose clock is 5 ms ahead.

    Offset o of that host: start_i <= end_j both ways. Step 0: 300 - 5600 <= o <= 600 - 5500. Step 1: 320 - 5700 <= o <=
    700 - 5600. Step 2: 400 - 5500 <= o <= 500 - 5300. Together -5100 to -4900; 2 µs more as stamps are whole µs.
    """
    ahead = {"host": "node1", "shift": 5000}
    report = hpuprof.analyze(four_ranks(tmp_path, r2=ahead, r3=ahead), jobs=1)
    first, second = report.data.clocks
    assert (first.host, first.offset_ns, first.reference) == ("node0", 0, "node0")
    assert (second.host, second.reference, second.ranks, second.clock) == ("node1", "node0", 2, "collective")
    assert second.offset_ns == pytest.approx(-5000 * US, abs=1)
    assert second.low_ns == pytest.approx(-5102 * US, abs=1 * US)
    assert second.high_ns == pytest.approx(-4898 * US, abs=1 * US)
    assert second.residual_ns == pytest.approx(0, abs=1)
    assert report.metrics["infeasible_match_fraction"].value == 0
    assert [r.blame_ns for r in report.data.rank_waits] == [300 * US, 0, 0, 1480 * US]
    assert {r.clock for r in report.data.rank_waits} == {"collective"}


def test_raw_and_manifest_clocks(tmp_path: Path):
    ahead = {"host": "node1", "shift": 5000}
    folder = four_ranks(tmp_path / "t", r2=ahead, r3=ahead)
    raw = hpuprof.analyze(folder, jobs=1, clock="raw")
    # As stamped, rank 2 or 3 comes about 5 ms late every time.
    assert [r.late_fraction for r in raw.data.rank_waits] == [0, 0, 1 / 3, 2 / 3]
    manifest = tmp_path / "clocks.json"
    manifest.write_text('{"node0": 1000000, "node1": {"offset_ns": -4000000, "drift_ppm": 0}}')
    given = hpuprof.analyze(folder, jobs=1, clock=f"manifest:{manifest}")
    assert [r.blame_ns for r in given.data.rank_waits] == [300 * US, 0, 0, 1480 * US]
    assert {c.clock for c in given.data.clocks} == {"manifest"}
    drifting = {"node0": 0, "node1": {"offset_ns": -5e6, "drift_ppm": 1e-6, "reference_ns": 0}}
    manifest.write_text(json.dumps(drifting))
    given = hpuprof.analyze(folder, jobs=1, clock=f"manifest:{manifest}")
    # A millionth of a part per million since the beginning of time: the clock's reading, divided by 10^12.
    clock = next(c for c in given.data.clocks if c.host == "node1")
    assert clock.offset_ns == pytest.approx(-5e6 + 1e-12 * clock.at_ns)
    manifest.write_text('{"node0": 0}')
    unknown = hpuprof.analyze(folder, jobs=1, clock=f"manifest:{manifest}")
    assert [r.blame_ns for r in unknown.data.rank_waits] == [None] * 4
    assert unknown.metrics["collective_wait_fraction"].value is None
    assert "HP140" in {d.code for d in unknown.data.diagnostics}


def test_a_lost_row_costs_its_own_waiting_alone(tmp_path: Path):
    """Without rank 1's row of step 1 its 280 µs are missing; as the transfer took its usual 100 µs, nobody came later."""
    report = hpuprof.analyze(four_ranks(tmp_path, r1={"lose": (1,)}), jobs=1)
    (row,) = report.data.collectives
    assert (row.count, row.complete) == (3, 2)
    assert [r.blame_ns for r in report.data.rank_waits] == [300 * US, 0, 0, (1480 - 280) * US]
    assert "HP143" in {d.code for d in report.data.diagnostics}
    # The replay puts the lost call where it must have been: the same step times as with it.
    assert report.metrics["replay_error_fraction"].value == pytest.approx(0, abs=1e-9)


def test_a_collective_whose_last_member_is_missing_tells_nothing(tmp_path: Path):
    """Without rank 3's row of step 1 the others seem to transfer for 380 µs: somebody later is missing."""
    report = hpuprof.analyze(four_ranks(tmp_path, r3={"lose": (1,)}), jobs=1)
    assert [r.blame_ns for r in report.data.rank_waits] == [300 * US, 0, 0, 600 * US]


def test_merge_takes_the_clock_of_the_analysis(tmp_path: Path):
    ahead = {"host": "node1", "shift": 5000}
    hosts = four_ranks(tmp_path / "hosts", r2=ahead, r3=ahead)
    merged = hpuprof.merge(hosts, tmp_path / "hosts.json")
    assert merged.clock == "collective"
    assert [round(rank.offset_ns) for rank in merged.ranks] == pytest.approx([0, 0, 5000 * US, 5000 * US], abs=1)
    assert hpuprof.merge(four_ranks(tmp_path / "one"), tmp_path / "one.json").clock == "raw"
    assert hpuprof.merge(hosts, tmp_path / "raw.json", clock="raw").clock == "raw"
