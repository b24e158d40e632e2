"""Would graph mode help? From the predictions of all ranks to one verdict, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

import msgspec
import numpy as np

from hpuprof.analysis.bound import ALLOCATOR_FIRST
from hpuprof.graph_mode import verdict_words as words
from hpuprof.graph_mode.candidates import Candidate, OptionKey, RegionName
from hpuprof.graph_mode.collective_skeleton import alone_ns, together_ns
from hpuprof.graph_mode.interfaces import api_name, code_for, note_for
from hpuprof.graph_mode.obstacles_by_region import ObstacleStatus, blockers, memory_held, situation_of
from hpuprof.model.arrays import Floats
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import CollectiveSkeleton, Constant, GraphMode, GraphOption, Interval, Prediction
from hpuprof.model.tables import FileRow
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.uncertainty import REPLAY_LIMIT, Draws, unpack

SURE = 0.9  # yes from this probability of a gain, no from this probability of none
STAGES_LIMIT = 0.10  # largest error of recipes or totals: above REPLAY_LIMIT, as both are coarser
UNEXPLAINED_LIMIT = 0.15  # unexplained delay over the step: beyond, it outweighs the gain of most options
MIN_STEPS = 2  # a single step may not be typical
KEEP_OPTIONS = 24  # more rows than this are not read
DECIDES = 0.3
"""If the probability of a gain changes by this between low and high profiling cost, the missing step time decides."""
NEAR = 0.01  # step times within this, relative, are equal: the simpler option wins
NORMAL_95 = 1.645  # standard deviations from the median to the 95th percentile
_SIMPLEST = ("model", "modules", "module", "optimizer", "forward+backward", "step")
CAPTURE_STEPS = {"hpu": 3.0}  # warm-up and capture, in steps of today; 5 elsewhere


def decide_graph_mode(main: Sequence[RankPartial]) -> GraphMode:
    """Decide for the chosen recordings of all ranks; ranks go together: the slowest one sets the step."""
    if not main:
        return _cannot(words.NO_TRACE)
    main = [part for part in main if part.prediction is not None] or main  # of many ranks, some are predicted
    first = main[0].file
    for code in words.UNSOUND:
        texts = [d.text for part in main for d in part.diagnostics if d.code == code]
        if texts:
            return _cannot(words.unsound(code, texts[0]), first)
    predictions = [part.prediction for part in main if part.prediction is not None]
    allocating = _allocating(main)
    if allocating >= ALLOCATOR_FIRST:
        return _cannot(words.allocator_first(allocating), first, predictions[:1])
    if first.family == "hpu" and first.mode == "compile":
        return _compiled(first, predictions)
    refusal = _refusal(main, predictions)
    if refusal:
        return _cannot(refusal, first, predictions[:1])
    return _judge(main, predictions)


def _allocating(main: Sequence[RankPartial]) -> float:
    """Return the share of the used steps in which the host path allocated or freed memory."""
    steps = [s for part in main for s in part.steps if s.used]
    return sum(s.blocked_alloc_ns or 0 for s in steps) / max(1, sum(s.wall_ns for s in steps))


def _compiled(first: FileRow, predictions: Sequence[Prediction]) -> GraphMode:
    """Answer for a model compiled by the HPU backend: its regions are recipes already."""
    lead = predictions[0] if predictions else Prediction(method="none")
    base = float(lead.base_step_ns) or None
    return msgspec.structs.replace(
        _cannot(words.NOTHING, first, predictions),
        verdict="no",
        sentence=words.COMPILED,
        base=lead.base if base else None,
        base_step_ns=base,
        unreachable=base / lead.busy_ns if base and lead.busy_ns else None,
        evidence=words.facts(lead),
    )


def _refusal(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> words.Refusal | None:
    """Return why there is no answer; None when there is one."""
    for prediction in predictions:
        if prediction.method == "none":
            return words.no_prediction(prediction)
    if len(predictions) < len(main):
        return words.A_RANK_WITHOUT_PREDICTION
    if any(part.file.step_source == "whole_trace" for part in main):
        return words.NO_STEPS
    if min(part.file.steps_used for part in main) < MIN_STEPS:
        return words.FEW_STEPS
    worst = max(predictions, key=lambda p: p.replay_error or 0.0)
    limit = REPLAY_LIMIT if worst.method == "replay" else STAGES_LIMIT
    if (worst.replay_error or 0.0) > limit:
        return words.not_explained(worst)
    if max(p.unexplained for p in predictions) > UNEXPLAINED_LIMIT:
        return words.LATE_ROWS
    return None


def _cannot(refusal: words.Refusal, first: FileRow | None = None, predictions: Sequence[Prediction] = ()) -> GraphMode:
    """Refuse to answer: whatever would be a guess is unknown."""
    p = predictions[0] if predictions else None
    return GraphMode(
        verdict="cannot say",
        sentence=words.cannot_say(refusal),
        mode=first.mode if first else "",
        family=first.family if first else "",
        speedup=None,
        step_time_ns=None,
        probability_gain=None,
        probability_loss=None,
        base=None,
        base_step_ns=None,
        profiled_step_ns=p.profiled_step_ns if p and p.profiled_step_ns else None,
        uncorrected_step_ns=None,
        ceiling=None,
        unreachable=None,
        method=p.method if p else "none",
        replay_error=p.replay_error if p else None,
        unexplained=p.unexplained if p and p.method == "replay" else None,
        together_error=None,
        region=None,
        api=None,
        options=[],
        evidence=[],
        assumptions=[],
        next_measurement=refusal.need,
        command=refusal.command,
        code="",
        constants=[],
    )


@dataclass(frozen=True, eq=False)
class _Job:
    """The predictions of all ranks, and values common to every option."""

    first: FileRow
    predictions: Sequence[Prediction]

    @property
    def lead(self) -> Prediction:
        """The prediction that represents all ranks."""
        return self.predictions[0]

    @cached_property
    def base_ns(self) -> float:
        """The step time now [ns]."""
        return float(median(p.base_step_ns for p in self.predictions))

    @cached_property
    def together_error(self) -> float | None:
        """Relative error of the recorded step with all ranks replayed together; None where that is impossible."""
        skeletons = [p.skeleton for p in self.predictions if p.skeleton is not None]
        if len(self.predictions) < 2 or len(skeletons) < len(self.predictions):
            return None
        found = self.replayed_together(skeletons)
        # Ranks that run ahead record shorter steps; the slowest one shows the job's speed.
        recorded = max(p.profiled_step_ns for p in self.predictions)
        return None if found is None or not recorded else abs(found - recorded) / recorded

    @property
    def together(self) -> bool:
        """Whether ranks are replayed with joint collectives; otherwise the slowest rank sets the step."""
        return self.together_error is not None and self.together_error <= REPLAY_LIMIT

    @cached_property
    def constants(self) -> dict[str, Constant]:
        """The model constants, those of a machine profile included."""
        return constants_for(self.first.family, self.first.mode, {c.name: c for c in self.lead.measured})

    @property
    def longest_ns(self) -> float:
        """The step time now, 95th percentile [ns]."""
        return self.base_ns * float(np.exp(NORMAL_95 * self.lead.base_spread))

    @property
    def kernel_scale(self) -> float:
        """How much shorter kernels are in a graph, 5th percentile."""
        return self.constants["kernel_scale"].low

    @cached_property
    def critical_ns(self) -> float:
        """The step time [ns] without host work, with kernels scaled by `kernel_scale`."""
        skeletons = [p.critical_skeleton for p in self.predictions if p.critical_skeleton is not None]
        found = None
        if self.together and len(skeletons) == len(self.predictions):
            found = self.replayed_together(skeletons)
        return self.kernel_scale * (max(p.critical_ns for p in self.predictions) if found is None else found)

    def replayed_together(self, skeletons: Sequence[CollectiveSkeleton]) -> float | None:
        """Return the step time [ns] of all ranks with these collectives; None where they do not fit together."""
        return together_ns(skeletons, [p.groups for p in self.predictions])


def _judge(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> GraphMode:
    """Choose among the options that all ranks have, and answer for the best one."""
    job = _Job(main[0].file, predictions)
    candidates = _candidates(job)
    if not candidates:
        return _cannot(words.NOTHING_IN_COMMON, job.first)
    statuses = [ObstacleStatus.of(part, {c.key.region for c in candidates}) for part in main]
    # No prediction may be faster than the device's critical path or the host outside the region, each at the favourable
    # end of its interval.
    ranked = _ranked(
        [
            replace(
                c.no_faster(job.longest_ns / max(job.critical_ns, _outside_ns(c)), job.base_ns),
                blocked_by=tuple(blockers(statuses, c.region)),
            )
            for c in candidates
        ]
    )
    return _answer(job, ranked, statuses)


def _candidates(job: _Job) -> list[Candidate]:
    """Return the options that every rank has."""
    found = []
    by_rank = [{OptionKey.of(o): o for o in p.options} for p in job.predictions]
    for key in by_rank[0]:
        options = [options[key] for options in by_rank if key in options]
        if len(options) < len(by_rank):
            continue
        times = [p.base_step_ns / unpack(o.ratio) for p, o in zip(job.predictions, options, strict=True)]
        step_ns = np.max(np.array(times), axis=0)
        skeletons = [o.skeleton for o in options if o.skeleton is not None]
        if job.together and len(skeletons) == len(options):
            joint = job.replayed_together(skeletons)
            if joint is not None:
                step_ns = step_ns * joint / max(alone_ns(skeleton) for skeleton in skeletons)
        found.append(Candidate(options, step_ns, job.base_ns / step_ns))
    return found


def _outside_ns(candidate: Candidate) -> float:
    return max(o.host_outside_low_ns for o in candidate.options)


def _ranked(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates, the recommended one first, then by blockers, simplicity and speed."""
    fastest = _fastest_ns(candidates)
    ranked = sorted(
        candidates,
        key=lambda c: (bool(c.blocked_by), c.key.drops_sync, _simplicity(c, fastest), c.median_ns, c.key),
    )
    best = _best(ranked, fastest)
    return [best, *(c for c in ranked if c is not best)]


