"""The code around CUDA graphs against a stand-in for torch.cuda's API: order of calls, state at capture.

The stand-in runs on a CPU and replays nothing. It checks what the documentation of each call demands, so that what is left for the first
run on a GPU is the GPU.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import needs
import pytest

needs.module("torch", "torch")

import torch
from torch import nn

from benchmarks.graph_mode.cuda import measure, modes
from benchmarks.graph_mode.cuda.workloads import BY_NAME, WORKLOADS

TRAINS = [w.name for w in WORKLOADS if w.trains]


class Stream:
    def __init__(self) -> None:
        self.waited: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other)


class StandIn:
    """Follows streams, captures and replays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.default = self.current = Stream()
        self.log: list[str] = []
        self.capturing = False
        self.at_capture: list[Any] = []
        self.watch = lambda: None
        cuda = torch.cuda
        stand_in = self

        class Graph:
            def replay(self) -> None:
                assert not stand_in.capturing
                stand_in.log.append("replay")

        @contextmanager
        def stream(side: Stream):
            before, self.current = self.current, side
            assert before in side.waited, "the side stream must wait for the current one first"
            yield
            self.current = before

        @contextmanager
        def graph(_: Graph):
            assert self.current is self.default
            self.at_capture.append(self.watch())
            self.capturing = True
            self.log.append("capture")
            yield
            self.capturing = False

        monkeypatch.setattr(cuda, "Stream", Stream)
        monkeypatch.setattr(cuda, "current_stream", lambda: self.current)
        monkeypatch.setattr(cuda, "stream", stream)
        monkeypatch.setattr(cuda, "synchronize", lambda: self.log.append("synchronize"))
        monkeypatch.setattr(cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(cuda, "graph", graph)
        monkeypatch.setattr(cuda, "make_graphed_callables", self.make_graphed_callables)
        item = torch.Tensor.item

        def read(tensor: torch.Tensor) -> Any:
            assert not self.capturing, "nothing may be read back inside a capture"
            self.log.append("read")
            return item(tensor)

        monkeypatch.setattr(torch.Tensor, "item", read)

    def make_graphed_callables(self, callables: Any, sample_args: Any) -> Any:
        """Check what torch's own function checks or leaves undefined; run the samples once."""
        several = isinstance(callables, tuple)
        made = callables if several else (callables,)
        for module, args in zip(made, sample_args if several else (sample_args,), strict=True):
            assert isinstance(module, nn.Module)
            assert not module._forward_hooks
            assert not module._forward_pre_hooks
            assert not module._backward_hooks
            assert not any(b.requires_grad for b in module.buffers())
            assert all(isinstance(a, torch.Tensor) and a.is_leaf for a in args)
            out = module(*args)
            wanted = [t for t in (*args, *module.parameters()) if t.requires_grad]
            torch.autograd.grad(out, wanted, torch.zeros_like(out))  # raises where an input is not used
            original = module.forward

            def graphed(*live: torch.Tensor, _args=args, _original=original) -> torch.Tensor:
                shapes = [(a.shape, a.dtype, a.requires_grad) for a in _args]
                assert [(a.shape, a.dtype, a.requires_grad) for a in live] == shapes
                self.log.append("graphed")
                return _original(*live)

            module.forward = graphed
        self.log.append(f"made {len(made)}")
        return callables


@pytest.fixture
def stand_in(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield StandIn(monkeypatch)
    torch.set_num_threads(threads)


def job(name: str, **changes: Any) -> modes._Job:
    fields = {"batch": 2, "sync": "each-step", "optimizer": "adamw-fused", "device": "cpu", "tiny": True, **changes}
    return modes._Job(modes.Setting(BY_NAME[name], **fields))


def state_of(made: modes._Job) -> tuple[bool, bool]:
    """Whether any parameter has a gradient, and whether the optimizer has all its state."""
    parameters = list(made.model.parameters())
    assert made.optimizer is not None
    return any(p.grad is not None for p in parameters), len(made.optimizer.state) == len(parameters)


@pytest.mark.parametrize("name", TRAINS)
@pytest.mark.parametrize("optimizer", modes.OPTIMIZERS)
def test_a_whole_step_is_captured_with_state_but_without_gradients_and_read_after_its_replay(stand_in, name, optimizer):
    made = job(name, optimizer=optimizer)
    stand_in.watch = lambda: state_of(made)
    step = made.captured_step()
    assert stand_in.at_capture == [(False, True)]
    stand_in.log.clear()
    step(1)
    assert stand_in.log == ["replay", "read"]
    assert all(torch.equal(s, h) for s, h in zip(made.static, made.host[1], strict=True))


@pytest.mark.parametrize("name", ["mlp-mnist", "lstm"])
def test_with_forward_and_backward_captured_the_optimizer_runs_between_replay_and_read(stand_in, name, monkeypatch):
    made = job(name)
    stand_in.watch = lambda: state_of(made)
    step = made.captured_backward()
    assert stand_in.at_capture == [(False, True)]
    monkeypatch.setattr(made.optimizer, "step", lambda: stand_in.log.append("optimizer"))
    stand_in.log.clear()
    step(0)
    assert stand_in.log == ["replay", "optimizer", "read"]


@pytest.mark.parametrize("name", TRAINS)
def test_a_captured_optimizer_finds_its_gradients_where_they_were(stand_in, name):
    made = job(name)
    stand_in.watch = lambda: state_of(made)
    step = made.captured_optimizer()
    assert stand_in.at_capture == [(True, True)]
    before = [p.grad.data_ptr() for p in made.model.parameters()]
    stand_in.log.clear()
    step(0)
    step(1)
    assert [p.grad.data_ptr() for p in made.model.parameters()] == before
    assert stand_in.log == ["replay", "read"] * 2


@pytest.mark.parametrize("name", TRAINS)
def test_every_model_can_be_made_a_graphed_callable(stand_in, name):
    step = job(name).graphed_model()
    stand_in.log.clear()
    step(0)
    assert stand_in.log == ["graphed", "read"]


def test_a_decoding_step_is_captured_without_an_optimizer(stand_in):
    step = job("llama-decode").captured_step()
    stand_in.log.clear()
    step(0)
    assert stand_in.log == ["replay", "read"]


def test_a_compiled_step_marks_its_beginning(stand_in, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, mode: stand_in.log.append(f"compile {mode}") or model)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: stand_in.log.append("mark"))
    step = job("mlp-mnist").compiled()
    step(0)
    assert stand_in.log == ["compile reduce-overhead", "mark", "read"]


def test_all_modes_are_timed_in_turns_between_two_drains(stand_in, monkeypatch, tmp_path):
    setting = modes.Setting(BY_NAME["mlp-mnist"], 2, "none", "sgd-foreach", "cpu", tiny=True)
    order: list[str] = []

    def runner(_: modes.Setting, mode: str) -> modes.Runner:
        return lambda i: order.append(mode)

    monkeypatch.setattr(measure, "runner", runner)
    monkeypatch.setattr(measure, "modes_of", lambda *_, **__: ["eager", "step"])
    monkeypatch.setattr(measure, "_profile", lambda *_, **__: ("trace", 1))
    case = measure.measure(setting, tmp_path, steps=2, rounds=3)
    settle, timed = measure.SETTLE, ["eager"] * 3 + ["step"] * 3  # one step before each block of two
    assert order == ["eager"] * settle + ["step"] * settle + ["eager"] + timed * 3
    assert [len(v.rounds) for v in case.step_time.values()] == [3, 3]
