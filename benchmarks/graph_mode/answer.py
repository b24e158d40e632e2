"""What a report says about graph mode, as plain values: all that the scorer knows of the predictor."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.graph_mode.case import Case

DROP_SYNC = ":drop-sync"
"""Ends the names of modes that also stop waiting for the device inside the step."""
ASYNCHRONOUS = ":asynchronous"
"""Ends the names of modes whose replays run beside the main thread."""
VARIANTS = (DROP_SYNC, ASYNCHRONOUS)
"""Ends the names of modes that are a second way to run a region; recommendations are compared without them."""


def is_variant(mode: str) -> bool:
    """Tell whether a mode is a second way to run a region."""
    return mode.endswith(VARIANTS)


class NoAnswerError(RuntimeError):
    """The report holds no graph-mode answer at all."""


@dataclass(frozen=True)
class Range:
    """A median with its 90 % interval."""

    low: float
    median: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether a value lies inside."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Offer:
    """One option: a region, with the speed-up and the step time [ns] it is said to give."""

    region: str
    drops_sync: bool
    asynchronous: bool
    speedup: Range
    step_ns: Range
    launches: float


@dataclass(frozen=True)
class Answer:
    """The answer to one trace. Times in ns; None where the report says nothing."""

    verdict: str
    region: str | None
    drops_sync: bool
    offers: tuple[Offer, ...]
    base_step_ns: float | None
    replay_error: float | None
    uncorrected_step_ns: float | None
    profiled_step_ns: float | None
    busy_ns: float | None

    def offer_for(self, mode: str, case: Case) -> Offer | None:
        """Return the offer that captures what a mode of the truth captured, or None when there is none."""
        drops_sync, asynchronous = mode.endswith(DROP_SYNC), mode.endswith(ASYNCHRONOUS)
        region = mode.removesuffix(DROP_SYNC).removesuffix(ASYNCHRONOUS)
        offers = {o.region: o for o in self.offers if (o.drops_sync, o.asynchronous) == (drops_sync, asynchronous)}
        wanted = [region]
        model = f"module:{case.hidden.get('model')}"
        if region == "modules" or region in (model, f"{model}_0"):
            wanted = [model, f"{model}_0", "model", "modules"]  # the whole model, by the name that the trace gives it
        for name in wanted:
            if name in offers:
                return offers[name]
        if region == "modules":
            named = [o for o in offers.values() if o.region.startswith("module:")]
            return max(named, key=lambda o: o.launches, default=None)
        return None


def answer_of(report: Any) -> Answer:
    """Read the answer from a report. Raises NoAnswerError when this hpuprof gives none."""
    found = getattr(report.data, "graph_mode", None)
    if found is None:
        raise NoAnswerError("the report has no graph_mode: this version of hpuprof gives no graph-mode answer")
    offers = tuple(
        Offer(
            o.region,
            bool(o.drops_sync),
            bool(getattr(o, "asynchronous", False)),
            _range(o.speedup),
            _range(o.step_time_ns),
            float(o.launches),
        )
        for o in found.options
        if o.speedup is not None and o.step_time_ns is not None
    )
    # Options stand best first; the recommended one is the first of the recommended region.
    drops_sync = min((o.drops_sync for o in offers if o.region == found.region), default=False)
    used = [s for s in report.data.steps if s.used]
    return Answer(
        verdict=found.verdict,
        region=found.region,
        drops_sync=drops_sync,
        offers=offers,
        base_step_ns=found.base_step_ns,
        replay_error=found.replay_error,
        uncorrected_step_ns=getattr(found, "uncorrected_step_ns", None),
        profiled_step_ns=_middle([s.wall_ns for s in used]),
        busy_ns=_middle([s.device_busy_ns for s in used]),
    )


def _range(interval: Any) -> Range:
    return Range(float(interval.low), float(interval.median), float(interval.high))


def _middle(values: list[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(median(known)) if known else None