def _fastest_ns(candidates: list[Candidate]) -> float:
    """Return the shortest step time without changing the program; where there is none, the shortest of all [ns]."""
    ready = [c.median_ns for c in candidates if not c.key.drops_sync and not c.blocked_by]
    return min(ready or [c.median_ns for c in candidates])


def _best(ranked: list[Candidate], fastest: float) -> Candidate:
    """Return what to recommend: the first candidate that can be captured as it is.

    If that one is not sure to pay, but a candidate about as fast, or a blocked one, is: that one.
    """

    def pays(candidate: Candidate) -> bool:
        return float(np.mean(candidate.speedup > words.GAIN)) >= SURE

    ready = [c for c in ranked if not c.key.drops_sync] or ranked
    if pays(ready[0]):
        return ready[0]
    sure = [c for c in ready if pays(c) and (c.blocked_by or c.median_ns <= (1 + NEAR) * fastest)]
    return min(sure, key=lambda c: bool(c.blocked_by), default=ready[0])


def _simplicity(candidate: Candidate, fastest: float) -> int:
    """Rank options within 1 % of the fastest first, the simplest to use at the top."""
    if candidate.median_ns / fastest > 1 + NEAR:
        return len(_SIMPLEST)
    return _SIMPLEST.index(candidate.region.kind)


