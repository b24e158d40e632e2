"""Scores of plans, worked by hand: steps of 100 ns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.plan.bound import least_errors
from benchmarks.plan.score import LINES, Row, choices, ranking, shares, table


def row(remedy: str, true: float, said: float, *, case: str = "a", before: float = 100.0, noise: float = 0.0) -> Row:
    """A remedy after which the step takes `true`, of which an interval of 4 around the gain was said."""
    gain = before - said
    return Row(case, remedy, remedy, 100.0, true, noise, before, said, gain - 2, gain + 2, {"no gain": 100.0})


def cells(rows: list[Row], name: str) -> list[str]:
    (line,) = (line for line in table(rows, ["no gain"]) if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_errors_are_those_of_what_is_printed():
    rows = [row("x", 80, 84), row("x", 50, 50, case="b")]
    mine = cells(rows, "`x`")
    assert mine[:6] == ["`x`", "2", "2", "2.5 %", "2.5 %", "10.0 %"]
    assert mine[6:9] == ["50.0% (12% – 88%)", "50.0% (12% – 88%)", "100 %"]
    assert cells(rows, "no gain, each alone")[3:6] == ["62.5 %", "62.5 %", "100.0 %"]


def test_what_luck_does_to_the_truth_is_allowed_for():
    assert not row("x", 80, 84, noise=1.0).covered()
    assert row("x", 80, 84, noise=2.0).covered(1.0)


def test_several_together_tell_the_step_time():
    together = Row("a", "x, then y", LINES, 100.0, 60.0, 0.0, 100.0, 61.0, 59.0, 63.0)
    assert together.covered()
    assert cells([row("x", 80, 80), together], "lines together")[6].startswith("100.0%")


def test_a_plan_that_takes_the_second_best_first_regrets_the_difference():
    rows = [row("x", 70, 80), row("y", 80, 75), row("z", 99, 99)]
    tau, regret = ranking(rows)
    assert tau == pytest.approx((2 - 1) / 3)
    assert regret == pytest.approx(0.1)


def test_the_first_line_is_judged_by_its_own_order():
    rows = [row("x", 70, 70), replace(row("y", 80, 80), order=1), replace(row("x", 70, 70, case="b"), order=1)]
    assert choices(rows) == (
        "The fix that is said to save most comes within 1 % of the step of the best one in 100 % of the cases; the plan's "
        "first line, which counts effort too, in 50 % (regret 5.0 %)."
    )


def test_a_wrong_step_time_is_told_apart_from_wrong_shares():
    assert shares([row("x", 80, 160, before=200.0)]) == (
        "The step time now is off by 100.0 % at the median. As shares of it, gains are off by 0.0 % at the median, "
        "step times by 0.0 % on average."
    )


@given(st.lists(st.tuples(st.floats(1.0, 9.0), st.floats(0.1, 1.0)), min_size=1, max_size=9))
def test_no_guess_errs_less_than_the_bound(draws):
    times, weights = np.array(draws).T
    errors, chances = least_errors(times, weights)
    guesses = np.linspace(0.5, 10.0, 200)[:, None]
    every = (np.abs(guesses - times) / times * chances).sum(axis=1)
    assert (errors * chances).sum() <= every.min() + 1e-12
    assert chances.sum() == pytest.approx(1.0)
