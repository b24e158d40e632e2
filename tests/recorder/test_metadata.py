"""What a recording tells of itself, and what it never tells."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from hpuprof.recorder.metadata import Who, environment, run_mode, unprofiled, versions


def test_only_what_changes_a_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(environment()):
        monkeypatch.delenv(name)
    told = {
        "PT_HPU_LAZY_MODE": "0",
        "HABANA_PROFILE": "profile_api_light",
        "OMP_NUM_THREADS": "4",
        "NCCL_DEBUG": "INFO",
        "PYTORCH_CUDA_ALLOC_CONF": "a:b",
    }
    kept = {
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "HF_TOKEN": "s3cret",
        "PT_HPU_API_KEY": "s3cret",
        "PT_HPU_AUTH": "s3cret",
        "HABANA_PROFILE_PASSWORD": "s3cret",
        "NCCL_SOCKET_IFNAME": "eth0",
        "HOME": "/root",
        "MY_PT_HPU_THING": "1",
    }
    for name, value in {**told, **kept}.items():
        monkeypatch.setenv(name, value)
    assert environment() == told


def test_long_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT_HPU_LONG", "x" * 1000)
    assert len(environment()["PT_HPU_LONG"]) == 200


@pytest.mark.parametrize(
    ("device", "compiled", "asked", "bridge", "mode"),
    [
        ("cpu", False, None, None, "eager"),
        ("cpu", True, None, None, "compile"),
        ("hpu", True, "0", None, "compile"),
        ("hpu", False, "1", None, "lazy"),
        ("hpu", False, "0", None, "eager"),
        ("hpu", False, None, True, "lazy"),
        ("hpu", False, None, False, "eager"),
        ("hpu", False, None, None, None),
    ],
)
def test_mode(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    compiled: bool,
    asked: str | None,
    bridge: bool | None,
    mode: str | None,
) -> None:
    if asked is not None:
        monkeypatch.setenv("PT_HPU_LAZY_MODE", asked)
    if bridge is not None:
        monkeypatch.setitem(
            sys.modules, "habana_frameworks.torch.utils.internal", SimpleNamespace(is_lazy=lambda: bridge)
        )
    assert run_mode(device, compiled=compiled) == mode


def test_versions_are_those_of_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="9.9"))
    monkeypatch.delitem(sys.modules, "lightning", raising=False)
    found = versions()
    assert found["torch"] == "9.9"
    assert "lightning" not in found
    assert {"hpuprof", "python"} <= set(found)


def test_blocks_are_told_with_their_spread() -> None:
    found = unprofiled([(500, 5), (600, 5), (1000, 5)])
    assert found is not None
    assert (found["step_ns"], found["blocks_ns"], found["steps_per_block"], found["spread_ns"]) == (
        120,
        [100, 120, 200],
        [5, 5, 5],
        100,
    )
    assert unprofiled([]) is None


def test_who() -> None:
    told = Who(9, 16, 1, "fit", "training_step", framework="lightning").as_metadata()
    assert (told["rank"], told["world_size"], told["local_rank"], told["stage"], told["action"]) == (
        9,
        16,
        1,
        "fit",
        "training_step",
    )
