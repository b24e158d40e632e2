"""Predicts the step time with graphs for each kind of step that holds enough of the time."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.modules import BackwardWindows, ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.step_kinds import CAPTURE, StepKind
from hpuprof.analysis.steps import MATTERS
from hpuprof.graph_mode.bounds import span_of
from hpuprof.graph_mode.predict import Replay, Settings, predict, predict_and_keep
from hpuprof.model.prediction import Prediction


def judged_kinds(view: RankView) -> list[StepKind]:
    """Return the kinds with a prediction: that of the used steps first, then those that hold enough of the time.

    Steps that lost device rows give none.
    """
    first, *others = view.steps.kinds
    return [first, *(k for k in others if not k.special and len(k.whole) and view.steps.share(k) >= MATTERS)]


def predict_kinds(
    view: RankView, calls: ModuleCalls, backward: BackwardWindows, settings: Settings
) -> tuple[list[Prediction], Replay | None]:
    """Return the prediction of each of `judged_kinds`, and what that of the used steps was played on.

    Schedules, which join ranks, are those of the used steps.
    """
    first, *others = judged_kinds(view)
    replay = None
    if first.name == CAPTURE:
        used = view.steps.used_timed()
        lead = Prediction(method="none", reason="graph_capture", span=span_of(view, used.start, used.end))
    else:
        lead, replay = predict_and_keep(view, calls, backward, _known(view, first, settings))
    further = (predict(view.of_kind(k), calls, backward, _known(view, k, settings)) for k in others)
    return [lead, *(msgspec.structs.replace(p, schedule=None) for p in further)], replay


def _known(view: RankView, kind: StepKind, settings: Settings) -> Settings:
    """Return what is known of one kind.

    A given step time is that of the used steps, one that the recorder timed the mean of all kinds of a settled run.
    Other kinds take as much more or less of it as of the recorded time: profiling slows all of them alike.
    """
    steps = view.steps
    settled = [k for k in steps.kinds if not k.special]
    if settings.unprofiled_ns is None or len(settled) < 2:
        return settings
    mean = {k.name: float(np.mean(steps.wall[k.shown])) for k in steps.kinds}
    count = sum(len(k.steps) for k in settled)
    timed = mean[steps.kinds[0].name] if settings.given else sum(mean[k.name] * len(k.steps) for k in settled) / count
    factor = mean[kind.name] / timed
    spread = None if settings.spread_ns is None else settings.spread_ns * factor
    return replace(settings, unprofiled_ns=settings.unprofiled_ns * factor, spread_ns=spread)
