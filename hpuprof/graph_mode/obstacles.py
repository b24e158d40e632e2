"""Obstacles to graph mode: occurrences rated by where and how often they occur, as rows of a report.

Severity: *blocker* inside a module that has nothing smaller to graph (or inside the optimizer); *cut* between modules,
so that the parts before and after can be graphed; *periodic* in at most half of the steps; *harmless* when nothing
needs to change. The trace proves presence, never absence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from hpuprof.analysis.links import forest
from hpuprof.analysis.placement import Phase
from hpuprof.graph_mode import obstacle_codes as codes
from hpuprof.graph_mode.diverging_paths import Fork, find_period
from hpuprof.graph_mode.occurrences import Context, Occurrence
from hpuprof.graph_mode.shapes import Coverage, coverage, suggest_buckets, unseen
from hpuprof.graph_mode.signatures import ModuleShapes, parse
from hpuprof.model.arrays import Ints
from hpuprof.model.schema import HostKind
from hpuprof.model.tables import ObstacleRow
from hpuprof.naming import natural

STEP, OPTIMIZER = "(step)", "(optimizer)"
SEVERITIES = ("blocker", "cut", "periodic", "harmless")
MANY_GRAPHS = 32
"""Beyond this many graphs for one module, memory and capture time outweigh the gain."""
MANY_UNSEEN = 0.2
_MODULES_NAMED = 100
_PHASE = {
    Phase.BETWEEN: "between modules",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
}
# Normal between modules: input copies, allocations of inputs, step markers at the borders.
_ONLY_INSIDE = frozenset({"HP304", "HP305", "HP310"})
_FRAME = re.compile(r"^(?P<file>[^:]+\.py)\((?P<line>\d+)\): ")
_LIBRARY = re.compile(
    r"site-packages|dist-packages|(?:^|/)torch/|(?:^|/)lightning/|(?:^|/)hpuprof/|(?:^|/)lib/python|^<|^contextlib\.py|"
    r"^threading\.py|^multiprocessing/|^importlib/|habana_frameworks"
)


@dataclass(frozen=True)
class Obstacle:
    """A row, and the codes of the modules that it concerns, enclosing modules included."""

    row: ObstacleRow
    phase: Phase
    modules: frozenset[int]
    around: frozenset[int]


class UserFrames:
    """Finds the innermost Python frame of the user's code at an instant, from frames or recorded call stacks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        trace, host = context.trace, context.trace.host
        own = np.array([_own(n) for n in trace.names] or [False], dtype=bool)
        rows = (
            np.flatnonzero((host.kind == HostKind.PYTHON) & own[host.name])
            if len(host)
            else np.empty(0, dtype=np.int64)
        )
        rows = rows[np.argsort(host.track[rows], kind="stable")]
        self._tree = forest(rows, host.track[rows], host.start[rows], host.end[rows])

    def at(self, track: int, when: int, position: int) -> str | None:
        """Return the frame as `file(line): function`."""
        context = self._context
        trace, nesting = context.trace, context.links.nesting
        if position >= 0:
            detail = int(trace.host.detail[nesting.rows[position]])
            stack = parse(trace.details[detail].stack) if detail >= 0 and trace.details[detail].stack else ""
            for frame in stack.split(";") if isinstance(stack, str) else []:
                if _own(frame.strip()):
                    return frame.strip()
        if not len(self._tree.rows):
            return None
        lane = np.array([context.placement.lane[track]], dtype=np.int32)
        found = int(self._tree.innermost(lane, np.array([when], dtype=np.int64))[0])
        return trace.names[int(trace.host.name[self._tree.rows[found]])] if found >= 0 else None


def _own(frame: str) -> bool:
    return bool(_FRAME.match(frame)) and not _LIBRARY.search(frame)


def judge(context: Context, seen: list[Occurrence], forks: list[Fork], shapes: list[ModuleShapes]) -> list[Obstacle]:
    """Turn all occurrences into rows, the most severe first."""
    frames = UserFrames(context)
    found: list[Obstacle] = []
    for occurrence in seen:
        found += _placed(context, occurrence, frames)
    single = [o for o in (_fork(context, fork, frames) for fork in forks) if o]
    found += _together(context, [*single, *_shapes(context, shapes)])
    return sorted(
        found,
        key=lambda o: (
            SEVERITIES.index(o.row.severity),
            o.row.code,
            -o.row.steps,
            -o.row.count,
            o.row.module,
            o.row.where,
        ),
    )


