"""What profiling cost the host: a broad prior, and what sharpens it. Everything is in multiples of the nominal cost.

The nominal cost of a row is `constants.PROFILER_ROWS`. What is known sharpens in this order: the step time without the
profiler (timed by the recorder or given), the machine's own costs (`hpuprof calibrate`), and the rows themselves: what
lies between them bounds their cost from above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.groups import members
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Floats, Ints, Mask, percentiles
from hpuprof.model.prediction import Constant, ProfilingPrior
from hpuprof.model.schema import HostKind
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.loader_workers import late_samples
from hpuprof.what_if.uncertainty import NORMAL_95

PRIOR_MEDIAN, PRIOR_HIGH = 2.5, 8.9
"""Median and 95th percentile, log-normal. Five recordings whose step time without the profiler was measured needed 1.1
(U-Net, RTX 3090), 3.4 and 3.6 (vLLM decode, RTX 3060), 5.4 and 6.8 (transformers decode, two boxes): a standard
deviation of the logarithm of 0.70, and 0.77 for a sixth, as five do not tell the mean. The median lies between
torch's own benchmarks (about 1) and theirs (3.5), by judgment."""
CALIBRATED_HIGH = 1.4
"""95th percentile once this machine's costs are measured (median 1). By judgment: rows differ in a real program."""
LEAST, MOST = 0.05, 16.0
"""Range of the multiples."""
WINDOW = 32
"""Neighboring rows whose costs average out; by judgment."""
DENSE = 10
"""Percentile of the windows by time per cost that bounds the cost of a row: in the densest windows little but
profiling happens. By judgment not the smallest: rows differ in cost."""
SOFT = 0.25
"""Relative error of that bound; by judgment."""
OTHER_HOST = 0.02
"""Probability of a host that is slower, and of one that is faster, than any cost of profiling explains."""
SLOWEST, FASTEST = 2.5, 0.25
"""Range of the factor on host work in that case; within it, near 1 is likelier."""
PACES = 0.1
"""Standard deviation of the logarithm around each sample of the time between two batches; by judgment."""
_PATH = np.linspace(-1.0, 2.0, 1201)
_PLAYED = np.concatenate([np.linspace(-1.0, 0.0, 9)[:-1], np.linspace(0.0, 1.0, 45), np.linspace(1.0, 2.0, 9)[1:]])
"""Points of `_on` at which step times are played; between them they are interpolated at those of `_PATH`."""


OTHER_MACHINES = ProfilingPrior(median=PRIOR_MEDIAN, high=PRIOR_HIGH, source="other machines")


class Cost(Struct, frozen=True, eq=False):
    """Samples of what profiling cost; arrays of shape `(samples,)`. `source`: what the samples are known from.

    `every`: of the time between two batches of data-loader workers [ns], as a given step time allows it; `waits`: those
    in which steps wait for batches, though only without the profiler.
    """

    overhead: Floats
    host_scale: Floats
    source: str
    every: Floats | None = None
    waits: Mask | None = None

    def where(self, some: Mask, other: Cost) -> Cost:
        """Return it with other samples in some places."""
        return replace(
            self,
            overhead=np.where(some, other.overhead, self.overhead),
            host_scale=np.where(some, other.host_scale, self.host_scale),
            source=other.source if some.all() else self.source,
        )


def prior_of(
    view: RankView, row_costs: Floats, windows: tuple[Ints, Ints], measured: Mapping[str, Constant]
) -> ProfilingPrior:
    """Return what is known of the cost without a step time.

    `row_costs`: nominal, by kind [ns]; `windows`: starts and ends of the steps; `measured`: a machine profile.
    """
    if any(name in measured for name in PROFILER_ROWS.values()):
        prior = ProfilingPrior(median=1.0, high=CALIBRATED_HIGH, source="calibration")
    else:
        prior = _of_family(view, row_costs, windows)
    return prior if (most := row_bound(view, row_costs, windows)) is None else bounded(prior, most)


