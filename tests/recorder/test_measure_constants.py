"""The machine profile: measured for real where only a CPU is, and on a pretended accelerator with known costs."""

from __future__ import annotations

import json
from types import SimpleNamespace

import needs
import pytest

from hpuprof.cli.main import main
from hpuprof.errors import InsufficientDataError, UsageError
from hpuprof.recorder import measure_constants as module
from hpuprof.what_if.constants import constants_for, read_profile

torch = needs.module("torch", "torch")


def test_the_profilers_costs_are_measured_on_any_machine(tmp_path, capsys):
    target = tmp_path / "machine.json"
    assert main(["calibrate", "--device", "cpu", "-o", str(target)]) == 0
    profile = read_profile(target.read_text())
    assert set(profile) == {"profiler_op", "profiler_shapes", "profiler_python", "profiler_annotation"}
    assert 50 < profile["profiler_op"].value < 50_000
    assert all(c.low <= c.value <= c.high and "calibrate" in c.source for c in profile.values())
    used = constants_for("cuda", "eager", profile)
    assert used["profiler_op"] == profile["profiler_op"]
    assert used["replay"].source != profile["profiler_op"].source
    assert main(["calibrate", "--device", "cpu", "-o", str(target)]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(UsageError, match="no xpu here"):
        module.calibrate("xpu")
    with pytest.raises(UsageError, match="no device"):
        module.calibrate("abacus")


def _spin(ns: float) -> None:
    Machine.host += round(ns)


class Graph:
    """A graph whose launch costs 50 µs and 1 µs a node on the host, and 3 µs a node on the device."""

    recorded = 0

    def __init__(self) -> None:
        self.nodes = 0

    def replay(self) -> None:
        _spin(50_000 + 1_000 * self.nodes)
        Machine.clock += 3_000 * self.nodes


class Capture:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __enter__(self) -> None:
        Tensor.calls = 0

    def __exit__(self, *_: object) -> None:
        self.graph.nodes = Tensor.calls


class Tensor:
    calls = 0

    def add_(self, _: int) -> None:
        Tensor.calls += 1

    def copy_(self, _: object) -> None:
        _spin(8_000)


class Event:
    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0

    def record(self) -> None:
        self.at = Machine.clock

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) / 1e6


class Machine:
    clock = host = 0


def bench(**changes):
    stub = SimpleNamespace(
        synchronize=lambda: None,
        get_device_name=lambda: "pretended",
        Event=Event,
        XPUGraph=Graph,
        graph=Capture,
        is_available=lambda: True,
    )
    for name in changes.get("without", ()):
        delattr(stub, name)
    fake = SimpleNamespace(
        xpu=stub, ones=lambda *_, device: Tensor(), profiler=torch.profiler, __version__=torch.__version__
    )
    made = module._Bench(fake, "xpu")
    made.activities = [torch.profiler.ProfilerActivity.CPU]  # this torch knows no such device
    return made


def test_replay_gap_and_copy_come_out_as_the_device_was_made(monkeypatch):
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter_ns=lambda: Machine.host))
    found = {c.name: c for c in bench().constants()}
    assert found["replay"].value == pytest.approx(50_000, rel=0.01)
    assert found["replay_per_launch"].value == pytest.approx(1_000, rel=0.01)
    assert found["graph_gap"].value == pytest.approx(3_000, rel=0.01)
    assert found["input_copy"].value == pytest.approx(8_000, rel=0.01)


def test_a_device_without_graphs_says_so():
    with pytest.raises(InsufficientDataError, match="offers no graphs"):
        bench(without=("XPUGraph",)).constants()


def test_json_is_one_document(capsys, monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 2)
    assert main(["calibrate", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["family"] == "cpu"