def _answer(job: _Job, ranked: list[Candidate], statuses: list[ObstacleStatus]) -> GraphMode:
    """Answer with the best candidate: its gain, its evidence, its code."""
    lead, first, best = job.lead, job.first, ranked[0]
    gain, loss = float(np.mean(best.speedup > words.GAIN)), float(np.mean(best.speedup < words.LOSS))
    open_question = lead.base == "profiled" and _would_decide(best.speedup)
    verdict = _verdict(gain, blocked=bool(best.blocked_by), open_question=open_question)
    options = _option_rows(job, ranked, statuses)
    busy = max(p.busy_ns for p in job.predictions)
    return GraphMode(
        verdict=verdict,
        sentence=words.sentence_for(verdict, options[0], lead, first.mode, job.base_ns),
        mode=first.mode,
        family=first.family,
        speedup=_interval(best.speedup),
        step_time_ns=_interval(best.step_ns),
        probability_gain=gain,
        probability_loss=loss,
        base=lead.base,
        base_step_ns=job.base_ns,
        profiled_step_ns=float(median(p.profiled_step_ns for p in job.predictions)),
        uncorrected_step_ns=max(o.uncorrected_ns for o in best.options),
        ceiling=best.reach,
        unreachable=max(best.reach, job.longest_ns / (job.kernel_scale * busy)) if busy > 0 else None,
        method=lead.method,
        replay_error=max((p.replay_error for p in job.predictions if p.replay_error is not None), default=None),
        unexplained=max(p.unexplained for p in job.predictions) if lead.method == "replay" else None,
        together_error=job.together_error if job.together else None,
        region=best.key.region,
        api=options[0].api,
        options=options,
        evidence=[
            *words.evidence(lead, best.lead, job.base_ns),
            *words.how_joined(job.predictions, job.together_error, together=job.together),
            *words.out_of_reach(ranked),
        ],
        assumptions=words.assumptions(lead, first.mode, len(job.predictions)),
        next_measurement=words.sharpen(lead),
        command=words.how_to_sharpen(lead),
        code=_code(job, best, statuses) if verdict in ("yes", "marginal") else "",
        constants=list(job.constants.values()),
    )


