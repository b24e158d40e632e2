"""A run that settles at another step time than its windows' gets one more window."""

from __future__ import annotations

import time
from itertools import chain, repeat
from pathlib import Path

import needs
import pytest
from recorder.fits import files, read

import hpuprof
from hpuprof.recorder import watch
from hpuprof.recorder.settling import LOOKS, Settling

needs.module("torch", "torch", "recording needs torch")
pytestmark = pytest.mark.filterwarnings("ignore:hpuprof:UserWarning")


def looks_until_settled(windows_s: float, *steps_s: float) -> int | None:
    settling = Settling(windows_s)
    return next((n for n, step_s in enumerate(steps_s, 1) if settling.add(step_s)), None)


@pytest.mark.parametrize(
    ("windows_s", "then"),
    [
        (0.100, [0.090]),  # a tenth is the spread of any run
        (0.001, [0.0014]),  # less than half a millisecond
        (0.100, [0.100, 0.100, 0.300]),  # a validation or a checkpoint in some of the looks
    ],
)
def test_a_run_that_stays_asks_for_nothing(windows_s: float, then: list[float]):
    assert looks_until_settled(windows_s, *then * 40) is None


@pytest.mark.parametrize("settled_s", [0.070, 0.130])
def test_a_run_that_becomes_another_asks_once_it_is_steady(settled_s: float):
    first = looks_until_settled(0.100, *chain(repeat(0.100, 30), repeat(settled_s, 60)))
    assert first is not None
    assert 30 + LOOKS // 2 < first <= 30 + LOOKS


def test_a_run_that_still_changes_is_not_settled():
    falling = [0.100 * 0.97**n for n in range(LOOKS + 5)]
    assert looks_until_settled(0.100, *falling) is None
    assert looks_until_settled(0.100, *falling, *[falling[-1]] * LOOKS) is not None


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "POLL_S", 0.02)
    monkeypatch.setattr(watch, "_AHEAD_S", 0.1)


@pytest.mark.usefixtures("looking_often")
def test_the_window_lies_where_the_run_has_settled(tmp_path: Path):
    with hpuprof.record(tmp_path, analyze=False, hang_seconds=None) as recording:
        deadline = time.monotonic() + 60
        for step in range(20_000):
            time.sleep(0.02 if step < 40 else 0.004)
            recording.step()
            if len(recording.written) == 2 or time.monotonic() > deadline:
                break
    planned, settled = sorted((read(path)["hpuprof"] for path in files(tmp_path)), key=lambda ours: ours["steps"])
    assert (planned["opened"]["why"], planned["steps"][0]) == ("plan", 17)
    assert settled["opened"]["why"] == "settled"
    assert settled["steps"][0] > 40
    data = hpuprof.analyze(tmp_path, cache="off").data
    assert sorted(str(row.opened) for row in data.files) == ["plan", "settled"]
    assert data.headline.lead.window == f"step{settled['opened']['agreed_step']}-async"
    assert data.answer.base.recorded_ns < 15e6, "the planned window, with steps of 20 ms, is none of it"


@pytest.mark.usefixtures("looking_often")
@pytest.mark.parametrize("option", [{"on_demand": False}, {"max_windows": 1}, {"baseline_blocks": 0}])
def test_no_window_is_added_where_it_is_not_wanted(tmp_path: Path, option: dict[str, object]):
    with hpuprof.record(tmp_path, analyze=False, hang_seconds=None, **option) as recording:
        for step in range(400):
            time.sleep(0.02 if step < 40 else 0.002)
            recording.step()
    assert len(files(tmp_path)) == 1
