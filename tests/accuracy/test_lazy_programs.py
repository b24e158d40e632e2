"""Fixes in lazy mode on HPU against the same programs with the fix made, without noise; never run on a Gaudi."""

from __future__ import annotations

import pytest

from benchmarks.plan.lazy_mode import LARGE, Program, score

SEEDS = (203, 205, 206, 208, 211, 217)


@pytest.fixture(scope="module")
def said():
    return [one for seed in SEEDS for one in score(Program.draw(seed, clean=True))]


def test_every_fix_is_among_the_programs(said):
    assert {one.fix for one in said} == {"read_backs", "fused_optimizer", "lower_precision", "flushes"}


def test_what_turns_out_in_one_way_alone_is_within_a_quarter(said):
    sure = [one for one in said if one.fix == "read_backs" and one.true > LARGE]
    assert len(sure) >= 3
    assert all(one.said == pytest.approx(one.true, rel=0.25) for one in sure), sure


def test_intervals_hold_and_no_loss_is_advised(said):
    told = [one for one in said if not one.left_out]
    assert len(told) >= 8
    assert sum(one.holds for one in told) >= 0.9 * len(told), [one for one in told if not one.holds]
    assert all(one.said < LARGE for one in said if one.true < -LARGE)
