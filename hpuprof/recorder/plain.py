"""`hpuprof.record`: the recorder for plain PyTorch loops, on the same engine as HPUProfiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from shlex import quote
from types import TracebackType
from typing import Any

from hpuprof.errors import ConfigError
from hpuprof.recorder.config import (
    RecordConfig,
    ScheduleCallable,
    activity_names,
    check_on_trace_ready,
    check_place,
    check_schedule,
    rank_numbers,
    refuse_habana_profile,
    refuse_unknown,
)
from hpuprof.recorder.engine import Engine
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.warn import tell, users_line


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
    ) -> None:
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
        self._engine.step()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.finish(failed=kind is not None)
        self._hint()

    def step(self) -> None:
        """End the current step and begin the next."""
        self._engine.step()

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

    def _hint(self) -> None:
        """Print on one rank where the files are, on stderr because stdout belongs to the program."""
        engine, written = self._engine, self._engine.written[self._hinted :]
        if not written or engine.who.rank != min(engine.config.ranks or (0,)):
            return
        self._hinted = len(engine.written)
        folders = sorted({w.path.rpartition("/")[0] for w in written})
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
    **options: Any,
) -> Recording:
    """Record a plain training loop: `with hpuprof.record("traces/") as recording: ... recording.step()`.

    `dirpath`: a directory or fsspec URL, which gets one run directory per window. `schedule`: a callable from step to
    ProfilerAction, as `torch.profiler.schedule` returns, replacing the whole plan; `on_trace_ready`: called with the
    torch profiler instead of writing our file. `options`: those of `RecordConfig`. Raises ConfigError for wrong options
    and for `HABANA_PROFILE=1`; once recording, errors only warn.
    """
    check_place(dirpath, label, what="label")
    known = [f.name for f in fields(RecordConfig)]
    if dirpath is None:
        raise ConfigError("dirpath is None: record needs a directory", hint="hpuprof.record('traces/')")
    arguments = [*known, "label", "schedule", "on_trace_ready"]
    refuse_unknown({k: v for k, v in options.items() if k not in known}, arguments, who="record")
    refuse_habana_profile()
    check_schedule(schedule)
    check_on_trace_ready(on_trace_ready)
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
    )
