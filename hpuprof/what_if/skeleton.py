"""Steps reduced to their collectives: longest paths between them, for playing ranks together.

Playing only adds and takes maxima. So seen from outside, a step of one rank is a table of longest paths: when
collective k could start if no collective took time (`free`), and how long after the end of collective j it can start at
the earliest (`after`). Tables of all ranks take kilobytes, and give exactly the result of playing the ranks side by
side.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints, Mask, median
from hpuprof.model.prediction import CollectiveSkeleton
from hpuprof.what_if.graph import NEVER
from hpuprof.what_if.play import Sample, pass_through
from hpuprof.what_if.schedule import Schedule

MAX_COLLECTIVES = 128
"""Collectives of the chosen steps of a rank at most; with more of them in one step ranks are not played together."""
MOST_STEPS = 3
"""Steps that stand for all others, where each has few collectives: which rank waits varies from step to step. What
reads save in simulated jobs was off by 5.1 % of the step with the last step alone, by 4.0 % with the one before it and
by 1.8 % with three."""
NEIGHBORS = 8
"""Collectives before one over which paths to it are looked for; by judgment more than groups take turns."""


class Collectives(Struct, frozen=True, eq=False):
    """The collectives of the recorded steps; rows are named by their device row, so that edits keep them apart."""

    chosen: dict[int, Ints]
    """The last steps with the usual number of collectives, each with the device rows of its own, in order; none if
    there are too many. Before the first step and behind the last one lies what is no step, so they count where no two
    others are."""
    shortest: dict[int, float]
    """Shortest duration of each device row over the steps, at the same place of the step [ns]."""
    lasting: dict[int, float] = {}
    """Recorded duration of each device row [ns]."""

    @classmethod
    def of(cls, recorded: Schedule) -> Collectives:
        """Find them."""
        rows = np.flatnonzero(recorded.rows.collective)
        named, step = recorded.rows.row[rows], recorded.row_step[rows]
        counts = np.bincount(step, minlength=recorded.steps)
        place = np.arange(len(step)) - np.searchsorted(step, np.arange(recorded.steps))[step]
        least = np.full(int(place.max(initial=0)) + 1, np.inf)
        np.minimum.at(least, place, recorded.rows.dur[rows])
        shortest = dict(zip(named.tolist(), least[place].tolist(), strict=True))
        usual = int(median(counts)) if len(counts) else 0
        if not usual or usual > MAX_COLLECTIVES:
            return cls({}, shortest)
        fits = np.flatnonzero(counts == usual)
        within = fits[(fits > 0) & (fits < recorded.steps - 1)]
        chosen = (within if len(within) > 1 else fits)[-min(MOST_STEPS, MAX_COLLECTIVES // usual) :]
        lasting = dict(zip(named.tolist(), recorded.rows.dur[rows].tolist(), strict=True))
        return cls({one: named[step == one] for one in chosen.tolist()}, shortest, lasting)

    def all_ranks(self, schedule: Schedule) -> Schedule:
        """Shorten collectives: if all ranks change alike, a rank waits less inside a collective for the slowest host.

        The transfer time lies between the shortest duration over steps at the same place and the observed one; take
        the middle.
        """
        rows = np.flatnonzero(schedule.rows.collective)
        if not len(rows):
            return schedule
        dur = schedule.rows.dur.copy()
        least = np.array([self.shortest.get(row, np.inf) for row in schedule.rows.row[rows].tolist()])
        dur[rows] = 0.5 * (dur[rows] + np.minimum(dur[rows], least))
        return schedule.reweighted(dur=dur)


def find_skeletons(
    schedule: Schedule, of: Collectives, sample: Sample, *, host: bool = True
) -> list[CollectiveSkeleton]:
    """Reduce the chosen steps of a schedule to their collectives, for each sample.

    `host=False` leaves out all host time.
    """
    return [_reduced(schedule, of, step, sample, host=host) for step in of.chosen]


def _reduced(schedule: Schedule, of: Collectives, step: int, sample: Sample, *, host: bool) -> CollectiveSkeleton:
    topology, rows, chosen = schedule.topology, schedule.rows, of.chosen[step]
    nodes = np.flatnonzero(rows.collective & np.isin(rows.row, chosen))
    nodes = nodes[np.lexsort((nodes, schedule.calls.place[rows.call[nodes]]))]
    at = topology.rows[nodes]
    finals = np.append(
        topology.rows[schedule.row_step == step],
        topology.calls[schedule.calls.ends_step & (schedule.calls.step == step)],
    )
    dur = rows.dur.copy()
    dur[nodes] = 0.0
    # A step needs one before it.
    earlier = None if step else pass_through(schedule, sample, host=host, at=at[:0], finals=at[:0])
    begin = earlier.ends if earlier else None
    without = pass_through(schedule.reweighted(dur=dur), sample, host=host, begin=begin, at=at, finals=finals)
    since = earlier.done.max(axis=0) if earlier else without.done[step - 1]
    free: Floats = np.vstack([without.picked, without.done[step]]) - since
    after = without.after
    count = len(nodes)
    if (after[:count][np.triu_indices(count, 1)] > NEVER).any():  # one waits for another that was launched later
        order = np.argsort(at)
        free, after = free[np.append(order, count)], after[np.ix_(np.append(order, count), order)]
        nodes = nodes[order]
    after[np.triu_indices(count)] = NEVER
    k, j = _needed(after)
    place = {row: i for i, row in enumerate(chosen.tolist())}
    named = rows.row[nodes].tolist()
    # What an edit makes of a collective's time is of its transfer; how long it waits for others, these say.
    longer = rows.dur[nodes] - np.array([of.lasting[row] for row in named])
    transfer = np.maximum(np.array([of.shortest[row] for row in named]) + longer, 0.0)
    return CollectiveSkeleton(
        free=free.astype("<f4").tobytes(),
        later=k.astype("<u2").tobytes(),
        earlier=j.astype("<u2").tobytes(),
        after=after[k, j].astype("<f4").tobytes(),
        transfer=transfer.astype("<f4").tobytes(),
        order=np.array([place[row] for row in named]).astype("<u2").tobytes(),
    )


def without_collectives(step_ns: Floats) -> CollectiveSkeleton:
    """Return a step of a rank that runs by itself: when it ends, by sample [ns]."""
    return CollectiveSkeleton(
        free=step_ns.astype("<f4").tobytes(), later=b"", earlier=b"", after=b"", transfer=b"", order=b""
    )


def _needed(after: Floats) -> tuple[Ints, Ints]:
    """Return the entries (k, j) that no path over one of the collectives before k gives already, in any sample."""
    keep: Mask = np.any(after > NEVER, axis=2)
    for k, later in enumerate(after):
        for between in range(max(0, k - NEIGHBORS), k):
            over = later[between] + after[between]
            keep[k] &= (over < later - 1.0).any(axis=1)
    found = np.nonzero(keep)
    return found[0], found[1]
