"""Would graph mode help? From the predictions of all ranks to one verdict, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np

from hpuprof.graph_mode.collective_skeleton import alone_ns, together_ns
from hpuprof.graph_mode.constants import constants_for
from hpuprof.graph_mode.interfaces import api_name, code_for, note_for
from hpuprof.graph_mode.obstacles_by_region import Standing, blockers, memory_held, situation_of
from hpuprof.graph_mode.uncertainty import REPLAY_LIMIT, Draws, unpack
from hpuprof.graph_mode.verdict_words import (
    GAIN,
    LOSS,
    assumptions,
    evidence,
    facts,
    how_joined,
    out_of_reach,
    sentence_for,
    sharpen,
)
from hpuprof.model.arrays import Floats
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import GraphMode, GraphOption, Interval, Option, Prediction

SURE = 0.9
STAGES_LIMIT = 0.10
UNEXPLAINED_LIMIT = 0.15
MIN_STEPS = 2
KEEP_OPTIONS = 24
DECIDES = 0.3
"""Change of the probability of a gain between little and much profiling cost from which the missing step time would decide."""
NEAR = 0.01
NORMAL_95 = 1.645  # standard deviations from the median to the 95th percentile
_SIMPLEST = ("model", "modules", "module", "optimizer", "forward+backward", "step")
CAPTURE_STEPS = {"hpu": 3.0}  # warm-up and capture, in steps of today; 5 elsewhere

_UNSOUND = ("HP105", "HP126", "HP108", "HP106", "HP107")
_RECORD = 'Trainer(profiler=HPUProfiler(dirpath="traces"))  # or: with hpuprof.record("traces") as recording: …'
_FIX = {
    "HP105": ("a trace with device activity", _RECORD),
    "HP126": ("a trace with host activity", _RECORD),
    "HP106": ("a trace whose device rows cover the steps", _RECORD),
    "HP107": ("a trace of ordinary steps, without the one long row", _RECORD),
    "HP108": ("a trace that keeps the device rows of graph replays", _RECORD),
}


def decide_graph_mode(main: Sequence[RankPartial]) -> GraphMode:
    """Decide for the chosen recordings of all ranks; ranks go together: the slowest one sets the step."""
    if not main:
        return _cannot("there is no trace to judge", "", "", "a trace", _RECORD)
    first = main[0].file
    family, mode = first.family, first.mode
    for code in _UNSOUND:
        texts = [d.text for part in main for d in part.diagnostics if d.code == code]
        if texts:
            return _cannot(texts[0], family, mode, *_FIX[code])
    predictions = [part.prediction for part in main if part.prediction is not None]
    if family == "hpu" and mode == "compile":
        return _compiled(main, predictions)
    refused = _refusal(main, predictions)
    if refused:
        return _cannot(refused[0], family, mode, refused[1], refused[2], predictions[:1])
    return _judge(main, predictions)


def _compiled(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> GraphMode:
    """Answer for a model compiled by the HPU backend: its regions are recipes already."""
    first = main[0].file
    lead = predictions[0] if predictions else Prediction(method="none")
    base = float(lead.base_step_ns) or None
    return msgspec.structs.replace(
        _cannot("", first.family, first.mode, "", "", predictions),
        verdict="no",
        sentence="No: the model is compiled for the HPU already, so its regions run as graphs.",
        base=lead.base if base else None,
        base_step_ns=base,
        unreachable=base / lead.busy_ns if base and lead.busy_ns else None,
        evidence=facts(lead),
        next_measurement="",
        command="",
    )


def _refusal(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> tuple[str, str, str] | None:
    """Return why nothing can be said, what would help and how; None when something can."""
    for prediction in predictions:
        if prediction.method == "none":
            return prediction.reason, "a trace with host and device activity", _RECORD
    if len(predictions) < len(main):
        return "not every rank has a prediction", "traces of all ranks", _RECORD
    sources = {part.file.step_source for part in main}
    if "whole_trace" in sources:
        return (
            "no steps were found in the trace",
            "a trace with step markers",
            "prof.step() after each step, or HPUProfiler, which marks them",
        )
    if min(part.file.steps_used for part in main) < MIN_STEPS:
        return "fewer than two typical steps", "a longer recording", "HPUProfiler(active=10)"
    worst = max(predictions, key=lambda p: p.replay_error or 0.0)
    limit = REPLAY_LIMIT if worst.method == "replay" else STAGES_LIMIT
    if (worst.replay_error or 0.0) > limit:
        off = f"{100 * (worst.replay_error or 0):.0f} % off"
        if worst.fell_back is not None:
            off = f"{100 * worst.fell_back:.0f} % off, and from stage times {off}"
        return (
            f"the recorded step cannot be explained: replayed unchanged it is {off}",
            "a trace with correlations between launches and device rows, of more steps",
            "HPUProfiler(active=10)",
        )
    if max(p.unexplained for p in predictions) > UNEXPLAINED_LIMIT:
        return (
            "device rows start late for reasons the trace does not hold",
            "a trace with events and synchronisation recorded",
            "torch.profiler with enable_cuda_sync_events",
        )
    return None


def _cannot(
    why: str, family: str, mode: str, need: str, command: str, predictions: Sequence[Prediction] = ()
) -> GraphMode:
    p = predictions[0] if predictions else None
    return GraphMode(
        verdict="cannot say",
        sentence=f"Cannot say whether graph mode would help: {why}.",
        mode=mode,
        family=family,
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
        next_measurement=need,
        command=command,
        code="",
        constants=[],
    )


def _interval(values: Floats) -> Interval:
    low, middle, high = (float(x) for x in np.percentile(values, [5, 50, 95]))
    return Interval(low=low, median=middle, high=high)


def _key(option: Option) -> tuple[str, bool, bool]:
    return option.region, option.drops_sync, option.asynchronous


def _joint(
    predictions: Sequence[Prediction], key: tuple[str, bool, bool], *, together: bool
) -> tuple[Floats, Floats] | None:
    """Return samples of the step time then and of the speed-up when every rank captures this region; None where one cannot.

    `together`: ranks are replayed with their collectives starting together; otherwise the slowest rank sets the step.
    """
    times, options = [], []
    for prediction in predictions:
        found = [o for o in prediction.options if _key(o) == key]
        if not found:
            return None
        times.append(prediction.base_step_ns / unpack(found[0].ratio))
        options.append(found[0])
    then = np.max(np.array(times), axis=0)
    rhythms = [o.rhythm for o in options if o.rhythm is not None]
    if together and len(rhythms) == len(predictions):
        joint = together_ns(rhythms, [p.groups for p in predictions])
        if joint is not None:
            then = then * joint / max(alone_ns(rhythm) for rhythm in rhythms)
    base = median(p.base_step_ns for p in predictions)
    return then, base / then


def _together_error(predictions: Sequence[Prediction]) -> float | None:
    """Return by how much all ranks replayed together as recorded miss the recorded step; None where they cannot be."""
    rhythms = [p.rhythm for p in predictions if p.rhythm is not None]
    if len(predictions) < 2 or len(rhythms) < len(predictions):
        return None
    found = together_ns(rhythms, [p.groups for p in predictions])
    # Ranks that run ahead record shorter steps; how fast the job goes shows on the slowest one.
    recorded = max(p.profiled_step_ns for p in predictions)
    return None if found is None or not recorded else abs(found - recorded) / recorded


def _judge(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> GraphMode:
    first = main[0].file
    lead = predictions[0]
    base = float(median(p.base_step_ns for p in predictions))
    samples: dict[tuple[str, bool, bool], tuple[Floats, Floats]] = {}
    error = _together_error(predictions)
    together = error is not None and error <= REPLAY_LIMIT
    for option in lead.options:
        joint = _joint(predictions, _key(option), together=together)
        if joint is not None:
            samples[_key(option)] = joint
    if not samples:
        return _cannot(
            "no part of the step is the same on every rank", first.family, first.mode, "traces of one job", ""
        )
    standing = [Standing.of(part, {key[0] for key in samples}) for part in main]
    situation = situation_of(first, standing, lead, "model")
    blocked = {key: blockers(standing, key[0]) for key in samples}
    constants = constants_for(first.family, first.mode, {c.name: c for c in lead.measured})
    scale = constants["kernel_scale"].low
    critical = scale * _critical_ns(predictions, together=together)
    # No prediction may promise what neither the device's critical path nor the host outside the region allows, each of them
    # at the favourable end of what is believed.
    longest = base * float(np.exp(NORMAL_95 * lead.base_spread))
    reach = {key: longest / max(critical, _outside(predictions, key)) for key in samples}
    samples = {key: _no_faster(ratio, base, reach[key]) for key, (_, ratio) in samples.items()}
    middle = {key: float(np.median(then)) for key, (then, _) in samples.items()}
    fastest = min((middle[k] for k in samples if not k[1] and not blocked[k]), default=min(middle.values()))
    order = sorted(
        samples, key=lambda key: (bool(blocked[key]), key[1], _rank(key, middle[key] / fastest), middle[key], key)
    )
    near = {key for key in samples if middle[key] <= (1 + NEAR) * fastest}
    best = _best(order, samples, blocked, near)
    order.remove(best)
    order.insert(0, best)
    by_key = {_key(o): o for o in lead.options}
    options = [
        GraphOption(
            region=key[0],
            api=api_name(situation, key[0]),
            speedup=_interval(samples[key][1]),
            step_time_ns=_interval(samples[key][0]),
            regret=middle[key] / fastest - 1.0,
            drops_sync=key[1],
            asynchronous=key[2],
            launches=by_key[key].launches,
            graphs=by_key[key].graphs,
            memory_bytes=memory_held(standing, key[0]),
            break_even_steps=_break_even(first.family, base, middle[key]),
            blocked_by=blocked[key],
            note=note_for(situation, key[0], drops_sync=key[1], asynchronous=key[2]),
        )
        for key in order[:KEEP_OPTIONS]
    ]
    then, ratio = samples[best]
    gain, loss = float(np.mean(ratio > GAIN)), float(np.mean(ratio < LOSS))
    open_question = lead.base == "profiled" and _would_decide(ratio)
    verdict = _verdict(gain, blocked=bool(blocked[best]), open_question=open_question)
    chosen = by_key[best]
    ceiling = reach[best]
    busy = max(p.busy_ns for p in predictions)
    unmeasured = lead.base == "profiled"
    advise = verdict in ("yes", "marginal")
    return GraphMode(
        verdict=verdict,
        sentence=sentence_for(verdict, options[0], lead, first.mode, base),
        mode=first.mode,
        family=first.family,
        speedup=_interval(ratio),
        step_time_ns=_interval(then),
        probability_gain=gain,
        probability_loss=loss,
        base=lead.base,
        base_step_ns=base,
        profiled_step_ns=float(median(p.profiled_step_ns for p in predictions)),
        uncorrected_step_ns=max(o.uncorrected_ns for p in predictions for o in p.options if _key(o) == best),
        ceiling=ceiling,
        unreachable=max(ceiling, longest / (scale * busy)) if busy > 0 else None,
        method=lead.method,
        replay_error=max((p.replay_error for p in predictions if p.replay_error is not None), default=None),
        unexplained=max(p.unexplained for p in predictions) if lead.method == "replay" else None,
        together_error=error if together else None,
        region=best[0],
        api=options[0].api,
        options=options,
        evidence=evidence(lead, chosen, base)
        + how_joined(predictions, error, together=together)
        + out_of_reach(order, samples, blocked, best),
        assumptions=assumptions(lead, first.mode, len(predictions)),
        next_measurement="the step time without the profiler" if unmeasured else sharpen(lead),
        command=(
            "hpuprof advise TRACES --step-time 12.3ms  # or record with HPUProfiler, which times it"
            if unmeasured
            else "hpuprof calibrate -o machine.json, then hpuprof advise TRACES --constants machine.json"
        ),
        code=code_for(situation_of(first, standing, lead, best[0]), best[0], asynchronous=best[2]) if advise else "",
        constants=list(constants.values()),
    )


def _critical_ns(predictions: Sequence[Prediction], *, together: bool) -> float:
    """Return the step time [ns] if host work took no time."""
    rhythms = [p.critical_rhythm for p in predictions if p.critical_rhythm is not None]
    if together and len(rhythms) == len(predictions):
        found = together_ns(rhythms, [p.groups for p in predictions])
        if found is not None:
            return found
    return max(p.critical_ns for p in predictions)


def _outside(predictions: Sequence[Prediction], key: tuple[str, bool, bool]) -> float:
    return max(o.host_outside_low_ns for p in predictions for o in p.options if _key(o) == key)


def _no_faster(ratio: Floats, base: float, reach: float) -> tuple[Floats, Floats]:
    less = np.minimum(ratio, reach)
    return base / less, less


def _would_decide(ratio: Floats) -> bool:
    """Tell whether knowing the step time without the profiler would settle the answer: samples go from little to much cost."""
    much = Draws.make(len(ratio)).uniform[0] > 0.5
    return abs(float(np.mean(ratio[much] > GAIN)) - float(np.mean(ratio[~much] > GAIN))) > DECIDES


def _best(
    order: list[tuple[str, bool, bool]],
    samples: dict[tuple[str, bool, bool], tuple[Floats, Floats]],
    blocked: dict[tuple[str, bool, bool], list[str]],
    near: set[tuple[str, bool, bool]],
) -> tuple[str, bool, bool]:
    """Return what to recommend: the best that can be captured as it is, unless only one about as fast is sure to pay, or a blocked one."""

    def pays(key: tuple[str, bool, bool]) -> bool:
        return float(np.mean(samples[key][1] > GAIN)) >= SURE

    ready = [key for key in order if not key[1]] or order
    if pays(ready[0]):
        return ready[0]
    sure = [key for key in ready if pays(key) and (blocked[key] or key in near)]
    return min(sure, key=lambda key: (bool(blocked[key]), ready.index(key)), default=ready[0])


def _rank(key: tuple[str, bool, bool], relative: float) -> int:
    """Options within a per cent of the fastest come first, the simplest to use of them at the top."""
    if relative > 1 + NEAR:
        return len(_SIMPLEST)
    kind = "module" if key[0].startswith("module:") else key[0]
    return _SIMPLEST.index(kind)


def _verdict(gain: float, *, blocked: bool, open_question: bool) -> str:
    if blocked:
        return "no" if gain <= 1 - SURE else "marginal"
    if gain <= 1 - SURE:
        return "no"
    if gain >= SURE:
        return "yes"
    return "cannot say" if open_question else "marginal"


def _break_even(family: str, base: float, then: float) -> int | None:
    """Return after how many steps warm-up and capture have paid; None when nothing is gained."""
    saved = base - then
    return int(np.ceil(CAPTURE_STEPS.get(family, 5.0) * base / saved)) if saved > 0.01 * base else None