def _of_family(view: RankView, row_costs: Floats, windows: tuple[Ints, Ints]) -> ProfilingPrior:
    """Return what recordings of the device's family cost; as on other machines where none is known."""
    known = FAMILIES[view.trace.family].profiling_cost
    cost = known.get(view.trace.mode, known.get(""))
    if cost is None:
        return OTHER_MACHINES
    unit = 1.0
    if cost.of_step:
        begin, stop = int(windows[0].min()), int(windows[1].max())
        nominal = float(_rows_cost(view, row_costs, begin, stop)[1].sum())
        if not nominal:
            return OTHER_MACHINES
        unit = (stop - begin) / nominal
    median = float(np.clip(cost.median * unit, LEAST, MOST))
    return ProfilingPrior(median=median, high=median * cost.high / cost.median, source=cost.source)


def _rows_cost(view: RankView, row_costs: Floats, begin: int, stop: int) -> tuple[Ints, Floats]:
    """Return the rows of the host path that begin in a window and cost something, and their nominal costs [ns]."""
    host = view.trace.host
    first, last = np.searchsorted(host.start, [begin, stop])
    of_kind = np.zeros(max(HostKind) + 1)
    of_kind[list(PROFILER_ROWS)] = row_costs
    costs = of_kind[host.kind[first:last]]
    inside = np.flatnonzero(view.on_path[first:last] & (costs > 0))
    return first + inside, costs[inside]


def bounded(prior: ProfilingPrior, most: float) -> ProfilingPrior:
    """Return the prior cut above a bound; rows are its source where the bound cuts off a tenth of it or more."""
    narrow = prior.median * (prior.high / prior.median) ** (1.2816 / NORMAL_95) > most
    return replace(prior, most=max(most, LEAST), source="rows" if narrow else prior.source)


def log_density(prior: ProfilingPrior, multiples: Floats) -> Floats:
    """Return the logarithm of the density over ln(multiples), but for a constant."""
    deviation = np.log(prior.high / prior.median) / NORMAL_95
    log: Floats = -0.5 * (np.log(multiples / prior.median) / deviation) ** 2
    if prior.most is not None:
        log = log - 0.5 * (np.maximum(0.0, np.log(multiples / prior.most)) / SOFT) ** 2
    return log


def row_bound(view: RankView, row_costs: Floats, windows: tuple[Ints, Ints]) -> float | None:
    """Return how many times the nominal cost the rows of the host path can have cost; None with too few rows.

    Of `WINDOW` neighboring rows of a track, the time from the first to behind the last over their nominal cost: work
    and waiting make it larger, never smaller. The percentile `DENSE` of all windows counts.
    """
    host, (low, high) = view.trace.host, windows
    rows, costs = _rows_cost(view, row_costs, int(low.min()), int(high.max()))
    ratios = []
    for _, places in members(host.track[rows]):
        mine = rows[places]
        if len(mine) > WINDOW:
            spent = np.append(0.0, np.cumsum(costs[places]))
            lasted = host.start[mine][WINDOW:] - host.start[mine][:-WINDOW]
            ratios.append(lasted / (spent[WINDOW:-1] - spent[: -WINDOW - 1]))
    return float(percentiles(np.concatenate(ratios), DENSE)) if ratios else None


