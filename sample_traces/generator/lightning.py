"""Simulate the training loop of Lightning under its stock profiler settings.

The order and nesting of the annotations were seen in a recording of lightning 2.6 on CPU
(``lightning_1_rank`` beside this folder): the profiler starts while the sanity validation ends,
``profiler.step()`` is called when ``training_step`` ends, so a ``ProfilerStep#`` row spans from the end of
one forward pass to the end of the next, its numbers run 2, 1, 2, 3, …, and the last batch is cut in its
middle.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from .session import Session

STRATEGY = "[pl][profile][Strategy]SingleHPUStrategy"
MODULE = "[pl][profile][LightningModule]Classifier"


@dataclass(frozen=True, slots=True)
class Loop:
    """What a batch does, apart from Lightning's own hooks."""

    fetch: Callable[[], None]
    to_device: Callable[[], None]
    forward: Callable[[int], None]
    backward: Callable[[int], None]
    update: Callable[[int], None]


def fit(session: Session, loop: Loop, batches: int) -> None:
    """Write a profiled window of ``batches`` training batches, the last cut after its forward pass."""
    session.profiler_step(2)
    for hook in ("on_validation_batch_end", "on_validation_epoch_end", "on_validation_end", "on_train_start"):
        _hook(session, hook)
    session.work(180)
    starts: list[int] = []
    for batch in range(batches):
        _fetch(session, loop)
        starts.append(session.main.now_ns)
        _batch(session, loop, batch, last=batch == batches - 1)
        if batch < batches - 1:
            _hook(session, "on_train_batch_end")
            session.work(20)
    session.schedule.steps = list(zip(starts, starts[1:] + [session.main.now_ns], strict=True))


def _fetch(session: Session, loop: Loop) -> None:
    next_batch = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    with (
        session.annotation("[pl][profile][_TrainingEpochLoop].train_dataloader_next"),
        session.annotation(next_batch),
    ):
        loop.fetch()
    _hook(session, "on_before_batch_transfer")
    with (
        session.annotation(f"{STRATEGY}.batch_to_device"),
        session.annotation(f"{MODULE}.transfer_batch_to_device"),
    ):
        loop.to_device()
    for hook in ("on_after_batch_transfer", "on_train_batch_start"):
        _hook(session, hook)


def _batch(session: Session, loop: Loop, batch: int, *, last: bool) -> None:
    """Run one batch: Lightning calls the closure (forward and backward) from inside the optimiser's step."""
    with ExitStack() as stack:
        for name in (
            "[pl][profile]run_training_batch",
            f"{MODULE}.optimizer_step",
            "Optimizer.step#SGD.step",
        ):
            stack.enter_context(session.annotation(name, finished=not last))
            session.work(6)
        with session.annotation(f"{STRATEGY}.training_step"):
            loop.forward(batch)
        session.profiler_step(None if last else batch + 1)
        if last:
            session.work(420)
            return
        _hook(session, "on_before_zero_grad")
        with (
            session.annotation(f"{MODULE}.optimizer_zero_grad"),
            session.annotation("Optimizer.zero_grad#SGD.zero_grad"),
        ):
            session.work(14)
        with session.annotation(f"{STRATEGY}.backward"):
            _hook(session, "on_before_backward")
            loop.backward(batch)
        for hook in ("on_after_backward", "on_before_optimizer_step", "configure_gradient_clipping"):
            _hook(session, hook)
        loop.update(batch)


def _hook(session: Session, name: str) -> None:
    with session.annotation(f"{MODULE}.{name}"):
        session.work(2)
    session.work(7)
