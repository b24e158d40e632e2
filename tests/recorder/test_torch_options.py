"""Options that torch's profiler gets: ours on a CUDA device, and how they give way to what was asked for."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import needs
import pytest

torch = needs.module("torch", "torch", "recording needs torch")

import hpuprof
from hpuprof.recorder.accelerator import Device
from hpuprof.recorder.torch_options import TorchOptions

Config = torch._C._profiler._ExperimentalConfig


def state(config: Any) -> Any:
    """Return the values of a configuration, which only its pickled state shows."""
    return None if config is None else config.__getstate__()


@pytest.mark.parametrize(
    ("given", "cuda", "expected"),
    [
        (None, True, Config(enable_cuda_sync_events=True)),
        (None, False, None),
        ({"verbose": True}, True, Config(verbose=True, enable_cuda_sync_events=True)),
        ({"enable_cuda_sync_events": False}, True, Config()),
        (Config(verbose=True), True, Config(verbose=True)),
    ],
)
def test_cuda_devices_record_the_events_that_streams_wait_for(given: Any, cuda: bool, expected: Any) -> None:
    found = TorchOptions(given).arguments(torch.profiler.profile, cuda=cuda).get("experimental_config")
    assert state(found) == state(expected)


def test_a_profiler_that_knows_no_such_configuration_is_not_asked() -> None:
    class Profile:
        def __init__(self, activities: Any = None) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TorchOptions().arguments(Profile, cuda=True) == {}


def test_a_torch_without_the_switch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def __init__(self, *, verbose: bool = False) -> None: ...

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", Old)
    assert TorchOptions().arguments(torch.profiler.profile, cuda=True) == {}


@pytest.mark.parametrize(
    ("kind", "version", "expected"), [("cuda", "12.8", True), ("cuda", None, False), ("hpu", None, False)]
)
def test_devices_of_amd_are_not_of_cuda(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    version: str | None,
    expected: bool,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", version)
    assert Device(kind).runs_cuda is expected


@pytest.mark.parametrize("cuda", [True, False])
def test_a_recording_asks_for_them_where_the_device_is_of_cuda(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cuda: bool,
) -> None:
    asked = []

    class Profile(torch.profiler.profile):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, experimental_config: Any = None, **more: Any) -> None:
            asked.append(state(experimental_config))
            super().__init__(*args, experimental_config=experimental_config, **more)

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(Device, "runs_cuda", cuda)
    with hpuprof.record(tmp_path, activities=["cpu"], wait=0, baseline_blocks=0) as recording:
        for _ in range(12):
            recording.step()
    assert recording.written
    expected = state(Config(enable_cuda_sync_events=True)) if cuda else None
    assert asked
    assert all(config == expected for config in asked)
