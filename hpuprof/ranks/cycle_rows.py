"""The table of a job's critical cycle: what each part of each rank adds to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hpuprof.model.job_rows import RankCycleRow
from hpuprof.ranks.job_cycle import LATENCY, JobCycle, Stretch
from hpuprof.ranks.lines import Does
from hpuprof.ranks.matching import Matching, RankCalls

MOST = 20
"""Parts of a rank that have a row each."""
_UNNAMED = {
    int(Does.WORK): ("(main path)", "main path"),
    int(Does.CALL): ("(host work)", "host range"),
    int(Does.ROW): ("(device work)", "kernel"),
    int(Does.TRANSFER): ("(collectives)", "collective"),
    LATENCY: ("(latencies)", "latency"),
}


def cycle_rows(ranks: Sequence[RankCalls], matching: Matching, cycle: JobCycle) -> list[RankCycleRow]:
    """Return the rows, the rank with the largest share first."""
    named = [CycleNames(who, matching, hosts=cycle.hosts) for who in ranks]
    time: dict[int, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    scale = 1.0 / (cycle.runs * cycle.steps)
    for stretch in cycle.stretches:
        time[stretch.rank][named[stretch.rank].of(stretch)] += stretch.ns * scale
    whole = {r: sum(mine.values()) for r, mine in time.items()}
    rows = []
    for r in sorted(time, key=lambda r: (-whole[r], r)):
        ordered = sorted(time[r].items(), key=lambda item: (-item[1], item[0]))
        shown = ordered[:MOST]
        if rest := ordered[MOST:]:
            shown.append((("(others)", "other"), sum(ns for _, ns in rest)))
        rows += [
            RankCycleRow(
                rank=ranks[r].rank,
                what=what,
                kind=kind,
                cycle_ns=ns,
                fraction=ns / cycle.step_ns,
                rank_fraction=whole[r] / cycle.step_ns,
            )
            for (what, kind), ns in shown
        ]
    return rows


class CycleNames:
    """What the stretches of a rank are called."""

    def __init__(self, who: RankCalls, matching: Matching, *, hosts: bool) -> None:
        self.matching, self.hosts = matching, hosts
        self.labels = who.parts.labels if who.parts else []
        self.call: list[int] = who.parts.each("call").tolist() if who.parts else []
        self.row: list[int] = who.parts.each("row").tolist() if who.parts else []

    def of(self, stretch: Stretch) -> tuple[str, str]:
        """Return name and kind."""
        kind, item = stretch.kind, stretch.item
        if kind == Does.CALL and 0 <= item < len(self.call):
            return self.labels[self.call[item]]
        if kind in (Does.ROW, Does.TRANSFER) and self.hosts and 0 <= item < len(self.row):
            return self.labels[self.row[item]]
        if kind == Does.TRANSFER and not self.hosts:
            return self.matching.kinds[int(self.matching.kind[item])].op, "collective"
        return _UNNAMED[kind]
