"""Would graph mode help? From the predictions of all ranks to one verdict, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.window import ONCE
from hpuprof.families import FAMILIES
from hpuprof.graph_mode import verdict_words as words
from hpuprof.graph_mode.bounds import GAIN, LOSS, MIN_ROWS, Evidence
from hpuprof.graph_mode.graph_prices import GraphPrice, no_part_beats_its_whole, prices_of
from hpuprof.graph_mode.interfaces import api_name, note_for
from hpuprof.graph_mode.job import MIN_STEPS, Job
from hpuprof.graph_mode.obstacles_by_region import ObstacleStatus, blockers, memory_held, situation_of
from hpuprof.graph_mode.refusals import (
    DISTURBED,
    FEW_ROWS,
    LOADER,
    NO_NUMBER,
    NO_TRACE,
    NOTHING_IN_COMMON,
    ONE_FETCH,
    ONE_PASS,
    ONE_STEP,
    STEP_TIME,
    Refusal,
    all_settled,
    allocator_first,
    find_refusal,
    points_nowhere,
    unlike_given,
    unlike_others,
    unlike_ranks,
    unsound,
    without_device,
)
from hpuprof.graph_mode.region_names import RegionName
from hpuprof.graph_mode.snippets import code_for
from hpuprof.model.arrays import Floats, percentiles
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import (
    Bounds,
    GraphMode,
    GraphOption,
    Interval,
    Prediction,
    Verdict,
)
from hpuprof.model.tables import FileRow
from hpuprof.what_if.uncertainty import Draws, interval

WORTH_TRYING: tuple[Verdict, ...] = ("yes", "likely", "not yet", "marginal")
"""Verdicts with an option to try."""
SURE = 0.9  # yes from this probability of a gain, no from this probability of none
BEYOND = 0.05  # share of samples above an interval: a reading that is as seldom is not in it
KEEP_OPTIONS = 24  # more rows than this are not read
AROUND, UP_TO = 0.02, 0.10
"""A median within 2 % of none and an upper end below 10 % is no gain. By judgment: nothing speaks for one."""
DECIDES = 0.3
"""If the probability of a gain changes by this between low and high profiling cost, the missing step time decides."""
NEAR = 0.01  # step times within this, relative, are equal: the simpler option wins
BLOCKED = 2.0
"""What a gain is divided by where obstacles must go first: twice as much is worth that. By judgment."""
_SIMPLEST = ("model", "modules", "module", "optimizer", "forward+backward", "step")


class Decision(msgspec.Struct, frozen=True, eq=False):
    """The answer, and samples of the speed-up of the recommended option; None where there is none."""

    answer: GraphMode
    speedup: Floats | None = None


def decide(main: Sequence[RankPartial], *, code: bool = True) -> Decision:
    """Decide for the chosen recordings of all ranks; ranks go together, as `JobPlay` says.

    Where the steps cannot be replayed, device rows still bound the gain from above, and may show which way it goes.
    `code`: with the code to type.
    """
    main = [part for part in main if part.prediction is not None] or main  # of many ranks, some are predicted
    refused = _refused(main)
    if refused:
        return Decision(refused)
    predictions = [p.prediction for p in main if p.prediction is not None]
    return _untraced(main, predictions) or _judge(main, predictions, code=code)


def _untraced(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> Decision | None:
    """Return the answer for a single pass in which nothing is traced on the host where the gain would be; else None.

    A replay leaves such a pause as it is: it may be Python, of which a graph needs none.
    """
    once = any(part.file.step_source == ONCE for part in main) and not all_settled(predictions)
    found = Evidence.of(predictions) if once else None
    if found is None or found.verdict not in ("unlikely", "marginal"):
        return None
    nowhere = points_nowhere(found)
    return Decision(_from_device_rows(nowhere, main[0].file, predictions)) if nowhere else None


def _refused(main: Sequence[RankPartial]) -> GraphMode | None:
    """Return the answer where it does not depend on the predicted gain; None where it does."""
    if not main:
        return _unanswered("cannot say", words.cannot_say(NO_TRACE), lacking=NO_TRACE)
    first, family = main[0].file, FAMILIES[main[0].file.family]
    predictions = [part.prediction for part in main if part.prediction is not None]
    allocator = None if all_settled(predictions) else allocator_first(main)
    if allocator is not None:
        return _from_device_rows(allocator, first, [] if unsound(main) else predictions)
    if nothing := without_device(predictions):
        return _unanswered("no", f"No: {nothing.why}.", first, predictions, lacking=nothing)
    refusal = unsound(main)
    if refusal is None and first.mode == "compile" and family.graphs.by_compiling:
        return _done_already(first, predictions, words.compiled(family.title))
    if refusal is not None and refusal.reason == "no_steps":
        return _unanswered("cannot say", words.cannot_say(refusal), first, predictions, lacking=refusal)
    unlike = None if refusal else unlike_given(predictions) or unlike_ranks(predictions)
    if unlike:
        return _unanswered("cannot say", words.cannot_say(unlike), first, predictions, lacking=unlike)
    # Work that was launched before the recording leaves what the rows of graphs carry as it is.
    sound = refusal is None or refusal.reason == "unrecorded_work"
    refusal = refusal or find_refusal(main, predictions) or unlike_others(main)
    alone = min(part.file.steps_used for part in main) < MIN_STEPS
    if (
        (refusal or alone)
        and sound
        and predictions
        and all((p.covered or 0.0) >= words.NEARLY_ALL for p in predictions)
    ):
        return _done_already(first, predictions, words.nearly_all_replayed(predictions[0]))
    return _from_device_rows(refusal, first, predictions) if refusal else None


def _from_device_rows(refusal: Refusal, first: FileRow, predictions: Sequence[Prediction]) -> GraphMode:
    """Answer with bounds where nothing can be replayed."""
    lead = predictions[0] if predictions else None
    found = Evidence.of(predictions)
    captures = refusal.reason == "graph_capture" and found is not None and found.paced is None
    if (
        captures or refusal.reason == "one_row"
    ):  # what is captured has no rows; and one that is most of the time is none
        found = None
    if lead and refusal.reason == "no_launches" and all(p.method == "replay" for p in predictions):
        return _unanswered("no", f"No: {refusal.why}.", first, predictions, lacking=refusal)
    if found is None or lead is None:
        few = any(p.span is not None and p.span.rows < MIN_ROWS for p in predictions)
        refusal = FEW_ROWS if few and refusal.reason not in DISTURBED else refusal
        return _unanswered("cannot say", words.cannot_say(refusal, lead=lead), first, predictions, lacking=refusal)
    verdict: Verdict = found.verdict
    paced = refusal.reason in DISTURBED
    if not paced and verdict in ("unlikely", "marginal") and (nowhere := points_nowhere(found)):
        paced, refusal = True, nowhere
    say = words.from_bounds
    if refusal.reason == "first_use" and found.paced is None:
        verdict, say = found.by_first_calls, words.from_first_calls
    elif paced:
        verdict = found.by_pace
        if refusal.reason == "lost_rows" and verdict in ("likely", "marginal"):
            verdict = "cannot say"  # the device may have worked while it seems idle
        say = words.from_pace if verdict not in ("no", "cannot say") else say
    answer = _unanswered(verdict, say(verdict, found, refusal, lead), first, predictions, lacking=refusal)
    return msgspec.structs.replace(answer, basis="device_rows", bounds=found.bounds)


def _done_already(first: FileRow, predictions: Sequence[Prediction], sentence: str) -> GraphMode:
    """Answer for work that runs as graphs already: compiled by the HPU backend, or replayed."""
    lead = predictions[0] if predictions else Prediction(method="none")
    base = float(lead.base_step_ns) or None
    return msgspec.structs.replace(
        _unanswered("no", sentence, first, predictions),
        base=lead.base if base else None,
        base_step_ns=base,
        unreachable=base / lead.busy_ns if base and lead.busy_ns else None,
        evidence=words.facts(lead),
        basis="steps",
    )


def _unanswered(
    verdict: Verdict,
    sentence: str,
    first: FileRow | None = None,
    predictions: Sequence[Prediction] = (),
    *,
    lacking: Refusal | None = None,
) -> GraphMode:
    """Return an answer without a prediction: whatever would be a guess is unknown."""
    p = predictions[0] if predictions else None
    return GraphMode(
        verdict=verdict,
        sentence=sentence,
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
        next_measurement=lacking.need if lacking else "",
        command=lacking.command if lacking else "",
        reason=lacking.reason if lacking else "",
        code="",
        constants=[],
    )


def _judge(main: Sequence[RankPartial], predictions: Sequence[Prediction], *, code: bool) -> Decision:
    """Choose among the options that all ranks have, and answer for the best one."""
    job = Job(main, predictions)
    found = prices_of(job)
    candidates = [c for c in found if c.interval() is not None]
    if not candidates:
        return Decision(_from_device_rows(NO_NUMBER if found else NOTHING_IN_COMMON, job.first, predictions))
    statuses = [ObstacleStatus.of(part, {c.key.region for c in candidates}) for part in main]
    # No prediction may be faster than the device's critical path or the host outside the region, each at the favorable
    # end of its interval.
    held = [c.no_faster(job.spread) for c in candidates]
    if not job.first.mode.startswith("lazy"):  # there each recipe is replayed by itself: less of them may cost less
        held = no_part_beats_its_whole(held)
    ranked = _ranked([replace(c, blocked_by=tuple(blockers(statuses, c.region))) for c in held])
    answer = _answer(job, ranked, statuses, code=code)
    if answer is None:
        return Decision(_from_device_rows(NO_NUMBER, job.first, predictions))
    return Decision(answer, _best(ranked).speedup)


def _ranked(candidates: list[GraphPrice]) -> list[GraphPrice]:
    """Return the candidates best first, those that need changes of the program after all others."""
    return sorted(
        candidates, key=lambda c: (c.needs_changes, _simplicity(c, _fastest_ns(candidates, c)), c.median_ns, c.key)
    )


def _fastest_ns(candidates: list[GraphPrice], group: GraphPrice) -> float:
    """Return the shortest step time of the candidates that need changes as much as this one [ns]."""
    return min(c.median_ns for c in candidates if c.needs_changes == group.needs_changes)


def _best(ranked: list[GraphPrice]) -> GraphPrice:
    """Return what to recommend: the first candidate that can be captured as it is.

    If that one is not sure to pay, but a candidate about as fast, or a blocked one, is: that one. A blocked one that
    gains `BLOCKED` times as much comes before either. Without waits of the step more would be gained, by less waiting.
    """

    def pays(candidate: GraphPrice) -> bool:
        return float(np.mean(candidate.speedup > GAIN)) >= SURE

    kept = [c for c in ranked if not c.key.drops_sync] or ranked
    near = (1 + NEAR) * min(c.median_ns for c in kept if c.needs_changes == kept[0].needs_changes)
    first = next((c for c in kept if pays(c) and (c.blocked_by or c.median_ns <= near)), kept[0])
    first = kept[0] if pays(kept[0]) else first
    blocked = [c for c in kept if c.blocked_by and pays(c)]
    most = max(map(_worth, blocked), default=0.0)
    if first.blocked_by or most <= max(0.0, BLOCKED * _worth(first)):
        return first
    return next(c for c in blocked if _worth(c) >= (1 - NEAR) * most)


def _worth(candidate: GraphPrice) -> float:
    """Return what a candidate gains of the step time: the mean of its sure part and its median [ns]."""
    sure, middle = (float(x) for x in percentiles(candidate.base_ns - candidate.step_ns, [5.0, 50.0]))
    return (max(sure, 0.0) + middle) / 2


def _simplicity(candidate: GraphPrice, fastest: float) -> int:
    """Rank options within 1 % of the fastest first, the simplest to use at the top."""
    if candidate.median_ns / fastest > 1 + NEAR:
        return len(_SIMPLEST)
    return _SIMPLEST.index(candidate.region.kind)


def _answer(job: Job, ranked: list[GraphPrice], statuses: list[ObstacleStatus], *, code: bool) -> GraphMode | None:
    """Answer with the best candidate: its gain, its evidence, its code; None where its gain is no number."""
    lead, first, best = job.lead, job.first, _best(ranked)
    ranked = [best, *(c for c in ranked if c is not best)]
    chosen = _option_row(job, best, ranked, statuses)
    if chosen is None:
        return None
    gain, loss = float(np.mean(best.speedup > GAIN)), float(np.mean(best.speedup < LOSS))
    open_question = lead.base == "profiled" and _would_decide(best.speedup)
    alone = ONE_PASS if first.step_source == ONCE else ONE_STEP
    lacking = alone if job.basis == "one_step" else STEP_TIME if open_question else None
    doubted = 1 - SURE < (job.loader_late or 0.0) < 1 - BEYOND and 1 - SURE < gain < SURE
    if lacking is not STEP_TIME and doubted:
        lacking = ONE_FETCH if job.basis == "one_step" else LOADER
    speedup = chosen.speedup
    verdict = "no" if job.reach <= GAIN else _verdict(gain, speedup, blocked=bool(best.blocked_by), lacking=lacking)
    lacking = None if verdict == "no" else lacking
    ceiling = max(c.ceiling for c in ranked)
    known = interval(job.of_other_runs(job.play.base_samples)) if lead.base == "profiled" else None
    return GraphMode(
        verdict=verdict,
        sentence=words.sentence_for(verdict, chosen, lead, job.base_ns, known, lacking),
        mode=first.mode,
        family=first.family,
        speedup=speedup,
        step_time_ns=chosen.step_time_ns,
        probability_gain=gain,
        probability_loss=loss,
        base=lead.base,
        base_step_ns=job.base_ns,
        base_range_ns=known,
        settled=lead.settled,
        overhead=lead.overhead,
        overhead_source=lead.overhead_source,
        profiled_step_ns=float(median(p.profiled_step_ns for p in job.predictions)),
        uncorrected_step_ns=best.uncorrected_ns,
        ceiling=ceiling,
        unreachable=max(ceiling, job.base_ns * (1 + job.spread) / job.busy_ns) if job.busy_ns > 0 else None,
        method=lead.method,
        replay_error=max((p.replay_error for p in job.predictions if p.replay_error is not None), default=None),
        unexplained=max(p.unexplained for p in job.predictions) if lead.method == "replay" else None,
        together_error=job.play.together_error if job.play.joined else None,
        region=best.key.region,
        api=chosen.api,
        options=[row for c in ranked[:KEEP_OPTIONS] if (row := _option_row(job, c, ranked, statuses))],
        evidence=[
            *words.evidence(lead, best.lead, job.base_ns),
            *words.how_joined(job.predictions, job.play.together_error, together=job.play.joined),
            *words.out_of_reach(best, ranked),
            *words.below_busy(lead, best.median_ns),
        ],
        assumptions=words.assumptions(lead, job.graphs.assumption, len(job.predictions)),
        next_measurement=lacking.need if lacking else words.sharpen(lead),
        command=lacking.command if lacking else words.how_to_sharpen(lead),
        basis=job.basis,
        bounds=Bounds(low=max(1.0, speedup.low), high=max(1.0, job.reach, ceiling)) if job.busy_ns > 0 else None,
        reason=lacking.reason if lacking else "",
        code=_code(job, best, statuses) if code and verdict in WORTH_TRYING else "",
        constants=list(job.constants.values()),
    )


def _option_row(
    job: Job, c: GraphPrice, ranked: list[GraphPrice], statuses: list[ObstacleStatus]
) -> GraphOption | None:
    """Return a candidate as a row of the report; None where its gain is no number."""
    speedup, step_time = c.interval(), interval(job.of_other_runs(c.step_ns))
    if speedup is None or step_time is None:
        return None
    if job.lead.base == "profiled" and _would_decide(c.speedup) and speedup.low < GAIN:
        # The gain may be the profiler's own cost, which within the dead band is none.
        speedup = msgspec.structs.replace(speedup, low=min(1.0, speedup.low))
    situation = situation_of(job.first, statuses, job.lead, RegionName("model"))
    return GraphOption(
        region=c.key.region,
        api=api_name(situation, c.region),
        speedup=speedup,
        step_time_ns=step_time,
        regret=c.median_ns / _fastest_ns(ranked, c) - 1.0,
        needs_changes=c.needs_changes,
        drops_sync=c.key.drops_sync,
        asynchronous=c.key.asynchronous,
        launches=c.lead.launches,
        graphs=c.lead.graphs,
        memory_bytes=memory_held(statuses, c.region),
        break_even_steps=_break_even(situation.graphs.capture_steps, job.base_ns, c.median_ns),
        blocked_by=list(c.blocked_by),
        note=note_for(situation, c.region, drops_sync=c.key.drops_sync, asynchronous=c.key.asynchronous),
    )


def _code(job: Job, best: GraphPrice, statuses: list[ObstacleStatus]) -> str:
    """Return the code to type for a candidate."""
    situation = situation_of(job.first, statuses, job.lead, best.region)
    return code_for(situation, best.region, asynchronous=best.key.asynchronous)


def _would_decide(ratio: Floats) -> bool:
    """Whether the step time without the profiler would settle the answer; samples go from low to high cost."""
    much = Draws.make(len(ratio)).uniform[0] > 0.5
    return abs(float(np.mean(ratio[much] > GAIN)) - float(np.mean(ratio[~much] > GAIN))) > DECIDES


def _verdict(gain: float, speedup: Interval, *, blocked: bool, lacking: Refusal | None) -> Verdict:
    """Return the verdict for a probability of a gain; `lacking`: what keeps it from being sure."""
    if gain <= 1 - SURE or (abs(speedup.median - 1) < AROUND and speedup.high < 1 + UP_TO):
        return "unlikely" if lacking else "no"
    if lacking and gain < 0.5 and speedup.high < 1 + UP_TO:
        return "unlikely"
    if blocked:
        return "not yet" if speedup.median > GAIN else "marginal"
    if gain >= SURE:
        return "likely" if lacking else "yes"
    if lacking in (STEP_TIME, LOADER, ONE_FETCH):
        return "likely" if gain >= 0.5 else "unlikely"
    return "marginal"


def _break_even(steps: float, base: float, then: float) -> int | None:
    """Return the steps until warm-up and capture, which take `steps`, pay off; None without a gain."""
    saved = base - then
    return int(np.ceil(steps * base / saved)) if saved > 0.01 * base else None
