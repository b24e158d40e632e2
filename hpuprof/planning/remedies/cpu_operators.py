"""Compute on the device what operators compute on the CPU while it waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hpuprof.model.intervals import Intervals
from hpuprof.planning.cpu_work import CpuWork
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import lasting, of_launches
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

LEFT = (0.01, 0.2)
"""Time on the device over that on the CPU: memory of 1 to 5 TB/s against 50 to 400 GB/s. By judgment."""


def find(situation: Situation) -> Iterator[Change]:
    """Find operators of 0.1 ms and more that compute on the CPU in the steps, data loading left out."""
    of = situation.calls
    if of is None:
        return
    work = CpuWork.find(of)
    if not len(work.windows.start):
        return
    per_step = len(work.windows.start) / of.program.steps
    change = _OnDevice(of, work)
    where = f"{_longest(of, work.windows)}, {per_step:.3g} a step"
    yield Change(
        where,
        per_step,
        of_launches(change.edit),
        of_launches(change.ideal),
        uncertain=True,
        touches=work.reads,
        occurs=work.windows,
    )


def _longest(of: ProgramCalls, windows: Intervals) -> str:
    """Return the name of the operator that starts the longest window."""
    trace, nesting = of.view.trace, of.view.links.nesting
    at = int(windows.start[np.argmax(windows.end - windows.start)])
    named = trace.host.name[nesting.rows[nesting.start == at]]
    return trace.names[int(named[-1])] if len(named) else "operators"


class _OnDevice(Struct, frozen=True, eq=False):
    of: ProgramCalls
    work: CpuWork

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Drop the operators and the reads of their inputs; the first kernel launched after each takes longer."""
        without = self.ideal(model, level)
        program, windows = self.of.program, self.work.windows
        low, high = LEFT
        took = (low + (high - low) * level) * (windows.end - windows.start)
        dur = np.array(without.schedule.rows.dur)
        launching = np.flatnonzero(self.of.launches)
        at = np.searchsorted(program.begin[launching], windows.end)
        later = at < len(launching)
        np.add.at(dur, np.searchsorted(program.call, launching[at[later]]), took[later])
        return lasting(without, dur)

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Drop the operators and the reads of their inputs."""
        return model.without_waits(self.work.reads, free=True).without_host(self.work.windows)


REMEDY = Remedy(
    name="cpu_operators",
    title="Compute on the device what runs on the CPU",
    advice="Make tensors where they are used, and move an operator's inputs to the device first. What does not fit "
    "there (an offloaded optimizer) stays: let it work while the next forward pass runs.",
    code="noise = torch.randn(shape, device=device)  # not torch.randn(shape).to(device)",
    costs="Device memory for what the operators work on.",
    unknown="The device takes 1 to 20 % of the CPU's time; copies back to the device stay.",
    needs="A recording in which device rows are linked to their launches and operators.",
    effort=Effort.FEW_LINES,
    mends=("HP220",),
    find=find,
)
