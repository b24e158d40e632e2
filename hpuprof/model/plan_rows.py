"""Rows of the plan: what to change first, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from hpuprof.model.prediction import ChangedStep
from hpuprof.model.recording_rows import Row


class PlanRow(Row, frozen=True, kw_only=True):
    """A remedy in one place: what the step would take with it, alone and after the rows above it.

    Intervals are 90 %. Rows of the plan come first, in the order in which they gain most; then what adds too little to
    it; then what cannot be said.
    """

    order: Annotated[int | None, Meta(description="Place in the plan, from 1. None: not part of it; see reason.")]
    remedy: Annotated[
        str,
        Meta(description="Name of the fix, for `hpuprof plan --apply`; `NAME=30%` of a part that takes less time."),
    ]
    title: Annotated[str, Meta(title="what to do", description="What to do, in a few words.")]
    where: Annotated[str, Meta(description="Place in the program.")]
    per_step: Annotated[float | None, Meta(description="How often per step.")] = None
    before_ns: Annotated[
        float | None,
        Meta(
            description="Step time before it, the rows above it done; of other rows, the one that gains count from: "
            "the median [ns]."
        ),
    ] = None
    before_low_ns: Annotated[float | None, Meta(description="That step time, 5th percentile [ns].")] = None
    before_high_ns: Annotated[
        float | None, Meta(description="That step time, 95th percentile: no gain is above it [ns].")
    ] = None
    after_low_ns: Annotated[
        float | None, Meta(description="Step time with it and the rows above, 5th percentile [ns].")
    ] = None
    after_ns: Annotated[float | None, Meta(title="step after", description="That step time, the median [ns].")] = None
    after_high_ns: Annotated[float | None, Meta(description="That step time, 95th percentile [ns].")] = None
    gain_low_ns: Annotated[
        float | None, Meta(description="What it gains after the rows above, 5th percentile [ns].")
    ] = None
    gain_ns: Annotated[float | None, Meta(title="gain", description="That gain: what the medians differ by [ns].")] = (
        None
    )
    gain_high_ns: Annotated[float | None, Meta(description="That gain, 95th percentile [ns].")] = None
    alone_low_ns: Annotated[
        float | None, Meta(description="What it gains if nothing else changes, 5th percentile [ns].")
    ] = None
    alone_ns: Annotated[float | None, Meta(title="alone", description="That gain, the median [ns].")] = None
    alone_high_ns: Annotated[float | None, Meta(description="That gain, 95th percentile [ns].")] = None
    ceiling_ns: Annotated[
        float | None,
        Meta(description="What it could gain alone at most, all that it is about taken away: 95th percentile [ns]."),
    ] = None
    then: Annotated[
        str,
        Meta(title="then bound by", description="What sets the step time after it: host or device; empty: unknown."),
    ] = ""
    reason: Annotated[
        str,
        Meta(
            description="Why it is not part of the plan: adds_nothing (under 1 % of the step after the rows above), "
            "may_lose (nothing is sure to save time, and this may cost some), "
            "excluded (by one above), not_chosen (others were), record_again (what it gives after the rows above shows "
            "only in a new recording), not_found (nothing in the steps has that name), or why it cannot be said: "
            "not_linked, no_place (the steps hold none for it), in_recipes, compiled, not_told_apart, no_graphs, "
            "no_such_switch, one_rank, or a reason of graph_mode."
        ),
    ] = ""
    asked: Annotated[bool, Meta(description="Whether it was asked for by name.")] = False
    why: Annotated[str, Meta(description="Why it cannot be said, in words; empty where it is said.")] = ""
    needs: Annotated[str, Meta(description="What would have to be recorded to say it; empty where it is said.")] = ""
    advice: Annotated[str, Meta(description="What to do.")] = ""
    code: Annotated[str, Meta(description="Code to type; empty where there is none.")] = ""
    costs: Annotated[str, Meta(description="What it costs.")] = ""
    unknown: Annotated[str, Meta(description="What is not known of its effect, and where the range comes from.")] = ""
    proof: Annotated[
        str,
        Meta(
            description="How its estimate was checked: edited (the program was changed and run, on a virtual device), "
            "injected (a known delay was added and found), simulated (on generated traces only), bound (not at "
            "all: the range is what can be had at most)."
        ),
    ] = ""
    mends: Annotated[
        list[str],
        Meta(
            description="Codes of the findings that are effects of what it changes: they are shown under it, and not "
            "once more."
        ),
    ] = msgspec.field(default_factory=list)
    effort: Annotated[
        str, Meta(description="What it asks for: argument, few_lines, restructuring, numerics or hardware.")
    ] = ""
    requires: Annotated[list[str], Meta(description="Other changes that are part of its estimate.")] = msgspec.field(
        default_factory=list
    )
    after: Annotated[
        list[int], Meta(description="Orders of lines above it without which it saves less than half of its gain.")
    ] = msgspec.field(default_factory=list)
    p_gain: Annotated[float | None, Meta(description="Share of the samples in which it saves anything.")] = None
    step: Annotated[int | None, Meta(description="Step of its most costly occurrence; None: not known.")] = None
    start_ns: Annotated[int | None, Meta(description="Start of that since the file's first row [ns].")] = None
    dur_ns: Annotated[int | None, Meta(description="Duration of that [ns].")] = None
    python_line: Annotated[str, Meta(description="File and line of that; empty: the trace has no stacks.")] = ""


class RankFixes(msgspec.Struct, frozen=True):
    """Fixes that the steps of a rank of a job have a place for, without prices: all ranks together give them."""

    rows: list[PlanRow]
    alone: list[ChangedStep]  # one for each row
    together: ChangedStep | None = None  # all that can be done at once, or that are wished for
    captured: str = ""  # a region, empty: none can be captured
    graphed: list[ChangedStep] = msgspec.field(default_factory=list)
    """Steps with that region as graphs: with no fix, with each, and with all that can be done at once."""
    apart: list[tuple[str, str]] = msgspec.field(default_factory=list)  # fixes of the same calls: one or the other
    wished: list[str] = msgspec.field(default_factory=list)  # the only ones to make; empty: all


ABSENT = frozenset({"no_place", "compiled", "no_graphs", "no_such_switch"})
"""Reasons that say that a recording has no place for a remedy, not that it cannot be priced."""

OF_ONE = frozenset({"not_told", "not_told_apart"})
"""Reasons for which a single fix cannot be priced, whatever holds for the others."""


def refused(rows: Sequence[PlanRow]) -> PlanRow | None:
    """Return the first remedy that cannot be priced where nothing can be said of any other; None where it can."""
    unknown = next((row for row in rows if row.why and row.reason not in ABSENT | OF_ONE), None)
    return unknown if all(row.why for row in rows) else None
