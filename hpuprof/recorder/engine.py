"""The recorder's engine: follows a plan, times unprofiled blocks, profiles windows and writes the files.

Frameworks drive it with three calls: `step()` at the start of each step, `enter`/`leave` around named actions, and
`finish()` at the end of the loop. It never raises into a training run: the first error disarms it with one warning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from hpuprof.recorder.accelerator import Device, find_device, resolve_activities
from hpuprof.recorder.config import RecordConfig, ScheduleCallable, refuse_habana_profile
from hpuprof.recorder.loader_queue import LoaderQueue
from hpuprof.recorder.metadata import Who, environment, run_mode, unprofiled, versions
from hpuprof.recorder.named_actions import Actions
from hpuprof.recorder.out_of_memory import observe_out_of_memory
from hpuprof.recorder.pacing import Course
from hpuprof.recorder.saving import Saving, Window, Written
from hpuprof.recorder.session import Session, running_elsewhere
from hpuprof.recorder.slow_steps import SlowSteps
from hpuprof.recorder.termination import Termination
from hpuprof.recorder.torch_options import TorchOptions
from hpuprof.recorder.warn import Line, tell, tell_once
from hpuprof.recorder.watch import Pulse, Watch
from hpuprof.recorder.windows import IDLE, PROFILED, SYNC, Outlook, Phase, Slot
from hpuprof.recorder.writer import usable_directory

_WORTH_KEEPING = 2  # whole steps in an interrupted window
_RETRIES = 3  # of windows interrupted with fewer


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
    outlook: Outlook = field(default_factory=Outlook)
    hooks: Callable[[], Any] | None = None  # returns a context that stays open while a window records
    baseline: bool = True  # off for inner loops, which run again: no timed blocks, no forced window
    windows: bool = True  # off: times blocks only
    whole: bool = False  # the loop is one stretch without steps
    torch_options: TorchOptions = field(default_factory=TorchOptions)
    on_window: Callable[[Any, str], None] | None = None  # called with torch's profile and the file, "" for none
    given_at: Line | None = None  # the user's line that names `dirpath`
    step_log: str = ""  # name of the log of steps of this loop
    blocks: list[tuple[int, int]] = field(default_factory=list)
    disarmed: bool = False

    def __post_init__(self) -> None:
        self._saving = Saving(
            label=self.label,
            who=self.who,
            compress=self.config.compress,
            tensorboard=self.config.tensorboard,
            flat=self.config.flat,
            given_at=self.given_at,
        )
        self._device: Device | None = None
        self._course: Course | None = None
        self._slot = IDLE
        self._number = -1  # of the step in progress
        self._done = False
        self._session: Session | None = None
        self.marking = False
        """Whether a window is open, so that `enter` and `leave` do something; an attribute, for speed."""
        self._actions: Actions | None = None  # of the window that is open
        self._window_actions: Actions | None = None  # of the last one
        self._loader_queue: LoaderQueue | None = None  # of the last window
        self._next_action: Any = None
        self._ending = False
        self._hooked: Any = None
        self._counters: list[tuple[int, dict[str, int]]] = []
        self._block_start = 0
        self._block_steps = 0
        self._block_spoiled = False
        self._known: dict[str, Any] = {}  # what metadata says of the machine, gathered when the window opens
        self._recorded: list[int] = []
        self._updates: list[int] = []
        self._complete = False
        self._windows = 0
        self._failed: Exception | None = None  # raised inside torch's own calls
        self._paused_at = 0
        self._paused_in: list[int] = []
        factor, floor_ms = self.config.slow_step_factor, self.config.slow_step_floor_ms
        self._slow = SlowSteps(factor, int(floor_ms * 1e6)) if factor is not None else None
        self._last_start = 0
        self._pulse = Pulse()
        self._watch: Watch | None = None
        self._compares = False  # the watch has the step of the windows
        self._on_request = 0  # windows opened so
        self._reasons: dict[tuple[int, str], dict[str, Any]] = {}  # of windows that are not in the plan
        self._termination = Termination(self._save_and_die)
        self._busy = self._dying = False
        self._interrupted = 0

    # --------------------------------------------------------------------------------------------- calls of a framework

    @property
    def recording(self) -> bool:
        """Whether a profiler is running (warm-up included)."""
        return self._session is not None

    @property
    def written(self) -> list[Written]:
        """The files written so far."""
        self._saving.collect()
        return self._saving.written

    @property
    def steps(self) -> int:
        """How many steps have begun."""
        return self._course.begun if self._course is not None else 0

    @property
    def finished(self) -> bool:
        """Whether recording is over."""
        return self._done or self.disarmed

    def step(self, number: int | None = None) -> None:
        """End the current step and begin the next. `number`: the framework's count; default: one more than the last."""
        if self.finished and self._session is None:
            return
        self._safely(self._step, number)

    def enter(self, name: str) -> None:
        """Open a named action; cheap while nothing is recorded."""
        if self._actions is not None:
            recorded = self._slot.phase == Phase.RECORD
            self._safely(self._at_border, partial(self._actions.enter, name, recorded=recorded))

    def leave(self, name: str) -> None:
        """Close a named action, innermost first; unknown names are ignored."""
        if self._actions is not None and self._actions.is_open(name):
            self._safely(self._at_border, partial(self._actions.leave, name))

    def pause(self) -> None:
        """Leave the loop for something else (validation): timed blocks skip it, a recorded step's metadata notes it."""
        if not self._paused_at and (self._slot.phase == Phase.TIMED or self._session is not None):
            self._safely(self._pause)

    def resume(self) -> None:
        """Return to the loop; does nothing without a pause."""
        if self._paused_at:
            self._safely(self._resume)

    def finish(self, *, failed: bool = False) -> None:
        """End the loop and save what is open; warn of an incomplete window. `failed`: an error ended the last step."""
        if self._course is not None and (not self._done or self._session is not None):
            self._safely(self._finish, failed)
        self._done = True
        self._end_watch()
        self._safely(partial(self._saving.collect, wait=True))

    # ----------------------------------------------------------------------------------------------------------- inside

    def _safely(self, work: Callable[..., None], *arguments: Any) -> None:
        outer, self._busy = self._busy, True
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
            self._disarm(error)
        finally:
            self._busy = outer
            if self._dying and not outer:
                self._termination.die()

    def _save_and_die(self) -> bool:
        """Save the open window when SIGTERM comes; False if that has to wait for the call in progress."""
        if self._busy:
            self._dying = True
        elif self._session is not None:
            self._complete = False
            self._safely(self._end_now)
        return not self._dying

    def _at_border(self, work: Callable[[], None]) -> None:
        """Begin or end an action, in the synchronous window once the device is done."""
        if self._sync_window:
            self._require_device().drain()
        work()

    def _disarm(self, error: Exception) -> None:
        self.disarmed = self._done = True
        self._end_watch()
        self.on_trace_ready = _drop  # close what is open, but keep nothing
        for close in (self._close_actions, self._close_window):
            try:
                close()
            except Exception:  # noqa: BLE001, S110  the first error is the one to report
                pass
        tell(f"hpuprof stopped recording; training continues: {type(error).__name__}: {error}", RuntimeWarning)

    def _begin(self) -> None:
        refuse_habana_profile()
        self._device = find_device()
        if self.config.ranks is not None and self.who.rank not in self.config.ranks:
            self._done = True
            return
        if self.windows and self.on_trace_ready is None:
            self.dirpath = usable_directory(self.dirpath, self.who.rank, self.given_at)
            if not self.who.local_rank:
                self._saving.take_up(self.dirpath)
        self._course = Course(
            self.config.schedule(device=self._device.kind != "cpu", baseline=self.baseline),
            loop=self.loop,
            available_steps=self.available_steps,
            outlook=self.outlook,
            schedule=self.schedule,
            again=not self.baseline,
            windows=self.windows,
        )
        outer = self.baseline and self.windows and not self.whole and self.schedule is None
        if outer and self.config.on_demand and "://" not in self.dirpath:
            self._watch = Watch(self.dirpath, self.who, self._pulse, hang_s=self.config.hang_seconds, at=self.given_at)
            self._watch.start(lone=False)
            if self.config.trigger_signal is not None:
                self._watch.listen(self.config.trigger_signal)
            if self._device.kind == "cuda":
                observe_out_of_memory(self.dirpath, self.who, lambda: self._number)

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()

    def _step(self, number: int | None) -> None:
        if self._course is None:
            self._begin()
        course, before = self._course, self._slot
        if course is None:
            return
        self._resume()
        self._number = self._number + 1 if number is None else number
        self._pulse.beat(self._number)
        if self._pulse.count == 2 and self._watch is not None:  # the loader has started its workers
            self._watch.start()
        self._end_block(before)
        if before.last:
            self._end_window(before, None)
        slot = course.take(inside=self._session is not None)
        self._end_window(before, slot)
        limit = self.config.window_limit
        if self._session is None and limit is not None and self._windows - self._on_request >= limit:
            slot, self._done = IDLE, self._watch is None
        elif slot is None:
            slot = self._after_the_plan(course)
        if self._watch is not None and self._watch.asked and self._session is None and slot.phase == Phase.IDLE:
            slot = self._requested(course, self._watch, slot)
        if self._session is None and not (self._windows or self._done):
            slot = course.last_chance(slot)
        self._slot = slot
        self._begin_window(slot)
        if slot.phase == Phase.TIMED and slot.first:
            self._require_device().drain()
            self._block_start, self._block_steps, self._block_spoiled = time.perf_counter_ns(), 0, False

    def _after_the_plan(self, course: Course) -> Slot:
        """Idle, or start an extra window after a slow step; done when nothing can ask for one."""
        if self._watch is not None and not self._compares:
            self._compares = True
            if self.blocks and self.who.rank == self.config.first_rank:
                self._watch.compare(median(ns / steps for ns, steps in self.blocks) / 1e9)
        if self._slow is None:
            self._done = self._watch is None
            return IDLE
        now = time.perf_counter_ns()
        last, self._last_start = now - self._last_start if self._last_start else 0, now
        slow = self._slow.add(self._number - 1, last) if last else None
        if slow is None:
            return IDLE
        self._last_start = 0  # steps of the window are slower; leave them out of the comparison
        self._reasons[self._windows, ""] = slow.as_metadata()
        return course.extra_window(self._windows)

    def _requested(self, course: Course, watch: Watch, slot: Slot) -> Slot:
        """Begin the window of a request whose step has come."""
        asked = watch.asked[0]
        if self._number < asked.step:
            return slot
        del watch.asked[0]
        self._on_request, self._last_start = self._on_request + 1, 0
        name = f"step{asked.step}"
        self._reasons[0, name] = {
            "why": asked.request.why,
            "request": asked.request.number,
            "agreed_step": asked.step,
            "late_steps": self._number - asked.step,
        }
        return course.extra_window(0, steps=asked.request.steps, name=name)

    def _pause(self) -> None:
        if self._slot.phase == Phase.TIMED:
            self._require_device().drain()
        elif self._slot.phase == Phase.RECORD and self._slot.last:
            self._end_window(self._slot, None)  # the last step is over: its window needs nothing more
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
        self._block_spoiled = self._block_spoiled or running_elsewhere()
        if before.last:
            self._require_device().drain()
            if self._block_spoiled:
                tell_once("another torch profiler ran during a timed block; hpuprof discards that block")
                return
            self.blocks.append((time.perf_counter_ns() - self._block_start, self._block_steps))

    def _end_window(self, before: Slot, slot: Slot | None) -> None:
        """End the previous step in the running profiler, and the window too unless the next step belongs to it."""
        session = self._session
        if session is None:
            return
        if self._sync_window:
            self._require_device().drain()
        same = slot is not None and slot.phase in PROFILED and slot.window == before.window and not before.last
        self._next_action = _action(slot) if same else _action(IDLE)
        self._complete = before.phase == Phase.RECORD and before.last
        if before.phase == Phase.RECORD and not same:
            self._sample_memory()
        self._close_actions()
        session.profile.step_num = self._number - 1  # `step()` adds one and names the next step after it
        self._ending = not same
        session.step()
        if not same:
            self._close_window()

    def _begin_window(self, slot: Slot) -> None:
        if self._session is None and slot.phase in PROFILED:
            self._open_window(slot)
        if slot.phase == Phase.RECORD:
            if self._loader_queue is not None and not self._recorded:
                self._loader_queue.begin()
            self._recorded.append(self._number)
            if self.outlook.accumulate is not None and self.outlook.ahead(0).ends_update:
                self._updates.append(self._number)
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
            tell_once(f"{what}; the trace will contain CPU rows only" if len(activities) <= 1 else what)
        self._recorded, self._updates, self._counters, self._paused_in, self._complete = [], [], [], [], False
        self._next_action, self._ending = _action(slot), False
        if slot.window == SYNC:
            device.drain()  # work issued before the window does not belong to it
        profile = torch.profiler.profile(
            activities=activities,
            schedule=self._asked,
            on_trace_ready=lambda profile: self._keep(profile, slot),
            record_shapes=self.config.record_shapes,
            with_stack=self.config.with_stack,
            profile_memory=self.config.profile_memory,
            with_flops=self.config.with_flops,
            with_modules=self.config.with_modules,
            **self.torch_options.arguments(torch.profiler.profile, cuda=device.runs_cuda),
        )
        profile.record_steps = not self.whole
        profile.step_num = self._number
        self._known = {
            "mode": run_mode(device.kind, compiled=self.who.compiled),
            "device": device.describe(),
            "options": self.config.as_metadata(),
            "versions": versions(),
            "environment": environment(),
        }
        session = Session(profile, self._make_way)
        session.start()
        self._session = session
        self._termination.begin()
        self._actions = self._window_actions = Actions()
        self._loader_queue = LoaderQueue()
        self.marking = True
        if self.hooks is not None:
            self._hooked = self.hooks()
            self._hooked.__enter__()

    def _asked(self, _: int) -> Any:
        """Return torch's profiler its next action.

        torch asks after closing the last step's row and before stopping: the moment to wait for the device's last rows.
        """
        if self._ending:
            self._require_device().drain()
        return self._next_action

    def _close_window(self) -> None:
        session, self._session = self._session, None
        self._actions = None
        if self._loader_queue is not None:
            self._loader_queue.close()
        self.marking = False
        self._termination.end()
        hooked, self._hooked = self._hooked, None
        try:
            if hooked is not None:
                hooked.__exit__(None, None, None)
        finally:
            if session is not None:
                session.stop()
        error, self._failed = self._failed, None
        if error is not None:
            raise error

    def _keep(self, profile: Any, slot: Slot) -> None:
        """Save; called from inside the profiler, which must finish before an error can be handled."""
        try:
            path = self._save(profile, slot)
            if self.on_window is not None:
                self.on_window(profile, path)
        except Exception as error:  # noqa: BLE001  raised again as soon as the profiler is closed
            self._failed = error

    def _make_way(self, why: str) -> None:
        """End our profiler because another one starts in the same thread: both at once would crash the process."""
        self._safely(self._yield, why)

    def _yield(self, why: str) -> None:
        slot, whole, course = self._slot, max(0, len(self._recorded) - 1), self._course
        self._complete, self._interrupted = False, self._interrupted + 1
        again = self.schedule is None and whole < _WORTH_KEEPING and self._interrupted <= _RETRIES
        keep = self.on_trace_ready
        if again:
            self.on_trace_ready = _drop
        self._end_now()
        self.on_trace_ready, self._slot = keep, IDLE
        if again:
            self._windows -= bool(self._recorded)
        if course is not None:
            course.give_up(slot, again=again)
        what = (
            "will be recorded again if steps remain" if again else f"was cut short after {len(self._recorded)} step(s)"
        )
        tell(f"{why} during a window of hpuprof, which {what}")

    def _end_now(self) -> None:
        """Close the window in the middle of a step."""
        self._require_device().drain()
        if self._slot.phase == Phase.RECORD:
            self._sample_memory()
        self._close_actions()
        self._close_window()

    def _close_actions(self) -> None:
        if self._actions is not None:
            self._actions.close()

    def _sample_memory(self) -> None:
        if self.config.memory_counters:
            values = self._require_device().memory()
            if values:
                self._counters.append((time.time_ns(), values))

    def _save(self, profile: Any, slot: Slot) -> str:
        """Save the window that just ended; return its file, empty for none. The user's `on_trace_ready` replaces it."""
        self._windows += 1
        if self.on_trace_ready is not None:
            self.on_trace_ready(profile)
            return ""
        name = f"{slot.name or slot.cycle}-{slot.window}"
        spans = self._window_actions.spans if self._window_actions is not None else []
        window = Window(name, self._complete, self._metadata(slot, name), self._counters, spans)
        return self._saving.save(self.dirpath, window, profile.export_chrome_trace)

    def _metadata(self, slot: Slot, window: str) -> dict[str, Any]:
        return {
            "format": 1,
            **self.who.as_metadata(),
            "window": window,
            "window_kind": slot.window,
            "steps": [] if self.whole else self._recorded,
            "steps_with_validation": self._paused_in,
            "steps_with_update": None if self.outlook.accumulate is None else self._updates,
            "accumulate_grad_batches": self.outlook.accumulate,
            "actions_of_other_threads": self._window_actions.counts() if self._window_actions is not None else None,
            "loader_queue": self._loader_queue.as_metadata() if self._loader_queue is not None else None,
            "complete": self._complete,
            "opened": self._reasons.get(
                (slot.cycle, slot.name), {"why": "plan" if self.schedule is None else "schedule"}
            ),
            "step_log": self.step_log or None,
            "unprofiled": unprofiled(self.blocks),
            **self._known,
        }

    def _finish(self, failed: bool) -> None:  # noqa: FBT001
        if self._session is None:
            if not self._windows and self.windows:
                self._tell_of_nothing()
            return
        if self._slot.phase == Phase.RECORD and self._slot.last and not failed:
            self._end_window(self._slot, None)  # the loop's end is the last step's end
            return
        self._complete = False
        self._end_now()
        n = len(self._recorded)
        what = f"was cut short after {n} step(s)" if n else "had not recorded a step yet and was discarded"
        tell(f"the {self.loop} ended during a window, which {what}")

    def _tell_of_nothing(self) -> None:
        if self.who.framework == "pytorch" and self.steps <= 1:
            tell("step() was never called, so nothing was recorded; call recording.step() once per loop step")
            return
        taken = self._course.kept_waiting if self._course is not None else ""
        why = f"{taken} held the profiler" if taken else "see wait, baseline_steps, skip_first"
        tell(f"the {self.loop} ended before a window began; nothing was recorded ({why})")

    @property
    def loop(self) -> str:
        """Name of the loop in messages."""
        inner = f"{self.who.tuner} in {self.who.stage}" if self.who.tuner else self.who.stage
        return f"{self.who.action} loop of {inner}" if self.who.action else "loop"


def _action(slot: Slot | None) -> Any:
    """Return torch's action for a step; imported late, like everything of torch."""
    from torch.profiler import ProfilerAction

    if slot is None or slot.phase not in PROFILED:
        return ProfilerAction.NONE
    if slot.phase == Phase.WARMUP:
        return ProfilerAction.WARMUP
    return ProfilerAction.RECORD_AND_SAVE if slot.last else ProfilerAction.RECORD


def _drop(_: Any) -> None:
    """Keep nothing."""
