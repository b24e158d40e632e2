"""A fused optimizer, by hand: twelve operators of 20 µs, each of which allocates device memory for 10."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

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


def test_a_fused_optimizer_is_not_advised_again(tmp_path):
    fused = grouped("aten::_fused_adamw_", groups=12)
    assert Bench.of(fused, fused_optimizer.FUSED, tmp_path / "a").changes == []
    foreach = grouped("aten::_foreach_add_", groups=12)
    assert len(Bench.of(foreach, fused_optimizer.FUSED, tmp_path / "b").changes) == 1


@pytest.mark.parametrize(("operator", "groups"), [("aten::_fused_adamw_", 2), ("aten::add_", 12)])
def test_few_groups_and_unfused_optimizers_are_left(tmp_path, operator, groups):
    assert Bench.of(grouped(operator, groups=groups), fused_optimizer.GROUPS, tmp_path).changes == []
