"""`hpuprof.record`: the recorder for plain PyTorch loops, on the same engine as HPUProfiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from shlex import quote
from types import TracebackType
from typing import Any, TypeVar

from hpuprof.errors import ConfigError
from hpuprof.recorder import end_of_fit
from hpuprof.recorder.config import (
    RecordConfig,
    ScheduleCallable,
    activity_names,
    check_flags,
    check_number,
    check_on_trace_ready,
    check_place,
    check_schedule,
    rank_numbers,
    refuse_habana_profile,
    refuse_unknown,
)
from hpuprof.recorder.engine import Engine
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.phases import listen, unlisten
from hpuprof.recorder.step_clock import INPUT, Mark, StepClock
from hpuprof.recorder.warn import tell, users_line

T = TypeVar("T")

_NAMED = 3
"""Run directories that the last line names; of more, where they lie."""


@dataclass(frozen=True)
class Loop:
    """A plain loop. `accumulate`: batches in one optimizer update; `steps_only`: keep the log of steps, no traces."""

    accumulate: int | None = None
    steps_only: bool = False
    analyze: bool = True  # print the answer at the end
    loggers: Sequence[Any] = ()  # get the headline metrics then


class Recording:
    """A recording in progress. Call `step()` at the start of every step, or always at its end.

    `written` lists the files; `region(name)` marks part of a step and, in the synchronous window, drains the device at
    both ends.
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str],
        *,
        label: str,
        config: RecordConfig,
        who: Who,
        schedule: ScheduleCallable | None = None,
        on_trace_ready: Callable[[Any], None] | None = None,
        loop: Loop | None = None,
    ) -> None:
        self._loop = loop or Loop()
        self._clock: StepClock | None = None
        self._batches = 0  # since the last step began
        self._engine = Engine(
            config=config,
            who=who,
            dirpath=os.fspath(dirpath),
            label=label,
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            given_at=users_line(),
        )
        self._used = False
        self._hinted = 0

    def __enter__(self) -> Recording:
        if self._used:
            tell("this recording was already used and records nothing more; create a new one with hpuprof.record(...)")
        self._used = True
        self._engine.windows = self._engine.windows and not self._loop.steps_only
        self._engine.baseline = not self._loop.steps_only
        self._engine.step()
        if self._engine.config.step_log:
            self._begin_log()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._clock is not None:
            self._clock.finish(failed=kind is not None)
            unlisten(self._clock)
        self._engine.finish(failed=kind is not None)
        self._hint()
        if self._loop.analyze and kind is None:
            self._answer()

    def step(self) -> None:
        """End the current batch and begin the next; with `accumulate`, a step is an update of so many batches."""
        engine, clock, accumulate = self._engine, self._clock, self._loop.accumulate
        began = clock.step() if clock is not None else True
        self._batches += 1
        if accumulate is not None:
            known = clock is not None and not clock.off
            if not (began if known else self._batches >= accumulate):
                return
        self._batches = 0
        recording = engine.recording
        engine.step()
        if clock is not None and (recording or engine.recording):
            clock.profiled()

    def _begin_log(self) -> None:
        """Begin the log of steps, in the directory that the engine found usable."""
        engine, accumulate = self._engine, self._loop.accumulate
        self._clock = StepClock(engine.dirpath, engine.who, batches=accumulate, trace_batches=accumulate or 1)
        listen(self._clock)
        self._clock.step()
        engine.step_log = self._clock.path.name if self._clock.path is not None else ""

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Mark a part of a step by name."""
        self._engine.enter(name)
        try:
            yield
        finally:
            self._engine.leave(name)

    @property
    def written(self) -> list[str]:
        """Paths of the files written so far."""
        return [w.path for w in self._engine.written]

    @property
    def unprofiled_step_ns(self) -> list[int]:
        """Time per step of each block that ran without the profiler [ns]."""
        return [ns // steps for ns, steps in self._engine.blocks]

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Count a block as waiting for input."""
        clock = self._clock
        if clock is not None:
            clock.enter(INPUT)
        try:
            yield
        finally:
            if clock is not None:
                clock.leave(INPUT)

    def evaluating(self) -> None:
        """Note that validation begins inside the step."""
        self._engine.pause()

    def mark(self) -> Mark | None:
        """Return where the time of this step stands, for `aside`."""
        return self._clock.mark() if self._clock is not None else None

    def aside(self, mark: Mark | None) -> None:
        """Count all time since a mark as other than training."""
        if self._clock is not None and mark is not None:
            self._clock.aside(mark)

    @property
    def clock(self) -> StepClock | None:
        """The clock of the log of steps; None without a log."""
        return self._clock

    @property
    def updated(self) -> bool:
        """Whether an optimizer stepped since the step began."""
        return self._clock is not None and self._clock.updated

    def _answer(self) -> None:
        """Print the answer of all ranks, once, on stderr because stdout belongs to the program."""
        engine = self._engine
        if not (engine.written or engine.step_log):
            return
        try:
            end_of_fit.print_answer(
                end_of_fit.Answers(), engine, loggers=list(self._loop.loggers), step=engine.steps, to=sys.stderr
            )
        except Exception as error:  # noqa: BLE001  the run itself succeeded
            tell(f"hpuprof could not analyze what it recorded: {error}")

    def _hint(self) -> None:
        """Print on one rank where the files are, on stderr because stdout belongs to the program."""
        engine, written = self._engine, self._engine.written[self._hinted :]
        if not written or engine.who.rank != engine.config.first_rank:
            return
        self._hinted = len(engine.written)
        folders = sorted({w.path.rpartition("/")[0] for w in written})
        if len(folders) > _NAMED:
            folders = sorted({folder.rpartition("/")[0] for folder in folders})
        sys.stderr.write(
            f"hpuprof: recorded {len(written)} trace(s); hpuprof analyze {' '.join(map(quote, folders))}\n"
        )


