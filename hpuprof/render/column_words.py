"""Titles, definitions and cell formats of table columns.

A column's unit is the end of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from hpuprof.model.kernel_names import readable
from hpuprof.model.schema import CAUSE_TEXT
from hpuprof.render.formats import duration, number, operations, percent, shorten, size

CAUSE = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items()}
"""Words for the causes of idle time."""


@dataclass(frozen=True)
class ColumnWords:
    """A column's title, its definition, and whether it holds numbers."""

    title: str
    meaning: str
    number: bool


@cache
def described(row: type[msgspec.Struct]) -> dict[str, ColumnWords]:
    """Return the words of each column of a row, from its `Meta`; a title not given is the name without its unit."""
    found = {}
    for column, hint in get_type_hints(row, include_extras=True).items():
        base, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        meta = next((m for m in more if isinstance(m, msgspec.Meta)), msgspec.Meta())
        kinds = get_args(base) if isinstance(base, UnionType) else (base,)
        found[column] = ColumnWords(
            meta.title or _plain_title(column), meta.description or "", bool({int, float} & {*kinds})
        )
    return found


def format_of(column: str) -> Callable[[Any], str]:
    """Return what writes the known values of a column."""
    if column in _FORMATS:
        return _FORMATS[column]
    for suffix, form in (
        ("_ns", duration),
        ("_fraction", percent),
        ("bandwidth", _rate),
        ("bytes", size),
        ("flops", operations),
        ("flops_per_step", operations),
    ):
        if column.endswith(suffix):
            return form
    return _text


def named(value: str) -> str:
    """Return a name without what Lightning's profiler puts before those of its actions; kernels in short."""
    return readable(value.removeprefix("[pl][profile]"))


def _plain_title(column: str) -> str:
    for unit in ("_ns", "_fraction", "_bytes"):
        column = column.removesuffix(unit)
    return column.replace("_", " ")


def _text(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _rate(value: float) -> str:
    return f"{size(value)}/s"


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _cause(value: str) -> str:
    return CAUSE.get(value, value)


def _sequence(kernels: list[str]) -> str:
    """Return kernels in order; one that follows itself once, with the number of times."""
    runs = ((shorten(named(name), _KERNEL), len(list(again))) for name, again in groupby(kernels))
    return " → ".join(name if often == 1 else f"{often} × {name}" for name, often in runs)


_KERNEL = 40
_NAMES = (
    "name what path module module_path where python_line signature host_row within row top_shape call host_name host"
)
_FORMATS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(_NAMES.split(), named),
    **dict.fromkeys(("rank", "step", "last_rank"), str),
    **dict.fromkeys(("cause", "top_cause"), _cause),
    **dict.fromkeys(("fraction", "fraction_of_a", "fraction_of_b", "criticality", "no_gain_below"), percent),
    **dict.fromkeys(("value", "low", "high"), _plain),
    "flops_per_second": lambda value: f"{operations(value)}/s",
    **dict.fromkeys(("blockers", "windows"), ", ".join),
    "kernels": _sequence,
}
"""Formats of columns whose name ends in no unit."""
