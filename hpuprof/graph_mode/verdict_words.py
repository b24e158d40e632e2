"""The graph-mode answer in words: sentence, evidence, assumptions, how to narrow the interval."""

from __future__ import annotations

from collections.abc import Sequence

from hpuprof.graph_mode.bounds import COLD_CALLS, GAIN, LIKELY, LOSS, Evidence
from hpuprof.graph_mode.graph_prices import GraphPrice
from hpuprof.graph_mode.refusals import LONGER, STEP_TIME, Refusal
from hpuprof.graph_mode.region_names import RegionName
from hpuprof.model.arrays import median
from hpuprof.model.durations import duration, rounded
from hpuprof.model.prediction import GraphOption, Interval, Option, Prediction, Verdict
from hpuprof.what_if.settled import HOST

NEARLY_ALL = 0.9
"""Share of the device's work in graphs from which more of them change little. By judgment: a tenth is left."""
LATE = 0.9
"""Probability that data-loader workers set the pace from which they do."""


def compiled(device: str) -> str:
    """Return the answer for a model whose compiled regions are graphs."""
    return f"No: the model is already compiled for the {device}, so its regions run as graphs."


def cannot_say(refusal: Refusal, found: Evidence | None = None, lead: Prediction | None = None) -> str:
    """Return the refusal as the answer, with the bound that holds nevertheless."""
    there = replayed_already(lead) if lead else ""
    bound = f"; at most {_times(found.high)}" if found is not None else ""
    return f"Cannot say whether {'more graphs' if there else 'graph mode'} would help{bound}: {refusal.why}{there}."


def from_bounds(verdict: Verdict, found: Evidence, refusal: Refusal, lead: Prediction) -> str:
    """Return the answer that device rows alone allow, in one sentence."""
    most = f"at most {_times(found.high)}"
    if verdict == "no":
        return f"No: {most}; the device is busy {100 * found.busy:.1f} % of the time."
    if verdict == "cannot say" or found.launching is None:
        return cannot_say(refusal, found, lead)
    idle = f"{100 * found.launching:.1f} % of the time idle while the host launches work"
    there = replayed_already(lead)
    if verdict == "unlikely":
        what = "more graphs" if there else "graph mode"
        return f"Unlikely: the device is {idle}, so {what} would change little ({most}); {refusal.why}{there}."
    word = "Likely" if verdict == "likely" else "Marginal"
    without = f"without that, the step would run {_times(found.without_launching or 1.0)} as fast"
    return f"{word}: the device is {idle}; {without} ({most}); {refusal.why}{there}."


def from_first_calls(verdict: Verdict, found: Evidence, refusal: Refusal, lead: Prediction) -> str:
    """Return the answer of a cold step, of which first use is left out."""
    if verdict != "likely" or found.launching is None:
        return from_bounds(verdict, found, refusal, lead)
    idle = f"{100 * found.launching:.1f} % of the rest idle while the host launches work"
    faster = f"and would wait for launches {COLD_CALLS:.0f} times as fast, too"
    most, there = f"at most {_times(found.high)}", replayed_already(lead)
    return f"Likely: the device is {idle}, {faster} ({most}); {refusal.why}{there}."


def from_pace(verdict: Verdict, found: Evidence, refusal: Refusal, lead: Prediction) -> str:
    """Return the answer by the usual pace of launches, where other time of the recording says nothing."""
    low, high = (f"{times:.2f}" for times in found.paced or (0.0, 0.0))
    if verdict == "likely":
        gain = _times(min(found.high, found.without_pace))
        needs, means = f"{low} times the device's", f"; without launching, the rest would run {gain} as fast"
    elif verdict == "unlikely":
        what = "more graphs" if lead.replays else "graph mode"
        needs, means = f"{high} times its kernels'", f", so {what} would change little"
    else:
        # Communication may be waiting for other ranks, and copies may be those of a start.
        between = high if found.paced and found.paced[1] < 1.1 * found.paced[0] else f"{low} to {high}"
        hidden = found.paced is not None and found.paced[0] >= LIKELY
        needs = f"{between} times the device's"
        means = ", but waits and other work may take more" if hidden else "; too close to call"
    there, most = replayed_already(lead), f"at most {_times(found.high)}"
    pace = f"at the usual pace of its launches, the host needs {needs} time{means}"
    return f"{verdict.capitalize()}: {pace} ({most}); {refusal.why}{there}."


