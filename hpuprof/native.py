"""Chooses the native part of the package where it was built, and isal where it is installed; else Python's own serves.

`HPUPROF_NATIVE` in the environment: `off` leaves it out, `require` makes its absence an error. `HPUPROF_SCAN=python`
leaves out the scanner of traces alone.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hpuprof.errors import ConfigError, MissingDependencyError

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

EndTimes: TypeAlias = Callable[..., None]
"""`Period._product` into two arrays, shape `(chains, samples)`. Raises ValueError.

Behind them come `before`, `first` and `source` of a graph, step and delay by sample; when chains ended the run before,
which they are, and the places of their last events. Arrays as for `LongestPaths`.
"""

HostWork: TypeAlias = Callable[[Floats, tuple[Floats, ...], float], None]
"""`play._corrected` into an array, shape `(calls, samples)`. Raises ValueError.

Behind it come work and profiler rows of calls, cost of a row by kind and sample, the factor on each sample, of all
calls or of each, and the share that always remains. Arrays are C-contiguous, of float64.
"""

LatestOfGroups: TypeAlias = Callable[[Floats, Floats, tuple[Ints, Ints]], None]
"""Raise the rows of an array, shape `(groups, samples)`, to times, shape `(events, samples)`, in place.

Behind them come place and group of each time that counts. Arrays as for `LongestPaths`. Raises ValueError.
"""

LongestPaths: TypeAlias = Callable[[Floats, tuple[Ints, Ints, Ints], tuple[Floats | None, ...]], None]
"""`Graph.solve` into an array, shape `(events, samples)`. Raises ValueError where arrays do not fit together.

Behind the times come `before`, `first` and `source` of a graph, then step, delay, begin, and given or None, each with
one column or one per sample. Arrays are C-contiguous, of float64 and int64.
"""

SortEvents: TypeAlias = Callable[[Ints, tuple[Ints, ...]], int]
"""The stretches of `Graph.of` into an array, shape `(events, 4)`; returns how many. Raises ValueError.

Behind the array come length of lines, line and position of events, source and target of edges.
"""

PlaySteps: TypeAlias = Callable[..., None]
"""`play.pass_through` into its arrays, from what `play._pass_natively` gives. Raises ValueError."""

Counted: TypeAlias = Callable[..., int]
"""Fills its first argument, or the first two, and returns a number; the caller says of what. Raises ValueError."""

Filled: TypeAlias = Callable[..., None]
"""Fills its first argument. Raises ValueError."""

SearchSorted: TypeAlias = Callable[[Ints, Ints, Ints, bool], None]
"""numpy's searchsorted into an array: behind it come ascending values, what is wanted, and whether on the right side.

Sooner than numpy's where what is wanted is nearly sorted. Arrays are C-contiguous, of int64. Raises ValueError.
"""

PlayWeights: TypeAlias = Callable[..., None]
"""Step and delay of `play.Weights` into two arrays, from what `play._weigh_natively` gives. Raises ValueError."""

WalkBack: TypeAlias = Callable[..., int]
"""`Period._walk` into an array, shape `(events, 2)`: places, and the edges between them; returns how many. ValueError.

Behind it come graph and weights as for `EndTimes`, when events happen, where the walk begins, the chain of the run
before, the sample, and how far a sum may miss a time.
"""

Scan: TypeAlias = Callable[[bytes, bool], tuple[Any, ...] | None]
"""`RowScanner.scan` of one file: a piece's rows between commas, and whether stamps are exact. None: not plain rows.

Returns slices and other rows (bytes of int64), how many flows, whether samples of memory are as
usual, and lists of new words, tracks and inputs; see native/row_scanner.hpp.
"""


def choose(wanted: str) -> ModuleType | None:
    """Return the native part, None where it is not built or not wanted. Raises ConfigError, MissingDependencyError."""
    if wanted not in ("auto", "off", "require"):
        raise ConfigError(f"HPUPROF_NATIVE is {wanted!r}", hint="auto, off or require")
    if wanted == "off":
        return None
    try:
        return import_module("hpuprof._native")
    except ImportError as error:
        if wanted == "require":
            hint = "install hpuprof anew where there is a C++ compiler, or unset HPUPROF_NATIVE"
            raise MissingDependencyError("the native part of hpuprof is not there", hint=hint) from error
        return None


def scanner() -> Scan | None:
    """Return what scans the pieces of one file, None where Python is to. Raises ConfigError."""
    wanted = os.environ.get("HPUPROF_SCAN", "auto")
    if wanted not in ("auto", "python"):
        raise ConfigError(f"HPUPROF_SCAN is {wanted!r}", hint="auto or python")
    if _native is None or wanted == "python":
        return None
    return partial(_native.scan_rows, _native.new_scanner(os.urandom(16)))


def in_use() -> str:
    """Say what reads traces here. Raises ConfigError."""
    rows = "the native scanner" if scanner() else "Python, more slowly than with the native scanner"
    return f"traces are read with {rows}, gzip with {gzip_library().__name__.split('.')[0]}"


@cache
def gzip_library() -> ModuleType:
    """Return what inflates gzip: isal's twin of zlib where it is installed, else zlib."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib


_native = choose(os.environ.get("HPUPROF_NATIVE", "auto"))
combine_intervals: Counted | None = getattr(_native, "combine_intervals", None)
contains_instants: Filled | None = getattr(_native, "contains_instants", None)
covered_before: Filled | None = getattr(_native, "covered_before", None)
end_times: EndTimes | None = getattr(_native, "end_times", None)
host_work: HostWork | None = getattr(_native, "host_work", None)
in_no_other: Filled | None = getattr(_native, "in_no_other", None)
innermost_rows: Filled | None = getattr(_native, "innermost_rows", None)
latest_of_groups: LatestOfGroups | None = getattr(_native, "latest_of_groups", None)
longest_paths: LongestPaths | None = getattr(_native, "longest_paths", None)
nest_rows: Counted | None = getattr(_native, "nest_rows", None)
open_rows: Counted | None = getattr(_native, "open_rows", None)
play_steps: PlaySteps | None = getattr(_native, "play_steps", None)
play_weights: PlayWeights | None = getattr(_native, "play_weights", None)
row_stops: Filled | None = getattr(_native, "row_stops", None)
rows_around: Filled | None = getattr(_native, "rows_around", None)
search_sorted: SearchSorted | None = getattr(_native, "search_sorted", None)
sort_events: SortEvents | None = getattr(_native, "sort_events", None)
unite_intervals: Counted | None = getattr(_native, "unite_intervals", None)
walk_back: WalkBack | None = getattr(_native, "walk_back", None)
