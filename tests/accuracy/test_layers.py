"""Fixes of programs of layers against the same programs with the fix made: sharded parameters, attention in parts."""

from __future__ import annotations

import pytest

from benchmarks.plan.layers import LARGE, score

SEEDS = range(200, 224)


@pytest.fixture(scope="module")
def said():
    return [one for seed in SEEDS for one in score(seed)]


def test_every_fix_has_a_gain_in_them(said):
    for fix in ("gather_prefetch", "gather_once", "shard_by_layer", "attention"):
        assert sum(one.true > LARGE and one.said > LARGE / 2 for one in said if one.fix == fix) >= 4


def test_what_turns_out_in_one_way_alone_is_within_a_quarter(said):
    sure = [one for one in said if one.fix == "gather_prefetch" and one.true > LARGE]
    assert all(one.said == pytest.approx(one.true, rel=0.25) for one in sure), sure


def test_intervals_hold(said):
    assert sum(one.covered for one in said) >= 0.9 * len(said), [one for one in said if not one.covered]
