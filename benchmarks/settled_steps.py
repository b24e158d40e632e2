"""Is one step, settled, like the others? `python -m benchmarks.settled_steps FOLDER`

The traces are those of `benchmarks.public_traces` that hold three steps and more. Of each, the first step and one in
the middle are taken as if they were all there is, and settled as steps are that set the device up
(`hpuprof.what_if.settled`): their host's work over that of the used steps is what a settled recording is off by. The
first step often does set something up; the one in the middle shows what settling takes away where nothing has to go.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from benchmarks.public_traces import listed
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.steps import ANOTHER, LEFT_OUT, TYPICAL
from hpuprof.errors import HpuprofError
from hpuprof.ingest.discover import discover
from hpuprof.ingest.read import read_trace
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.settled import at_pace, launching, without_memory

STEPS = 3
MOSTLY = 0.4
"""Share of the work below which a step's host mostly does something else than launching: it is not of the median."""


@dataclass(frozen=True)
class Settling:
    """The host's launching work of one step, as recorded and settled, over that of the used steps."""

    name: str
    step: int
    recorded: float
    settled: float


def settlings(path: Path) -> Iterator[Settling]:
    """Yield the first and the middle step of a trace, where they show a pace."""
    view = RankView.of(read_trace(path))
    constants = constants_for(view.trace.family, view.trace.mode, None)
    usual = LaunchModel.of(view, constants)
    if usual is None or len(view.steps) < STEPS:
        return
    work = _work(usual) / usual.program.steps
    used = np.flatnonzero(view.steps.used)
    for step in dict.fromkeys((0, int(used[len(used) // 2]))):
        alone = _only(view, step)
        model = LaunchModel.of(alone, constants)
        paced = None if model is None else at_pace(alone, model.program, model.recorded)
        if model is not None and paced is not None and work:
            yield Settling(str(path), step, _work(model) / work, _work(model, paced[0]) / work)


def _work(model: LaunchModel, schedule: Schedule | None = None) -> float:
    """Return the launching work of a model's steps as recorded, or of a schedule, memory apart [ns]."""
    kept, _ = without_memory(model.view, model.program, schedule or model.recorded)
    return sum(float(work.sum()) for work in launching(model.view, model.program, kept))


def _only(view: RankView, step: int) -> RankView:
    steps = view.steps
    chosen = [i == step for i in range(len(steps))]
    excluded = ["" if mine else ANOTHER for mine in chosen]
    return replace(
        view,
        steps=replace(steps, excluded=excluded, standing=[TYPICAL if mine else LEFT_OUT for mine in chosen]),
    )


def main() -> None:
    """Print each step, and the percentiles of the work of the others over that of a settled one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settled_steps", description=__doc__)
    parser.add_argument("folder", type=Path)
    found: list[Settling] = []
    for _, trace in listed(parser.parse_args().folder, ""):
        for file in discover([trace])[0]:
            try:
                found += settlings(Path(file.path))
            except HpuprofError as error:
                print(f"{file.name}: {error}")
    for one in found:
        print(
            f"{Path(one.name).name[:40]:40} step {one.step:3}: recorded {one.recorded:5.2f}, settled {one.settled:5.2f}"
        )
    near = [one for one in found if one.settled >= MOSTLY]
    others = np.percentile([1.0 / one.settled for one in near], (5, 50, 95))
    print(f"{len(near)} steps of {len({one.name for one in near})} recordings, {len(found) - len(near)} left out:")
    print(f"the others' work over a settled step's {others[1]:.2f} (90 %: {others[0]:.2f} to {others[2]:.2f})")


if __name__ == "__main__":
    main()
