"""Predicts the step time of each candidate region from one trace, as samples over everything unknown.

Two things are unknown: how much the profiler slowed the host (fitted to the unprofiled step time if known), and the
machine's cost per replay, gap and copy (`constants.py`). A sample fixes both, replays the eager and the captured step,
and gives a speed-up; steps are resampled, and the noise of the measured step time and of the model is added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import numpy as np

from hpuprof.analysis.host_alone import used_no_device
from hpuprof.analysis.modules import BackwardWindows, ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.graph_mode.bounds import span_of
from hpuprof.graph_mode.operator_regions import regions_without_links
from hpuprof.graph_mode.region_names import OptionKey
from hpuprof.graph_mode.regions import LoopParts, accumulates, launch_regions, loop_parts
from hpuprof.model.arrays import Floats, median
from hpuprof.model.intervals import measure, union_of
from hpuprof.model.prediction import Constant, Option, Prediction, Reason
from hpuprof.model.schema import Activity
from hpuprof.model.trace import Trace
from hpuprof.what_if.capture import MIN_LAUNCHES, Region
from hpuprof.what_if.change import Change, Edit
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.graph import CrosswiseError
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.loader_workers import Loader
from hpuprof.what_if.pricing import TINY, Pricing
from hpuprof.what_if.profiling_cost import fit, prior_of
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.settled import HOST
from hpuprof.what_if.step_model import CapturedStep, StepModel
from hpuprof.what_if.totals import TotalsModel
from hpuprof.what_if.uncertainty import (
    REPLAY_LIMIT,
    SAMPLES,
    Drawn,
    Draws,
    Errors,
    base_noise,
    interval,
    pack,
    resample_weights,
)

_OPTIMIZER = re.compile(r"^Optimizer\.step#(\w+)\.step$")
MODULES_NAMED = 16


class Settings(msgspec.Struct, frozen=True):
    """What is known apart from the trace."""

    unprofiled_ns: float | None = None  # unprofiled step time
    spread_ns: float | None = None  # range of its repetitions
    given: bool = False  # by the user
    measured: Mapping[str, Constant] | None = None  # constants from a machine profile
    joint: bool = True  # whether ranks may be played together

    @property
    def base(self) -> str:
        """Return the step time that speed-ups relate to."""
        return "given" if self.given else "unprofiled" if self.unprofiled_ns else "profiled"


NOTHING_KNOWN = Settings()


class Replay(msgspec.Struct, frozen=True, eq=False):
    """What a prediction was played on, for further edits of the same steps with the same samples."""

    pricing: Pricing
    drawn: Drawn
    base_known: bool  # whether the step time without the profiler is known
    captures: dict[OptionKey, Edit]  # by what they launch as graphs, and how

    @property
    def model(self) -> StepModel:
        """The recorded steps."""
        return self.pricing.model


def predict(
    view: RankView, calls: ModuleCalls, backward: BackwardWindows, settings: Settings = NOTHING_KNOWN
) -> Prediction:
    """Predict the step time of each candidate region with the finest model that reproduces the recorded steps."""
    return predict_and_keep(view, calls, backward, settings)[0]


def predict_and_keep(
    view: RankView, calls: ModuleCalls, backward: BackwardWindows, settings: Settings
) -> tuple[Prediction, Replay | None]:
    """Return the prediction, and what it was played on; None where nothing was."""
    used = view.steps.used_timed()
    if not view.device_traced:
        replay = None
        if view.on_path.any() and (used.end > used.start).any():
            constants = constants_for(view.trace.family, view.trace.mode, settings.measured)
            replay = _predict_with(TotalsModel.of_host(view, constants), loop_parts(view), [], settings)[1]
        return Prediction(method="none", reason=_without_device(view)), replay

    def nothing(reason: Reason) -> Prediction:
        return Prediction(method="none", reason=reason, span=span_of(view, used.start, used.end))

    if not (used.end > used.start).any():
        return nothing("no_steps"), None
    constants = constants_for(view.trace.family, view.trace.mode, settings.measured)
    launches = LaunchModel.of(view, constants)
    if launches is not None and launches.error <= REPLAY_LIMIT:
        parts = loop_parts(view)
        return _predict_with(launches, parts, launch_regions(launches, parts, calls, backward), settings)
    fell_back = None if launches is None else launches.error
    if not view.on_path.any():
        return msgspec.structs.replace(nothing("no_host_rows"), fell_back=fell_back), None
    recipes = RecipeModel.of(view, constants) if view.trace.mode.startswith("lazy") else None
    model = recipes or TotalsModel.of(view, constants)
    parts = loop_parts(view)
    regions = regions_without_links(model, parts, calls, backward)
    prediction, replay = _predict_with(model, parts, regions, settings)
    return msgspec.structs.replace(prediction, fell_back=fell_back), replay


def _without_device(view: RankView) -> Reason:
    """Return what a recording without device rows shows: that no device was used, too few launches, or neither."""
    if used_no_device(view.trace):
        return "no_device_used"
    host, used = view.trace.host, view.steps.used_windows()
    calls = host.start[np.isin(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH))]
    per_step = np.searchsorted(calls, used.end) - np.searchsorted(calls, used.start)
    marked = not view.steps.single_pass and per_step.any()
    return "no_launches" if marked and per_step.max() < MIN_LAUNCHES else "no_device_rows"


def _predict_with(
    model: StepModel, parts: LoopParts, regions: list[Region], settings: Settings
) -> tuple[Prediction, Replay | None]:
    view, constants, draws = model.view, model.constants, Draws.make()
    noise = base_noise(settings.unprofiled_ns, settings.spread_ns)
    prior = prior_of(view, model.row_costs, (model.low, model.high), settings.measured or {})
    loader = Loader.of(view)
    late, every = (None, None) if loader is None else (loader.late, loader.every)
    cost = fit(prior, model.nominal, settings.unprofiled_ns, noise, draws.uniform[0], late, every)
    allowed = loader if loader is None else loader.given(cost.every, cost.waits)
    scale = cost.host_scale if settings.unprofiled_ns or not model.settled else draws.settling(*HOST)
    drawn = draws.drawn(constants, cost.overhead, scale)
    played = model.eager(drawn)
    seen = model.facts(played, model.observed(), joint=settings.joint)
    timed = model.timed
    weights = resample_weights(seen.steps, SAMPLES)
    pricing = Pricing.of(model, drawn, weights, allowed, settings.unprofiled_ns, played.step_times)
    if not (pricing.now > 0).all():  # nothing is a multiple of no time
        return Prediction(method="none", reason="not_explained", span=span_of(view, timed.start, timed.end)), None
    graphs_known = FAMILIES[view.trace.family].graphs_known
    errors = Errors.of(constants, noise, seen.replay_error or 0.0, seen.unexplained, model.doubt)
    sampled = partial(draws.with_errors, errors=errors, cost=cost.overhead)
    found = _Captures.of(pricing, regions if graphs_known else [], drawn, sampled, joint=settings.joint)
    prediction = msgspec.structs.replace(
        seen,
        accumulates=accumulates(parts.optimizer, view.steps.start, view.steps.end),
        base=settings.base,
        base_step_ns=float(settings.unprofiled_ns or median(pricing.now)),
        base_samples=b"" if settings.unprofiled_ns else pack(pricing.now),
        base_spread=float(noise),
        profiled_step_ns=float(timed.dur.mean()),
        overhead=interval(cost.overhead),
        overhead_source=cost.source,
        overhead_prior=prior,
        busy_ns=float(measure(view.device.busy, timed.start, timed.end).mean()),
        device_ns=float(measure(union_of(view.device.compute, view.device.copy), timed.start, timed.end).mean()),
        loader_late=None if loader is None else loader.probability,
        loader_paces=None if allowed is None or allowed.unprofiled is None else float(allowed.unprofiled.mean()),
        loader_every=b"" if loader is None else pack(loader.every),
        modules=list(dict.fromkeys(name for r in regions for name in r.members))[:MODULES_NAMED],
        optimizer=optimizer_name(view.trace),
        measured=[c for name, c in constants.items() if settings.measured and name in settings.measured],
        options=found.options,
        refused=list(found.refused),
        reason="" if found.options else "no_launches" if graphs_known else "unknown_graphs",
        span=span_of(view, timed.start, timed.end),
    )
    return prediction, Replay(pricing, drawn, bool(settings.unprofiled_ns), found.edits)


class _Captures(msgspec.Struct, frozen=True, eq=False):
    """Regions launched as graphs: their options, the edits that play them, and what would wait for itself."""

    options: list[Option] = msgspec.field(default_factory=list)
    edits: dict[OptionKey, Edit] = msgspec.field(default_factory=dict)
    refused: dict[str, None] = msgspec.field(default_factory=dict)

    @classmethod
    def of(
        cls, pricing: Pricing, regions: list[Region], drawn: Drawn, sampled: Callable[[Floats], Floats], *, joint: bool
    ) -> _Captures:
        """Price each way to capture each region. `sampled`: to samples of a speed-up, its errors in them."""
        model, found = pricing.model, cls()
        for region in regions:
            for drop in (False, True) if model.waits_in(region) else (False,):
                try:
                    for done in model.captured(region, drawn, drop_waits=drop, joint=joint):
                        found._add(pricing, region, done, sampled, drop=drop)
                except CrosswiseError:
                    found.refused[region.name] = None
        return found

    def _add(
        self, pricing: Pricing, region: Region, done: CapturedStep, sampled: Callable[[Floats], Floats], *, drop: bool
    ) -> None:
        captured = done.captured
        edit = pricing.model.launching(region, drop_waits=drop, asynchronous=captured.asynchronous)
        pricing.steps[edit,] = done.times
        share = pricing.share([Change(region.name, captured.graphs, edit, last=True)])
        option = Option(
            region=region.name,
            drops_sync=drop,
            asynchronous=captured.asynchronous,
            launches=captured.launches,
            graphs=captured.graphs,
            split=captured.split,
            inputs=captured.inputs,
            ratio=pack(sampled(1.0 / np.maximum(share, TINY))),
            uncorrected_ns=done.uncorrected_ns,
            host_outside_ns=done.host_outside_ns,
            host_outside_low_ns=done.host_outside_low_ns,
            skeletons=done.skeletons,
        )
        self.options.append(option)
        self.edits[OptionKey.of(option)] = edit


def optimizer_name(trace: Trace) -> str:
    """Return the class of the optimizer as torch annotates it, or an empty string."""
    names = {m.group(1) for n in trace.names if (m := _OPTIMIZER.match(n))}
    return min(names, default="")
