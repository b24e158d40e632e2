"""What a user can set, and what is refused with a remedy."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from typing import Any

import pytest

from hpuprof.errors import ConfigError
from hpuprof.recorder.config import (
    DEFAULT_WINDOW_LIMIT,
    RecordConfig,
    activity_names,
    rank_numbers,
    refuse_habana_profile,
    refuse_unknown,
)


@pytest.mark.parametrize(
    ("options", "what", "remedy"),
    [
        ({"wait": -1}, "wait is -1", "0 or more"),
        ({"active": 0}, "active is 0", "1 or more"),
        ({"warmup": True}, "warmup is True", "whole number"),
        ({"repeat": 1.5}, "repeat is 1.5", "whole number"),
        ({"every_n_steps": 0}, "every_n_steps is 0", "1 or more"),
        ({"max_windows": 0}, "max_windows is 0", "1 or more"),
        ({"asynchronous": False, "synchronous": False}, "both off", "enable one"),
        ({"slow_step_factor": 1.0}, "slow_step_factor is 1.0", "above 1"),
        ({"slow_step_factor": float("inf")}, "slow_step_factor is inf", "above 1"),
        ({"slow_step_factor": "2"}, "slow_step_factor is '2'", "above 1"),
        ({"activities": ("gpu",)}, "unknown activity 'gpu'", "hpu"),
        ({"ranks": (-1,)}, "a rank of ranks is -1", "0 or more"),
        ({"ranks": ("0",)}, "a rank of ranks is '0'", "0 or more"),
    ],
)
def test_wrong_values(options: dict[str, Any], what: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=what) as error:
        RecordConfig(**options)
    assert remedy in error.value.hint


@pytest.mark.parametrize(
    ("given", "hint"),
    [("wiat", "did you mean 'wait'?"), ("record_shape", "did you mean 'record_shapes'?"), ("zzz", "known: ")],
)
def test_unknown_options_are_refused_with_a_suggestion(given: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=given) as error:
        refuse_unknown({given: 1}, ["wait", "record_shapes"], who="record")
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("value", "refused"),
    [("1", True), ("true", True), ("0", False), ("", False), ("profile_api_light", False), ("profile_api", False)],
)
def test_habana_profile(monkeypatch: pytest.MonkeyPatch, value: str, refused: bool) -> None:
    monkeypatch.setenv("HABANA_PROFILE", value)
    if not refused:
        refuse_habana_profile()
        return
    with pytest.raises(ConfigError, match="the two cannot record at once") as error:
        refuse_habana_profile()
    assert "unset HABANA_PROFILE" in str(error.value)
    assert isinstance(error.value, AssertionError), "what lightning-habana's profiler raised"


def test_activities_may_be_names_or_members_of_any_enum() -> None:
    activity = Enum("activity", "CPU HPU")
    assert activity_names(None) is None
    assert activity_names(["CPU", "hpu"]) == ("cpu", "hpu")
    assert activity_names([activity.CPU, activity.HPU]) == ("cpu", "hpu")
    assert activity_names("hpu") == ("hpu",)


def test_ranks_are_a_list() -> None:
    assert rank_numbers(None) is None
    assert rank_numbers([0, 7]) == (0, 7)
    for wrong in (7, "7"):
        with pytest.raises(ConfigError, match="ranks is") as error:
            rank_numbers(wrong)
        assert "[0, 7]" in error.value.hint


def test_disk_use_is_bounded_where_the_plan_is_not() -> None:
    assert RecordConfig().window_limit is None
    assert (
        RecordConfig(repeat=0).window_limit == RecordConfig(slow_step_factor=2.0).window_limit == DEFAULT_WINDOW_LIMIT
    )
    assert RecordConfig(repeat=0, max_windows=3).window_limit == 3


def test_without_a_device_there_is_no_synchronous_window_unless_it_is_the_only_one() -> None:
    assert RecordConfig().schedule(device=False).windows == ("async",)
    assert RecordConfig().schedule(device=True).windows == ("async", "sync")
    assert RecordConfig(asynchronous=False).schedule(device=False).windows == ("sync",)
    assert RecordConfig(baseline_steps=0).schedule(device=True).baseline_blocks == 0


def test_options_become_plain_metadata() -> None:
    assert RecordConfig(ranks=(0, 1)).as_metadata()["ranks"] == [0, 1]


def test_plans_and_writers_do_not_import_torch() -> None:
    modules = ", ".join(
        f"hpuprof.recorder.{name}"
        for name in ("accelerator", "config", "engine", "metadata", "plain", "windows", "writer")
    )
    code = f"import sys, {modules}\nassert not any(sys.modules.get(name) for name in ('torch', 'lightning', 'pandas'))"
    subprocess.run([sys.executable, "-c", code], check=True)
