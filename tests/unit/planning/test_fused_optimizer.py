"""A fused optimizer, by hand: twelve operators of 20 µs, each of which allocates device memory for 10."""

from __future__ import annotations

from typing import Any

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

import hpuprof
from hpuprof.planning.remedies import fused_optimizer


def loop(*, allocating: bool) -> TraceBuilder:
    out = TraceBuilder()
    for step in range(5):
        begin = 300.0 * step
        out.step(step, begin, 300)
        out.annotation("Optimizer.step#AdamW.step", begin + 10, 240)
        for at in (begin + 10 + 20.0 * i for i in range(12)):
            out.host("aten::add_", at, 20)
            if allocating:
                out.host("cudaMalloc", at + 1, 10, cat="cuda_runtime")
            out.kernel("add", at + 17, 2, launch=at + 12, call_dur=2)
    return out


@pytest.mark.parametrize("allocating", [False, True])
def test_what_its_operators_allocate_goes_with_them(tmp_path, allocating):
    """5 % of the host's 240 µs remain, whether they are work or allocations, and one launch of 2."""
    bench = Bench.of(loop(allocating=allocating), fused_optimizer.FUSED, tmp_path)
    assert bench.now == 300
    assert bench.with_it() == pytest.approx(60 + 0.05 * 240 + 2, abs=2)


def grouped(operator: str, *, groups: int) -> TraceBuilder:
    """Twelve launches of 20 µs of the host's work; `operator` runs once for a group."""
    out = TraceBuilder()
    for step in range(5):
        begin = 300.0 * step
        out.step(step, begin, 300)
        out.annotation("Optimizer.step#AdamW.step", begin + 10, 240)
        for i, at in enumerate(begin + 10 + 20.0 * i for i in range(12)):
            out.host(operator if i < groups else "aten::other", at, 20)
            out.kernel("multi_tensor_apply", at + 17, 2, launch=at + 12, call_dur=2)
    return out


def test_many_groups_are_merged_into_one_or_a_quarter_of_them(tmp_path):
    bench = Bench.of(grouped("aten::_fused_adamw_", groups=12), fused_optimizer.GROUPS, tmp_path)
    assert bench.changes[0].where == "12 groups, 12 launches in the optimizer's step"
    assert bench.with_it() == pytest.approx(60 + 240 / 12, abs=4)
    assert bench.with_it(1.0) == pytest.approx(60 + 240 / 4, abs=4)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SGD", "torch.optim.SGD(model.parameters(), lr=lr, fused=True)"),
        ("RMSprop", "torch.optim.RMSprop(model.parameters(), lr=lr, foreach=True)"),
        ("Lamb", "torch.optim.AdamW(model.parameters(), lr=lr, fused=True)"),  # whatever it takes is not known
    ],
)
def test_the_code_is_of_the_optimizer_that_the_recording_names(name, code, tmp_path):
    trace = loop(allocating=False)
    for event in trace.events:
        event["name"] = event["name"].replace("AdamW", name)
    report = hpuprof.analyze(trace.write(tmp_path / "t.json"), jobs=1, cache="off")
    assert next(row.code for row in report.data.plan if row.remedy == "fused_optimizer") == code


def test_a_list_of_tensors_is_all_that_some_optimizers_take(tmp_path):
    trace = grouped("aten::_foreach_add_", groups=12)
    for event in trace.events:
        event["name"] = event["name"].replace("AdamW", "RMSprop")
    assert Bench.of(trace, fused_optimizer.FUSED, tmp_path).changes == []


def test_a_fused_optimizer_is_not_advised_again(tmp_path):
    fused = grouped("aten::_fused_adamw_", groups=12)
    assert Bench.of(fused, fused_optimizer.FUSED, tmp_path / "a").changes == []
    foreach = grouped("aten::_foreach_add_", groups=12)
    assert len(Bench.of(foreach, fused_optimizer.FUSED, tmp_path / "b").changes) == 1


@pytest.mark.parametrize(("operator", "groups"), [("aten::_fused_adamw_", 2), ("aten::add_", 12)])
def test_few_groups_and_unfused_optimizers_are_left(tmp_path, operator, groups):
    assert Bench.of(grouped(operator, groups=groups), fused_optimizer.GROUPS, tmp_path).changes == []


CPU_ALONE = {"device": {"kind": "cpu"}}


def on_the_host(*, operators: int, operator: str = "aten::mul_", **header: Any) -> TraceBuilder:
    """Steps of 1000 µs without a device, 600 of them in the optimizer."""
    out = TraceBuilder(**header)
    for step in range(6):
        begin = 1000.0 * step
        out.step(step, begin, 1000).host("aten::mm", begin + 10, 300)
        out.annotation("Optimizer.step#AdamW.step", begin + 350, 600)
        for i in range(operators):
            out.host(operator, begin + 352 + 590 / operators * i, 580 / operators)
    return out


def test_without_a_device_the_optimizers_own_time_can_go(tmp_path):
    path = on_the_host(operators=40, hpuprof=CPU_ALONE).write(tmp_path / "t.json")
    data = hpuprof.analyze(path, jobs=1, step_time="1ms").data
    (row,) = [row for row in data.plan if row.remedy == "fused_optimizer"]
    assert (row.order, row.where) == (1, "40 operators in the optimizer's step")
    assert 0 <= row.gain_low_ns < 0.1 * 600e3
    assert 0.4 * 600e3 < row.gain_ns < 0.6 * 600e3
    assert row.gain_high_ns <= 0.95 * 600e3 * 1.3


@pytest.mark.parametrize(("operators", "operator"), [(12, "aten::mul_"), (40, "aten::_fused_adamw_")])
def test_without_a_device_few_operators_and_fused_ones_are_left(tmp_path, operators, operator):
    path = on_the_host(operators=operators, operator=operator, hpuprof=CPU_ALONE).write(tmp_path / "t.json")
    rows = [row for row in hpuprof.analyze(path, jobs=1).data.plan if row.remedy == "fused_optimizer"]
    assert [row.reason for row in rows] == ["no_place"]


def test_a_device_that_was_not_recorded_may_be_what_the_optimizer_waits_for(tmp_path):
    path = on_the_host(operators=40).write(tmp_path / "t.json")
    rows = [row for row in hpuprof.analyze(path, jobs=1).data.plan if row.remedy == "fused_optimizer"]
    assert [row.reason for row in rows] == ["no_device_rows"]
