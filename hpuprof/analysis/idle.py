"""Tables of device idle time: by cause, longest gaps, and by the host's operator and annotation."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from hpuprof.analysis.forest import Nesting, nest_rows
from hpuprof.analysis.groups import step_deviations
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.searching import search_sorted
from hpuprof.analysis.user_frames import UserFrames
from hpuprof.model.arrays import Codes, Ints, kinds_of, stable_order
from hpuprof.model.intervals import intersect, measure
from hpuprof.model.schema import Activity, HostKind, Role
from hpuprof.model.tables import GapCauseRow, GapOperatorRow, GapRow
from hpuprof.model.trace import Trace

TOP_GAPS = 20
_FEW = 16  # threads looked up one by one
_AT_ONCE = 1 << 16  # instants whose rows are looked up at a time: takes little memory
MAX_ROWS = 100
"""Rows kept, the largest first; the table of causes has the totals."""


def cause_rows(view: RankView) -> list[GapCauseRow]:
    """Measure each cause in each step."""
    out = []
    steps = view.steps
    columns = {cause: measure(part, steps.timed.start, steps.timed.end) for cause, part in view.gaps.by_cause.items()}
    for i in range(len(steps)):
        out += [
            GapCauseRow(step=i, cause=cause.name.lower(), idle_ns=int(c[i])) for cause, c in columns.items() if c[i] > 0
        ]
    return out


def gap_rows(view: RankView) -> list[GapRow]:
    """Return the longest gaps of the steady steps, split at step borders."""
    gaps, steps = view.gaps, view.steps
    steady = steps.steady_timed()
    pieces = intersect(gaps.idle, steady)
    if not len(pieces):
        return []
    # `steady_timed` keeps neighbors apart, so every piece lies in one step.
    longest = np.flatnonzero(pieces.dur >= np.partition(pieces.dur, -min(TOP_GAPS, len(pieces)))[-TOP_GAPS:].min())
    longest = longest[np.argsort(-pieces.dur[longest], kind="stable")][:TOP_GAPS]
    start, end = pieces.start[longest], pieces.end[longest]
    shares = {cause: measure(part, start, end) for cause, part in gaps.by_cause.items()}
    step = np.searchsorted(steps.timed.start, start, side="right") - 1
    middle = (start + end) // 2
    rows, lines = _row_at(view, middle), _lines_at(view, middle)
    out = []
    for i in range(len(start)):
        cause = max(shares, key=lambda c: (int(shares[c][i]), -int(c)))
        dur = int(end[i] - start[i])
        out.append(
            GapRow(
                step=int(step[i]),
                start_ns=int(start[i]),
                dur_ns=dur,
                cause=cause.name.lower(),
                cause_fraction=float(shares[cause][i]) / dur,
                host_row=rows[i],
                python_line=lines[i],
            )
        )
    return out


def gap_operator_rows(view: RankView) -> list[GapOperatorRow]:
    """Split the idle time of the steady steps by cause, innermost operator and innermost annotation (without steps).

    Operators of the main thread come first, then those of autograd threads. Idle pieces are cut wherever an operator or
    annotation begins or ends, so every nanosecond goes to the one open at that time; the rows of a cause sum to its
    idle time.
    """
    trace, nesting = view.trace, view.links.nesting
    steady = view.steps.steady_timed()
    pieces = {cause: intersect(part, steady) for cause, part in view.gaps.by_cause.items()} if len(steady) else {}
    causes = [cause for cause, part in pieces.items() if len(part)]
    if not causes:
        return []
    start = np.concatenate([pieces[c].start for c in causes])
    end = np.concatenate([pieces[c].end for c in causes])
    which = np.repeat(np.arange(len(causes)), [len(pieces[c]) for c in causes])
    tracks = [t for role in (Role.MAIN, Role.AUTOGRAD) for t in np.flatnonzero(view.roles == role).tolist()]
    annotations = _annotations(view)
    piece, begin, length = _segments(_borders([nesting, annotations], tracks), start, end)
    names = [*trace.names, ""]  # the last one is that of no row, -1
    ranges, _, within = kinds_of(_name_at(trace, annotations, tracks, begin))
    code = (which.take(piece) * len(ranges) + within) * len(names)
    code += _name_at(trace, nesting, tracks, begin)
    distinct, _, inverse = kinds_of(code + 1)  # operator -1, no row, becomes 0
    total = np.bincount(inverse, weights=length).astype(np.int64)
    # A gap counts once per operator, however many segments it covers.
    by_row = stable_order(inverse)
    row, gap = inverse.take(by_row), piece.take(by_row)
    again = (row[1:] == row[:-1]) & (gap[1:] == gap[:-1])
    gap_count = np.bincount(row[np.append(True, ~again)], minlength=len(distinct))

    def named(kind: int) -> tuple[str, str, str]:
        rest, operator = divmod(int(distinct[kind]), len(names))
        cause, inner = divmod(rest, len(ranges))
        return causes[cause].name.lower(), names[operator - 1], names[ranges[inner]]

    order = sorted(range(len(distinct)), key=lambda i: (-int(total[i]), named(i)))[:MAX_ROWS]
    [deviation] = step_deviations(inverse, begin, steady, np.array(order), length)
    return [
        GapOperatorRow(
            cause=named(i)[0],
            host_row=named(i)[1],
            within=named(i)[2],
            gaps=int(gap_count[i]),
            idle_ns=int(total[i]),
            idle_per_step_ns=int(total[i]) / len(steady),
            idle_deviation_ns=deviation[i],
        )
        for i in order
    ]


def _annotations(view: RankView) -> Nesting:
    """Nest the annotations of the main thread, without the rows that delimit steps."""
    trace, steps = view.trace, view.steps
    host = trace.host
    delimiting = {steps.name, *steps.labels}
    ordinary = trace.named(lambda n: n not in delimiting)
    rows = np.flatnonzero((host.kind == HostKind.ANNOTATION) & (host.activity != Activity.STEP))
    return nest_rows(trace, rows[(view.roles[host.track[rows]] == Role.MAIN) & ordinary[host.name[rows]]])


def _borders(nestings: list[Nesting], tracks: list[int]) -> Ints:
    """Return all instants at which another row becomes the innermost of one of these tracks, in order.

    The smallest int64 precedes them. Tracks are sorted one by one already, so that a stable sort merges them.
    """
    found = [np.array([np.iinfo(np.int64).min], dtype=np.int64)]
    found += [nesting.turns(track) for nesting in nestings for track in tracks]
    borders = np.concatenate(found)
    borders.sort(kind="stable")
    return borders


def _segments(borders: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut pieces at borders: of which piece each segment is, where it begins, and its length [ns].

    Each piece covers the segments from the last border at or before its start to the last one before its end.
    """
    first = search_sorted(borders, start, right=True) - 1
    count = search_sorted(borders, end) - first
    after = np.cumsum(count)
    head = after - count
    segment = np.arange(count.sum())
    segment += np.repeat(first - head, count)
    begin = borders.take(segment)
    begin[head] = start
    length = np.append(begin[1:], 0)
    length[after - 1] = end
    length -= begin
    return np.repeat(np.arange(len(start)), count), begin, length


