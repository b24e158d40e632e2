"""Engines, operators, kernels, collectives: rows of both sides matched by their keys, per step and rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.judge import Compared, Item
from hpuprof.comparison.noise import MIN_STEPS, Estimate
from hpuprof.model.tables import Row, StepGroupRow

Match = tuple[str, ...]


@dataclass(frozen=True)
class Measure:
    """A column of times to compare [ns].

    `per_step`: the column is a sum over the steady steps, else a value per recording to be averaged.
    `deviation`: column with the standard deviation of the per-step sums, or empty.
    """

    column: str
    per_step: bool = True
    deviation: str = ""


@dataclass(frozen=True)
class Spec:
    """How a table is compared: equal `keys` match rows, those that `keep` chooses; a change of `shape` is noted."""

    table: str
    group: str
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    count: str = ""
    shape: str = ""
    only: tuple[str, str] | None = None
    keep: Callable[[Any], bool] | None = None
    polarity: str = "lower"


def _in_the_loop(row: StepGroupRow) -> bool:
    """Tell whether steps are not typical for another reason than the recording's borders."""
    return row.steps > 0 and bool(row.reason) and row.reason not in ("first", "last")


SPECS = (
    Spec(
        "step_groups",
        "step_group",
        ("standing", "reason", "cause"),
        (Measure("time_ns"),),
        count="steps",
        keep=_in_the_loop,
        polarity="none",
    ),
    Spec("engines", "engine", ("engine",), (Measure("busy_ns", per_step=False),), only=("lane", "")),
    Spec(
        "operators",
        "operator",
        ("name",),
        (
            Measure("host_self_ns", deviation="host_self_deviation_ns"),
            Measure("device_self_ns", deviation="device_self_deviation_ns"),
        ),
        count="count",
        shape="top_shape",
    ),
    Spec(
        "kernels",
        "kernel",
        ("name", "engine", "dtype"),
        (Measure("total_ns", deviation="total_deviation_ns"),),
        count="count",
    ),
    Spec(
        "gap_operators",
        "gap_operator",
        ("cause", "host_row", "within"),
        (Measure("idle_ns", deviation="idle_deviation_ns"),),
        count="gaps",
    ),
    Spec(
        "collectives",
        "collective",
        ("group", "group_ranks", "op", "bytes", "dtype"),
        tuple(
            Measure(column, per_step=False)
            for column in (
                "duration_p50_ns",
                "shortest_p50_ns",
                "transfer_p50_ns",
                "transfer_p90_ns",
                "wait_mean_ns",
                "wait_max_ns",
            )
        ),
    ),
)


def compared_tables(pair: Pair) -> Iterator[Compared]:
    """Yield the rows of every table that has a specification."""
    groups = pair.a, pair.b
    for spec in SPECS:
        counts, shapes = [_counts(g, spec) for g in groups], [_shapes(g, spec) for g in groups]
        for measure in spec.measures if any(g.rows(spec.table) for g in groups) else ():
            of_a, of_b = found = [totals(g, spec, measure) for g in groups]
            known = [_complete(g, spec, measure) for g in groups]
            for match in sorted({*of_a, *of_b}):
                sure = [k or _never(g, spec, match) for k, g in zip(known, groups, strict=True)]
                a, b = (of.get(match, _missing(g, sure=ok)) for of, g, ok in zip(found, groups, sure, strict=True))
                if not a.value and not b.value:
                    continue
                both = match in of_a and match in of_b
                yield (
                    Item(
                        spec.group,
                        " ".join(w for w in match if w),
                        measure.column,
                        polarity=spec.polarity,
                        noisy=bool(measure.deviation) and not (a.error is None and b.error is None and _enough(pair)),
                        match=dict(zip(spec.keys, match, strict=True)) if len(spec.keys) > 1 else {},
                        only="B" if match not in of_a and sure[0] else "A" if match not in of_b and sure[1] else "",
                        counts=_counted(match, counts) if both and spec.count else "",
                        shapes=_shaped(match, shapes) if both else "",
                    ),
                    a,
                    b,
                )


