"""The interface between predictions and step models, whether these replay launches or recipes or add up totals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from hpuprof.analysis.modules import BackwardWindows, ModuleCalls
from hpuprof.graph_mode.regions import Region
from hpuprof.graph_mode.uncertainty import Drawn
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.prediction import CollectiveSkeleton, Prediction


@dataclass(frozen=True, eq=False)
class CapturedStep:
    """The step with a region captured: times of shape `(samples, steps)`, ns, and the per-step costs of capturing."""

    times: Floats
    uncorrected_ns: float  # profiling cost included
    host_outside_ns: float
    host_outside_low_ns: float  # 5th percentile
    launches: float
    graphs: float
    inputs: float
    skeleton: CollectiveSkeleton | None
    split: float = 0.0  # recipes that the region covers only in part
    asynchronous: bool = False


class StepModel(Protocol):
    """The used steps of one trace, which can be replayed without the profiler and with a region captured."""

    @property
    def low(self) -> Ints:
        """Return when the modelled steps begin [ns]."""

    @property
    def high(self) -> Ints:
        """Return when they end [ns]."""

    def nominal(self, overhead: Floats) -> Floats:
        """Return step times at overheads of `uncertainty.GRID`, profiler rows at nominal cost, ns.

        Shape `(overheads, steps)`.
        """

    def eager(self, drawn: Drawn) -> Floats:
        """Return step times of the unchanged program, shape `(samples, steps)`, ns."""

    def observed(self, drawn: Drawn) -> Prediction:
        """Return facts that hold whatever is captured; `reason`: the refusal if nothing can be captured."""

    def regions(self, calls: ModuleCalls, backward: BackwardWindows) -> list[Region]:
        """Return the candidates."""

    def waits_in(self, region: Region) -> bool:
        """Tell whether to try the region without the waits inside the step, too."""

    def captured(self, region: Region, drawn: Drawn, *, drop_waits: bool) -> Iterator[CapturedStep]:
        """Yield the ways to replay a region; none if it holds nothing to capture.

        Raises:
            CrosswiseError: the captured work would wait for itself.
        """
