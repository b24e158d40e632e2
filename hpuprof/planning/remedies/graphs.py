"""Launch a region as graphs: what the graph-mode verdict recommends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpuprof.graph_mode.region_names import OptionKey
from hpuprof.graph_mode.verdict import WORTH_TRYING
from hpuprof.model.prediction import GraphMode, GraphOption
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Alone, Change

_CLEARS = {"HP302": "read_backs", "HP303": "synchronisation", "HP304": "uploads"}
"""Obstacles, and the remedies that remove them."""


def find(situation: Situation) -> Iterator[Change]:
    """Find the region that graph mode's verdict recommends, as it was priced there."""
    known = situation.graphs
    if known is None or known.speedup is None or known.answer.verdict not in WORTH_TRYING:
        return
    answer = known.answer
    option = answer.options[0]  # the recommended one
    edit = situation.captures[OptionKey(option.region, option.drops_sync, option.asynchronous)]
    most = 1.0 - 1.0 / (answer.ceiling or np.inf)
    gained = np.minimum(1.0 - 1.0 / known.speedup, most)
    if situation.loader is not None:  # a step that waits for batches has room for what graphs cost
        gained = np.where(situation.loader.late, np.maximum(gained, 0.0), gained)
    yield Change(
        place_of(answer),
        option.graphs,
        edit,
        last=True,
        after=clearing(option),
        requires=("synchronisation",) if option.drops_sync else (),
        blocked=bool(option.blocked_by),
        alone=Alone(gained, most),
    )


def place_of(answer: GraphMode) -> str:
    """Return what is captured, with which interface, and what must go before."""
    blocked = answer.options[0].blocked_by
    before = f", once {', '.join(blocked)} is out of the way" if blocked else ""
    return f"{answer.region}, with {answer.api}{before}"


def clearing(option: GraphOption) -> tuple[str, ...]:
    """Return the remedies that remove what blocks an option."""
    return tuple(name for code, name in _CLEARS.items() if code in option.blocked_by)


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
