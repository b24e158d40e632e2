"""The answer of a report: what bounds the step, the step time that gains count from, the fixes and where they end.

Every view prints this object and computes nothing: sentences and numbers stand here, in the order in which they are
read. `hpuprof.report.answering` makes it from the tables of a report.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Status = Literal[
    "line", "uncertain", "small", "excluded", "not_chosen", "record_again", "not_found", "bound", "not_priced"
]
"""How a fix stands: a line of the plan; less than 1 % of the step; replaced by a line; not asked for; worth another
recording after the plan; not in the steps; a finding whose share bounds the gain; without an estimate."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A time with its 90 % interval."""

    low_ns: Annotated[float | None, Meta(description="5th percentile [ns]; null: not known.")] = None
    ns: Annotated[float | None, Meta(description="Median [ns].")] = None
    high_ns: Annotated[float | None, Meta(description="95th percentile [ns].")] = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fix applies: its most costly occurrence, as far as the recording shows it."""

    where: Annotated[str, Meta(description="Place in the program, in words.")] = ""
    rank: Annotated[int | None, Meta(description="Rank of the occurrence.")] = None
    step: Annotated[int | None, Meta(description="Step of the occurrence, as numbered in `steps`.")] = None
    start_ns: Annotated[int | None, Meta(description="Start since the file's first row [ns].")] = None
    dur_ns: Annotated[int | None, Meta(description="Duration [ns].")] = None
    python_line: Annotated[str, Meta(description="File and line of the program; empty: the trace has no stacks.")] = ""


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """One change: what to do, what it saves, what it asks for and how well its estimate was checked."""

    line: Annotated[int | None, Meta(description="Line of the plan, from 1; null: not part of it.")] = None
    name: Annotated[str, Meta(description="Name for `hpuprof plan --apply`; empty for a finding without a fix.")] = ""
    finding: Annotated[str, Meta(description="Code of the finding that it is; empty for a fix of the plan.")] = ""
    what: Annotated[str, Meta(description="What to do.")]
    status: Annotated[
        Status,
        Meta(
            description="line; uncertain (nothing is sure to save time, and it may cost some); small (under 1 % of the "
            "step after the plan); excluded (a line takes its place); not_chosen; "
            "record_again (known only after the plan is done); not_found (by `--faster`); bound (only the "
            "finding's share of the step is known); not_priced."
        ),
    ]
    place: Place = Place()
    gain: Annotated[Span, Meta(description="What it saves per step after the lines above it.")] = Span()
    alone: Annotated[Span, Meta(description="What it saves per step if nothing else changes.")] = Span()
    after: Annotated[Span, Meta(description="Step time with it and the lines above it.")] = Span()
    gain_fraction: Annotated[
        float | None, Meta(description="Its gain as a share of the step time that gains count from.")
    ] = None
    p_gain: Annotated[float | None, Meta(description="Probability that it saves anything.")] = None
    effort: Annotated[str, Meta(description="What it asks for: see `hpuprof.report.answering.EFFORT`.")] = ""
    evidence: Annotated[str, Meta(description="How its estimate was checked, in a few words.")] = ""
    requires: Annotated[list[str], Meta(description="Changes that are part of its estimate.")] = []
    after_lines: Annotated[list[int], Meta(description="Lines without which it saves less than it does here.")] = []
    saves: Annotated[str, Meta(description="Its gain in words; for a bound, the share that it cannot exceed.")] = ""
    terms: Annotated[str, Meta(description="Effort, evidence and what it comes after, in words.")] = ""
    how: Annotated[str, Meta(description="How to do it, in one sentence.")] = ""
    why: Annotated[str, Meta(description="Why there is no estimate, in words; empty where there is one.")] = ""
    advice: Annotated[str, Meta(description="How to do it.")] = ""
    code: Annotated[str, Meta(description="Code to type; empty where there is none.")] = ""
    costs: Annotated[str, Meta(description="What it costs.")] = ""
    unknown: Annotated[str, Meta(description="What is not known of its effect.")] = ""
    explains: Annotated[list[str], Meta(description="Codes of the findings that it explains, with their effects.")] = []


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The one step time: as recorded, and without the profiler, from which all gains count."""

    recorded_ns: Annotated[float | None, Meta(description="Mean of the steps that the answer covers [ns].")] = None
    counted: Annotated[Span, Meta(description="Step time without the profiler, from which gains count.")] = Span()
    source: Annotated[
        str,
        Meta(
            description="Where that is from: unprofiled (timed by the recorder), given, profiled (estimated), or empty."
        ),
    ] = ""
    settled: Annotated[
        bool, Meta(description="Whether it is of steps that set nothing up, where the recorded ones do so for long.")
    ] = False
    sentence: Annotated[str, Meta(description="Both in words.")] = ""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The step with all lines of the plan done."""

    step: Annotated[Span, Meta(description="Its time.")] = Span()
    then: Annotated[str, Meta(description="What bounds it then: host, device, or empty: not known.")] = ""
    sentence: Annotated[str, Meta(description="That in words; empty for fewer than two lines.")] = ""


class Unsaid(msgspec.Struct, frozen=True, kw_only=True):
    """Fixes without an estimate for one reason, and the recording that would decide."""

    fixes: Annotated[list[str], Meta(description="Their names.")]
    why: Annotated[str, Meta(description="The reason.")]
    decides: Annotated[str, Meta(description="What to record; empty where no recording would decide.")] = ""


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """Graph mode's verdict, alongside its line of the plan."""

    verdict: Annotated[str, Meta(description="As `graph_mode.verdict`.")]
    line: Annotated[int | None, Meta(description="Its line of the plan; null: none.")] = None
    sentence: Annotated[str, Meta(description="The verdict in words, with the number of the line.")] = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader sees first, in the order of reading."""

    bound: Annotated[str, Meta(description="host, device, input, communication, copy, mixed or unknown.")]
    bound_sentence: Annotated[str, Meta(description="What bounds the step, in words.")]
    base: Base = Base()
    run: Annotated[str, Meta(description="The whole run in a line, from its log of steps; empty without one.")] = ""
    apart: Annotated[
        list[str], Meta(description="What holds for windows of other work, judged apart, a text each; empty for none.")
    ] = []
    fixes: Annotated[list[Fix], Meta(description="The plan's lines, then what is not part of it, largest first.")] = []
    nothing: Annotated[str, Meta(description="Why the plan has no line; empty with lines.")] = ""
    beyond: Annotated[
        str, Meta(description="Why the first line is not about what bounds the step; empty where it is.")
    ] = ""
    end: End = End()
    graphs: GraphLine
    caution: Annotated[str, Meta(description="That no estimate was ever checked on this device; else empty.")] = ""
    not_applied: Annotated[
        list[Unsaid], Meta(description="Fixes that were asked for by name and are not among the lines, and why.")
    ] = []
    absent: Annotated[list[str], Meta(description="Fixes for which the steps hold no place, by name.")] = []
    unsaid: Annotated[list[Unsaid], Meta(description="What has no estimate, why, and what would decide.")] = []

    @property
    def lines(self) -> list[Fix]:
        """The plan's lines."""
        return [fix for fix in self.fixes if fix.status == "line"]

    @property
    def others(self) -> list[Fix]:
        """The findings that no line explains."""
        return [fix for fix in self.fixes if fix.finding]

    @property
    def others_title(self) -> str:
        """The heading of the other findings."""
        return "Also found" if self.lines else "What to do"
