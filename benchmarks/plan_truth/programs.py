"""The programs and their edits: what each is made slow by, and what it is changed to."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.graph_mode.virtual.draw import Drawn, draw

MODELS = ("mlp", "cnn", "transformer")
HOST_BOUND, DEVICE_BOUND = 0.3, 1.5
"""Device work of a step over its host time, before anything is added."""
TOGETHER = " + "
SPIN_KERNEL, RANGE, LOADER, KERNELS = "spin_kernel", "injected", "_SingleProcessDataLoaderIter.__next__", "kernels"


@dataclass(frozen=True)
class Setup:
    """A program. Times are shares of the host's time of the step without anything added; None: nothing is added."""

    drawn: Drawn
    workers: int = 0
    batch: float = 0.0  # what the data set takes for a batch
    sleeps: bool = False  # it waits, as for storage, rather than computes
    blocking: bool = False  # uploads wait for their copies
    kernel: float | None = None  # device work, in equal parts behind each layer
    host: float | None = None  # host work in a range called `RANGE`, in equal parts behind each layer
    kernels_scale: float = 1.0
    mode: str = "eager"

    def with_drawn(self, **changes: Any) -> Setup:
        """Return it with other drawn choices."""
        return replace(self, drawn=replace(self.drawn, **changes))


@dataclass(frozen=True)
class Edit:
    """A change that is really made.

    `priced_by`: a remedy of the plan, several with `TOGETHER` between, or a part and the share of its time that is left.
    """

    name: str
    setup: Setup | None  # None: of `ddp.py`
    priced_by: str
    left: float | None = None


@dataclass(frozen=True)
class Program:
    """What is recorded, and its edits."""

    name: str
    setup: Setup | None
    edits: tuple[Edit, ...]

    @property
    def file(self) -> str:
        """Its name as that of its files."""
        return self.name.replace(", ", "-").replace(" ", "-")


def programs(family: str = "cuda") -> list[Program]:
    """Return all of them: what people get wrong, and what is added with a known length."""
    found = []
    # Every model in both ways, so that the first three differ in both.
    for number, (model, ratio) in enumerate(zip(MODELS * 2, (HOST_BOUND, DEVICE_BOUND) * 3, strict=True)):
        drawn = replace(
            draw(0, number, family), model=model, optimizer="adamw loop", sync="step", clip=False, loader="slices",
            ratio=ratio, with_stack=False, scheduler=False, backward_thread=True, active=20,
        )  # fmt: skip
        drawn = replace(drawn, constants=replace(drawn.constants, stall_chance=0.0))
        bound = "device" if ratio > 1 else "host"
        found += [_slow(f"{model}, {bound}", drawn), _injected(f"{model}, {bound}, injected", drawn)]
        if bound == "host":
            found.append(_starved(f"{model}, loader", drawn))
    return found


DDP = Program(
    "ddp over gloo",
    None,
    (Edit("buckets of 50 kB to 25 MB", None, "buckets"), Edit("rank's spin gone", None, "keep_pace")),
)
"""Two real ranks; `ddp.py` runs it."""


def _slow(name: str, drawn: Drawn) -> Program:
    base = Setup(drawn, batch=0.6, sleeps=True, blocking=True)
    return Program(
        name,
        base,
        (
            Edit("num_workers 0 to 2", replace(base, workers=2), "data_loading"),
            Edit("num_workers 0 to 4", replace(base, workers=4), "data_loading"),
            Edit("item() dropped", base.with_drawn(sync="none"), "read_backs"),
            Edit("item() in every 10th step", base.with_drawn(sync="every", every=10), "read_backs"),
            Edit("optimizer foreach", base.with_drawn(optimizer="adamw foreach"), "fused_optimizer"),
            Edit("optimizer fused", base.with_drawn(optimizer="adamw fused"), "fused_optimizer"),
            Edit("uploads do not wait", replace(base, blocking=False), "uploads"),
            Edit("kernels twice as fast", replace(base, kernels_scale=0.5), KERNELS, 0.5),
            *(
                Edit(f"graphs: {mode}", replace(base, mode=mode), f"graphs {mode}")
                for mode in ("step", "forward+backward")
            ),
        ),
    )


def _starved(name: str, drawn: Drawn) -> Program:
    """The loader takes twice as long as all else, so that the number of workers counts."""
    base = Setup(replace(drawn, sync="none", optimizer="adamw foreach"), batch=2.0, sleeps=True)
    edits = (Edit(f"num_workers 0 to {n}", replace(base, workers=n), "data_loading") for n in (2, 4))
    return Program(name, base, tuple(edits))


def _injected(name: str, drawn: Drawn) -> Program:
    spin = 0.8 if drawn.ratio < 1 else 3.0
    base = Setup(replace(drawn, sync="none", optimizer="adamw foreach"), batch=0.4, kernel=spin, host=0.4)
    return Program(
        name,
        base,
        (
            Edit("device spin gone", replace(base, kernel=0.0), SPIN_KERNEL, 0.0),
            Edit("device spin halved", replace(base, kernel=spin / 2), SPIN_KERNEL, 0.5),
            Edit("host spin gone", replace(base, host=0.0), RANGE, 0.0),
            Edit("host spin halved", replace(base, host=0.2), RANGE, 0.5),
            Edit("loader spin gone", replace(base, batch=0.0), LOADER, 0.0),
            Edit("loader spin in 2 workers", replace(base, workers=2), "data_loading"),
        ),
    )


def busy(ns: float) -> None:
    """Keep this thread busy for so long."""
    end = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end:
        pass
