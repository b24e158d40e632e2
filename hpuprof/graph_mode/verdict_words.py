"""The graph-mode answer in words: sentence, evidence, assumptions, what would sharpen it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hpuprof.graph_mode.candidates import Candidate, RegionName
from hpuprof.model.durations import duration
from hpuprof.model.prediction import GraphOption, Option, Prediction

GAIN, LOSS = 1.05, 0.99
"""The dead band: within 5 % no claim is made; a loss is a step more than 1 % slower."""


COMPILED = "No: the model is compiled for the HPU already, so its regions run as graphs."
_RECORD = 'Trainer(profiler=HPUProfiler(dirpath="traces"))  # or: with hpuprof.record("traces") as recording: …'
_LONGER = "HPUProfiler(active=10)"


class Refusal(NamedTuple):
    """Why nothing can be said, which measurement would help, and how to make it."""

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
    "device rows start late for reasons the trace does not hold",
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
"""What each diagnostic that forbids an answer asks for; the first one found is told."""


def unsound(code: str, text: str) -> Refusal:
    """Refuse for a diagnostic of `UNSOUND`, which is told in its own words."""
    return Refusal(text, UNSOUND[code], _RECORD)


def no_prediction(prediction: Prediction) -> Refusal:
    """Refuse because a rank has no prediction, for its own reason."""
    return Refusal(prediction.reason, "a trace with host and device activity", _RECORD)


def not_explained(worst: Prediction) -> Refusal:
    """Refuse because the recorded step cannot be replayed."""
    off = f"{100 * (worst.replay_error or 0):.0f} % off"
    if worst.fell_back is not None:
        off = f"{100 * worst.fell_back:.0f} % off, and from stage times {off}"
    return Refusal(
        f"the recorded step cannot be explained: replayed unchanged it is {off}",
        "a trace with correlations between launches and device rows, of more steps",
        _LONGER,
    )


def cannot_say(refusal: Refusal) -> str:
    """Return the refusal as the answer."""
    return f"Cannot say whether graph mode would help: {refusal.why}."


def out_of_reach(ranked: list[Candidate]) -> list[str]:
    """Tell what removing obstacles would bring, where that is a tenth more than what can be had now."""
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
    size = f"{_times(s.median)} ({_times(s.low)} to {_times(s.high)})"
    what = what_is_captured(best.region)
    if verdict == "yes":
        extra = "; part of the step is replayed from graphs already" if "graphs" in mode else ""
        return f"Yes: graph mode for {what} would make the step {size} faster, {duration(base)} to {duration(best.step_time_ns.median)}{extra}."
    if verdict == "no":
        if lead.loader_bound:
            return "No: the step waits for data-loader workers, and a graph would only wait longer."
        if s.median < LOSS and s.high < GAIN:
            return f"No: graph mode would cost time, {size}."
        if "graphs" in mode:
            return f"No: graphs are replayed already, and more of them would change little, {size}."
        return f"No: graph mode would change little, {size}."
    if verdict == "marginal":
        if best.blocked_by:
            return f"Not as it is: {what} would become {size} faster, but {', '.join(best.blocked_by)} must be removed first."
        return f"Marginal: graph mode for {what} would make the step {size} faster; that is too close to call."
    return f"Cannot say: {size} as far as the profiled step shows, and how long a step takes without the profiler decides it."


def _launched(option: Option) -> str:
    return "graph launch" if round(option.graphs) == 1 else "graph launches"


def facts(lead: Prediction) -> list[str]:
    """Return what the trace shows whatever is recommended."""
    out = [f"host work {duration(lead.host_ns)} per step, device busy {duration(lead.busy_ns)}, waiting left out"]
    if lead.replays:
        share = f", {100 * lead.covered:.0f} % of device time" if lead.covered is not None else ""
        rest = f"; {lead.left_out:.1f} launches per step are left out" if lead.left_out is not None else ""
        out.append(f"{lead.replays:.1f} graph launches per step are there already{share}{rest}")
    if lead.waits:
        out.append(f"the host waits for the device {lead.waits:.1f} times per step{_while(lead)}")
    out += [f"{what_is_captured(region)}: left out, its work would wait for itself" for region in lead.refused]
    return out


def _while(lead: Prediction) -> str:
    """Tell in what the waits lie, as far as it is known."""
    if lead.waits is None or lead.waits_reading is None or lead.waits_uploading is None:
        return ""
    rest = lead.waits - lead.waits_reading - lead.waits_uploading
    parts = (
        (lead.waits_reading, "to read a value"),
        (lead.waits_uploading, "in copies to it"),
        (rest, "for its own sake"),
    )
    told = [f"{count:.1f} {what}" for count, what in parts if round(count, 1)]
    return f": {', '.join(told)}" if told else ""


def evidence(lead: Prediction, best: Option, base: float) -> list[str]:
    """Return what the answer rests on; `base` is the step time now [ns]."""
    out = [
        f"{lead.steps} steps replayed unchanged come within {100 * (lead.replay_error or 0.0):.1f} % of the recorded time"
        if lead.method == "replay"
        else f"{lead.recipes * lead.steps:.0f} recipes of {lead.steps} steps, matched to their launches and replayed unchanged, come within {100 * (lead.replay_error or 0.0):.1f} % of the recorded time{_given_up(lead)}"
        if lead.recipes
        else f"stage times explain the recorded step within {100 * (lead.replay_error or 0.0):.1f} %{_given_up(lead)}",
        f"{best.launches:.0f} launches per step become {best.graphs:.0f} {_launched(best)}; {duration(best.host_outside_ns)} of host work per step stays outside",
    ]
    if best.split:
        out.append(f"{best.split:.1f} recipes per step lie in the region in part and are split at its border")
    if lead.base != "profiled":
        out.append(f"step time without the profiler {duration(base)}, recorded {duration(lead.profiled_step_ns)}")
    return out + facts(lead)


def _given_up(lead: Prediction) -> str:
    return "" if lead.fell_back is None else f"; replayed launch by launch it was {100 * lead.fell_back:.0f} % off"


def how_joined(predictions: Sequence[Prediction], error: float | None, *, together: bool) -> list[str]:
    """Tell how ranks were put together."""
    ranks = len(predictions)
    if ranks < 2 or not any(p.collectives for p in predictions):
        return []
    if error is not None and together:
        return [
            f"{ranks} ranks replayed together, each collective starting when its last rank is ready, come within {100 * error:.1f} % of the recorded time"
        ]
    if error is not None:
        why = f"replayed together they are {100 * error:.0f} % off"
    elif any(p.method != "replay" for p in predictions):
        why = "stage times hold no place for collectives"
    else:
        why = "their collectives do not fit together"
    return [f"the slowest of {ranks} ranks sets the step: {why}"]


def assumptions(lead: Prediction, mode: str, ranks: int) -> list[str]:
    """Return what was taken for granted."""
    out = ["shapes and control flow of the recorded steps are those of the run"]
    if lead.base == "profiled":
        out.append("what profiling costs per row is taken from other machines; the gain is biased upwards")
    if ranks > 1 or lead.collectives:
        out.append("all ranks use graph mode")
    if not lead.loader_bound:
        out.append("data loading keeps up with the faster step")
    if lead.method == "pipeline":
        out.append(
            "recipes are matched to their launches first in, first out"
            if lead.recipes
            else "recipes are not matched to launches: the totals of the stages set the step"
        )
    if lead.other_threads:
        out.append(
            f"{100 * lead.other_threads:.0f} % of launches come from further threads, taken to alternate with the main one"
        )
    if mode.startswith("lazy"):
        out.append("replay costs on Gaudi were never measured by this project; their range is wide")
    return out


def sharpen(lead: Prediction) -> str:
    """Name the one measurement that would narrow the interval most."""
    if lead.base == "profiled":
        return "the step time without the profiler"
    if lead.base_spread > 0.03:
        return "a longer, steadier timing of the step without the profiler"
    return "this machine's cost of a replay, a gap and a copy"


def how_to_sharpen(lead: Prediction) -> str:
    """Return how to make that measurement."""
    if lead.base == "profiled":
        return "hpuprof advise TRACES --step-time 12.3ms  # or record with HPUProfiler, which times it"
    return "hpuprof calibrate -o machine.json, then hpuprof advise TRACES --constants machine.json"
