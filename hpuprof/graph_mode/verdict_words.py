"""The graph-mode answer in words: sentence, evidence, assumptions, how to narrow the interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hpuprof.graph_mode.candidates import Candidate, RegionName
from hpuprof.model.durations import duration
from hpuprof.model.prediction import GraphOption, Option, Prediction

GAIN, LOSS = 1.05, 0.99
"""The dead band: within 5 %, no claim; a loss is a step more than 1 % slower."""

COMPILED = "No: the model is already compiled for the HPU, so its regions run as graphs."
_RECORD = 'Trainer(profiler=HPUProfiler(dirpath="traces"))  # or: with hpuprof.record("traces") as recording: …'
_LONGER = "HPUProfiler(active=10)"


class Refusal(NamedTuple):
    """Why there is no answer, which measurement would help, and how to take it."""

    why: str
    need: str
    command: str


NOTHING = Refusal("", "", "")
NO_TRACE = Refusal("there is no trace to judge", "a trace", _RECORD)
A_RANK_WITHOUT_PREDICTION = Refusal("not every rank has a prediction", "traces of all ranks", _RECORD)
NO_STEPS = Refusal(
    "no steps were found in the trace",
    "a trace with step markers",
    "prof.step() after each step, or HPUProfiler, which marks them",
)
FEW_STEPS = Refusal("fewer than two typical steps", "a longer recording", _LONGER)
LATE_ROWS = Refusal(
    "device rows start late for reasons the trace does not show",
    "a trace with events and synchronisation recorded",
    "torch.profiler with enable_cuda_sync_events",
)
NOTHING_IN_COMMON = Refusal("no part of the step is the same on every rank", "traces of one job", "")
UNSOUND = {
    "HP105": "a trace with device activity",
    "HP126": "a trace with host activity",
    "HP108": "a trace that keeps the device rows of graph replays",
    "HP106": "a trace whose device rows cover the steps",
    "HP107": "a trace of ordinary steps, without the one long row",
}
"""What each diagnostic that rules out an answer asks for; the first one found is reported."""


def unsound(code: str, text: str) -> Refusal:
    """Refuse for a diagnostic of `UNSOUND`, in its own words."""
    return Refusal(text, UNSOUND[code], _RECORD)


def allocator_first(share: float) -> Refusal:
    """Refuse because memory is allocated and freed for `share` of the step."""
    return Refusal(
        f"allocating and freeing memory takes {100 * share:.0f} % of the step and is no launch overhead; the "
        "allocator comes first, and graphs need its cache",
        "a trace in which the allocator's cache serves the steps",
        "unset PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NO_HIP_MEMORY_CACHING  # and no empty_cache() in the step",
    )


def no_prediction(prediction: Prediction) -> Refusal:
    """Refuse because a rank has no prediction, with the reason that it gives."""
    return Refusal(prediction.reason, "a trace with host and device activity", _RECORD)


def not_explained(worst: Prediction) -> Refusal:
    """Refuse because the recorded step cannot be replayed."""
    off = f"{100 * (worst.replay_error or 0):.0f} % off"
    if worst.fell_back is not None:
        off = f"{100 * worst.fell_back:.0f} % off, and from stage times {off}"
    return Refusal(
        f"the recorded step cannot be reproduced: replayed unchanged, it is {off}",
        "a trace of more steps, with correlations between launches and device rows",
        _LONGER,
    )


def cannot_say(refusal: Refusal) -> str:
    """Return the refusal as the answer."""
    return f"Cannot say whether graph mode would help: {refusal.why}."


def out_of_reach(ranked: list[Candidate]) -> list[str]:
    """Say what removing obstacles would gain, where that is a tenth more than what is available now."""
    best = ranked[0]
    blocked = [(float(np.median(c.speedup)), c) for c in ranked if c.blocked_by and not c.key.drops_sync]
    speedup, other = max(blocked, key=lambda found: found[0], default=(0.0, best))
    if not blocked or best.blocked_by or speedup < 1.1 * float(np.median(best.speedup)):
        return []
    what = what_is_captured(other.key.region)
    return [f"without {', '.join(other.blocked_by)}, {what} could be captured: {_times(speedup)}"]


def what_is_captured(region: str) -> str:
    """Name a region."""
    return {
        "step": "the whole step",
        "forward+backward": "forward and backward",
        "model": "the model's forward and backward",
        "modules": "the large modules",
        "optimizer": "the optimizer",
    }.get(region, f"module {RegionName.of(region).module}")


def _times(value: float) -> str:
    return f"{value:.2f}×"


def sentence_for(verdict: str, best: GraphOption, lead: Prediction, mode: str, base: float) -> str:
    """Return the answer in one sentence; `base` is the step time now [ns]."""
    s = best.speedup
    interval = f"(90 %: {s.low:.2f} to {s.high:.2f})"
    runs = f"the step would run {_times(s.median)} as fast {interval}"
    with_graphs = f"with graph mode for {what_is_captured(best.region)}, {runs}"
    if verdict == "yes":
        extra = "; part of the step already runs as graphs" if "graphs" in mode else ""
        times = f"from {duration(base)} to {duration(best.step_time_ns.median)}"
        return f"Yes: {with_graphs}, {times}{extra}."
    if verdict == "no":
        if lead.loader_bound:
            return "No: the step waits for data-loader workers; with graphs it would only wait longer."
        if s.median < LOSS and s.high < GAIN:
            return f"No: graph mode would cost time; {runs}."
        if "graphs" in mode:
            return f"No: the step already replays graphs, and more of them would change little; {runs}."
        return f"No: graph mode would change little; {runs}."
    if verdict == "marginal":
        if best.blocked_by:
            return f"Not yet: {with_graphs}, but {', '.join(best.blocked_by)} must be removed first."
        return f"Marginal: {with_graphs}; too close to call."
    suggests = f"the profiled step suggests {_times(s.median)} {interval}"
    return f"Cannot say: {suggests}; the answer depends on the unprofiled step time."


def facts(lead: Prediction) -> list[str]:
    """Return what the trace shows, whatever is recommended."""
    out = [f"host work {duration(lead.host_ns)} per step, device busy {duration(lead.busy_ns)}, waiting excluded"]
    if lead.replays:
        share = f", {100 * lead.covered:.0f} % of device time" if lead.covered is not None else ""
        rest = f"; {lead.left_out:.1f} launches per step remain outside them" if lead.left_out is not None else ""
        out.append(f"the trace already holds {lead.replays:.1f} graph launches per step{share}{rest}")
    if lead.waits:
        out.append(f"the host waits for the device {lead.waits:.1f} times per step{_while(lead)}")
    streams = lead.stream_waits_recorded + lead.stream_waits_guessed
    if streams:
        named = lead.stream_waits_recorded
        what = f"the trace names the events of {named:.1f} of them" if named else "the trace names the event of none"
        out.append(f"streams wait for one another {streams:.1f} times per step; {what}")
    out += [f"no prediction for {what_is_captured(region)}: its work would wait for itself" for region in lead.refused]
    return out


def _while(lead: Prediction) -> str:
    """Say what the waits are for, where that is known."""
    if lead.waits is None or lead.waits_reading is None or lead.waits_uploading is None:
        return ""
    rest = lead.waits - lead.waits_reading - lead.waits_uploading
    parts = (
        (lead.waits_reading, "to read a value"),
        (lead.waits_uploading, "in copies to it"),
        (rest, "in other synchronisation"),
    )
    shown = [f"{count:.1f} {what}" for count, what in parts if round(count, 1)]
    return f": {', '.join(shown)}" if shown else ""


def evidence(lead: Prediction, best: Option, base: float) -> list[str]:
    """Return what the answer rests on; `base` is the step time now [ns]."""
    within = f"within {100 * (lead.replay_error or 0.0):.1f} %"
    if lead.method == "replay":
        out = [f"replaying {lead.steps} steps unchanged reproduces the recorded time {within}"]
    elif lead.recipes:
        recipes = f"{lead.recipes * lead.steps:.0f} recipes of {lead.steps} steps, matched to their launches,"
        out = [f"replaying {recipes} reproduces the recorded time {within}{_given_up(lead)}"]
    else:
        out = [f"stage times explain the recorded step {within}{_given_up(lead)}"]
    launched = f"{best.graphs:.0f} graph launch{'' if round(best.graphs) == 1 else 'es'}"
    outside = f"{duration(best.host_outside_ns)} of host work per step stays outside"
    out.append(f"{best.launches:.0f} launches per step become {launched}; {outside}")
    if best.split:
        out.append(f"{best.split:.1f} recipes per step straddle the region's border and are split there")
    if lead.base != "profiled":
        recorded = duration(lead.profiled_step_ns)
        out.append(f"step time {duration(base)} without the profiler, {recorded} as recorded")
    return out + facts(lead)


def _given_up(lead: Prediction) -> str:
    return "" if lead.fell_back is None else f"; replayed launch by launch, it was {100 * lead.fell_back:.0f} % off"


def how_joined(predictions: Sequence[Prediction], error: float | None, *, together: bool) -> list[str]:
    """Say how the ranks were combined."""
    ranks = len(predictions)
    if ranks < 2 or not any(p.collectives for p in predictions):
        return []
    if error is not None and together:
        together_with = f"replaying {ranks} ranks together, each collective starting when its last rank is ready,"
        return [f"{together_with} reproduces the recorded time within {100 * error:.1f} %"]
    if error is not None:
        why = f"replayed together, they are {100 * error:.0f} % off"
    elif any(p.method != "replay" for p in predictions):
        why = "stage times do not show when collectives run"
    else:
        why = "their collectives do not match"
    return [f"the slowest of {ranks} ranks sets the step time: {why}"]


def assumptions(lead: Prediction, mode: str, ranks: int) -> list[str]:
    """Return the assumptions."""
    out = ["the whole run has the shapes and control flow of the recorded steps"]
    if lead.base == "profiled":
        out.append("the profiler's cost per row comes from other machines; the gain is biased upwards")
    if ranks > 1 or lead.collectives:
        out.append("all ranks use graph mode")
    if not lead.loader_bound:
        out.append("data loading keeps up with the faster step")
    if lead.method == "pipeline":
        out.append(
            "recipes match their launches first in, first out"
            if lead.recipes
            else "recipes are not matched to launches: stage totals set the step time"
        )
    if lead.other_threads:
        share = f"{100 * lead.other_threads:.0f} % of launches"
        out.append(f"{share} come from other threads, which alternate with the main one")
    if lead.stream_waits_guessed:
        out.append("a stream that waits for an unnamed event waits for the stream used last before it")
    if mode.startswith("lazy"):
        out.append("this project never measured replay costs on Gaudi; their range is wide")
    return out


def sharpen(lead: Prediction) -> str:
    """Name the one measurement that would narrow the interval most."""
    if lead.base == "profiled":
        return "the step time without the profiler"
    if lead.base_spread > 0.03:
        return "a longer, steadier timing of the step without the profiler"
    return "this machine's cost of a replay, a gap and a copy"


def how_to_sharpen(lead: Prediction) -> str:
    """Return how to take that measurement."""
    if lead.base == "profiled":
        return "hpuprof advise TRACES --step-time 12.3ms  # or record with HPUProfiler, which times it"
    return "hpuprof calibrate -o machine.json, then hpuprof advise TRACES --constants machine.json"