def _together(context: Context, obstacles: Iterable[Obstacle]) -> list[Obstacle]:
    """Merge rows of several instances of one class; the instance with most cases gives the words."""
    groups: dict[tuple[str, ...], list[Obstacle]] = {}
    for entry in obstacles:
        row = entry.row
        kinds = sorted({context.calls.types[m] or context.calls.names[m] for m in entry.modules})
        groups.setdefault((row.code, row.severity, row.where, *kinds), []).append(entry)
    out = []
    for (*_, kind), members in groups.items():
        rows = sorted((m.row for m in members), key=lambda r: -r.count)
        if len(rows) == 1:
            out.append(members[0])
            continue
        alike = all(row.text == rows[0].text for row in rows)
        names = sorted({name for row in rows for name in row.modules}, key=natural)
        merged = msgspec.structs.replace(
            rows[0],
            module=f"{kind} ({len(names)} modules)",
            modules=names[:_MODULES_NAMED],
            text=rows[0].text if alike else f"{rows[0].text}, in {rows[0].module}; likewise in the others",
            count=sum(row.count for row in rows),
            per_step=sum(row.per_step for row in rows),
            steps=max(row.steps for row in rows),
        )
        modules = frozenset[int]().union(*(m.modules for m in members))
        around = frozenset[int]().union(*(m.around for m in members))
        out.append(Obstacle(merged, members[0].phase, modules, around))
    return out


def _around(context: Context, modules: frozenset[int], calls: Ints) -> frozenset[int]:
    found = set(modules)
    above = calls
    while len(above):
        above = np.unique(context.calls.parent[above])
        above = above[above >= 0]
        found.update(int(m) for m in np.unique(context.calls.module[above]))
    return frozenset(found)


def _placed(context: Context, occurrence: Occurrence, frames: UserFrames) -> list[Obstacle]:
    """Group the cases of an occurrence by place; modules of one class count together."""
    calls = context.calls
    places = context.placement.of(occurrence.track, occurrence.when)
    keep = (places.step >= 0) & (places.phase != Phase.LOADER)
    if occurrence.code in _ONLY_INSIDE:
        keep &= (places.phase == Phase.FORWARD) | (places.phase == Phase.BACKWARD)
        keep &= places.call >= 0
    groups: dict[tuple[int, str], list[int]] = {}
    for i in np.flatnonzero(keep).tolist():
        call = int(places.call[i])
        if call >= 0:
            module = int(calls.module[call])
            name = calls.types[module] or calls.names[module]
        else:
            name = OPTIMIZER if places.phase[i] == Phase.OPTIMIZER else STEP
        groups.setdefault((int(places.phase[i]), name), []).append(i)
    out = []
    for (number, name), members in sorted(groups.items()):
        phase = Phase(number)
        inside = places.call[members]
        modules = frozenset(int(m) for m in np.unique(calls.module[inside[inside >= 0]])) if len(calls) else frozenset()
        steps = np.unique(places.step[members])
        severity = occurrence.severity or _severity(
            context, occurrence, phase, leaf=bool(modules) and not modules & calls.parents
        )
        severity, often = _frequency(severity, steps, len(context.steps), occurrence.code)
        first = members[0]
        names = sorted((calls.names[m] for m in modules), key=natural)
        row = ObstacleRow(
            code=occurrence.code,
            severity=severity,
            module=f"{name} ({len(names)} modules)" if len(names) > 1 else next(iter(names), name),
            modules=names[:_MODULES_NAMED],
            where=f"{_PHASE[phase]}, {occurrence.label}",
            count=len(members),
            per_step=len(members) / max(1, len(context.steps)),
            steps=len(steps),
            text=occurrence.text + often,
            fix=codes.fix(occurrence.code, context.trace.family, context.trace.mode),
            python_line=frames.at(
                int(occurrence.track[first]), int(occurrence.when[first]), int(occurrence.position[first])
            ),
        )
        out.append(Obstacle(row, phase, modules, _around(context, modules, np.unique(inside[inside >= 0]))))
    return out


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _severity(context: Context, occurrence: Occurrence, phase: Phase, *, leaf: bool) -> str:
    """Rate by place: inside a module without submodules it blocks; anywhere else it can be cut out."""
    if occurrence.code == "HP315" and "gloo" not in occurrence.label:
        lazy = codes.machine(context.trace.family, context.trace.mode) == codes.HPU_LAZY
        return "cut" if lazy and phase != Phase.BETWEEN else "harmless"
    if occurrence.code == "HP310":
        return "cut"
    if phase == Phase.OPTIMIZER:
        return "blocker"
    return "blocker" if leaf else "cut"