def _name_at(trace: Trace, nesting: Nesting, tracks: list[int], when: Ints) -> Codes:
    """Return the name code of the innermost row at each instant, on the first track that has one; -1 for none."""
    out = np.full(len(when), -1, dtype=np.int32)
    if not len(nesting.rows):
        return out

    def ask(track: Codes, places: Ints) -> None:
        at = nesting.innermost(track, when[places])
        found = at >= 0
        out[places.compress(found)] = trace.host.name.take(nesting.rows.take(at.compress(found)))

    for low in range(0, len(when), _AT_ONCE):
        for track in tracks[:_FEW]:
            left = low + np.flatnonzero(out[low : low + _AT_ONCE] < 0)
            if not len(left):
                break
            ask(np.full(len(left), track, dtype=np.int32), left)
    left = np.flatnonzero(out < 0)
    if len(tracks) > _FEW and len(left):
        ask(_first_open(nesting, tracks[_FEW:], when[left]), left)
    return out


def _first_open(nesting: Nesting, tracks: list[int], when: Ints) -> Codes:
    """Return the first track with an open row at each instant, -1 for none; for too many tracks to try in turn."""
    turn = {track: i for i, track in enumerate(tracks)}
    roots = np.flatnonzero((nesting.parent < 0) & np.isin(nesting.track, tracks))
    roots = roots[np.argsort(nesting.start[roots], kind="stable")]
    begun = zip(nesting.start[roots].tolist(), nesting.end[roots].tolist(), nesting.track[roots].tolist(), strict=True)
    ahead = next(begun, None)
    found = np.full(len(when), -1, dtype=np.int32)
    holding: list[tuple[int, int]] = []  # position of a track, end
    for i in np.argsort(when, kind="stable").tolist():
        instant = int(when[i])
        while ahead is not None and ahead[0] <= instant:
            heappush(holding, (turn[ahead[2]], ahead[1]))
            ahead = next(begun, None)
        while holding and holding[0][1] <= instant:
            heappop(holding)
        if holding:
            found[i] = tracks[holding[0][0]]
    return found


def _lines_at(view: RankView, when: Ints) -> list[str | None]:
    """Return the line of the user's code that the main thread ran at each instant, None where no stack shows it."""
    frames, nesting = UserFrames(view.trace, view.links), view.links.nesting
    out: list[str | None] = [None] * len(when)
    for track in np.flatnonzero(view.roles == Role.MAIN).tolist():
        at = nesting.innermost(np.full(len(when), track, dtype=np.int32), when)
        for i, position in enumerate(at.tolist()):
            out[i] = out[i] or frames.at(track, int(when[i]), position)
    return out


def _row_at(view: RankView, when: Ints) -> list[str | None]:
    """Return the main thread's innermost operator at each instant, else the innermost annotation."""
    trace, roles, nesting = view.trace, view.roles, view.links.nesting
    host = trace.host
    out: list[str | None] = [None] * len(when)
    for track in np.flatnonzero(roles == Role.MAIN).tolist():
        at = nesting.innermost(np.full(len(when), track, dtype=np.int32), when)
        for i, position in enumerate(at.tolist()):
            if position >= 0:
                out[i] = trace.names[int(host.name[nesting.rows[position]])]
    annotations = np.flatnonzero((host.kind == HostKind.ANNOTATION) & (roles[host.track] == Role.MAIN))
    for i, instant in enumerate(when.tolist()):
        if out[i] is None and len(annotations):
            around = annotations[(host.start[annotations] <= instant) & (host.end[annotations] > instant)]
            if len(around):
                out[i] = trace.names[int(host.name[around[np.argmin(host.dur[around])]])]
    return out
