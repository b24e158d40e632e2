"""The recorder's engine: follows a plan step by step, times unprofiled blocks, runs the profiler in windows, writes files.

Frameworks drive it with three calls: `step()` at the start of each step, `enter`/`leave` around named actions, and `finish()`
at the end of the loop. It never raises into a training run: the first error disarms it, with one warning.
"""

from __future__ import annotations

import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from hpuprof.naming import trace_name
from hpuprof.recorder.config import RecordConfig, ScheduleCallable, refuse_habana_profile
from hpuprof.recorder.device import Device, find_device, resolve_activities
from hpuprof.recorder.metadata import Who, environment, host, run_mode, unprofiled, versions
from hpuprof.recorder.plan import ASYNC, IDLE, SYNC, Phase, Slot, slots_of_callable, window_slots
from hpuprof.recorder.tensorboard import rewritten
from hpuprof.recorder.torch_options import TorchOptions
from hpuprof.recorder.writer import run_directory, write_trace

_SLOW_SAMPLES = 50
_ENOUGH_SAMPLES = 10
_PROFILED = (Phase.WARMUP, Phase.RECORD)


@dataclass
class Written:
    """A trace file that was written."""

    path: str
    bytes: int
    window: str
    complete: bool


@dataclass
class Engine:
    """Records one loop of one rank. `dirpath`: where run directories go; `label`: the start of their names."""

    config: RecordConfig
    who: Who
    dirpath: str
    label: str = "hpuprof"
    schedule: ScheduleCallable | None = None
    on_trace_ready: Callable[[Any], None] | None = None
    available_steps: float = float("inf")
    hooks: Callable[[], Any] | None = None  # returns a context that stays open while a window records
    baseline: bool = True
    windows: bool = True  # off: only time blocks
    whole: bool = False  # the loop is one stretch, which has no steps
    torch_options: TorchOptions = field(default_factory=TorchOptions)
    on_window: Callable[[Any, str], None] | None = None  # called with torch's profile and the file, "" for none
    written: list[Written] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    disarmed: bool = False

    def __post_init__(self) -> None:
        self._began_ns = time.time_ns()
        self._device: Device | None = None
        self._slots: Iterator[Slot] | None = None
        self._slot = IDLE
        self._number = -1  # of the step in progress
        self._done = False
        self._profile: Any = None
        self._record_function: Any = None  # looked up when a window opens
        self._next_action: Any = None
        self._ending = False
        self._hooked: Any = None
        self._counters: list[tuple[int, dict[str, int]]] = []
        self._block_start = 0
        self._block_steps = 0
        self._recorded: list[int] = []
        self._complete = False
        self._windows = 0
        self._failed: Exception | None = None  # what went wrong inside torch's own calls
        self._paused_at = 0
        self._paused_in: list[int] = []
        self._walls: deque[int] = deque(maxlen=_SLOW_SAMPLES)
        self._last_start = 0
        self._open: dict[tuple[int, str], list[Any]] = {}

    # ------------------------------------------------------------------------------------------------- what a framework calls

    @property
    def recording(self) -> bool:
        """Whether a profiler runs right now (warm-up included)."""
        return self._profile is not None

    @property
    def finished(self) -> bool:
        """Whether nothing more will be recorded."""
        return self._done or self.disarmed

    def step(self, number: int | None = None) -> None:
        """Begin the next step; this ends the one before. `number`: what the framework counts; default: one more than the last."""
        if self.finished and self._profile is None:
            return
        self._safely(self._step, number)

    def enter(self, name: str) -> None:
        """Open a named action; cheap while nothing is recorded."""
        if self._profile is None:
            return
        try:
            if self._slot.window == SYNC:
                self._require_device().drain()
            action = self._record_function(name)
            action.__enter__()
            # Keys hold the thread, so threads never share a stack and need no lock.
            self._open.setdefault((threading.get_ident(), name), []).append(action)
        except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
            self._disarm(error)

    def leave(self, name: str) -> None:
        """Close a named action, innermost first; unknown names are ignored."""
        stack = self._open.get((threading.get_ident(), name))
        if not stack:
            return
        try:
            action = stack.pop()
        except IndexError:
            return  # another thread's step border closed it meanwhile
        try:
            if self._slot.window == SYNC:
                self._require_device().drain()
            action.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
            self._disarm(error)

    def pause(self) -> None:
        """Leave the loop for something else (validation): timed blocks do not count it, a recorded step tells of it."""
        if not self._paused_at and (self._slot.phase == Phase.TIMED or self._profile is not None):
            self._safely(self._pause)

    def resume(self) -> None:
        """Come back to the loop; without a pause nothing happens."""
        if self._paused_at:
            self._safely(self._resume)

    def finish(self) -> None:
        """End the loop: save what is open, tell what never completed."""
        if self._slots is not None and not self._done:
            self._safely(self._finish)
        self._done = True

    # ---------------------------------------------------------------------------------------------------------------- inside

    def _safely(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
            self._disarm(error)

    def _disarm(self, error: Exception) -> None:
        self.disarmed = self._done = True
        self.on_trace_ready = _drop  # what is open is closed, but no longer kept
        for close in (self._close_actions, self._close_window):
            try:
                close()
            except Exception:  # noqa: BLE001, S110  the first error is the one to tell
                pass
        warnings.warn(
            f"hpuprof stops recording, training goes on: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _begin(self) -> Iterator[Slot]:
        refuse_habana_profile()
        self._device = find_device()
        if self.config.ranks is not None and self.who.rank not in self.config.ranks:
            self._done = True
            return iter(())
        if self.schedule is not None and self.windows:
            return slots_of_callable(self.schedule)
        plan = self.config.schedule(device=self._device.kind != "cpu", baseline=self.baseline)
        if not self.windows:
            plan = replace(plan, windows=(), repeat=1)
        fitted = plan.fitted(self.available_steps)
        if fitted != plan:
            warnings.warn(
                f"hpuprof: the {self._loop} has {self.available_steps:.0f} steps, the schedule needs {plan.skip_first + plan.cycle_steps}; "
                f"recording {len(fitted.windows)} window(s) of {fitted.active} step(s), {fitted.baseline_blocks * fitted.baseline_steps} timed step(s)",
                stacklevel=2,
            )
        return fitted.slots()

    def _step(self, number: int | None) -> None:
        if self._slots is None:
            self._slots = self._begin()
        before = self._slot
        self._resume()
        self._number = self._number + 1 if number is None else number
        self._end_block(before)
        slot = next(self._slots, None)
        self._end_window(before, slot)
        limit = self.config.window_limit
        if self._profile is None and limit is not None and self._windows >= limit:
            slot, self._done = IDLE, True
        elif slot is None:
            slot = self._after_the_plan()
        self._slot = slot
        self._begin_window(slot)
        if slot.phase == Phase.TIMED and slot.first:
            self._require_device().drain()
            self._block_start, self._block_steps = time.perf_counter_ns(), 0

    def _after_the_plan(self) -> Slot:
        """Idle, or start an extra window when the last step was slow; done when nothing can trigger one."""
        if self.config.slow_step_factor is None:
            self._done = True
            return IDLE
        now = time.perf_counter_ns()
        last, self._last_start = now - self._last_start if self._last_start else 0, now
        if last and len(self._walls) >= _ENOUGH_SAMPLES and last > self.config.slow_step_factor * median(self._walls):
            self._last_start = 0  # steps of the window are slower, and are not compared
            self._slots = window_slots(ASYNC, self.config.warmup, self.config.active, self._windows)
            return next(self._slots)
        if last:
            self._walls.append(last)
        return IDLE

    def _pause(self) -> None:
        if self._slot.phase == Phase.TIMED:
            self._require_device().drain()
        elif self._slot.phase == Phase.RECORD and self._slot.last:
            self._end_window(self._slot, None)  # the last step is over: nothing else needs to be in its window
            self._slot = IDLE
            return
        elif self._slot.phase == Phase.RECORD:
            self._paused_in.append(self._number)
        self._paused_at = time.perf_counter_ns()

    def _resume(self) -> None:
        if not self._paused_at:
            return
        if self._slot.phase == Phase.TIMED:
            self._require_device().drain()
            self._block_start += time.perf_counter_ns() - self._paused_at
        self._paused_at = 0

    def _end_block(self, before: Slot) -> None:
        if before.phase != Phase.TIMED:
            return
        self._block_steps += 1
        if before.last:
            self._require_device().drain()
            self.blocks.append((time.perf_counter_ns() - self._block_start, self._block_steps))

    def _end_window(self, before: Slot, slot: Slot | None) -> None:
        """End the step before in the profiler that runs, and the window with it when the next step is not part of it."""
        if self._profile is None:
            return
        if self._sync_window:
            self._require_device().drain()
        same = slot is not None and slot.phase in _PROFILED and slot.window == before.window and not before.last
        self._next_action = _action(slot) if same else _action(IDLE)
        self._complete = before.phase == Phase.RECORD and before.last
        if before.phase == Phase.RECORD and not same:
            self._sample_memory()
        self._close_actions()
        self._profile.step_num = self._number - 1  # `step()` adds one and names the next step after it
        self._ending = not same
        self._profile.step()
        if not same:
            self._close_window()

    def _begin_window(self, slot: Slot) -> None:
        if self._profile is None and slot.phase in _PROFILED:
            self._open_window(slot)
        if slot.phase == Phase.RECORD:
            self._recorded.append(self._number)
            self._sample_memory()

    @property
    def _sync_window(self) -> bool:
        return self._slot.window == SYNC

    def _require_device(self) -> Device:
        if self._device is None:
            self._device = find_device()
        return self._device

    def _open_window(self, slot: Slot) -> None:
        import torch.profiler

        device = self._require_device()
        activities, missing = resolve_activities(self.config.activities, device)
        if missing or (device.kind == "cpu" and self.config.activities is None):
            what = f"cannot record {', '.join(missing)} here" if missing else "no accelerator is available"
            _warn_once(
                f"hpuprof: {what}; the trace will hold CPU rows only" if len(activities) <= 1 else f"hpuprof: {what}"
            )
        self._recorded, self._counters, self._paused_in, self._complete = [], [], [], False
        self._next_action, self._ending = _action(slot), False
        if slot.window == SYNC:
            device.drain()  # what was asked for before the window does not belong to it
        profile = torch.profiler.profile(
            activities=activities,
            schedule=self._asked,
            on_trace_ready=lambda profile: self._keep(profile, slot),
            record_shapes=self.config.record_shapes,
            with_stack=self.config.with_stack,
            profile_memory=self.config.profile_memory,
            with_flops=self.config.with_flops,
            with_modules=self.config.with_modules,
            **self.torch_options.arguments(torch.profiler.profile),
        )
        profile.record_steps = not self.whole
        profile.step_num = self._number
        profile.start()
        self._record_function = torch.profiler.record_function
        self._profile = profile
        if self.hooks is not None:
            self._hooked = self.hooks()
            self._hooked.__enter__()

    def _asked(self, _: int) -> Any:
        """Tell torch's profiler what comes. It asks when the last step's row is closed and before it stops: time to wait for the device's last rows."""
        if self._ending:
            self._require_device().drain()
        return self._next_action

    def _close_window(self) -> None:
        profile, self._profile = self._profile, None
        hooked, self._hooked = self._hooked, None
        try:
            if hooked is not None:
                hooked.__exit__(None, None, None)
        finally:
            if profile is not None:
                profile.stop()
        error, self._failed = self._failed, None
        if error is not None:
            raise error

    def _keep(self, profile: Any, slot: Slot) -> None:
        """Save; called from inside the profiler, which must come to its own end before an error can be dealt with."""
        try:
            before = len(self.written)
            self._save(profile, slot)
            if self.on_window is not None:
                self.on_window(profile, self.written[-1].path if len(self.written) > before else "")
        except Exception as error:  # noqa: BLE001  raised again as soon as the profiler is closed
            self._failed = error

    def _close_actions(self) -> None:
        """Close what is still open at a step's border: actions do not reach across steps."""
        opened, self._open = self._open, {}
        for stack in opened.values():
            while stack:
                stack.pop().__exit__(None, None, None)

    def _sample_memory(self) -> None:
        if self.config.memory_counters:
            values = self._require_device().memory()
            if values:
                self._counters.append((time.time_ns(), values))

    def _save(self, profile: Any, slot: Slot) -> None:
        """Write the window that just ended; `on_trace_ready` of the user comes instead of our file."""
        self._windows += 1
        if self.on_trace_ready is not None:
            self.on_trace_ready(profile)
            return
        window = f"{slot.cycle}-{slot.window}"
        run = "-".join(word for word in (self.label, self.who.stage, self.who.action, window) if word)
        name = trace_name(host(), self.who.rank, time.time_ns(), compressed=self.config.compress)
        target = f"{run_directory(self.dirpath.rstrip('/') + '/' + run, self.who.rank, self._began_ns)}/{name}"
        with tempfile.TemporaryDirectory(prefix="hpuprof-") as folder:
            exported = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(exported))
            rewrite = rewritten if self.config.tensorboard else None
            size = write_trace(exported, target, self._metadata(slot, window), self._counters, rewrite=rewrite)
        self.written.append(Written(target, size, window, self._complete))

    def _metadata(self, slot: Slot, window: str) -> dict[str, Any]:
        device = self._require_device()
        return {
            "format": 1,
            **self.who.as_metadata(),
            "window": window,
            "window_kind": slot.window,
            "steps": [] if self.whole else self._recorded,
            "steps_with_validation": self._paused_in,
            "complete": self._complete,
            "unprofiled": unprofiled(self.blocks),
            "mode": run_mode(device.kind, compiled=self.who.compiled),
            "device": device.describe(),
            "options": self.config.as_metadata(),
            "versions": versions(),
            "environment": environment(),
        }

    def _finish(self) -> None:
        if self._profile is None:
            if not self._windows and self.windows:
                self._tell(
                    f"the {self._loop} ended before a window began; nothing was recorded (see wait, baseline_steps, skip_first)"
                )
            return
        if self._slot.phase == Phase.RECORD and self._slot.last:
            self._end_window(self._slot, None)  # the loop's end is the last step's end
            return
        self._require_device().drain()
        if self._slot.phase == Phase.RECORD:
            self._sample_memory()
        self._close_actions()
        self._complete = False
        recorded = len(self._recorded)
        self._close_window()
        what = (
            f"was cut short after {recorded} step(s)"
            if recorded
            else "had recorded no step yet; nothing was kept of it"
        )
        self._tell(f"the {self._loop} ended inside a window, which {what}")

    @property
    def _loop(self) -> str:
        return f"{self.who.action} loop of {self.who.stage}" if self.who.action else "loop"

    def _tell(self, text: str) -> None:
        warnings.warn(f"hpuprof: {text}", stacklevel=2)


def _action(slot: Slot | None) -> Any:
    """Return what torch's profiler is to do in a step; looked up late, as everything of torch is."""
    from torch.profiler import ProfilerAction

    if slot is None or slot.phase not in _PROFILED:
        return ProfilerAction.NONE
    if slot.phase == Phase.WARMUP:
        return ProfilerAction.WARMUP
    return ProfilerAction.RECORD_AND_SAVE if slot.last else ProfilerAction.RECORD


def _drop(_: Any) -> None:
    """Keep nothing."""


_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, stacklevel=3)