def rank_and_world() -> tuple[int, int, int]:
    """Return global rank, world size and local rank, from torch.distributed if running, else the environment."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0"))
    number = {
        name: int(os.environ[name]) if os.environ.get(name, "").isdigit() else default
        for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    }
    return number["RANK"], number["WORLD_SIZE"], number["LOCAL_RANK"]


def record(
    dirpath: str | os.PathLike[str],
    *,
    label: str = "hpuprof",
    activities: Sequence[Any] | None = None,
    schedule: ScheduleCallable | None = None,
    on_trace_ready: Callable[[Any], None] | None = None,
    accumulate: int | None = None,
    steps_only: bool = False,
    analyze: bool = True,
    loggers: Sequence[Any] = (),
    **options: Any,
) -> Recording:
    """Record a plain training loop: `with hpuprof.record("traces/") as recording: ... recording.step()`.

    `dirpath`: a directory or fsspec URL, which gets one run directory per window. `schedule`: a callable from step to
    ProfilerAction, as `torch.profiler.schedule` returns, replacing the whole plan; `on_trace_ready`: called with the
    torch profiler instead of writing our file. `accumulate`: batches in one optimizer update, which then is the step;
    `steps_only`: keep the log of steps and record no traces; `analyze`: print the answer on
    stderr at the end, on rank 0 for all ranks; `loggers`: objects with TensorBoard's `add_scalar` or Lightning's
    `log_metrics`, which then get the headline metrics. `options`: those of `RecordConfig`. Raises ConfigError for
    wrong options and for `HABANA_PROFILE=1`; once recording, errors only warn.
    """
    check_place(dirpath, label, what="label")
    known = [f.name for f in fields(RecordConfig)]
    if dirpath is None:
        raise ConfigError("dirpath is None: record needs a directory", hint="hpuprof.record('traces/')")
    arguments = [*known, "label", "schedule", "on_trace_ready", "accumulate", "steps_only", "analyze", "loggers"]
    refuse_unknown({k: v for k, v in options.items() if k not in known}, arguments, who="record")
    refuse_habana_profile()
    check_schedule(schedule)
    check_on_trace_ready(on_trace_ready)
    if accumulate is not None:
        check_number("accumulate", accumulate, 1)
    check_flags({"steps_only": steps_only, "analyze": analyze})
    logging = loggers if isinstance(loggers, (list, tuple)) else [loggers]
    for logger in logging:
        if not (hasattr(logger, "add_scalar") or hasattr(logger, "log_metrics")):
            raise ConfigError(
                f"loggers has a {type(logger).__name__}, which logs no numbers",
                hint="a SummaryWriter of TensorBoard, or a logger of Lightning",
            )
    options["ranks"] = rank_numbers(options.get("ranks"))
    config = RecordConfig(activities=activity_names(activities), **options)
    rank, world, local = rank_and_world()
    return Recording(
        dirpath,
        label=label,
        config=config,
        who=Who(rank=rank, world_size=world, local_rank=local, framework="pytorch"),
        schedule=schedule,
        on_trace_ready=on_trace_ready,
        loop=Loop(accumulate, steps_only, analyze, tuple(logging)),
    )


def steps(
    loader: Iterable[T], dirpath: str | os.PathLike[str], *, accumulate: int | None = None, **options: Any
) -> Iterator[T]:
    """Record a loop over batches: `for batch in hpuprof.steps(loader, "traces/", accumulate=4): ...`.

    `accumulate`: batches in one optimizer update, which then is the step. `options`: as for `record`. Each call is a
    recording of its own; chain the loaders of several epochs.
    """
    return _followed(record(dirpath, accumulate=accumulate, **options), loader)


def _followed(recording: Recording, loader: Iterable[T]) -> Iterator[T]:
    with recording:
        batches = iter(loader)
        while True:
            with recording.fetching():
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            try:
                yield batch
            except GeneratorExit:  # the loop was left early
                return
            recording.step()