def fit(
    prior: ProfilingPrior,
    times_at: Callable[[Floats, Floats], Floats],
    unprofiled_ns: float | None,
    noise: float,
    u: Floats,
    late: Mask | None = None,
    every: Floats | None = None,
) -> Cost:
    """Draw costs from the prior, given the step time without the profiler if it is known.

    Where no cost explains that step time, the host was slower or faster when it was taken: all its work is scaled. Or
    steps were short enough then to wait for batches, though they do not in the recording.

    Args:
        prior: of the cost.
        times_at: returns step times [ns] at multiples of the nominal cost and factors on host work.
        unprofiled_ns: the step time without the profiler; None if unknown.
        noise: its relative standard deviation.
        u: uniform numbers; larger ones give higher costs.
        late: samples in which steps wait for batches: as long without the profiler, they show nothing of what it cost.
        every: samples of the time between two batches that workers allow [ns].
    """
    inside = (_PATH >= 0) & (_PATH <= 1)
    density = np.where(inside, np.exp(log_density(prior, _on(_PATH)[0])), 0.0)
    density /= density.sum()
    unknown = Cost(*_drawn(density, u), prior.source)
    if not unprofiled_ns:
        return unknown
    other = np.where(inside, 0.0, np.exp(-4 * np.abs(_PATH - 0.5)))
    density += 2 * OTHER_HOST * other / other.sum()
    times = np.interp(_PATH, _PLAYED, np.log(np.maximum(times_at(*_on(_PLAYED)), 1.0)))
    off, scatter = times - np.log(unprofiled_ns), max(noise, 0.02)
    log = np.log(density) - 0.5 * (off / scatter) ** 2
    known = Cost(*_drawn(np.exp(log - log.max()), u), "step time")
    if late is None:
        return known
    cost = known.where(late, unknown)
    if every is None or late.all():
        return cost
    shorter = np.where(off < 0, density, 0.0)
    odds = _odds_of_batches(every[~late], unprofiled_ns, float(np.exp(log).sum()) / scatter, float(shorter.sum()))
    waits = late_samples(float(late.mean()) + float((~late).mean()) * odds)[0] | late
    if (waits & ~late).any():
        cost = cost.where(waits & ~late, Cost(*_drawn(shorter, u), "step time"))
    return replace(cost, every=_as_given(every, late, waits, unprofiled_ns), waits=waits)


def _odds_of_batches(every: Floats, step_ns: float, explained: float, shorter: float) -> float:
    """Return how likely batches set a given step time, by Bayes' rule.

    Args:
        every: samples of the time between two batches [ns].
        step_ns: the given step time.
        explained: density of what profiling leaves of the recorded step there, by the logarithm of the step time.
        shorter: how likely it leaves less.
    """
    came = np.exp(-0.5 * (np.log(every / step_ns) / PACES) ** 2) / PACES
    waited, kept_up = shorter * float(came.mean()), explained * float((every < step_ns).mean())
    return waited / (waited + kept_up) if waited else 0.0


def _as_given(every: Floats, late: Mask, waits: Mask, step_ns: float) -> Floats:
    """Return the time between two batches: the given step where it waits for them, less where workers keep up [ns]."""
    found = np.where(waits & ~late, step_ns, every)
    sooner = np.sort(every[~late & (every < step_ns)])
    if len(sooner) and not waits.all():
        rank = np.argsort(np.argsort(every[~waits], kind="stable"), kind="stable")
        found[~waits] = np.quantile(sooner, (rank + 0.5) / len(rank))
    return found


def _drawn(density: Floats, u: Floats) -> tuple[Floats, Floats]:
    """Return multiples and factors on host work of a density along the path, at uniform numbers."""
    cumulative = (np.cumsum(density) - 0.5 * density) / density.sum()
    return _on(np.interp(u, cumulative, _PATH))


def _on(path: Floats) -> tuple[Floats, Floats]:
    """Return multiples and factors on host work along a path on which steps get shorter.

    -1 to 0: hardly a cost, the host from `SLOWEST` to as recorded; to 1: up to `MOST`; to 2: a host down to `FASTEST`.
    """
    overhead: Floats = np.exp(np.interp(path, [0.0, 1.0], np.log([LEAST, MOST])))
    host: Floats = np.exp(np.interp(path, [-1.0, 0.0, 1.0, 2.0], np.log([SLOWEST, 1.0, 1.0, FASTEST])))
    return overhead, host
