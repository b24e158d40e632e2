"""One training step in every mode. The host's work really runs; in a graph, what was captured is replayed by the device alone.

Replays compute nothing: their outputs keep the values they had. The host work that a graph leaves is real: the data loader,
the upload, copies into static inputs, `loss.item()`, the optimizer or the loss where they stay eager, logging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from benchmarks.graph_mode.virtual.device import VirtualDevice
from benchmarks.graph_mode.virtual.draw import Drawn
from benchmarks.graph_mode.virtual.workloads import Samples, Workload

# Parts of a step. A kernel's duration hangs on its position in its part: parts must begin alike in every mode.
INPUT, FORWARD, LOSS, BACKWARD, CLIP, OPTIMIZER, END = range(7)
MODEL_BACKWARD = 7  # what a capture tells apart inside BACKWARD: all that follows the gradient of the model's output
LEARNING_RATE = 1e-4
LOG_EVERY = 50


class _Graphed(torch.autograd.Function):
    """Forward and backward of the whole model as two graphs, the way `make_graphed_callables` calls them."""

    @staticmethod
    def forward(ctx: Any, step: Step, inputs: int, *tensors: Tensor) -> Tensor:
        ctx.step, ctx.inputs = step, inputs
        for tensor in tensors[:inputs]:
            step.device.input_copy(tensor.numel() * tensor.element_size())
        step.device.replay(step.graphs["forward"])
        return step.static_output.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        step = ctx.step
        step.device.input_copy(gradient.numel() * gradient.element_size())
        step.device.replay(step.graphs["model backward"])
        return (None, None, *[None] * ctx.inputs, *(None if g is None else g.detach() for g in step.static_gradients))


class Step:
    """A training step of a case, in the modes `modes` names. Call `prepare()` once before any mode but eager."""

    def __init__(self, drawn: Drawn, workload: Workload, device: VirtualDevice) -> None:
        self.device, self.model, self.loss = device, workload.model, workload.loss
        self.parameters = list(self.model.parameters())
        self.optimizer = make_optimizer(drawn.optimizer, self.parameters)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10_000) if drawn.scheduler else None
        self.sync, self.every, self.clip, self.input_bytes = drawn.sync, drawn.every, drawn.clip, drawn.input_bytes
        self.backward_thread = drawn.backward_thread
        self.batches = batches(workload, drawn.loader)
        self.number = 0
        self.log: list[float] = []
        self.graphs: dict[str, int] = {}
        self.capturing = False
        self.static_output = self.static_loss = self.static_norm = torch.zeros(())
        self.static_gradients: list[Tensor | None] = []
        self.output_spec = pytree.tree_structure(self.static_output)

    @property
    def modes(self) -> dict[str, Callable[[], None]]:
        """The modes by the names that cases use."""
        found = {
            "eager": self.eager,
            "step": self.whole_step,
            "forward+backward": self.forward_backward,
            "optimizer": self.optimizer_alone,
            "modules": self.modules,
        }
        if self.sync != "none":
            found["step:drop-sync"] = self.whole_step_without_waits
        return found

    # ------------------------------------------------------------------------------------------------------------- parts

    def _batch(self) -> tuple[list[Tensor], Tensor]:
        device = self.device
        device.part(INPUT)
        device.host_begin()
        try:
            batch = next(self.batches)
        finally:
            device.host_end()
        *inputs, target = (self._upload(t) for t in batch)
        return inputs, target

    def _upload(self, tensor: Tensor) -> Tensor:
        blocking = self.sync == "upload"
        self.device.next_upload(self.input_bytes, int(blocking))
        return tensor.to(self.device.target, non_blocking=not blocking, copy=True)

    def _copied_batch(self) -> None:
        """Get a batch and copy it into the static inputs."""
        inputs, _ = self._batch()
        for _ in (*inputs, "target"):
            self.device.input_copy(self.input_bytes)

    def _read(self, value: Tensor) -> float:
        self.device.next_read()
        return value.item()

    def _finish(self, loss: Tensor) -> None:
        """Schedule the learning rate, read the loss when it is due, log."""
        self.device.part(END)
        if self.scheduler is not None:
            self.scheduler.step()
        self.number += 1
        if self.sync == "step" or (self.sync == "every" and self.number % self.every == 0):
            self.log.append(self._read(loss))
        if self.number % LOG_EVERY == 0:
            self.line = f"step {self.number}: loss {self.log[-1] if self.log else 0.0:.4f}"
            del self.log[:-1]

    # ------------------------------------------------------------------------------------------------------------- modes

    def eager(self) -> None:
        """Everything eager."""
        loss = self._passes()
        self._clip_and_optimize()
        self._finish(loss)

    def _passes(self, *, in_place: bool = False) -> Tensor:
        """Run forward and backward; return the loss. `in_place`: gradients keep their addresses."""
        inputs, target = self._batch()
        self.optimizer.zero_grad(set_to_none=not in_place)
        self.device.part(FORWARD)
        output = self.model(*inputs)
        loss = self._loss_of(output, target)
        if self.capturing:
            output.register_hook(lambda _: self.device.segment(MODEL_BACKWARD))
            self.static_output, self.static_loss = output.detach(), loss.detach()
            self.output_spec = pytree.tree_structure(output)
        self._backward(loss)
        return loss

    def _loss_of(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the loss, read where the case reads it there; what follows is backward."""
        self.device.part(LOSS)
        loss = self.loss(output, target)
        if self.sync == "mid-loss":
            self.log.append(self._read(loss))
        self.device.part(BACKWARD)
        return loss

    def whole_step(self) -> None:
        """Forward, backward and optimizer replayed: one graph, or two with the read in the middle between them."""
        self._copied_batch()
        replay, graphs = self.device.replay, self.graphs
        if self.sync == "mid-loss":
            replay(graphs["forward, loss"])
            self.log.append(self._read(self.static_loss))
            replay(graphs["backward, clip, optimizer"])
        elif self.sync == "mid-norm":
            replay(graphs["forward, loss, backward, clip"])
            self.log.append(self._read(self.static_norm))
            replay(graphs["optimizer"])
        else:
            replay(graphs["step"])
        self._finish(self.static_loss)

    def whole_step_without_waits(self) -> None:
        """One graph for the whole step, and nothing waits for the device inside the step."""
        sync, self.sync = self.sync, "none"
        self.whole_step()
        self.sync = sync

    def forward_backward(self) -> None:
        """Forward, loss and backward replayed; clipping and the optimizer eager, on gradients that stay where they are."""
        self._copied_batch()
        replay, graphs = self.device.replay, self.graphs
        if self.sync == "mid-loss":
            replay(graphs["forward, loss"])
            self.log.append(self._read(self.static_loss))
            replay(graphs["backward"])
        else:
            replay(graphs["forward, loss, backward"])
        self._clip_and_optimize()
        self._finish(self.static_loss)

    def optimizer_alone(self) -> None:
        """Forward and backward eager; the optimizer replayed, on gradients that stay where they are."""
        loss = self._passes(in_place=True)
        self._clip_gradients()
        self.device.replay(self.graphs["optimizer"])
        self._finish(loss)

    def modules(self) -> None:
        """The model's forward and backward replayed as by `make_graphed_callables`; the loss and everything after it eager."""
        inputs, target = self._batch()
        self.optimizer.zero_grad(set_to_none=True)
        leaves = pytree.arg_tree_leaves(*inputs)
        output = _Graphed.apply(self, len(leaves), *leaves, *self.parameters)
        output = pytree.tree_unflatten([output], self.output_spec)
        loss = self._loss_of(output, target)
        self._backward(loss)
        self._clip_and_optimize()
        self._finish(loss)

    def _backward(self, loss: Tensor) -> None:
        if self.backward_thread:
            self.device.on_thread(loss.backward)
        else:
            loss.backward()

    def _clip_gradients(self) -> None:
        if not self.clip:
            return
        self.device.part(CLIP)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        if self.capturing:
            self.static_norm = norm
        if self.sync == "mid-norm":
            self.log.append(self._read(norm))

    def _clip_and_optimize(self) -> None:
        self._clip_gradients()
        self.device.part(OPTIMIZER)
        self.optimizer.step()

    # ------------------------------------------------------------------------------------------------------------ capture

    def prepare(self) -> None:
        """Capture one eager step and make the graphs of all modes from its parts."""
        device = self.device
        self.capturing = True
        device.capture(1)
        self.eager()
        device.capture(0)
        self.capturing = False
        device.synchronize()
        graphs = {
            "forward": [FORWARD],
            "model backward": [MODEL_BACKWARD],
            "backward": [BACKWARD, MODEL_BACKWARD],
            "forward, loss": [FORWARD, LOSS],
            "forward, loss, backward": [FORWARD, LOSS, BACKWARD, MODEL_BACKWARD],
            "forward, loss, backward, clip": [FORWARD, LOSS, BACKWARD, MODEL_BACKWARD, CLIP],
            "backward, clip, optimizer": [BACKWARD, MODEL_BACKWARD, CLIP, OPTIMIZER],
            "optimizer": [OPTIMIZER],
            "step": [FORWARD, LOSS, BACKWARD, MODEL_BACKWARD, CLIP, OPTIMIZER],
        }
        self.graphs = {name: device.graph(parts) for name, parts in graphs.items()}
        self.static_gradients = [
            None if p.grad is None else torch.zeros_like(p.grad) for p in self.parameters if p.requires_grad
        ]

    def begin(self, mode: str) -> None:
        """Get ready for steps of a mode: where gradients are static, they must be there."""
        if mode == "forward+backward":
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)


def batches(workload: Workload, loader: str) -> Iterator[list[Tensor]]:
    """Yield batches for ever: from a DataLoader, or as slices of tensors that are there."""
    if loader == "loader":
        while True:
            yield from DataLoader(Samples(workload.sample), batch_size=workload.batch)
    count = 64
    columns = [torch.stack(column) for column in zip(*(workload.sample(i) for i in range(count)), strict=True)]
    at = 0
    while True:
        yield [column[at : at + workload.batch] for column in columns]
        at = (at + workload.batch) % count


def make_optimizer(kind: str, parameters: list[Any]) -> torch.optim.Optimizer:
    """Return the optimizer that a case names."""
    name, how = kind.split()
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9, foreach=how == "foreach")
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, foreach=how == "foreach", fused=how == "fused")
