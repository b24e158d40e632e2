"""One clock for all hosts: offset and drift of each, from collectives that no member leaves before all have arrived.

True time = stamp + offset + drift * (stamp - middle). No member i of a symmetric collective ends before every member j
on another host has started: start_i + o_i <= end_j + o_j, both ways; of a transfer, where i sends and j receives, one
way. These constraints of a pair of hosts bound a
polygon of possible (offset, drift); its extent is the certified interval of the offset in the middle of the recording,
which shortest paths over the graph of hosts (Floyd-Warshall) tighten. Within it the estimate takes ends as
simultaneous: median over collectives, drift by the Theil-Sen slope, least squares over the graph. Pure functions on
arrays; no files, no ranks.

Sources: difference constraints and shortest paths as in Cormen et al., Introduction to Algorithms, ch. 22.4 (4th ed.);
slope: P. K. Sen, J. Am. Stat. Assoc. 63 (1968) 1379.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints, Mask, median
from hpuprof.model.clock import GivenClock

SENDS, RECEIVES = 1, 2
MAX_DRIFT = 200e-6
"""Quartz keeps within 100 ppm; two hosts differ by at most twice that."""
MAX_INFEASIBLE = 0.01
"""With a larger share of contradicting collectives the matching or the clock model is wrong; by judgment."""
_BUCKETS = 64  # parts of the recording whose tightest constraint is kept: sound, as dropping others only widens
_ALL_PAIRS = 12  # with more hosts in one group, pairs with a few hubs suffice
_HUBS = 4
_SLOPE_POINTS = 400
_MIN_SLOPE_POINTS = 8
_END_NOISE_NS = 1000.0  # ends are no closer to simultaneous, and older stamps are whole microseconds
COARSE_NS = 2000
"""Whole-microsecond stamps truncate start and duration separately: an end may read up to 2 µs early."""


class Clocks(Struct, frozen=True, eq=False):
    """Corrections to each host's stamps, arrays of shape `(hosts,)`.

    Offsets hold at `middle_ns`, relative to the host's reference, the first host of its component. `low`, `high`
    certify the offset; NaN if nothing does.
    """

    mode: str  # raw, collective, manifest
    middle_ns: int
    offset_ns: Floats
    drift: Floats  # dimensionless: 1e-6 is one ppm
    low_ns: Floats
    high_ns: Floats
    residual_ns: Floats  # median absolute difference of ends after correction
    matches: Ints
    infeasible: Ints
    component: Ints  # hosts of one component share a clock; -1: unknown clock

    def correct(self, stamp: Ints, host: Ints) -> Ints:
        """Return stamps on the common clock [ns], as integers."""
        moved = self.offset_ns[host] + self.drift[host] * (stamp - self.middle_ns)
        return stamp + np.rint(moved).astype(np.int64)


def given_clocks(mode: str, given: Sequence[GivenClock | None], middle_ns: int) -> Clocks:
    """Return the given clocks, one per host, None if unknown."""
    count = len(given)
    unknown = np.full(count, np.nan)
    known = [clock if clock is not None else GivenClock(0.0) for clock in given]
    return Clocks(
        mode,
        middle_ns,
        np.array([clock.at(middle_ns) for clock in known], dtype=np.float64),
        np.array([clock.drift_ppm * 1e-6 for clock in known], dtype=np.float64),
        unknown,
        unknown.copy(),
        unknown.copy(),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.array([-1 if clock is None else 0 for clock in given], dtype=np.int64),
    )


class _Edge(Struct, frozen=True, eq=False):
    """Collectives shared by two hosts: times, differences of ends, bounds of offset a less offset b."""

    time: Floats
    gap: Floats
    low: Floats
    high: Floats


def estimate(hosts: int, collective: Ints, host: Ints, start: Ints, end: Ints, side: Ints | None = None) -> Clocks:
    """Estimate the hosts' clocks from members of symmetric collectives and transfers; columns have shape `(members,)`.

    `side`: SENDS or RECEIVES of the ends of a transfer, which binds one way only: it does not end where it is received
    before it begins where it is sent; else 0, as without it.

    Cost: O(members log members) to group, then O(pairs of hosts that share collectives).
    """
    middle = int((int(start.min()) + int(end.max())) // 2) if len(start) else 0
    side = np.zeros_like(host) if side is None else side
    edges = _edges(collective, host, (start - middle).astype(np.float64), (end - middle).astype(np.float64), side)
    slack = float(COARSE_NS) if len(start) and not (start % 1000).any() and not (end % 1000).any() else 0.0
    return _solve(hosts, edges, middle, slack)


def contradictions(collective: Ints, host: Ints, start: Ints, end: Ints) -> tuple[dict[int, int], dict[int, int]]:
    """Count each host's collectives of two or more members, and those where one ended before another had started."""
    seen: dict[int, int] = defaultdict(int)
    wrong: dict[int, int] = defaultdict(int)
    if len(start):
        order, first, key_host, _ = _by_host(collective, host)
        size = np.diff(np.append(first, len(order)))
        late, early = np.maximum.reduceat(start[order], first), np.minimum.reduceat(end[order], first)
        coarse = COARSE_NS if not (start % 1000).any() and not (end % 1000).any() else 0
        for h, several, bad in zip(
            key_host.tolist(), (size > 1).tolist(), (late > early + coarse).tolist(), strict=True
        ):
            seen[h] += several
            wrong[h] += several and bad
    return dict(seen), dict(wrong)


