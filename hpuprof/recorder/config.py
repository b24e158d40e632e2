"""User options of a recording: plain values, checked when given."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any

from hpuprof.errors import ConfigError, did_you_mean
from hpuprof.recorder.windows import ASYNC, SYNC, Schedule

DEFAULT_WINDOW_LIMIT = 20  # applies when nothing else limits the number of files
_ACTIONS = ("NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE")  # of torch.profiler.ProfilerAction
ACTIVITIES = ("cpu", "hpu", "cuda", "xpu", "mtia", "privateuse1")


class HabanaProfileError(ConfigError, AssertionError):
    """Two profilers want the device. Also an AssertionError, as lightning-habana's HPUProfiler raised that."""


@dataclass(frozen=True)
class RecordConfig:
    """Options of a recording; `docs/guide/recording.md` gives the cost of each."""

    activities: tuple[str, ...] | None = None
    record_shapes: bool = False
    with_stack: bool = False
    profile_memory: bool = False
    with_flops: bool = False
    with_modules: bool = False
    wait: int = 1
    warmup: int = 1
    active: int = 6
    repeat: int = 1
    skip_first: int = 0
    baseline_steps: int = 5
    baseline_blocks: int = 3
    asynchronous: bool = True
    synchronous: bool = True
    every_n_steps: int | None = None
    max_windows: int | None = None
    slow_step_factor: float | None = None
    slow_step_floor_ms: float = 20.0
    on_demand: bool = True
    trigger_signal: str | None = None
    hang_seconds: float | None = 300.0
    ranks: tuple[int, ...] | None = None
    compress: bool = True
    memory_counters: bool = True
    tensorboard: bool = True
    flat: bool = False
    step_log: bool = True

    def __post_init__(self) -> None:
        check_flags({f.name: getattr(self, f.name) for f in fields(self) if isinstance(f.default, bool)})
        for name in ("wait", "warmup", "repeat", "skip_first", "baseline_steps", "baseline_blocks"):
            check_number(name, getattr(self, name), 0)
        check_number("active", self.active, 1)
        for name in ("every_n_steps", "max_windows"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1)
        if not (self.asynchronous or self.synchronous):
            raise ConfigError(
                "asynchronous and synchronous are both off", hint="enable one of them, or do not use the recorder"
            )
        factor = self.slow_step_factor
        if factor is not None and not (isinstance(factor, (int, float)) and isfinite(factor) and factor > 1):
            raise ConfigError(f"slow_step_factor is {factor!r}", hint="a number above 1, such as 2.0")
        floor, hang = self.slow_step_floor_ms, self.hang_seconds
        if not (isinstance(floor, (int, float)) and isfinite(floor) and floor >= 0):
            raise ConfigError(f"slow_step_floor_ms is {floor!r}", hint="milliseconds, such as 20")
        if hang is not None and not (isinstance(hang, (int, float)) and isfinite(hang) and hang >= 1):
            raise ConfigError(f"hang_seconds is {hang!r}", hint="a number of seconds, such as 300, or None")
        check_signal(self.trigger_signal)
        if self.ranks is not None:
            for rank in self.ranks:
                check_number("a rank of ranks", rank, 0)
        for activity in self.activities or ():
            if activity not in ACTIVITIES:
                raise ConfigError(
                    f"activities has an unknown activity {activity!r}", hint=f"one of {', '.join(ACTIVITIES)}"
                )

    def schedule(self, *, device: bool, baseline: bool = True) -> Schedule:
        """Return the schedule. Without a device to drain, the synchronous window is dropped when both are on."""
        windows = tuple(
            kind
            for kind, on in ((ASYNC, self.asynchronous), (SYNC, self.synchronous and (device or not self.asynchronous)))
            if on
        )
        blocks = self.baseline_blocks if baseline and self.baseline_steps else 0
        return Schedule(
            skip_first=self.skip_first,
            wait=self.wait,
            baseline_steps=self.baseline_steps if blocks else 0,
            baseline_blocks=blocks,
            warmup=self.warmup,
            active=self.active,
            repeat=self.repeat,
            windows=windows,
            every_n_steps=self.every_n_steps,
        )

    @property
    def first_rank(self) -> int:
        """The recorded rank that speaks and asks for all."""
        return min(self.ranks or (0,))

    @property
    def window_limit(self) -> int | None:
        """Most windows to record: `max_windows`, or our own limit for an endless plan. None: the plan ends itself."""
        if self.max_windows is None and (self.repeat == 0 or self.slow_step_factor is not None):
            return DEFAULT_WINDOW_LIMIT
        return self.max_windows

    def as_metadata(self) -> dict[str, Any]:
        """Return the options as plain JSON values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def check_signal(name: Any) -> None:
    """Raise ConfigError unless it is None or names a signal that a program may catch."""
    if name is None:
        return
    if name not in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCONT"):
        raise ConfigError(f"trigger_signal is {name!r}", hint="SIGUSR1 or SIGUSR2")


def check_flags(given: dict[str, Any]) -> None:
    """Raise ConfigError for a value that is neither True nor False."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}", hint="True or False")


