"""Training steps of a workload in each mode. A mode gets a fresh model: capture must not see autograd nodes of another stream.

Each CUDA graph call below follows the notes of torch.cuda ("CUDA Graphs"): warm up on a side stream so that lazy initialization and
autograd's accumulation nodes do not touch the default stream; allocate gradients inside the capture (`zero_grad(set_to_none=True)` just
before it); keep inputs in static tensors that are filled in place; never read a value back inside a capture. The default random
generator is registered by the capture itself. Automatic mixed precision is not used, so its weight cache plays no part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .workloads import Workload, loss_of

EAGER, STEP, FORWARD_BACKWARD, OPTIMIZER, COMPILED = (
    "eager", "step", "forward+backward", "optimizer", "compile:reduce-overhead",
)  # fmt: skip
SYNC_EVERY = {"none": 0, "each-step": 1, "every-10": 10}
OPTIMIZERS = ("sgd-foreach", "adamw-fused")
WARM_UP = 3  # steps on the side stream before a capture; torch's own default for graphed callables
HOST_BATCHES = 4


class UnsupportedError(Exception):
    """A mode that a workload or a device cannot run; the message says why."""


@dataclass(frozen=True)
class Setting:
    """What is run: a workload at a batch size with a sync pattern and an optimizer, on a device. `tiny` shrinks it for tests."""

    workload: Workload
    batch: int
    sync: str
    optimizer: str
    device: str = "cuda"
    tiny: bool = False

    @property
    def name(self) -> str:
        """Return the name of the case."""
        return f"{self.device}-{self.workload.name}-b{self.batch}-{self.sync}-{self.optimizer}"


Runner = Callable[[int], None]


def module_mode(setting: Setting) -> str:
    """Return the mode that graphs the whole model as a module, named as the profiler names its rows."""
    with torch.device("meta"):
        return f"module:{type(setting.workload.build(1, True)).__name__}_0"


def modes_of(setting: Setting, *, compiled: bool) -> list[str]:
    """Return every mode that is tried, eager first."""
    names = [EAGER, STEP, FORWARD_BACKWARD, OPTIMIZER, module_mode(setting)]
    return [*names, COMPILED] if compiled and setting.workload.compile else names


def runner(setting: Setting, mode: str) -> Runner:
    """Build a model and return what runs step number i of it in a mode. Raises UnsupportedError where that cannot be done."""
    if mode != EAGER and setting.device == "cpu":
        raise UnsupportedError("needs a CUDA device")
    if not setting.workload.trains and mode not in (EAGER, STEP):
        raise UnsupportedError("a decoding step has no backward pass and no optimizer")
    job = _Job(setting)
    if mode == EAGER:
        return job.eager
    if mode == STEP:
        return job.captured_step()
    if mode == FORWARD_BACKWARD:
        return job.captured_backward()
    if mode == OPTIMIZER:
        return job.captured_optimizer()
    if mode == COMPILED:
        return job.compiled()
    return job.graphed_model()


def warm(step: Callable[[], object]) -> None:
    """Run something a few times on a side stream, as comes before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


class _Job:
    """A model, its optimizer, pinned host batches and static device inputs."""

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(1234)
        work, device = setting.workload, setting.device
        self.setting, self.device, self.every = setting, torch.device(device), SYNC_EVERY[setting.sync]
        with self.device:
            self.model = work.build(setting.batch, setting.tiny)
        if work.half:
            self.model.to(torch.bfloat16)
        self.model.train(work.trains)
        self.host: list[tuple[Tensor, ...]] = []
        for _ in range(HOST_BATCHES):
            inputs, target = work.draw(setting.batch, setting.tiny)
            tensors = inputs if target is None else (*inputs, target)
            self.host.append(tuple(t.pin_memory() if device == "cuda" else t for t in tensors))
        self.static = tuple(t.to(self.device) for t in self.host[0])
        self.optimizer = self._optimizer() if work.trains else None

    def _optimizer(self) -> torch.optim.Optimizer:
        parameters = list(self.model.parameters())
        if self.setting.optimizer == "sgd-foreach":
            return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, foreach=True)
        # `capturable` keeps the step counter on the device; outside CUDA there is nothing to capture.
        return torch.optim.AdamW(parameters, lr=1e-4, fused=True, capturable=self.device.type == "cuda")

    # --------------------------------------------------------------------------------------------------- pieces

    def forward(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """Return the loss, or for decoding the next token."""
        if not self.setting.workload.trains:
            with torch.no_grad():
                return self.model(*tensors)
        return loss_of(self.model(*tensors[:-1]), tensors[-1])

    def train(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """Run one whole step; return the loss."""
        if self.optimizer is None:
            return self.forward(tensors)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(tensors)
        loss.backward()
        self.optimizer.step()
        return loss

    def fill(self, i: int) -> None:
        """Copy a host batch into the static inputs."""
        for static, host in zip(self.static, self.host[i % HOST_BATCHES], strict=True):
            static.copy_(host, non_blocking=True)

    def read(self, i: int, value: Tensor) -> None:
        """Read a value back in the steps that do so."""
        if self.every and i % self.every == self.every - 1:
            value.detach().flatten()[0].item()

    # ---------------------------------------------------------------------------------------------------- modes

    def eager(self, i: int) -> None:
        """Run one step the ordinary way."""
        tensors = tuple(t.to(self.device, non_blocking=True) for t in self.host[i % HOST_BATCHES])
        self.read(i, self.train(tensors))

    def captured_step(self) -> Runner:
        """Capture forward, backward and optimizer as one graph."""
        warm(lambda: self.train(self.static))
        graph = torch.cuda.CUDAGraph()
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)  # gradients then come from the graph's own memory
        with torch.cuda.graph(graph):
            loss = self.forward(self.static)
            if self.optimizer is not None:
                loss.backward()
                self.optimizer.step()

        def step(i: int) -> None:
            self.fill(i)
            graph.replay()
            self.read(i, loss)

        return step

    def captured_backward(self) -> Runner:
        """Capture forward and backward; the optimizer stays eager."""
        optimizer = self._needed()
        warm(lambda: self.train(self.static))
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = self.forward(self.static)
            loss.backward()

        def step(i: int) -> None:
            self.fill(i)
            graph.replay()
            optimizer.step()
            self.read(i, loss)

        return step

    def captured_optimizer(self) -> Runner:
        """Capture the optimizer alone; gradients keep their addresses because they are zeroed in place."""
        optimizer = self._needed()
        warm(lambda: self.train(self.static))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.step()

        def step(i: int) -> None:
            tensors = tuple(t.to(self.device, non_blocking=True) for t in self.host[i % HOST_BATCHES])
            optimizer.zero_grad(set_to_none=False)
            loss = self.forward(tensors)
            loss.backward()
            graph.replay()
            self.read(i, loss)

        return step

    def graphed_model(self) -> Runner:
        """Graph the model with `make_graphed_callables`; loss and optimizer stay eager."""
        self._needed()
        inputs = tuple(t.clone() for t in self.static[:-1])
        self.model = torch.cuda.make_graphed_callables(self.model, inputs)
        return self.eager

    def compiled(self) -> Runner:
        """Compile the model with `mode="reduce-overhead"`."""
        self.model = torch.compile(self.model, mode="reduce-overhead")

        def step(i: int) -> None:
            torch.compiler.cudagraph_mark_step_begin()
            self.eager(i)

        return step

    def _needed(self) -> torch.optim.Optimizer:
        assert self.optimizer is not None
        return self.optimizer
