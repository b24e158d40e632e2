"""Launch a region as graphs: what the graph-mode verdict recommends."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from hpuprof.graph_mode.verdict import WORTH_TRYING
from hpuprof.planning.remedy import Change, Effort, Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.step_model import StepModel

_CLEARS = {"HP302": "read_backs", "HP303": "synchronisation", "HP304": "uploads"}
"""Obstacles, and the remedies that remove them."""


def find(situation: Situation) -> Iterator[Change]:
    """Find the region that graph mode's verdict recommends."""
    answer = situation.answer
    region = next((r for r in situation.regions if answer is not None and r.name == answer.region), None)
    if region is None or answer is None or answer.verdict not in WORTH_TRYING:
        return
    option = next(o for o in answer.options if o.region == region.name)  # the recommended one stands first
    collectives = situation.model.collectives

    def edit(model: StepModel, _: float) -> StepModel:
        ways = (d for d in model.capture(region, drop_waits=option.drops_sync))
        done = next((d for d in ways if d.asynchronous == option.asynchronous), None)
        return model if done is None else replace(model, schedule=collectives.all_ranks(done.schedule))

    before = f", once {', '.join(option.blocked_by)} is out of the way" if option.blocked_by else ""
    after = tuple(name for code, name in _CLEARS.items() if code in option.blocked_by)
    requires = ("synchronisation",) if option.drops_sync else ()
    where = f"{region.name}, with {answer.api}{before}"
    blocked = bool(option.blocked_by)
    yield Change(where, option.graphs, edit, last=True, after=after, requires=requires, blocked=blocked)


REMEDY = Remedy(
    name="graphs",
    title="Capture the step in graphs",
    advice="Capture the region once and replay it; `hpuprof advise` says which, with code, and what stands in the way.",
    costs="Memory for static inputs and the graphs' pools; shapes must not change.",
    unknown="Launching a graph, gaps and kernels in it, copies into static inputs: constants with sources.",
    needs="See the graph-mode verdict.",
    effort=Effort.RESTRUCTURING,
    proof="edited",
    by_call=False,
    mends=("HP201", "HP207"),
    absent=lambda _: ("no_graphs", "graph mode's verdict recommends no region"),
    find=find,
)
