"""Programs that are changed one line at a time on a GPU: on the CPU, with small models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import needs
import pytest

needs.module("torch", "torch")


from benchmarks.plan_truth import ladders


@pytest.mark.filterwarnings("ignore:.*no accelerator is available")
def test_a_ladder_is_recorded_and_each_change_is_made_alone_and_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    for name, less in {
        "BLOCK_S": 0.0,
        "LEAST_STEPS": 1,
        "SETTLE": 1,
        "SIDE": 72,
        "CROP": 64,
        "STEPS_RECORDED": 26,
    }.items():
        monkeypatch.setattr(ladders, name, less)
    ladder, model, _ = next(each for each in ladders.ladders() if each[0].name == "vit, images")
    bare = [edit for edit in ladder.edits if edit.setup.workers == 0]
    case = ladders.run_ladder(replace(ladder, edits=tuple(bare)), model, 2, "cpu", tmp_path, 2, tiny=True)
    assert list(case.step_time) == ["eager", *(edit.name for edit in bare)]
    assert not case.hidden["failed"]
    assert {len(times.rounds) for times in case.step_time.values()} == {2}
    assert list((tmp_path / case.trace).rglob("*.trace.json.gz")), "the recorder wrote what the plan reads"


def test_the_last_rung_of_a_ladder_is_all_that_changes_no_more_than_arguments() -> None:
    for ladder, _, _ in ladders.ladders():
        *alone, everything = ladder.edits
        assert everything.setup.graphs == ""
        assert not everything.setup.compiled
        for edit in alone:
            for name in ("workers", "pinned", "reads", "optimizer", "tf32", "bf16", "channels_last"):
                changed = getattr(edit.setup, name)
                if changed != getattr(ladder.setup, name):
                    assert getattr(everything.setup, name) == changed, (ladder.name, edit.name)


@pytest.mark.filterwarnings("ignore:.*no accelerator is available")
def test_a_change_that_cannot_be_made_is_kept_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    for name, less in {"BLOCK_S": 0.0, "LEAST_STEPS": 1, "SETTLE": 1}.items():
        monkeypatch.setattr(ladders, name, less)
    ladder, model, _ = next(each for each in ladders.ladders() if each[0].name == "spiking")
    graphs = tuple(edit for edit in ladder.edits if edit.setup.graphs)
    case = ladders.run_ladder(replace(ladder, edits=graphs), model, 2, "cpu", tmp_path, 1, tiny=True)
    assert list(case.step_time) == ["eager"]
    assert set(case.hidden["failed"]) == {edit.name for edit in graphs}
    assert all("CUDA" in reason for reason in case.hidden["failed"].values())