WAIT_LESS = "Part of the gain is waiting for other ranks inside collectives, which goes if all of them change alike."
SIDE_BY_SIDE = "Part of the gain is work of the device that then overlaps."


def below_busy(lead: Prediction, step_ns: float) -> list[str]:
    """Say why a step is shorter than the device's time as recorded; empty where it is not."""
    if step_ns >= lead.busy_ns:
        return []
    why = WAIT_LESS if lead.collectives else SIDE_BY_SIDE
    return [f"the best option takes less than the device was busy: {why[0].lower()}{why[1:-1]}"]


def out_of_reach(best: GraphPrice, ranked: list[GraphPrice]) -> list[str]:
    """Say what removing obstacles would gain, where that is a tenth more than what is available now."""
    blocked = [(float(median(c.speedup)), c) for c in ranked if c.blocked_by and not c.key.drops_sync]
    speedup, other = max(blocked, key=lambda found: found[0], default=(0.0, best))
    if not blocked or best.blocked_by or speedup < 1.1 * float(median(best.speedup)):
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


def replayed_already(lead: Prediction) -> str:
    """Say that graphs are there, as the end of a sentence; empty where there are none."""
    if not lead.replays:
        return ""
    count = f"{lead.replays:.0f}" if lead.replays == round(lead.replays) else f"{lead.replays:.1f}"
    launches = f"{count} graph launch{'' if count == '1' else 'es'}{' per step' if lead.steps > 1 else ''}"
    if lead.covered is None:
        return f"; replayed already: {launches}"
    one = count == "1"
    return f"; replayed already: {launches} carr{'ies' if one else 'y'} {100 * lead.covered:.0f} % of the device's work"


def nearly_all_replayed(lead: Prediction) -> str:
    """Return the answer where graphs carry nearly all work, whatever else is unknown of the steps."""
    return f"No: little is left for more graphs{replayed_already(lead)}."


def sentence_for(
    verdict: Verdict, best: GraphOption, lead: Prediction, base: float, known: Interval | None, lacking: Refusal | None
) -> str:
    """Return the answer in one sentence.

    `base` is the step time now [ns], `known` its interval, None where it was given; `lacking`: what keeps the answer
    from being sure.
    """
    now = duration(base) if known is None else rounded(base, known.low, known.high)
    why = f"; {lacking.why}" if lacking else ""
    s = best.speedup
    interval = f"(90 %: {s.low:.2f} to {s.high:.2f})"
    runs = f"the step would run {_times(s.median)} as fast {interval}"
    if s.at_most:
        least = f" ({_times(s.low)} at least)" if _times(s.low) != _times(s.high) else ""
        runs = f"the step would run at most {_times(s.high)} as fast{least}"
    there = replayed_already(lead)
    gone = " without its waits" if best.drops_sync else ""
    with_graphs = f"with graph mode for {what_is_captured(best.region)}{gone}, {runs}"
    if verdict == "yes":
        then = best.step_time_ns
        times = f"from {now} to {rounded(then.median, then.low, then.high)}"
        return f"Yes: {with_graphs}, {times}{there}."
    if verdict == "no":
        if (lead.loader_late or 0.0) >= LATE:
            return "No: the step waits for data-loader workers; with graphs it would only wait longer."
        if s.median < LOSS and s.high < GAIN:
            return f"No: graph mode would cost time; {runs}."
        changes = f"{'more graphs' if there else 'graph mode'} would change little{there}"
        if s.low < 1 < s.high:
            within = 100 * max(1 - s.low, s.high - 1)
            return f"No: {changes}; the step stays at {now} (±{within:.0f} %)."
        return f"No: {changes}; {runs}."
    first = f"{', '.join(best.blocked_by)} must be removed first" if best.blocked_by else ""
    if verdict == "not yet":
        return f"Not yet: {with_graphs}, but {first}{why}{there}."
    if verdict == "marginal":
        close = f"too close to call, and {first}" if first else "too close to call"
        return f"Marginal: {with_graphs}; {close}{why}{there}."
    return f"{verdict.capitalize()}: {with_graphs}{why}{there}."


def together(kind: str, mix: Interval, fraction: float) -> str:
    """Say what graphs give over several kinds of steps; `kind`: the one that was spoken of."""
    gain = f"{_times(mix.median)} ({_times(mix.low)} to {_times(mix.high)})"
    return f"This is for {kind}; over kinds of steps with {100 * fraction:.0f} % of the time: {gain}."


