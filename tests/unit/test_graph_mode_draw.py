"""Cases of the virtual device are drawn from a seed."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)
sys.path.append(str(ROOT))  # after the installed package, which is what is tested

from benchmarks.graph_mode.virtual.draw import RATIO, SYNCS, draw

CASES = [draw(7, number) for number in range(400)]


def test_a_case_hangs_on_its_seed_and_number_alone() -> None:
    assert draw(7, 3) == CASES[3]
    assert len({(c.constants, c.ratio) for c in [*CASES, draw(8, 3)]}) == 401


def test_constants_stay_in_their_ranges() -> None:
    ranges = {
        "latency": (4000, 10_000),
        "launch": (2000, 6000),
        "gap": (800, 2000),
        "graph_gap": (400, 1600),
        "graph_scale": (0.9, 1.0),
        "replay": (3000, 25_000),
        "replay_node": (1, 200),
        "input_copy": (3000, 10_000),
        "profiled_call": (1000, 4000),
        "queue": (256, 1024),
    }
    for name, (low, high) in ranges.items():
        values = sorted(getattr(c.constants, name) for c in CASES)
        assert low <= values[0] < values[-1] <= high, name
    nodes = sorted(c.constants.replay_node for c in CASES)
    assert nodes[200] < 20, "replaying a kernel is mostly cheap"


def test_cases_reach_from_host_bound_to_device_bound_and_wait_in_every_way() -> None:
    ratios = sorted(c.ratio for c in CASES)
    assert RATIO[0] <= ratios[0] < 0.06
    assert 2.5 < ratios[-1] <= RATIO[1]
    assert 0.2 < ratios[200] < 0.8, "log-uniform: the median is the geometric mean, 0.39"
    found = Counter(c.sync for c in CASES)
    assert set(found) == set(SYNCS)
    assert all(c.clip for c in CASES if c.sync == "mid-norm"), "there is a norm to read"
    assert 0.15 < sum(c.with_stack for c in CASES) / 400 < 0.35
    assert 0.6 < sum(c.backward_thread for c in CASES) / 400 < 0.8


def test_an_hpu_differs_in_its_costs_and_has_one_stream() -> None:
    for number in range(50):
        cuda, hpu = draw(7, number), draw(7, number, "hpu")
        assert (hpu.sync, hpu.optimizer, hpu.ratio) == (cuda.sync, cuda.optimizer, cuda.ratio)
        assert hpu.name == f"virtual-hpu-7-{number:03d}"
        assert hpu.model != "branches"
        assert hpu.constants.launch >= 8000 > cuda.constants.launch
        assert hpu.constants.replay_node == 0
