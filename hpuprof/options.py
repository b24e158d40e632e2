"""Options of an analysis: arguments > HPUPROF_* > [tool.hpuprof] in pyproject.toml > defaults."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from hpuprof.errors import ConfigError
from hpuprof.files import is_regular, read_regular

CLOCKS = ("collective", "raw", "manifest")
RANK_SOURCES = ("auto", "inside", "name", "order")
THRESHOLD = 0.02
"""Smallest relative change that counts, by default: runs of the same code on one machine often differ by 1 % to 2 %."""

_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_DURATION = r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([a-zµμ]*)\s*"


def parse_duration(text: str) -> float:
    """Return a step time in ns from text such as `12.3ms`. Raises ConfigError."""
    match = re.fullmatch(_DURATION, text)
    if match and not match.group(2):
        number = match.group(1)
        raise ConfigError(
            f"step_time is {text!r}, which has no unit", hint=f"{number}ms, or {number}s, {number}us, {number}ns"
        )
    if not match or match.group(2) not in _UNITS or not 0 < float(match.group(1)) * _UNITS[match.group(2)] < 1e18:
        raise ConfigError(
            f"step_time is {text!r}, which is not a duration",
            hint="a positive number and ns, us, ms or s, such as 12.3ms",
        )
    return float(match.group(1)) * _UNITS[match.group(2)]


class ReduceOptions(Struct, frozen=True):
    """What the reduction of a file depends on other than the file. Small, hashable, picklable; part of the cache key.

    `step_time_ns`: the step time without the profiler as the user gave it; `constants`: text of a machine profile;
    `predict`: whether to predict graph mode; `plan`: whether to price remedies and to find what sets the step time,
    too; `apply`: remedies to price, whatever their order, empty: the plan finds them; `joint`: whether the file may
    be of one rank of several, whose steps are played together; `logged`: names of logs of steps, and the step time
    [ns] and its spread that each gives; `timers`: step time and spread [ns] that other tools measured, and their names.
    """

    step_time_ns: float | None = None
    constants: str = ""
    predict: bool = True
    plan: bool = True
    apply: tuple[str, ...] = ()
    joint: bool = True
    logged: tuple[tuple[str, int, int], ...] = ()
    timers: tuple[tuple[int, int, str], ...] = ()


class AnalyzeOptions(Struct, frozen=True):
    """Options of an analysis.

    `rank_from`: how to determine each file's rank: `auto` (inside the file, else the name, else order), or only one of
    the three. `run`: which of the runs in a directory to analyze, 1 for the oldest; 0 for the newest whole one.
    `clock`: how to align host clocks: `collective` (estimated from collectives), `raw` (timestamps as recorded) or
    `manifest:FILE` (a JSON file with each host's offset). `jobs`: worker processes; 0 means one per core. `strict`: any
    reading error fails the run (exit 3). `scheduler`: address of a Dask scheduler that runs the work; empty for
    processes. `cache`: where to cache results: `auto`, `beside`, `off` or a directory. `table_rows`: maximum rows in
    multi-rank tables; 0 for no limit. `step_time`: the step time without the profiler, such as `12.3ms`;
    `step_time_from`: a file of another tool that holds it; `constants`: a machine profile written by `hpuprof
    calibrate`. `apply`: remedies that the plan prices, whatever their order, instead of finding its own; a list, or one
    text with `;` between names. `fail_on`: gates, conditions under which the run fails (see docs/guide/ci.md); a list,
    or one text with `;` between gates.
    """

    rank_from: str = "auto"
    run: int = 0
    jobs: int = 0
    strict: bool = False
    step_time: str = ""
    step_time_from: str = ""
    constants: str = ""
    apply: tuple[str, ...] = ()
    scheduler: str = ""
    cache: str = "auto"
    table_rows: int = 20_000
    fail_on: tuple[str, ...] = ()
    clock: str = "collective"

    def __post_init__(self) -> None:
        if self.clock not in CLOCKS[:2] and not self.clock.startswith("manifest:"):
            raise ConfigError(f"clock is {self.clock!r}", hint="collective, raw or manifest:FILE")
        if self.rank_from not in RANK_SOURCES:
            raise ConfigError(f"rank_from is {self.rank_from!r}", hint=f"one of {', '.join(RANK_SOURCES)}")
        if self.run < 0:
            raise ConfigError(
                f"run is {self.run}", hint="0 (the newest whole run) or the number of a run, 1 the oldest"
            )
        if self.jobs < 0:
            raise ConfigError(f"jobs is {self.jobs}", hint="0 (one per core) or a positive number")
        if self.step_time:
            parse_duration(self.step_time)
        if not self.cache:
            raise ConfigError("cache is empty", hint="auto, beside, off, or a directory")
        if self.table_rows < 0:
            raise ConfigError(f"table_rows is {self.table_rows}", hint="0 (no limit) or a positive number")


def _pyproject(start: Path) -> dict[str, Any]:
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if is_regular(path):
            try:
                return _table(read_regular(path).decode())
            except (OSError, UnicodeDecodeError):
                return {}
    return {}


@lru_cache(maxsize=1)
def _table(text: str) -> dict[str, Any]:
    """Return our table of a `pyproject.toml`; empty if there is none that can be read."""
    if "hpuprof" not in text:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tool = tomllib.loads(text).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    table = tool.get("hpuprof", {}) if isinstance(tool, dict) else {}
    return table if isinstance(table, dict) else {}


def _convert(name: str, value: Any, default: Any, where: str) -> Any:
    try:
        if isinstance(default, bool):
            if isinstance(value, bool):
                return value
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[str(value).lower()]
        if isinstance(default, tuple):
            if isinstance(value, str):
                value = [piece.strip() for piece in value.split(";") if piece.strip()]
            if not isinstance(value, list) or not all(isinstance(piece, str) for piece in value):
                raise ValueError(name)
            return tuple(value)
        return int(value) if isinstance(default, int) else str(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        raise ConfigError(f"{where}: {name} = {value!r} is not valid", hint=f"the default is {default!r}") from None


def resolve_options(
    *, environ: Mapping[str, str] | None = None, folder: Path | None = None, **arguments: Any
) -> AnalyzeOptions:
    """Combine arguments (None: not given), environment, pyproject.toml and defaults. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    table = _pyproject(folder or Path.cwd())
    known = {f.name: f.default for f in fields(AnalyzeOptions)}
    for key in table:
        if key.replace("-", "_") not in known:
            raise ConfigError(f"[tool.hpuprof] {key} is unknown", hint=f"known: {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for name, default in known.items():
        variable = f"HPUPROF_{name.upper()}"
        if arguments.get(name) is not None:
            values[name] = arguments[name]
        elif variable in environ:
            values[name] = _convert(name, environ[variable], default, variable)
        else:
            for key in (name, name.replace("_", "-")):
                if key in table:
                    values[name] = _convert(name, table[key], default, "[tool.hpuprof]")
    return AnalyzeOptions(**values)