def base_words(base: str | None, base_ns: float | None, recorded_ns: float | None) -> str:
    """Say what the step time now is, alongside the mean of the replayed steps as recorded [ns]."""
    source = {"unprofiled": "timed without the profiler", "given": "given", "profiled": "the recorded steps replayed"}
    if base not in source or not base_ns or not recorded_ns:
        return ""
    off = base_ns / recorded_ns - 1
    if abs(off) < 0.005:
        return f"{source[base]}, as long as recorded"
    without = " without the profiler's estimated cost" if base == "profiled" else ""
    return f"{source[base]}{without}, {100 * abs(off):.1f} % {'longer' if off > 0 else 'shorter'} than recorded"


def facts(lead: Prediction) -> list[str]:
    """Return what the trace shows, whatever is recommended."""
    out = [f"host work {duration(lead.host_ns)} per step, device busy {duration(lead.busy_ns)}, waiting excluded"]
    if lead.replays:
        rest = f"; {lead.left_out:.1f} launches per step remain outside them" if lead.left_out is not None else ""
        out.append(replayed_already(lead).removeprefix("; ") + rest)
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
        (rest, "in other synchronization"),
    )
    shown = [f"{count:.1f} {what}" for count, what in parts if round(count, 1)]
    return f": {', '.join(shown)}" if shown else ""


def _steps(lead: Prediction) -> str:
    return "1 step" if lead.steps == 1 else f"{lead.steps} steps"


def evidence(lead: Prediction, best: Option, base: float) -> list[str]:
    """Return what the answer rests on; `base` is the step time now [ns]."""
    within = f"within {100 * (lead.replay_error or 0.0):.1f} %"
    if lead.method == "replay":
        out = [f"replaying {_steps(lead)} unchanged reproduces the recorded time {within}"]
    elif lead.recipes:
        recipes = f"{lead.recipes * lead.steps:.0f} recipes of {_steps(lead)}, matched to their launches,"
        out = [f"replaying {recipes} reproduces the recorded time {within}{_given_up(lead)}"]
    else:
        out = [f"stage times explain the recorded step {within}{_given_up(lead)}"]
    launched = f"{best.graphs:.0f} graph launch{'' if round(best.graphs) == 1 else 'es'}"
    outside = f"{duration(best.host_outside_ns)} of host work per step stays outside"
    out.append(f"{best.launches:.0f} launches per step become {launched}; {outside}")
    if best.split:
        out.append(f"{best.split:.1f} recipes per step straddle the region's border and are split there")
    recorded = duration(lead.profiled_step_ns)
    steps = f"the {lead.steps} replayed steps take {recorded} on average as recorded"
    if lead.steps == 1:
        steps = f"the replayed step takes {recorded} as recorded"
    out.append(f"step time now {duration(base)}: {base_words(lead.base, base, lead.profiled_step_ns)}; {steps}")
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
    return [
        f"{ranks} ranks were replayed each by itself, and the job gains between the least and the most of them: {why}"
    ]


def assumptions(lead: Prediction, interface: str, ranks: int) -> list[str]:
    """Return the assumptions. `interface`: that about the interface to graphs, if any."""
    out = ["the whole run has the shapes and control flow of the recorded steps"]
    if lead.settled:
        low, _, high = HOST
        pace = f"later ones; the host's work takes {low:g} to {high:g} times as long"
        out.append(f"once the device is set up, the first launches of kernels take as long as {pace}")
    if lead.base == "profiled":
        out.append(_profiling(lead))
    if lead.base == "given" and lead.base_step_ns > LONGER * lead.profiled_step_ns:
        out.append("the given step time is longer than the recorded one: the host was slower then, or the steps differ")
    if ranks > 1 or lead.collectives:
        out.append("all ranks use graph mode")
    if (lead.loader_late or 0.0) < LATE:
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
    if interface:
        out.append(interface)
    return out


def _profiling(lead: Prediction) -> str:
    """Say what profiling is believed to have cost, and what that is known from."""
    if lead.overhead is None:
        return "what profiling cost is unknown"
    low, high = lead.overhead.low, lead.overhead.high
    known = {
        "calibration": "as measured on this machine",
        "rows": "the rows lie too close together for more",
        "other machines": "as on other machines",
    }.get(lead.overhead_source, f"as with {lead.overhead_source}")
    return f"profiling cost {low:.1f} to {high:.1f} times the nominal cost per row: {known}"


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
        return STEP_TIME.command
    return "hpuprof calibrate -o machine.json, then hpuprof advise TRACES --constants machine.json"
