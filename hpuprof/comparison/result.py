"""The frozen wire form of a comparison: `hpuprof compare --json` prints it, `read_comparison` reads it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hpuprof.arguments import checked
from hpuprof.errors import UnknownNameError
from hpuprof.faces import notebook_html
from hpuprof.model.metrics import BY_NAME, STEP_COLUMNS
from hpuprof.report.model import Finding, GateResult

COMPARISON_VERSION = 2
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""

BETTER, WORSE, SAME, CHANGED, UNKNOWN = "better", "worse", "no difference", "changed", "unknown"
GROUPS = ("metric", "step", "step_group", "gap", "gap_operator", "engine", "operator", "kernel", "collective", "rank")
"""What is compared, as changes are grouped."""
_NAMES = {"metric": tuple(BY_NAME), "step": tuple(of.column for of in STEP_COLUMNS)}
"""Names of the groups whose names do not come from traces."""


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
            description="better, worse, no difference, changed (neither direction is better), "
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
    changes: list[Change]
    parts: list[Part]
    findings_a: Annotated[list[Finding], Meta(description="Findings of A.")]
    findings_b: Annotated[list[Finding], Meta(description="Findings of B.")]
    gates: Annotated[list[GateResult], Meta(description="Gates evaluated; empty when none were asked for.")] = []

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
