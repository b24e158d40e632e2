"""Windows of a rank: which are alike and answered for together. Owns their groups, table and words.

Alike windows hold the same kind of typical step, by what it launches, and it takes about as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hpuprof.analysis.groups import percentile
from hpuprof.analysis.step_kinds import kinds_alike
from hpuprof.model.durations import duration
from hpuprof.model.partial import RankPartial
from hpuprof.model.tables import DiagnosticRow, RankRow, WindowRow
from hpuprof.ranks.rank_tables import Main
from hpuprof.report.answering import first_sentence
from hpuprof.report.judged import Judged
from hpuprof.report.model import Headline
from hpuprof.report.recordings import natural, windows_named

APART = 1.1
"""How many times as long typical steps of a window must be as those of another to be distinguished; by judgment, as of
a log of steps against its windows (HP181)."""
_MOST = 4
"""Windows of other work that a headline names."""


def alike_windows(main: Main) -> list[list[int]]:
    """Return the positions of the recordings in each group of alike windows, the group with the most time first.

    Half of the ranks that recorded two windows must find them alike.
    """
    windows: dict[str, dict[int, int]] = {}
    for i, (row, _) in enumerate(main):
        windows.setdefault(row.window, {})[row.rank] = i
    groups: list[list[str]] = []

    def alike(one: str, other: str) -> bool:
        ranks = windows[one].keys() & windows[other].keys()
        unlike = sum(_unlike(main[windows[one][rank]], main[windows[other][rank]]) for rank in ranks)
        return 2 * unlike < len(ranks) or not unlike

    for window in sorted(windows, key=natural):
        group = next((group for group in groups if all(alike(window, other) for other in group)), None)
        if group is None:
            groups.append([window])
        else:
            group.append(window)
    found = [sorted(i for window in group for i in windows[window].values()) for group in groups]
    return sorted(found, key=lambda group: -sum(_time_ns(main[i][1]) for i in group))


def _time_ns(part: RankPartial) -> int:
    return sum(step.wall_ns for step in part.steps if step.steady)


def _unlike(one: tuple[RankRow, RankPartial], other: tuple[RankRow, RankPartial]) -> bool:
    """Whether two windows of a rank hold other typical steps, or clearly longer ones; one step of several is none."""
    if any(row.steps_used < min(2, row.steps_total) for row, _ in (one, other)):
        return False
    short, long = sorted((one[0], other[0]), key=lambda row: row.step_p50_ns)
    if long.step_p50_ns > APART * short.step_p50_ns and long.step_p50_ns > short.step_p90_ns:
        return True
    kinds = [next((kind for kind in part.step_kinds if kind.used), None) for _, part in (one, other)]
    return kinds[0] is not None and kinds[1] is not None and not kinds_alike(kinds[0], kinds[1])


def window_rows(judged: Sequence[Judged]) -> list[WindowRow]:
    """Return a row for each group of alike windows, the headline's first; none where all are alike."""
    whole = sum(one.used.wall for one in judged)
    return [
        WindowRow(
            windows=one.windows,
            ranks=len({row.rank for row, _ in one.main}),
            steps=len(one.used.steps),
            time_ns=one.used.wall,
            time_fraction=one.used.wall / max(1, whole),
            step_time_ns=percentile(one.used.typical_walls, 0.5) or 0,
            bound=one.headline.bound,
            sentence=one.headline.bound_sentence,
            first=first_sentence(one.plan, one.headline.unit, places=False),
        )
        for one in (judged if len(judged) > 1 else ())
    ]


def with_windows(headline: Headline, rows: Sequence[WindowRow]) -> Headline:
    """Return the headline with the windows that it is of, and those that are judged apart."""
    if not rows:
        return headline
    mine = f"{windows_named(rows[0].windows)} ({duration(rows[0].time_ns)} recorded)"
    said = f"This is {mine}; judged apart: {_listed(rows)}."
    return msgspec.structs.replace(
        headline, sentence=f"{headline.sentence} {said}", bound_sentence=f"{headline.bound_sentence} {said}"
    )


def _listed(rows: Sequence[WindowRow]) -> str:
    more = f", and {len(rows) - 1 - _MOST} more" if len(rows) - 1 > _MOST else ""
    return ", ".join(_recorded(row) for row in rows[1 : 1 + _MOST]) + more


def _recorded(row: WindowRow) -> str:
    return f"{windows_named(row.windows)} ({duration(row.time_ns)})"


def differ(rows: Sequence[WindowRow]) -> list[DiagnosticRow]:
    """Report that windows are judged apart."""
    if not rows:
        return []
    times = [f"{duration(row.step_time_ns)} a step in {windows_named(row.windows)}" for row in rows[: 1 + _MOST]]
    return [DiagnosticRow.of("HP187", " and ".join([", ".join(times[:-1]), times[-1]]), len(rows) - 1)]
