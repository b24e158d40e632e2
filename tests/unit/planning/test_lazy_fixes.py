"""Fixes of steps in lazy mode: which have a place in recipes, and what they save there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lazy_steps import lazy

import hpuprof
from hpuprof.model.tables import PlanRow
from hpuprof.planning.row_edits import of_launches, of_recipes
from hpuprof.what_if.totals import TotalsModel


def rows(folder: Path, remedy: str, step: str, **how: Any) -> list[PlanRow]:
    """Return the rows of a fix; the steps were recorded at the pace that they have without a profiler."""
    lazy(12, **how).write(folder / "h_0.1.pt.trace.json")
    plan = hpuprof.analyze(folder, step_time=step, cache="off").data.plan
    return [row for row in plan if row.remedy == remedy]


def test_reads_of_values_are_priced(tmp_path):
    (row,) = rows(tmp_path, "read_backs", "139us", wait=True, item=True)
    assert row.alone_ns == pytest.approx(39_000, rel=0.1)
    assert row.where == "reads of a value, 1 a step"


def test_flushes_are_priced_where_the_launch_thread_decides(tmp_path):
    (row,) = rows(tmp_path, "flushes", "180us", launch=80)
    assert row.alone_ns == pytest.approx(80_000, rel=0.1)
    assert row.where == "1 of 2 flushes a step, all but the last"


def test_an_optimizer_of_many_operators_is_priced_by_the_host(tmp_path):
    (row,) = rows(tmp_path, "fused_optimizer", "460us", host=(40, 390), updates=20)
    # Of 390 us 5 to 25 % stay, and of 10 that collect 40 operators as much.
    assert row.alone_low_ns < 340_000 < row.alone_high_ns


def test_products_in_fp32_are_priced_by_the_matrix_engine(tmp_path):
    (row,) = rows(tmp_path, "lower_precision", "214us", work=(150, 60), dtype="fp32")
    assert row.alone_low_ns < 50_000 < row.alone_high_ns
    assert "100% of the device's time" in row.where


@pytest.mark.parametrize("remedy", ["read_backs", "fused_optimizer", "lower_precision"])
def test_what_has_no_place_in_recipes_says_so(tmp_path, remedy):
    (row,) = rows(tmp_path, remedy, "100us")
    assert row.reason == "no_place"


def test_one_flush_a_step_is_not_too_many(tmp_path):
    (row,) = rows(tmp_path, "flushes", "60us", host=(40,), work=(30,), recipes=(1,))
    assert row.reason == "no_place"


def test_without_lazy_mode_no_graph_accumulates(samples):
    plan = hpuprof.analyze(samples / "hpu_g2_eager").data.plan
    (row,) = [row for row in plan if row.remedy == "flushes"]
    assert row.reason == "no_such_switch"


def test_what_accumulates_has_no_device_time_of_its_own(samples):
    table = hpuprof.analyze(samples / "hpu_g1_lazy").operators
    assert table.set_index("name").loc["aten::mm", ["device_total_ns", "launches"]].isna().all()


@pytest.mark.parametrize("of", [of_launches, of_recipes])
def test_an_edit_takes_the_steps_that_it_is_for_alone(of):
    with pytest.raises(TypeError, match="TotalsModel"):
        of(lambda model, _: model)(object.__new__(TotalsModel), 0.0)
