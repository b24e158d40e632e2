"""Chooses the native part of the package where it was built; without it numpy computes the same, more slowly.

`HPUPROF_NATIVE` in the environment: `off` leaves it out, `require` makes its absence an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from hpuprof.errors import ConfigError, MissingDependencyError
from hpuprof.model.arrays import Floats, Ints

LongestPaths: TypeAlias = Callable[[Floats, tuple[Ints, Ints, Ints], tuple[Floats | None, ...]], None]
"""`Graph.solve` into an array, shape `(events, samples)`. Raises ValueError where arrays do not fit together.

Behind the times come `before`, `first` and `source` of a graph, then step, delay, begin, and given or None, each with
one column or one per sample. Arrays are C-contiguous, of float64 and int64.
"""


def choose(wanted: str) -> LongestPaths | None:
    """Return the native loop, None where it is not built or not wanted. Raises ConfigError, MissingDependencyError."""
    if wanted not in ("auto", "off", "require"):
        raise ConfigError(f"HPUPROF_NATIVE is {wanted!r}", hint="auto, off or require")
    if wanted == "off":
        return None
    try:
        found: LongestPaths = import_module("hpuprof._native").longest_paths
    except ImportError as error:
        if wanted == "require":
            hint = "install hpuprof anew where there is a C++ compiler, or unset HPUPROF_NATIVE"
            raise MissingDependencyError("the native part of hpuprof is not there", hint=hint) from error
        return None
    return found


longest_paths = choose(os.environ.get("HPUPROF_NATIVE", "auto"))