def _frequency(severity: str, steps: Ints, total: int, code: str) -> tuple[str, str]:
    """Return the severity adjusted for frequency, and the frequency in words."""
    if total < 3 or len(steps) == total:
        return severity, ""
    if steps[-1] == 0:
        return "harmless", ", in the first step only"
    words = f", in {len(steps)} of {total} steps"
    gaps = np.unique(np.diff(steps))
    if len(gaps) == 1 and len(steps) >= 3 and gaps[0] > 1:
        words = f", every {int(gaps[0])} steps"
    if severity != "harmless" and 2 * len(steps) <= total and code != "HP317":
        return "periodic", words
    return severity, words


# --------------------------------------------------------------------------------------------------- control flow


_READS = ("item", "_local_scalar_dense", "is_nonzero", "cpu", "to", "_to_copy", "copy_", "tolist")


def _fork(context: Context, fork: Fork, frames: UserFrames) -> Obstacle | None:
    calls = context.calls
    if fork.module < 0 and fork.cause in ("first", "last"):
        return None
    module = calls.names[fork.module] if fork.module >= 0 else STEP
    mine = calls.of(fork.module)
    has_children = bool((calls.nesting.stop[mine] > mine + 1).any()) if fork.module >= 0 else True
    reason = {
        "data": "a value is read just before, so data decides",
        "periodic": f"it repeats every {fork.period} calls, so a counter decides",
        "first": "only the first call differs",
        "last": "only the last call differs",
        "unknown": "no value is read before it, so the program decides (a random number, a counter, an argument)",
    }[fork.cause]
    one, other = fork.one or "nothing more", fork.other or "nothing more"
    after = f"after {fork.after}: " if fork.after else "at the start: "
    severity = {"first": "harmless", "last": "harmless", "periodic": "periodic"}.get(
        fork.cause, "cut" if has_children else "blocker"
    )
    if fork.module < 0 and "" in (fork.one, fork.other) and (fork.one or fork.other) in _READS:
        severity = "periodic"  # some steps end by reading a value, as loops that log do
    away = sum(fork.calls[1:])
    what = "step" if fork.module < 0 else "call"
    text = f"{after}{one} in {_many(fork.calls[0], what)}, {other} in {fork.calls[1]}"
    text += f", {_many(len(fork.calls) - 2, 'more path')}" if len(fork.calls) > 2 else ""
    position = fork.position
    nesting = context.links.nesting
    line = frames.at(int(nesting.track[position]), int(nesting.start[position]), position) if position >= 0 else None
    modules = frozenset({fork.module} if fork.module >= 0 else ())
    row = ObstacleRow(
        code="HP309",
        severity=severity,
        module=module,
        modules=[calls.names[m] for m in modules],
        where="forward" if fork.module >= 0 else _PHASE[Phase.BETWEEN],
        count=away,
        per_step=away / max(1, len(context.steps)),
        steps=len(fork.steps),
        text=f"{text}; {reason}",
        fix=codes.fix("HP309", context.trace.family, context.trace.mode),
        python_line=line,
    )
    phase = Phase.FORWARD if modules else Phase.BETWEEN
    return Obstacle(row, phase, modules, _around(context, modules, mine))


# --------------------------------------------------------------------------------------------------------- shapes


def most_frequent(keys: list[int]) -> int:
    """Return the key with most calls; of equals, the earliest."""
    return Counter(keys).most_common(1)[0][0]


def is_last_batch(entry: ModuleShapes) -> bool:
    """Whether the only other shape has a smaller first dimension at the end of the data."""
    if entry.keys is None or entry.lengths is None or len(set(entry.keys)) != 2 or len(entry.keys) < 3:
        return False
    usual = most_frequent(entry.keys)
    series = [int(k != usual) for k in entry.keys]
    rare = sum(series)
    at = int(np.argmax(series))
    smaller = entry.lengths[at] < entry.lengths[entry.keys.index(usual)]
    ends = series[-1] == 1 and rare == 1
    return bool(
        smaller
        and entry.varying.startswith("dimension 0 ")
        and 3 * rare <= len(series)
        and (ends or find_period(series))
    )