def check_number(name: str, value: Any, least: int) -> None:
    """Raise ConfigError unless the value is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} is {value!r}", hint=f"a whole number of {least} or more")


def activity_names(activities: Sequence[Any] | None) -> tuple[str, ...] | None:
    """Return activities as lower-case names; accepts strings and members of any ProfilerActivity enum."""
    if activities is None:
        return None
    if isinstance(activities, str):
        activities = (activities,)
    if not hasattr(activities, "__iter__"):
        raise ConfigError(f"activities is {activities!r}", hint=f"a list of {', '.join(ACTIVITIES)}")
    return tuple(a.lower() if isinstance(a, str) else str(getattr(a, "name", a)).lower() for a in activities)


def check_place(dirpath: Any, name: Any, *, what: str) -> None:
    """Raise ConfigError for a `dirpath` that is no path or a `name` that escapes it; messages call the name `what`."""
    if dirpath is not None and not isinstance(dirpath, (str, os.PathLike)):
        raise ConfigError(f"dirpath is {dirpath!r}", hint="a directory or URL, such as 'traces'")
    if name is None:
        return
    if not isinstance(name, str):
        raise ConfigError(f"{what} is {name!r}", hint="the start of the names of run directories, such as 'big-batch'")
    if "\0" in name or Path(name).is_absolute() or ".." in name.replace("\\", "/").split("/"):
        raise ConfigError(
            f"{what} is {name!r}, which points outside dirpath", hint="a plain name; dirpath sets the place"
        )


def check_schedule(schedule: Any, error: type[ConfigError] = ConfigError) -> None:
    """Refuse a schedule that does not map a step's number to a ProfilerAction. Raises `error`.

    Calls it with step 0, as PyTorchProfiler does.
    """
    if schedule is None:
        return
    hint = "give torch.profiler.schedule(...), or wait, warmup, active and repeat"
    if not callable(schedule):
        raise error(f"schedule is {schedule!r}, not callable", hint=hint)
    action = schedule(0)
    if getattr(action, "name", None) not in _ACTIONS:
        raise error(f"schedule returns {action!r} for step 0, which is not a ProfilerAction", hint=hint)


def check_on_trace_ready(on_trace_ready: Any) -> None:
    """Raise ConfigError unless it is None or callable."""
    if on_trace_ready is not None and not callable(on_trace_ready):
        raise ConfigError(
            f"on_trace_ready is {on_trace_ready!r}, not callable", hint="a function that takes a torch profiler"
        )


def rank_numbers(ranks: Any) -> tuple[int, ...] | None:
    """Return ranks as a tuple. Raises ConfigError unless given a list."""
    if ranks is None:
        return None
    if isinstance(ranks, (int, str, bytes)) or not hasattr(ranks, "__iter__"):
        raise ConfigError(f"ranks is {ranks!r}", hint="a list of global ranks, such as [0, 7]")
    return tuple(ranks)


def refuse_habana_profile() -> None:
    """Refuse `HABANA_PROFILE=1`, which gives Synapse's profiler to another tool. Raises HabanaProfileError."""
    value = os.environ.get("HABANA_PROFILE")
    if value is not None and value not in ("", "0") and not value.startswith("profile_api"):
        raise HabanaProfileError(
            f"HABANA_PROFILE={value} starts the Intel Gaudi Profiler, which takes over the device's profiler; "
            "the two cannot record at once",
            hint="unset HABANA_PROFILE (or set it to profile_api_light) before torch is imported",
        )


def refuse_unknown(given: dict[str, Any], known: Sequence[str], *, who: str) -> None:
    """Raise ConfigError for unknown keywords, suggesting the nearest known one."""
    if given:
        name = min(given)
        hint = did_you_mean(name, known, f"known: {', '.join(sorted(known))}", most=1, quote="'")
        raise ConfigError(f"{who} has no option {name!r}", hint=hint)


ScheduleCallable = Callable[[int], Any]
