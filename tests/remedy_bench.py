"""Plays the changes that a remedy finds in a small built trace. Step times in µs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from builder import TraceBuilder

from hpuprof.analysis.rank_view import RankView
from hpuprof.planning.remedy import Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.loader_workers import Loader
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.step_model import StepModel


@dataclass(frozen=True)
class Bench:
    """A remedy's changes in one trace."""

    model: LaunchModel
    changes: list[Change]

    @classmethod
    def of(cls, builder: TraceBuilder, remedy: Remedy, folder: Path) -> Bench:
        view = RankView.of(builder.trace(folder))
        model = LaunchModel.of(view, constants_for(view.trace.family, view.trace.mode, None))
        assert model is not None
        return cls(model, list(remedy.find(Situation(model, Loader.of(view)))))

    @property
    def now(self) -> float:
        """The replayed step."""
        return played(self.model)

    def with_it(self, level: float = 0.0) -> float:
        """The step with the only change there is; laws that hold for any are tested on the way."""
        (change,) = self.changes
        edited = change.edit(self.model, level)
        assert isinstance(edited, LaunchModel)
        for count in ("calls", "rows"):
            assert len(getattr(edited.schedule, count)) == len(getattr(self.model.schedule, count))
        found = played(edited)
        assert played((change.ideal or change.edit)(self.model, level)) <= found
        return found


def played(model: StepModel) -> float:
    """The last step's time in a long run."""
    times = play(model.schedule, Sample.unchanged(), repeats=3).step_times(model.schedule.steps)
    return round(float(times[0, -1]) / 1000, 3)
