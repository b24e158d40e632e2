"""The frozen wire form of a comparison: `hpuprof compare --json` prints it, `read_comparison` reads it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hpuprof.arguments import checked
from hpuprof.errors import UnknownNameError
from hpuprof.faces import notebook_html
from hpuprof.model.answer import Span
from hpuprof.model.metrics import BY_NAME, STEP_COLUMNS
from hpuprof.report.model import Finding, GateResult

COMPARISON_VERSION = 3
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""

BETTER, WORSE, SAME, CHANGED, UNKNOWN = "better", "worse", "no difference", "changed", "unknown"
GROUPS = ("metric", "step", "step_group", "gap", "gap_operator", "engine", "operator", "kernel", "collective", "rank")
"""What is compared, as changes are grouped."""
_NAMES = {"metric": tuple(BY_NAME), "step": tuple(of.column for of in STEP_COLUMNS)}
"""Names of the groups whose names do not come from traces."""
How = Literal["alone", "together", "sum", "not_known"]
"""How a gain was predicted: of one fix alone, of several in one plan, as the sum of several, or not at all."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs."""

    name: Annotated[str, Meta(description="What was given: a path, or A and B.")]
    hpuprof_version: Annotated[str, Meta(description="Version that made the report.")]
    sentence: Annotated[str, Meta(description="The run's own headline.")]
    family: Annotated[str, Meta(description="Kinds of device, joined by +.")]
    device: Annotated[str, Meta(description="Names of the devices, or empty.")]
    mode: Annotated[str, Meta(description="How the model ran, joined by +.")]
    ranks: Annotated[int, Meta(description="Ranks compared.")]
    steps: Annotated[int, Meta(description="Used steps compared, over all ranks.")]
    step_times_ns: Annotated[
        list[int],
        Meta(description="Their step times, sorted [ns]; of more than 200 steps, 200 at even distances in this order."),
    ] = []


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One number on both sides. `delta` is b less a."""

    stage: Annotated[str, Meta(description="Stage compared, or empty.")]
    action: Annotated[str, Meta(description="Action compared, or empty.")]
    group: Annotated[str, Meta(description=f"{', '.join(GROUPS[:-1])} or {GROUPS[-1]}.")]
    name: Annotated[str, Meta(description="Name of the metric, part of the step, cause, engine, operator or kernel.")]
    measure: Annotated[str, Meta(description="What of it: a column's name; for metrics, the metric's unit.")]
    unit: Annotated[str, Meta(description="ns, fraction, ratio, count or bytes; ns and count of parts are per step.")]
    polarity: Annotated[str, Meta(description="Which direction is better: lower, higher or none.")]
    a: Annotated[float | int | None, Meta(description="Value in A, or null when unknown.")]
    b: Annotated[float | int | None, Meta(description="Value in B, or null when unknown.")]
    delta: Annotated[float | int | None, Meta(description="b less a.")]
    relative: Annotated[float | None, Meta(description="delta over the size of a; null when a is 0 or unknown.")]
    low: Annotated[
        float | None, Meta(description="Lower end of the 99 % interval of delta; null when the noise is unknown.")
    ]
    high: Annotated[float | None, Meta(description="Upper end.")]
    verdict: Annotated[
        str,
        Meta(
            description="better, worse, no difference, changed (neither direction is better; of shares and counts, "
            "where the time of the step has a verdict), "
            "or unknown (no value, too few steps to estimate noise, or a change above the threshold within noise)."
        ),
    ]
    note: Annotated[str, Meta(description="What to know: only in B, another shape, noise unknown.")]
    only: Annotated[str, Meta(description="A or B, when the other side certainly has none; else empty.")] = ""
    remark: Annotated[str, Meta(description="Of the note, what neither `only` nor the shapes say.")] = ""
    match: Annotated[
        dict[str, str], Meta(description="Columns that a row was matched by, for rows matched by more than one.")
    ] = {}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A share of the change of the mean step time. Parts of level 1 sum to it; those of level 2 to their parent."""

    stage: Annotated[str, Meta(description="Stage compared, or empty.")]
    action: Annotated[str, Meta(description="Action compared, or empty.")]
    level: Annotated[int, Meta(description="1: idle by cause, device busy by kind, or host time; 2: what of it.")]
    kind: Annotated[str, Meta(description="idle, busy, host, or rest.")]
    parent: Annotated[str, Meta(description="Name of the part of level 1, for those of level 2.")]
    name: Annotated[str, Meta(description="Cause, kind of device work, operator or kernel; or what a remainder is.")]
    text: Annotated[str, Meta(description="The part in words.")]
    label: Annotated[str, Meta(description="The same where the part it belongs to was named before.")] = ""
    a: Annotated[float, Meta(description="Mean per step in A [ns].")]
    b: Annotated[float, Meta(description="Mean per step in B [ns].")]
    delta: Annotated[float, Meta(description="b less a [ns].")]
    low: Annotated[float | None, Meta(description="Lower end of the 99 % interval; null when the noise is unknown.")]
    high: Annotated[float | None, Meta(description="Upper end.")]
    remainder: Annotated[bool, Meta(description="Whether it is what the named parts leave.")]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What graph mode was predicted to gain, against what it gained. A speed-up is old over new step time."""

    predicted_low: Annotated[float, Meta(description="Lower end of the predicted speed-up.")]
    predicted: Annotated[float, Meta(description="Predicted speed-up, median.")]
    predicted_high: Annotated[float, Meta(description="Upper end.")]
    verdict: Annotated[str, Meta(description="inside, below or above the predicted interval; or not scored.")]
    reason: Annotated[
        str,
        Meta(
            description="Why it is not scored: other_device, other_world_size, other_program (other kernels or more "
            "of them, other input shapes, other collectives) or recorded_only (a side has no step time without the "
            "profiler); empty when it is."
        ),
    ]
    achieved: Annotated[
        float | None,
        Meta(description="Step time of A over that of B, both without the profiler; null when not scored."),
    ]
    achieved_low: Annotated[float | None, Meta(description="Lower end of its interval; null when unknown.")]
    achieved_high: Annotated[float | None, Meta(description="Upper end.")]
    recorded: Annotated[
        float | None, Meta(description="Mean step of A over that of B as recorded, with the profiler's cost.")
    ]
    sentence: Annotated[str, Meta(description="The same in words.")]


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """One measure by which a fix shows between two recordings."""

    what: Annotated[str, Meta(description="What was measured, per step unless it says otherwise.")]
    a: Annotated[float | None, Meta(description="In A; null: the sign is a name, not a number.")] = None
    b: Annotated[float | None, Meta(description="In B.")] = None
    unit: Annotated[str, Meta(description="ns, count, fraction, or empty.")] = ""
    text: Annotated[str, Meta(description="The sign in words.")]


class AppliedFix(msgspec.Struct, frozen=True, kw_only=True):
    """A fix that was applied between the two recordings, as its signs show."""

    fix: Annotated[str, Meta(description="Its name, as of a line of the plan.")]
    what: Annotated[str, Meta(description="What was done.")]
    signs: Annotated[list[Sign], Meta(description="The evidence.")]
    sentence: Annotated[str, Meta(description="Both in words.")]


class FixCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the fixes found were predicted to save, against what they saved."""

    fixes: Annotated[list[str], Meta(description="Names of the fixes.")]
    how: Annotated[
        How,
        Meta(
            description="alone (A's estimate of the one fix), together (A's plan with these fixes), sum (of the "
            "estimates of each alone), or not_known."
        ),
    ]
    predicted: Annotated[Span, Meta(description="Predicted gain per step, 90 % interval.")] = Span()
    achieved: Annotated[
        Span, Meta(description="Difference of the step times, A less B, with the interval of its noise.")
    ] = Span()
    basis: Annotated[
        Literal["unprofiled", "recorded"],
        Meta(description="Step times compared: without the profiler, or as recorded."),
    ]
    verdict: Annotated[str, Meta(description="inside, below or above the predicted interval; or not scored.")]
    within_noise: Annotated[
        bool, Meta(description="Whether the noise of a gain outside reaches into the predicted interval.")
    ] = False
    reason: Annotated[
        str,
        Meta(
            description="Why it is not scored: no_estimate (A has none), no_step_time, few_steps (recorded ones, too "
            "few to know their noise), noise (which holds zero and is as large as the gain predicted), other_device, "
            "other_world_size, other_program, or recorded_only (the fix removes launches, which profiling slows, and "
            "a side has no step time without the profiler); empty when it is."
        ),
    ] = ""
    sentence: Annotated[str, Meta(description="The same in words.")]

    @property
    def inside(self) -> bool | None:
        """Whether the gain lies inside the predicted interval; None when not scored."""
        return None if self.verdict == "not scored" else self.verdict == "inside"


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A named share of the change of the mean step time. All of them sum to the change."""

    text: Annotated[str, Meta(description="The part in words; `the rest` for what is not named.")]
    delta: Annotated[float, Meta(description="b less a per step [ns].")]
    fraction: Annotated[
        float | None,
        Meta(description="Of the whole change; null where parts went both ways, so that shares say nothing."),
    ] = None


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of A that others replaced in B, at the same place and of the same kind."""

    kind: Annotated[str, Meta(description="What they compute: matrix product, convolution, pointwise, ...")]
    place: Annotated[str, Meta(description="Operator that launched most of both; empty where links are missing.")] = ""
    a: Annotated[str, Meta(description="Name of the kernel in A.")]
    b: Annotated[str, Meta(description="Name of the kernel in B.")]
    a_ns: Annotated[float, Meta(description="Its time per step in A [ns].")]
    b_ns: Annotated[float, Meta(description="Its time per step in B [ns].")]
    a_count: Annotated[float, Meta(description="Activations per step in A.")]
    b_count: Annotated[float, Meta(description="Activations per step in B.")]
    sentence: Annotated[str, Meta(description="The same in words, names shortened.")]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs compared, B against A: `changes` by group, regressions first; `parts` explain the step time."""

    comparison_version: Annotated[int, Meta(description="Version of this form.")]
    hpuprof_version: Annotated[str, Meta(description="Version that compared.")]
    a: Side
    b: Side
    stage: Annotated[str, Meta(description="Stage that the verdict speaks of, or empty.")]
    action: Annotated[str, Meta(description="Action that the verdict speaks of, or empty.")]
    threshold: Annotated[float, Meta(description="Smallest relative change that counts.")]
    level: Annotated[float, Meta(description="Confidence of the intervals.")]
    verdict: Annotated[str, Meta(description="The step time: better, worse, no difference or unknown.")]
    sentence: Annotated[str, Meta(description="The answer in words.")]
    explanation: Annotated[str, Meta(description="What the change of the step time consists of, in words.")]
    cautions: Annotated[list[str], Meta(description="What limits the comparison.")]
    prediction: Annotated[
        Prediction | None, Meta(description="Graph mode, predicted and achieved; null when not asked.")
    ]
    applied: Annotated[
        list[AppliedFix], Meta(description="Fixes applied between A and B, as signs in the recordings show.")
    ] = []
    check: Annotated[
        FixCheck | None, Meta(description="What they were predicted to save, and saved; null when none was found.")
    ] = None
    unlike: Annotated[str, Meta(description="That A and B are different programs, and why; else empty.")] = ""
    shares: Annotated[
        list[Share], Meta(description="What the change of the step time consists of, the largest parts first.")
    ] = []
    replaced: Annotated[
        list[Replaced], Meta(description="Kernels that others replaced, by place and kind, the largest first.")
    ] = []
    changes: list[Change]
    parts: list[Part]
    findings_a: Annotated[list[Finding], Meta(description="Findings of A.")]
    findings_b: Annotated[list[Finding], Meta(description="Findings of B.")]
    gates: Annotated[list[GateResult], Meta(description="Gates evaluated; empty when none were asked for.")] = []

    @property
    def leads(self) -> list[str]:
        """The sentences that every view prints first: verdict, reasons, fixes found, predicted and achieved."""
        fixes = (fix.sentence for fix in self.applied)
        said = (self.sentence, self.unlike, self.explanation, *fixes, self.checked_sentence)
        return [sentence for sentence in said if sentence]

    @property
    def checked_sentence(self) -> str:
        """Predicted and achieved: of the fixes found, else of graph mode; empty where nothing was predicted."""
        checked = self.check or self.prediction
        return checked.sentence if checked is not None else ""

    @property
    def findings_sentence(self) -> str:
        """Findings that came and went, by code and title; empty for none."""
        codes_a, codes_b = {f.code for f in self.findings_a}, {f.code for f in self.findings_b}
        came = [f"{f.code} {f.title}" for f in self.findings_b if f.code not in codes_a]
        went = [f"{f.code} {f.title}" for f in self.findings_a if f.code not in codes_b]
        said = [f"{word}: {', '.join(found)}" for word, found in (("new in B", came), ("gone in B", went)) if found]
        return f"Findings {'; '.join(said)}" if said else ""

    def __repr__(self) -> str:
        return f"<Comparison: {self.sentence}>"

    def _repr_html_(self) -> str:
        return notebook_html(self, "comparison_html")

    def with_gates(self, results: list[GateResult]) -> Comparison:
        """Return the comparison with the outcome of its gates."""
        return msgspec.structs.replace(self, gates=results)

    @checked()
    def regressions(self, threshold: float | None = None) -> list[Change]:
        """Return regressions beyond noise of at least `threshold` (relative; default: own threshold), largest first."""
        return self._with(WORSE, threshold)

    @checked()
    def improvements(self, threshold: float | None = None) -> list[Change]:
        """Return what got better, as `regressions` does."""
        return self._with(BETTER, threshold)

    def _with(self, verdict: str, threshold: float | None) -> list[Change]:
        limit = self.threshold if threshold is None else threshold
        # Without a size of A to divide by, any change is larger than every threshold.
        return [c for c in self.changes if c.verdict == verdict and (c.relative is None or abs(c.relative) >= limit)]

    @checked()
    def change(self, name: str, *, group: str = "metric", measure: str | None = None) -> Change | None:
        """Return one change of the compared stage and action, None when neither run has such a thing.

        Raises UnknownNameError for a metric, a column of the step, a group or a measure that does not exist.
        """
        if group not in GROUPS:
            raise UnknownNameError("group of changes", group, GROUPS)
        place = (group, name, self.stage, self.action)
        found = [c for c in self.changes if (c.group, c.name, c.stage, c.action) == place]
        if not found and name not in _NAMES.get(group, (name,)):
            raise UnknownNameError(group, name, _NAMES[group])
        chosen = [c for c in found if measure in (None, c.measure)]
        if found and not chosen:
            raise UnknownNameError(f"measure of {name}", measure, sorted({c.measure for c in found}))
        return chosen[0] if chosen else None
