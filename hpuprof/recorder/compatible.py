"""Compatibility with Lightning's PyTorchProfiler and lightning-habana's HPUProfiler.

Covers their base classes, errors, arguments and torch's own events. Needs Lightning.
"""

from __future__ import annotations

import inspect
from copy import copy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpuprof.errors import ConfigError, MissingDependencyError, install_command
from hpuprof.recorder.warn import tell

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
METRICS = tuple(f"self_{name}_time_total" for name in ("cpu", "cuda", "xpu", "hpu", "device"))
SORT_KEYS = {
    f"{word}{name}_{what}"
    for name in ("cpu", "cuda", "xpu", "hpu", "device")
    for word, what in (
        ("", "time"),
        ("", "time_total"),
        ("self_", "time_total"),
        ("", "memory_usage"),
        ("self_", "memory_usage"),
    )
} | {"count"}
_ELSEWHERE = {
    "emit_nvtx": (
        "marks operators for Nsight Systems and leaves no trace to analyze",
        "run Nsight Systems with Lightning's PyTorchProfiler(emit_nvtx=True), and hpuprof without it",
    ),
    "use_cuda": (
        "is torch's old way to select devices",
        "activities=['cpu', 'cuda'], or omit it to record the devices present",
    ),
    "use_cpu": ("is torch's old way to select devices", "activities=['cpu'], or omit it to record the devices present"),
}


def lightning_classes(module: str, name: str) -> tuple[Any, ...]:
    """Return a class from every installed Lightning package, so that the import order never matters.

    Raises MissingDependencyError.
    """
    found, errors = [], []
    for package in PACKAGES:
        if find_spec(package.split(".", maxsplit=1)[0]) is None:
            continue
        try:
            found.append(getattr(import_module(f"{package}.{module}"), name))
        except ImportError as error:  # e.g. an old one that needs pkg_resources of setuptools below 82
            errors.append(f"{package}: {error}")
    if not found:
        what = f" ({'; '.join(errors)})" if errors else ""
        raise MissingDependencyError(
            f"HPUProfiler needs lightning or pytorch_lightning{what}", hint=install_command("record")
        )
    return tuple(found)


class MisconfiguredError(ConfigError, *lightning_classes("utilities.exceptions", "MisconfigurationException")):  # type: ignore[misc]
    """A ConfigError that is also the MisconfigurationException PyTorchProfiler raises here."""


class TableOptionError(ConfigError, KeyError):
    """A ConfigError that is also the KeyError PyTorchProfiler raises here."""


def refuse_elsewhere(given: dict[str, Any]) -> None:
    """Pop arguments of the older profilers that mean nothing here. Raises ConfigError with reason and remedy."""
    if given.get("emit_nvtx") is False:
        del given["emit_nvtx"]  # its default, which requests nothing
    for name, (reason, remedy) in _ELSEWHERE.items():
        if name in given:
            raise ConfigError(f"HPUProfiler does not accept {name}: it {reason}", hint=remedy)


def check_table_kwargs(given: dict[str, Any] | None) -> None:
    """Refuse options that `EventList.table` lacks or HPUProfiler sets itself. Raises TableOptionError."""
    from torch.autograd.profiler_util import EventList

    if not isinstance(given, (dict, type(None))):
        raise ConfigError(f"table_kwargs is {given!r}", hint="a dict of options of torch's EventList.table")
    ours = {"sort_by": "sort_by_key", "row_limit": "row_limit"}
    known = sorted(set(inspect.signature(EventList.table).parameters) - {"self", *ours})
    for name in given or {}:
        if name in ours:
            raise TableOptionError(f"table_kwargs has {name!r}", hint=f"pass it to HPUProfiler as {ours[name]}")
        if name not in known:
            raise TableOptionError(f"table_kwargs has no option {name!r}", hint=f"known: {', '.join(known)}")


class TorchEvents:
    """torch's own events of the last window, or of all windows when they `accumulate`; built on request.

    Until then torch's profiles stay in host memory with everything they recorded.
    """

    def __init__(self, *, accumulate: bool) -> None:
        self.accumulate = accumulate
        self._profiles: list[Any] = []
        self._events: Any = None

    def add(self, profile: Any) -> None:
        """Add the profile of a window that ended."""
        if not self.accumulate:
            self._profiles = []
        self._profiles.append(profile)
        self._events = None

    def clear(self) -> None:
        """Discard all profiles."""
        self._profiles, self._events = [], None

    @property
    def events(self) -> Any:
        """The `EventList`, in the order of the windows; None when nothing was recorded."""
        if self._events is None and self._profiles:
            *earlier, last = [profile.events() for profile in self._profiles]
            self._events = last
            if earlier:
                self._events = copy(last)  # a list of torch's own kind; each window keeps its own
                self._events[:0] = [event for events in earlier for event in events]
        return self._events

    def table(self, *, sort_by: str, row_limit: int, by_shape: bool, options: dict[str, Any]) -> str:
        """Return torch's table of operators; empty when nothing was recorded."""
        if not self.events:
            return ""
        averages = self.events.key_averages(group_by_input_shapes=by_shape)
        return str(averages.table(sort_by=sort_by.replace("hpu", "device"), row_limit=row_limit, **options))


def write_flame_graph(profile: Any, trace: str, metric: str) -> None:
    """Write a window's stacks next to its trace, for flamegraph.pl: frames, outermost first, and the metric [µs]."""
    if not trace or "://" in trace:
        tell("no flame graph was written: it belongs next to the trace file, and none is on a local disk")
        return
    path = Path(trace.removesuffix(".gz").removesuffix(".pt.trace.json") + ".stacks")
    part = path.with_name(f".{path.name}.part")
    profile.export_stacks(str(part), metric.replace("hpu", "cuda").replace("device", "cuda"))
    part.replace(path)