def _option_rows(job: _Job, ranked: list[Candidate], statuses: list[ObstacleStatus]) -> list[GraphOption]:
    """Return the best candidates as rows of the report."""
    situation = situation_of(job.first, statuses, job.lead, RegionName("model"))
    fastest = _fastest_ns(ranked)
    return [
        GraphOption(
            region=c.key.region,
            api=api_name(situation, c.region),
            speedup=_interval(c.speedup),
            step_time_ns=_interval(c.step_ns),
            regret=c.median_ns / fastest - 1.0,
            drops_sync=c.key.drops_sync,
            asynchronous=c.key.asynchronous,
            launches=c.lead.launches,
            graphs=c.lead.graphs,
            memory_bytes=memory_held(statuses, c.region),
            break_even_steps=_break_even(job.first.family, job.base_ns, c.median_ns),
            blocked_by=list(c.blocked_by),
            note=note_for(situation, c.region, drops_sync=c.key.drops_sync, asynchronous=c.key.asynchronous),
        )
        for c in ranked[:KEEP_OPTIONS]
    ]


def _code(job: _Job, best: Candidate, statuses: list[ObstacleStatus]) -> str:
    """Return the code to type for a candidate."""
    situation = situation_of(job.first, statuses, job.lead, best.region)
    return code_for(situation, best.region, asynchronous=best.key.asynchronous)


def _interval(values: Floats) -> Interval:
    low, middle, high = (float(x) for x in np.percentile(values, [5, 50, 95]))
    return Interval(low=low, median=middle, high=high)


def _would_decide(ratio: Floats) -> bool:
    """Whether the step time without the profiler would settle the answer; samples go from low to high cost."""
    much = Draws.make(len(ratio)).uniform[0] > 0.5
    return abs(float(np.mean(ratio[much] > words.GAIN)) - float(np.mean(ratio[~much] > words.GAIN))) > DECIDES


def _verdict(gain: float, *, blocked: bool, open_question: bool) -> str:
    """Return the verdict for a probability of a gain; `open_question`: the missing step time would settle it."""
    if blocked:
        return "no" if gain <= 1 - SURE else "marginal"
    if gain <= 1 - SURE:
        return "no"
    if gain >= SURE:
        return "yes"
    return "cannot say" if open_question else "marginal"


def _break_even(family: str, base: float, then: float) -> int | None:
    """Return the steps until warm-up and capture pay off; None without a gain."""
    saved = base - then
    return int(np.ceil(CAPTURE_STEPS.get(family, 5.0) * base / saved)) if saved > 0.01 * base else None