def topmost_varying(context: Context, shapes: list[ModuleShapes]) -> list[ModuleShapes]:
    """Return the modules with changing shapes whose enclosing modules have constant ones."""
    varying = {e.module for e in shapes if e.keys and len(set(e.keys)) > 1}
    out = []
    for entry in shapes:
        if entry.module in varying:
            parents = context.calls.parent[entry.calls]
            above = {int(m) for m in np.unique(context.calls.module[parents[parents >= 0]])}
            if not above & varying:
                out.append(entry)
    return out


def graphs_needed(served: Coverage) -> tuple[int, bool]:
    """Return how many graphs serve 95 % of the calls, and whether they should hold the most frequent keys."""
    lfu = served.prefers_lfu
    return served.smallest(use_lfu=lfu), lfu


def _shapes(context: Context, shapes: list[ModuleShapes]) -> list[Obstacle]:
    varying = frozenset(e.module for e in shapes if e.keys and len(set(e.keys)) > 1)
    out = [_changing(context, e, e.keys, varying) for e in topmost_varying(context, shapes) if e.keys]
    for entry in shapes:
        if entry.dtype_text:
            severity = "blocker" if context.trace.family == "hpu" else "periodic"
            text = f"calls of one shape with data types {entry.dtype_text}"
            out.append(_shape_row(context, entry, _ShapeCase("HP321", severity, text, len(entry.calls))))
    return out


def _changing(context: Context, entry: ModuleShapes, keys: list[int], varying: frozenset[int]) -> Obstacle:
    usual = most_frequent(keys)
    away = sum(k != usual for k in keys)
    if is_last_batch(entry) and entry.lengths is not None:
        sizes = f"{int(entry.lengths[keys.index(usual)])}, the last one {int(entry.lengths.min())}"
        text = f"batches of {sizes} ({entry.varying})"
        return _shape_row(context, entry, _ShapeCase("HP308", "periodic", text, away), varying)
    served = coverage(keys)
    graphs, lfu = graphs_needed(served)
    new = unseen(keys) or 0.0
    lengths = sorted(set(entry.lengths.tolist())) if entry.lengths is not None else []
    shown = f" ({', '.join(str(v) for v in lengths[:6])}{' …' if len(lengths) > 6 else ''})" if lengths else ""
    text = f"{len(set(keys))} signatures in {len(keys)} calls: {entry.varying}{shown}"
    text += f"; {graphs} graphs serve {served.at(graphs, use_lfu=lfu):.0%}"
    text += f", the next call needs a new one with probability {new:.0%}"
    hint = f" max_graphs={graphs}{', use_lfu=True' if lfu else ''}."
    if len(lengths) > 3 and entry.lengths is not None and (buckets := suggest_buckets(entry.lengths)):
        hint += f" Buckets {', '.join(str(e) for e in buckets.edges)}."
    hopeless = graphs > MANY_GRAPHS or (new > MANY_UNSEEN and len(keys) >= 10) or (new > 0.8 and len(keys) >= 4)
    case = _ShapeCase("HP307", "blocker" if hopeless else "periodic", text, away, hint)
    return _shape_row(context, entry, case, varying)


class _ShapeCase(NamedTuple):
    code: str
    severity: str
    text: str
    away: int  # calls unlike the usual one
    hint: str = ""  # numbers behind what to do about it


def _shape_row(
    context: Context, entry: ModuleShapes, case: _ShapeCase, varying: frozenset[int] = frozenset()
) -> Obstacle:
    """Make a row; it concerns enclosing modules, and those of `varying` inside."""
    calls = context.calls
    modules = frozenset({entry.module})
    keys = entry.keys or []
    usual = most_frequent(keys)
    steps = np.unique(calls.step[entry.calls[[k != usual for k in keys]]])
    row = ObstacleRow(
        code=case.code,
        severity=case.severity,
        module=calls.names[entry.module],
        modules=[calls.names[entry.module]],
        where=_PHASE[Phase.FORWARD],
        count=case.away,
        per_step=case.away / max(1, len(context.steps)),
        steps=int((steps >= 0).sum()),
        text=case.text,
        fix=codes.fix(case.code, context.trace.family, context.trace.mode) + case.hint,
        python_line=None,
    )
    below = calls.inside(entry.module) & varying if varying else varying
    return Obstacle(row, Phase.FORWARD, modules, _around(context, modules, entry.calls) | below)
