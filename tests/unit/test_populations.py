"""Two populations of steps: medians of typical ones, means, shares, gates and comparisons of all that recur."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.gate import evaluate_comparison, parse_gates


def paused(path: Path, slow: Sequence[int], stall: float, loader: bool = True) -> Path:
    """Write 30 steps of 10 ms with a launch in each; some begin with a stall [ms], in a loader's row or untraced."""
    rng, builder, start = np.random.default_rng(len(slow)), TraceBuilder(), 0.0
    for i in range(30):
        wait = stall * 1000 if i in slow else 0.0
        wall = 10_000 * (1 + 0.01 * rng.standard_normal()) + wait
        builder.step(i, start, wall - 1)
        if wait and loader:
            builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 1, wait - 2)
        builder.host("aten::mm", start + wait + 5, 6000)
        builder.kernel("gemm", start + wait + 20, 5000, launch=start + wait + 7)
        start += wall
    return builder.write(path)


@pytest.mark.parametrize("loader", [True, False])
def test_a_stall_in_every_sixth_step_makes_the_run_slower(tmp_path, loader):
    a = hpuprof.analyze(paused(tmp_path / "a.json", (), 0.0), jobs=1)
    b = hpuprof.analyze(paused(tmp_path / "b.json", (6, 12, 18, 24), 20.0, loader), jobs=1)
    c = hpuprof.compare(a, b)
    assert c.verdict == "worse"
    assert c.change("step_time_mean").relative == pytest.approx(0.286, abs=0.01)
    assert c.change("step_time_p50").verdict == "no difference"
    assert c.change("slow_step_share").b == pytest.approx(120 / 360, abs=0.02)
    gates = evaluate_comparison(parse_gates(["step_time_mean:5%", "step_time_p90:5%"], changes=True), c, b)
    assert [g.outcome for g in gates] == ["failed", "failed"]
    cause = "data loading" if loader else "nothing traced on the host"
    [group] = [x for x in c.changes if x.group == "step_group"]
    assert (group.match, group.a, group.b) == (
        {"standing": "recurs", "reason": "slow", "cause": cause},
        0.0,
        pytest.approx(120e6 / 28, rel=0.01),
    )
    finding = next(f for f in b.findings if f.code == "HP221")
    assert "4 of 28 steps, every 6 steps" in finding.evidence
    assert cause in finding.evidence
    line = next(row for row in b.data.plan if row.remedy == "pauses")
    assert line.gain_ns == pytest.approx(80e6 / 28, rel=0.02)
    planned = [row for row in b.data.plan if row.order is not None]
    assert [row.before_ns for row in planned[1:]] == pytest.approx([row.after_ns for row in planned[:-1]])


def test_what_was_left_out_on_one_side_forbids_to_say_no_difference(tmp_path):
    a = hpuprof.analyze(paused(tmp_path / "a.json", (), 0.0), jobs=1)
    b = hpuprof.analyze(paused(tmp_path / "b.json", (13,), 60.0), jobs=1)
    c = hpuprof.compare(a, b)
    assert c.verdict == "unknown"
    assert "seen once 22" in c.sentence
    assert c.change("left_out_fraction").b == pytest.approx(70 / 360, abs=0.01)
    assert hpuprof.compare(a, a).verdict == "no difference"
