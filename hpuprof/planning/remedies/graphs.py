"""Launch a region as graphs: what the graph-mode verdict recommends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpuprof.graph_mode.candidates import OptionKey
from hpuprof.graph_mode.verdict import WORTH_TRYING
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Alone, Change

CLEARS = {"HP302": "read_backs", "HP303": "synchronisation", "HP304": "uploads"}
"""Obstacles, and the remedies that remove them."""


def find(situation: Situation) -> Iterator[Change]:
    """Find the region that graph mode's verdict recommends, as it was priced there."""
    known = situation.graphs
    if known is None or known.speedup is None or known.answer.verdict not in WORTH_TRYING:
        return
    answer = known.answer
    option = answer.options[0]  # the recommended one
    edit = situation.captures[OptionKey(option.region, option.drops_sync, option.asynchronous)]
    before = f", once {', '.join(option.blocked_by)} is out of the way" if option.blocked_by else ""
    most = 1.0 - 1.0 / (answer.ceiling or np.inf)
    yield Change(
        f"{option.region}, with {answer.api}{before}",
        option.graphs,
        edit,
        last=True,
        after=tuple(name for code, name in CLEARS.items() if code in option.blocked_by),
        requires=("synchronisation",) if option.drops_sync else (),
        blocked=bool(option.blocked_by),
        alone=Alone(np.minimum(1.0 - 1.0 / known.speedup, most), most),
    )


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
