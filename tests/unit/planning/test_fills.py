"""Fills of new memory, by hand: a step of twelve operators, each of which makes its result's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import fills


def loop(*, made_by: str = "aten::empty", inside: bool = True) -> TraceBuilder:
    """Twelve operators of 20 µs with a fill of 8 in each, whose kernel takes 2."""
    out = TraceBuilder()
    for step in range(5):
        begin = 300.0 * step
        out.step(step, begin, 300)
        for at in (begin + 10 + 20.0 * i for i in range(12)):
            out.host("aten::add", at, 20)
            out.host(made_by, at + 1, 10 if inside else 1)
            out.host("aten::fill_", at + 2, 8)
            out.kernel("fill", at + 9, 2, launch=at + 6, call_dur=2)
            out.kernel("add", at + 17, 2, launch=at + 13, call_dur=2)
    return out


@pytest.mark.parametrize("made_by", ["aten::empty", "aten::empty_strided", "aten::new_empty", "aten::resize_"])
def test_the_fill_goes_and_the_operator_stays(tmp_path: Path, made_by: str) -> None:
    bench = Bench.of(loop(made_by=made_by), fills.REMEDY, tmp_path)
    assert bench.now == 300
    assert bench.changes[0].per_step == 12
    assert bench.with_it() == pytest.approx(300 - 12 * 8, abs=1)


@pytest.mark.parametrize(("made_by", "inside"), [("aten::empty", False), ("aten::sum", True)])
def test_fills_that_the_program_asks_for_stay(tmp_path: Path, made_by: str, *, inside: bool) -> None:
    """`zeros` is a fill after an `empty`; some operators fill results of their own."""
    assert Bench.of(loop(made_by=made_by, inside=inside), fills.REMEDY, tmp_path).changes == []
