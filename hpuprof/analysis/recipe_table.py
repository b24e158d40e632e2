"""Device time by recipe: what a graph compiler runs as one, who launched it and how that is known, its largest nodes.

In lazy mode a recipe holds the work of many operators, so that its time belongs to none of them: names of its nodes
are hints at best. Ids are short and collide: id and handle are the identity.
"""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.activations import How
from hpuprof.analysis.device_time import occupies
from hpuprof.analysis.groups import clusters, members
from hpuprof.analysis.operators import MAX_ROWS
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Codes, Floats, Ints, distinct, kinds_of
from hpuprof.model.intervals import contains
from hpuprof.model.tables import RecipeRow

_BASIS = {
    How.CORRELATION: "correlation",
    How.RECIPE: "recipe and handle",
    How.ORDER: "order",
    How.UNKNOWN: "unknown",
}
MOST_NODES = 3
"""Names of nodes that a row has, those with most time."""


def recipe_rows(view: RankView) -> tuple[list[RecipeRow], int]:
    """Measure the recipes of device rows that start in the steady steps; also return the number of distinct recipes."""
    trace, steps = view.trace, view.steps
    device, said, known = trace.device, trace.recipes.device, trace.recipes
    mine = (said.id >= 0) & occupies(device.kind[said.rows]) & contains(steps.steady_timed(), device.start[said.rows])
    rows, names = said.rows[mine], said.name[mine]
    handles = len(known.handles) + 1
    keys, first, which = kinds_of(said.id[mine].astype(np.int64) * handles + said.handle[mine] + 1)
    of, start, end, _ = clusters(which, device.start[rows], device.end[rows])
    total = np.bincount(of, weights=end - start, minlength=len(keys)).astype(np.int64)
    runs = _Runs(view, rows, which, len(keys))
    wall, steady = max(1, steps.steady_timed().total_ns), max(1, int(steps.steady.sum()))
    out = []
    for i in np.lexsort((keys, -total))[:MAX_ROWS].tolist():
        name, handle = int(names[first[i]]), int(keys[i]) % handles - 1
        out.append(
            RecipeRow(
                recipe=known.ids[int(keys[i]) // handles],
                handle=known.handles[handle] if handle >= 0 else "",
                name=known.names[name] if name >= 0 else "",
                runs=int(runs.count[i]),
                runs_per_step=int(runs.count[i]) / steady,
                device_ns=int(total[i]),
                device_per_step_ns=int(total[i]) / steady,
                fraction=int(total[i]) / wall,
                launched_by=runs.launched_by(i),
                basis=_BASIS[runs.how(i)],
                linked_fraction=float(runs.linked[i] / runs.count[i]),
                nodes=runs.nodes(i),
            )
        )
    return out, len(keys)


class _Runs:
    """The runs of recipes: activations, by recipe. `which`: recipe of each of the rows, from 0."""

    def __init__(self, view: RankView, rows: Ints, which: Ints, count: int) -> None:
        links, device, host = view.links, view.trace.device, view.trace.host
        self.names, work = view.trace.names, links.activations
        pairs = distinct(which * (len(work) + 1) + work.of_row[rows])
        recipe, run = pairs // (len(work) + 1), pairs % (len(work) + 1)
        self.count = np.bincount(recipe, minlength=count)
        self.linked = np.bincount(recipe[work.call[run] >= 0], minlength=count)
        self.known = [work.how[run[mine]] for _, mine in members(recipe)]
        operator, dur = links.operator[rows], device.dur[rows]
        by_operator, by_call = (np.append(host.name[made], -1) for made in (links.nesting.rows, slice(None)))
        launching = np.where(operator >= 0, by_operator[operator], by_call[links.caused[rows]])
        self.launching, self.kernels = (_spent(which, name, dur) for name in (launching, device.name[rows]))

    def how(self, recipe: int) -> How:
        """Return how most launches of a recipe are known."""
        return How(int(np.bincount(self.known[recipe]).argmax()))

    def launched_by(self, recipe: int) -> str:
        """Return the operator, else the call of the program, that launched most of a recipe's time; empty: unknown."""
        names, spent = self.launching[recipe]
        most = int(names[spent.argmax()])
        return self.names[most] if most >= 0 else ""

    def nodes(self, recipe: int) -> str:
        """Return the kernels with most of a recipe's time, with their shares of the sum over lanes."""
        names, spent = self.kernels[recipe]
        largest = np.argsort(-spent, kind="stable")[:MOST_NODES].tolist()
        whole = max(1.0, float(spent.sum()))
        return ", ".join(f"{self.names[int(names[i])]} {spent[i] / whole:.0%}" for i in largest)


def _spent(which: Ints, name: Ints | Codes, dur: Ints) -> list[tuple[Ints, Floats]]:
    """Return the distinct names of each recipe's rows, ascending, and the time of each [ns]; -1 may be one."""
    width = int(name.max(initial=-1)) + 2
    keys, _, of = kinds_of(which * width + name + 1)
    spent = np.bincount(of, weights=dur).astype(np.float64)
    return [(keys[mine] % width - 1, spent[mine]) for _, mine in members(keys // width)]