def _by_host(collective: Ints, host: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    order = np.lexsort((host, collective))
    c, h = collective[order], host[order]
    new = np.append([True], (c[1:] != c[:-1]) | (h[1:] != h[:-1]))
    first = np.flatnonzero(new)
    return order, first, h[first], c[first]


def _edges(collective: Ints, host: Ints, start: Floats, end: Floats, side: Ints) -> dict[tuple[int, int], _Edge]:
    if not len(start):
        return {}
    order, first, on, which = _by_host(collective, host)
    size = np.diff(np.append(first, len(order)))
    late = np.maximum.reduceat(np.where(side == RECEIVES, -np.inf, start)[order], first)
    early = np.minimum.reduceat(np.where(side == SENDS, np.inf, end)[order], first)
    mean = np.add.reduceat(end[order], first) / size
    begins = np.flatnonzero(np.append([True], which[1:] != which[:-1]))
    stops = np.append(begins[1:], len(which))
    sets: dict[bytes, list[int]] = defaultdict(list)  # handles collectives of the same hosts at once
    for b, s in zip(begins.tolist(), stops.tolist(), strict=True):
        if s - b > 1:
            sets[on[b:s].tobytes()].append(b)
    parts: dict[tuple[int, int], list[tuple[Floats, Floats, Floats, Floats]]] = defaultdict(list)
    for key, rows in sorted(sets.items()):
        members = np.frombuffer(key, dtype=on.dtype)
        table = np.array(rows)[:, None] + np.arange(len(members))[None, :]
        s, e, m = late[table], early[table], mean[table]
        for a, b in _pairs(len(members)):
            parts[int(members[a]), int(members[b])].append(
                (m[:, a], m[:, b] - m[:, a], s[:, b] - e[:, a], e[:, b] - s[:, a])
            )
    return {
        pair: _Edge(*(np.concatenate([p[i] for p in found]) for i in range(4))) for pair, found in sorted(parts.items())
    }


def _pairs(count: int) -> list[tuple[int, int]]:
    if count <= _ALL_PAIRS:
        return list(combinations(range(count), 2))
    hubs = sorted({count * i // _HUBS for i in range(_HUBS)})
    return sorted({(min(h, x), max(h, x)) for h in hubs for x in range(count) if x != h})


def _solve(hosts: int, edges: Mapping[tuple[int, int], _Edge], middle: int, slack: float) -> Clocks:
    pairs = list(edges)
    lines = [_line(e) for e in edges.values()]
    low, high, wrong = _certify(list(edges.values()), lines, slack)
    component = _components(hosts, pairs)
    offset, drift = _least_squares(hosts, pairs, lines, [len(e.gap) for e in edges.values()], component)
    matches, infeasible = np.zeros(hosts, dtype=np.int64), np.zeros(hosts, dtype=np.int64)
    residuals: list[list[Floats]] = [[] for _ in range(hosts)]
    for (a, b), edge, bad in zip(pairs, edges.values(), wrong, strict=True):
        left = np.abs(edge.gap - (offset[a] - offset[b]) - (drift[a] - drift[b]) * edge.time)
        for h in (a, b):
            matches[h] += len(edge.gap)
            infeasible[h] += bad
            residuals[h].append(left)
    floor, ceiling = _tighten(hosts, pairs, low, high)
    reference = component  # the first host of the component
    bottom, top = floor[np.arange(hosts), reference], ceiling[np.arange(hosts), reference]
    alone = (matches == 0) & (reference != np.arange(hosts))
    bottom[alone], top[alone] = np.nan, np.nan
    inside = np.isfinite(bottom) & np.isfinite(top) & (bottom <= top)
    offset = np.where(inside, np.clip(offset, bottom, top), offset)
    return Clocks(
        "collective",
        middle,
        offset,
        drift,
        np.where(np.isfinite(bottom), bottom, np.nan),
        np.where(np.isfinite(top), top, np.nan),
        np.array([float(median(np.concatenate(r))) if r else np.nan for r in residuals]),
        matches,
        infeasible,
        component,
    )


def _line(edge: _Edge) -> tuple[float, float]:
    """Return a robust offset and drift: the line through an edge's differences of ends."""
    count = len(edge.gap)
    if count < _MIN_SLOPE_POINTS:
        return float(median(edge.gap)), 0.0
    pick = np.linspace(0, count - 1, min(count, _SLOPE_POINTS)).astype(np.int64)
    order = np.argsort(edge.time[pick], kind="stable")
    t, y = edge.time[pick][order], edge.gap[pick][order]
    i, j = np.triu_indices(len(t), 1)
    apart = t[j] - t[i]
    far = apart > 0.25 * (t[-1] - t[0])  # close pairs carry no slope
    slope = float(median((y[j] - y[i])[far] / apart[far])) if far.any() else 0.0
    slope = min(max(slope, -MAX_DRIFT), MAX_DRIFT)
    left = y - slope * t
    noise = max(_END_NOISE_NS, 1.4826 * float(median(np.abs(left - median(left)))))
    # Standard error of a slope over evenly spread points; a drift below three of them is indistinguishable from none.
    if abs(slope) * float(t[-1] - t[0]) < 3 * noise * (12 / len(t)) ** 0.5:
        slope = 0.0
    return float(median(edge.gap - slope * edge.time)), slope


def _certify(edges: list[_Edge], lines: list[tuple[float, float]], slack: float) -> tuple[Floats, Floats, list[int]]:
    """Return the certified interval of each edge's offset, and how many of its collectives contradict the rest."""
    wrong = [0] * len(edges)
    packed = [_tightest(e, line, slack, None) for e, line in zip(edges, lines, strict=True)]
    low, high, possible = _extent(packed)
    again = np.flatnonzero(~possible).tolist()
    for i in again:
        offset, slope = lines[i]
        at = offset + slope * edges[i].time
        bad = (at > edges[i].high + slack) | (at < edges[i].low - slack)
        wrong[i] = int(bad.sum())
        packed[i] = _tightest(edges[i], lines[i], slack, ~bad)
    if again:
        some_low, some_high, possible = _extent([packed[i] for i in again])
        low[again] = np.where(possible, some_low, -np.inf)
        high[again] = np.where(possible, some_high, np.inf)
    return low, high, wrong


def _tightest(
    edge: _Edge, line: tuple[float, float], slack: float, keep: Mask | None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return times and values of the tightest upper and lower bounds, one per part of the recording."""
    t, low, high = edge.time, edge.low - slack, edge.high + slack
    if keep is not None:
        t, low, high = t[keep], low[keep], high[keep]
    out = [np.zeros(_BUCKETS), np.full(_BUCKETS, np.inf), np.zeros(_BUCKETS), np.full(_BUCKETS, -np.inf)]
    if not len(t):
        return out[0], out[1], out[2], out[3]
    span = max(float(t.max() - t.min()), 1.0)
    part = np.minimum(((t - t.min()) / span * _BUCKETS).astype(np.int64), _BUCKETS - 1)
    for values, sign, at in ((high, 1.0, 0), (low, -1.0, 2)):
        level = sign * (values - line[1] * t)
        order = np.lexsort((level, part))
        first = order[np.append([True], part[order][1:] != part[order][:-1])]
        out[at][part[first]], out[at + 1][part[first]] = t[first], values[first]
    return out[0], out[1], out[2], out[3]


def _extent(packed: list[tuple[Floats, Floats, Floats, Floats]]) -> tuple[Floats, Floats, Mask]:
    """Return the smallest and largest feasible offset over all drifts within `MAX_DRIFT`, for many edges at once.

    A drift d allows offsets from max(low - d t) to min(high - d t); one is convex, the other concave in d, so sections
    of the interval find their extremes.
    """
    if not packed:
        none = np.empty(0)
        return none, none.copy(), np.empty(0, dtype=bool)
    tu, u, tl, lo = (np.stack([p[i] for p in packed]) for i in range(4))

    def top(d: Floats) -> Floats:
        value: Floats = np.min(u - d[:, None] * tu, axis=1)
        return value

    def bottom(d: Floats) -> Floats:
        value: Floats = np.max(lo - d[:, None] * tl, axis=1)
        return value

    def room(d: Floats) -> Floats:
        return top(d) - bottom(d)

    left, right = np.full(len(packed), -MAX_DRIFT), np.full(len(packed), MAX_DRIFT)
    with np.errstate(invalid="ignore"):
        best = _peak(room, left, right)
        possible = ~(room(best) < 0)
        first = _border(room, best, left)
        last = _border(room, best, right)
        high = top(_peak(top, first, last))
        low = bottom(_peak(lambda d: -bottom(d), first, last))
    return low, high, possible


def _peak(f: Callable[[Floats], Floats], left: Floats, right: Floats) -> Floats:
    """Maximize a concave function by ternary search; return where."""
    for _ in range(80):
        third = (right - left) / 3
        a, b = left + third, right - third
        up = f(a) < f(b)
        left, right = np.where(up, a, left), np.where(up, right, b)
    return (left + right) / 2


def _border(f: Callable[[Floats], Floats], inside: Floats, outside: Floats) -> Floats:
    """Return, by bisection, the last point from `inside` toward `outside` where a concave function is not negative."""
    good, bad = inside.copy(), outside.copy()
    whole = f(bad) >= 0
    for _ in range(60):
        middle = (good + bad) / 2
        fine = f(middle) >= 0
        good, bad = np.where(fine, middle, good), np.where(fine, bad, middle)
    return np.where(whole, outside, good)


def _components(hosts: int, pairs: list[tuple[int, int]]) -> Ints:
    """Return the first host connected to each host."""
    root = list(range(hosts))

    def find(x: int) -> int:
        while root[x] != x:
            root[x] = root[root[x]]
            x = root[x]
        return x

    for a, b in pairs:
        x, y = sorted((find(a), find(b)))
        root[y] = x
    return np.array([find(x) for x in range(hosts)], dtype=np.int64)


def _least_squares(
    hosts: int, pairs: list[tuple[int, int]], lines: list[tuple[float, float]], weight: list[int], component: Ints
) -> tuple[Floats, Floats]:
    """Return the offsets and drifts that fit all edges best, 0 for each component's reference."""
    if not pairs:
        return np.zeros(hosts), np.zeros(hosts)
    matrix, right = np.zeros((hosts, hosts)), np.zeros((hosts, 2))
    for (a, b), line, count in zip(pairs, lines, weight, strict=True):
        matrix[a, a] += count
        matrix[b, b] += count
        matrix[a, b] -= count
        matrix[b, a] -= count
        right[a] += count * np.array(line)
        right[b] -= count * np.array(line)
    fixed = component == np.arange(hosts)
    matrix[fixed] = 0.0
    matrix[fixed, fixed] = 1.0
    right[fixed] = 0.0
    solved = np.linalg.solve(matrix, right)
    return solved[:, 0].copy(), solved[:, 1].copy()


def _tighten(hosts: int, pairs: list[tuple[int, int]], low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return bounds of offset a less offset b for all pairs: shortest paths over the bounds of the edges."""
    most = np.full((hosts, hosts), np.inf)
    np.fill_diagonal(most, 0.0)
    for (a, b), lo, hi in zip(pairs, low.tolist(), high.tolist(), strict=True):
        most[a, b] = min(most[a, b], hi)
        most[b, a] = min(most[b, a], -lo)
    for k in range(hosts):
        np.minimum(most, most[:, k, None] + most[None, k, :], out=most)
    return -most.T, most