def _enough(pair: Pair) -> bool:
    """Whether both sides have enough steps to estimate noise, so that only the report can lack it."""
    return all(n >= MIN_STEPS for g in (pair.a, pair.b) for n in g.steps_of.values() if n)


def _missing(group: Group, *, sure: bool) -> Estimate:
    """Return the value of an absent row: 0, or unknown if absence is not conclusive."""
    return Estimate(0.0, 0.0, max(1, group.sample.clusters - 1)) if sure else Estimate(None)


def _complete(group: Group, spec: Spec, measure: Measure) -> bool:
    """Tell whether an absent row means that nothing happened.

    Not if the table was cut or the side never knew the measure.
    """
    if group.cut(spec.table):
        return False
    rows = group.rows(spec.table)
    if rows:
        return any(getattr(r, measure.column, None) is not None for r in rows)
    if spec.table == "gap_operators" and any(idle.any() for idle in group.idle.values()):
        return False  # a report from before there was such a table
    if spec.table == "step_groups":
        return False  # each step is in one
    device = spec.group in ("kernel", "engine", "gap_operator")
    return not device or group.column("device_busy_ns") is not None


def _never(group: Group, spec: Spec, match: Match) -> bool:
    """Whether the device never idled for a row's cause, so that the row cannot have been cut."""
    if spec.table != "gap_operators" or group.column("device_idle_ns") is None:
        return False
    idle = group.idle.get(match[0])
    return idle is None or not idle.any()


def matches(row: object, spec: Spec) -> Match:
    """Return the key that matches a row."""
    return tuple(str(getattr(row, k)) if getattr(row, k) is not None else "" for k in spec.keys)


def totals(group: Group, spec: Spec, measure: Measure) -> dict[Match, Estimate]:
    """Return the mean per steady step and rank of each thing, with its standard error where rows carry deviations."""
    steps = group.steps_of
    all_steps = sum(steps.values())
    sums: dict[Match, float] = {}
    errors: dict[Match, float | None] = {}
    unknown: set[Match] = set()
    for row in group.rows(spec.table):
        if (spec.only and getattr(row, spec.only[0]) != spec.only[1]) or (spec.keep and not spec.keep(row)):
            continue
        match, value = matches(row, spec), getattr(row, measure.column)
        mine = steps.get(row.recording, 0) if isinstance(row, Row) else all_steps
        if value is None:
            unknown.add(match)
            continue
        sums[match] = sums.get(match, 0.0) + (value if measure.per_step else value * mine)
        deviation = getattr(row, measure.deviation, None) if measure.deviation else None
        before = errors.get(match, 0.0)
        if deviation is None or before is None or mine < MIN_STEPS:
            errors[match] = None
        else:
            # Ranks wait for each other, so errors add up instead of averaging out.
            errors[match] = before + mine / all_steps * deviation / math.sqrt(mine)
    freedom = min((n for n in steps.values() if n), default=1) - 1
    return {
        m: Estimate(s / all_steps, errors[m], freedom) if m not in unknown else Estimate(None)
        for m, s in sums.items()
        if all_steps
    }


def _counts(group: Group, spec: Spec) -> dict[Match, float]:
    all_steps = sum(group.steps_of.values()) or 1
    out: dict[Match, float] = {}
    for row in group.rows(spec.table) if spec.count else ():
        out[matches(row, spec)] = out.get(matches(row, spec), 0.0) + getattr(row, spec.count) / all_steps
    return out


def _shapes(group: Group, spec: Spec) -> dict[Match, str]:
    out: dict[Match, str] = {}
    for row in group.rows(spec.table) if spec.shape else ():
        if getattr(row, spec.shape):
            out.setdefault(matches(row, spec), getattr(row, spec.shape))
    return out


def _counted(match: Match, counts: list[dict[Match, float]]) -> str:
    before, after = (c.get(match, 0.0) for c in counts)
    return f"{before:.4g} → {after:.4g} per step" if abs(after - before) > 0.005 * max(before, after) else ""


def _shaped(match: Match, shapes: list[dict[Match, str]]) -> str:
    before, after = (s.get(match) for s in shapes)
    return f"usual shape {before} → {after}" if before and after and before != after else ""
