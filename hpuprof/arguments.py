"""Checks the arguments of Python calls at the door: what each parameter takes is said here once, by its name.

Types that live higher up (reports, runs) come with the call that takes them. Values that need a lookup, such as names
of remedies, are checked where the names are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import wraps
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from hpuprof.errors import ArgumentError
from hpuprof.messages import without_secrets
from hpuprof.options import CLOCKS, RANK_SOURCES

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN, _LISTED = 80, 4


class Kind(NamedTuple):
    """What a parameter takes: `meant` in words; `convert` returns it as used, or raises TypeError or ValueError.

    `several`: a list of them, and no single one unless `single`.
    """

    meant: str
    convert: Callable[[Any], Any]
    several: bool = False
    single: bool = True

    def take(self, name: str, value: Any) -> Any:
        """Return a value as used. Raises ArgumentError, which names the parameter."""
        listed = isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike))
        if self.several and listed and not hasattr(value, "keys"):
            return [self._one(f"{name}[{i}]", each) for i, each in enumerate(value)]
        if not self.single:
            raise self._refused(name, value)
        return self._one(name, value)

    def _one(self, name: str, value: Any) -> Any:
        try:
            return self.convert(value)
        except (TypeError, ValueError):
            raise self._refused(name, value) from None

    def _refused(self, name: str, value: Any) -> ArgumentError:
        return ArgumentError(f"{name} is {_spoken(value)}", hint=self.meant)


def _spoken(value: Any) -> str:
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        text = without_secrets(repr(value))  # before it is cut
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if isinstance(value, (list, tuple)) and len(value) <= _LISTED:
        return f"[{', '.join(map(_spoken, value))}]"
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def made_of(*types: type) -> Callable[[Any], Any]:
    """Return what takes instances of these types as they are."""

    def convert(value: Any) -> Any:
        if not isinstance(value, types):
            raise TypeError
        return value

    return convert


def place(value: Any) -> Any:
    """Return a path or URL as text or Path. Raises TypeError."""
    return value if isinstance(value, Path) else _text(os.fspath(value))


def place_or(*types: type) -> Callable[[Any], Any]:
    """Return what takes a path or URL, or an instance of these types."""
    return lambda value: value if isinstance(value, types) else place(value)


_text = made_of(str)
_flag = made_of(bool)


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return index(value)


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return value


def _function(value: Any) -> Any:
    if not callable(value):
        raise TypeError
    return value


def _duration(value: Any) -> str:
    return f"{value / timedelta(microseconds=1)}us" if isinstance(value, timedelta) else cast("str", _text(value))


def _executor(value: Any) -> Any:
    """Take a Dask client as well: `submit` of a client returns futures of another kind, its executor's does not."""
    if isinstance(value, type) or not callable(getattr(value, "submit", None)):
        raise TypeError
    return value.get_executor(pure=False) if hasattr(value, "get_executor") else value


def _steps(value: Any) -> Any:
    if isinstance(value, str):
        return value
    first, last = map(_whole, value)
    if not 0 <= first < last:
        raise ValueError
    return first, last


def _flags(*names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, Kind("True or False", _flag))


def _words(**meant: str) -> dict[str, Kind]:
    return {name: Kind(words, _text) for name, words in meant.items()}


KINDS = {
    **_flags("compress", "critical", "force", "redact", "strict"),
    **_words(
        clock=f"{', '.join(CLOCKS)}:FILE",
        group="a group of changes, such as 'metric' or 'kernel'",
        measure="a column, such as 'wall_ns'",
        name="a name, such as 'step_time_p50'",
        rank_from=f"one of {', '.join(RANK_SOURCES)}",
        scheduler="the address of a Dask scheduler, such as 'tcp://host:8786'",
        table="the name of a table, such as 'kernels'",
        target="the name of a viewer, such as 'tensorboard'",
    ),
    "apply": Kind("a list of names, such as ['graphs', 'data_loading']", _text, several=True, single=False),
    "cache": Kind("auto, beside, off, or a directory", lambda value: str(place(value))),
    "constants": Kind("the path of a machine profile", place),
    "directory": Kind("the path of a directory", place),
    "executor": Kind("an executor of concurrent.futures, or a Dask client", _executor),
    "jobs": Kind("a number of worker processes, 0 for one per core", _whole),
    "path": Kind("the path of a file", place),
    "progress": Kind("a function that takes the name of a finished file", _function),
    "ranks": Kind("a list of ranks, such as [0, 7]", _whole, several=True, single=False),
    "run": Kind("the number of a run, 1 for the oldest, 0 for the newest whole one", _whole),
    "step_time": Kind("text with a unit, such as '2.9ms', or a datetime.timedelta", _duration),
    "step_time_from": Kind("the path of a report or log of a tool that times steps", place),
    "steps": Kind("text such as '10:13', or the first step and the first that is left out, such as (10, 13)", _steps),
    "table_rows": Kind("a number of rows, 0 for no limit", _whole),
    "threshold": Kind("a fraction, such as 0.02 for 2 %", _number),
}
"""What a parameter of this name takes in every call, unless the call says otherwise. None stands for its default."""


def checked(**own: Kind) -> Callable[[F], F]:
    """Return a decorator that checks every argument by the parameter's name. `own`: kinds of this call alone.

    A parameter may be None where None is its default. The call raises ArgumentError before any work is done.
    """

    def decorate(function: F) -> F:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults = dict(zip(names[: code.co_argcount][::-1], (function.__defaults__ or ())[::-1], strict=False))
        defaults |= function.__kwdefaults__ or {}
        kinds = {name: own.get(name) or KINDS[name] for name in names if name != "self"}

        def take(name: str, value: Any) -> Any:
            if name not in kinds or (value is None and name in defaults and defaults[name] is None):
                return value  # Python refuses a name that is unknown
            return kinds[name].take(name, value)

        @wraps(function)
        def door(*given: Any, **named: Any) -> Any:
            placed = [take(name, value) for name, value in zip(names[: code.co_argcount], given, strict=False)]
            return function(
                *placed, *given[code.co_argcount :], **{name: take(name, value) for name, value in named.items()}
            )

        return cast("F", door)

    return decorate
