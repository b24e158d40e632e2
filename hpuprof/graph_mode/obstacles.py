"""Obstacles to graph mode: occurrences rated by where and how often they occur, as rows of a report.

Severity: *blocker* inside a module that has nothing smaller to graph (or inside the optimizer); *cut* between modules,
so that the parts before and after can be graphed; *periodic* in at most half of the steps; *harmless* when nothing
needs to change. The trace proves presence, never absence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hpuprof.analysis.placement import Phase
from hpuprof.analysis.user_frames import UserFrames
from hpuprof.families import FAMILIES
from hpuprof.graph_mode import obstacle_codes as codes
from hpuprof.graph_mode.call_signatures import ModuleShapes
from hpuprof.graph_mode.diverging_paths import Fork, find_period
from hpuprof.graph_mode.occurrences import Context, Occurrence
from hpuprof.graph_mode.shapes import graphs_needed, unseen
from hpuprof.model.arrays import Ints, distinct
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


class Obstacle(Struct, frozen=True):
    """A row, and the codes of the modules that it concerns, enclosing modules included."""

    row: ObstacleRow
    phase: Phase
    around: frozenset[int]


class _Case(NamedTuple):
    """An obstacle in one place. `kind`: class of its modules, `(step)` or `(optimizer)`."""

    code: str
    severity: str
    phase: Phase
    kind: str
    text: str
    times: int
    steps: Ints  # in which it was seen
    calls: Ints  # of modules in which it was seen
    label: str = ""
    line: str | None = None
    below: frozenset[int] = frozenset()  # modules inside that it concerns too


def judge(context: Context, seen: list[Occurrence], forks: list[Fork], shapes: list[ModuleShapes]) -> list[Obstacle]:
    """Turn all occurrences into rows, the most severe first."""
    frames = UserFrames(context.trace, context.links)
    cases = [case for occurrence in seen for case in _placed(context, occurrence, frames)]
    single = [case for case in (_fork(context, fork, frames) for fork in forks) if case]
    cases += _together(context, [*single, *_shapes(context, shapes)])
    return sorted(
        (_obstacle(context, case) for case in cases),
        key=lambda o: (
            SEVERITIES.index(o.row.severity),
            o.row.code,
            -o.row.steps,
            -o.row.count,
            o.row.module,
            o.row.where,
        ),
    )


def _obstacle(context: Context, case: _Case) -> Obstacle:
    calls, modules = context.calls, _modules(context, case)
    names = sorted((calls.names[m] for m in modules), key=natural)
    row = ObstacleRow(
        code=case.code,
        severity=case.severity,
        module=f"{case.kind} ({len(names)} modules)" if len(names) > 1 else next(iter(names), case.kind),
        modules=names[:_MODULES_NAMED],
        where=f"{_PHASE[case.phase]}{', ' if case.label else ''}{case.label}",
        count=case.times,
        per_step=case.times / max(1, len(context.steps)),
        steps=len(case.steps),
        text=case.text,
        fix=codes.fix(case.code, context.trace.family, context.trace.mode),
        python_line=case.line,
    )
    around, above = modules | case.below, case.calls
    while len(above):
        above = distinct(calls.parent[above])
        above = above[above >= 0]
        around |= set(calls.module[above].tolist())
    return Obstacle(row, case.phase, frozenset(around))


def _modules(context: Context, case: _Case) -> set[int]:
    return set(context.calls.module[case.calls].tolist())


def _together(context: Context, cases: Iterable[_Case]) -> Iterator[_Case]:
    """Merge cases of several instances of one class; the instance with most calls gives the words."""
    groups: dict[tuple[object, ...], list[_Case]] = {}
    for case in cases:
        groups.setdefault((case.code, case.severity, case.phase, case.kind), []).append(case)
    for alike in groups.values():
        first = max(alike, key=lambda case: case.times)
        text = first.text
        if any(case.text != text for case in alike):
            text += f", in {context.calls.names[min(_modules(context, first))]}; likewise in the others"
        yield first._replace(
            text=text,
            times=sum(case.times for case in alike),
            steps=distinct(np.concatenate([case.steps for case in alike])),
            calls=np.concatenate([case.calls for case in alike]),
            below=frozenset[int]().union(*(case.below for case in alike)),
        )


def _placed(context: Context, occurrence: Occurrence, frames: UserFrames) -> Iterator[_Case]:
    """Group the cases of an occurrence by place; modules of one class count together."""
    calls = context.calls
    places = context.placement.of(occurrence.track, occurrence.when)
    keep = (places.step >= 0) & (places.phase != Phase.LOADER)
    if occurrence.code in _ONLY_INSIDE:
        keep &= (places.phase == Phase.FORWARD) | (places.phase == Phase.BACKWARD)
        keep &= places.call >= 0
    groups: dict[tuple[int, str], list[int]] = {}
    for i in np.flatnonzero(keep).tolist():
        call, phase = int(places.call[i]), int(places.phase[i])
        kind = _kind(context, int(calls.module[call])) if call >= 0 else STEP
        if call < 0 and phase == Phase.OPTIMIZER:
            kind = OPTIMIZER
        groups.setdefault((phase, kind), []).append(i)
    for (number, kind), members in sorted(groups.items()):
        phase, first = Phase(number), members[0]
        inside = distinct(places.call[members])
        inside = inside[inside >= 0]
        steps = distinct(places.step[members])
        severity = occurrence.severity or _severity(context, occurrence, phase, inside)
        severity, often = _frequency(severity, steps, len(context.steps), occurrence.code)
        yield _Case(
            code=occurrence.code,
            severity=severity,
            phase=phase,
            kind=kind,
            text=occurrence.text + often,
            times=len(members),
            steps=steps,
            calls=inside,
            label=occurrence.label,
            line=frames.at(int(occurrence.track[first]), int(occurrence.when[first]), int(occurrence.position[first])),
        )


def _kind(context: Context, module: int) -> str:
    return context.calls.types[module] or context.calls.names[module]


def _severity(context: Context, occurrence: Occurrence, phase: Phase, inside: Ints) -> str:
    """Rate by place: inside a module without submodules it blocks; anywhere else it can be cut out."""
    if occurrence.code == "HP315" and "gloo" not in occurrence.label:
        family = FAMILIES[context.trace.family]
        lazy = family.lazy_graphs is not None and family.graphs_in(context.trace.mode) is family.lazy_graphs
        return "cut" if lazy and phase != Phase.BETWEEN else "harmless"
    modules = set(context.calls.module[inside].tolist())
    leaf = bool(modules) and not modules & context.calls.parents
    return "blocker" if occurrence.code != "HP310" and (leaf or phase == Phase.OPTIMIZER) else "cut"


def _frequency(severity: str, steps: Ints, total: int, code: str) -> tuple[str, str]:
    """Return the severity adjusted for frequency, and the frequency in words."""
    if total < 3 or len(steps) == total:
        return severity, ""
    if steps[-1] == 0:
        return "harmless", ", in the first step only"
    words = f", in {len(steps)} of {total} steps"
    gaps = distinct(np.diff(steps))
    if len(gaps) == 1 and len(steps) >= 3 and gaps[0] > 1:
        words = f", every {int(gaps[0])} steps"
    if severity != "harmless" and 2 * len(steps) <= total and code != "HP317":
        return "periodic", words
    return severity, words


def _fork(context: Context, fork: Fork, frames: UserFrames) -> _Case | None:
    """Rate a fork by which calls leave the usual path: only the first or last, regularly, or now and then."""
    calls, nesting, position = context.calls, context.links.nesting, fork.position
    whole, end = fork.module < 0, len(fork.calls) - 1
    series = np.isin(np.arange(end + 1), fork.away).astype(np.int64).tolist()
    mine = calls.of(fork.module)
    one = fork.away[0] if len(fork.away) == 1 and end > 1 else -1
    if one in (0, end):
        if whole:
            return None
        severity, often = "harmless", f"; only the {'first' if one == 0 else 'last'} call differs"
    elif period := find_period(series):
        severity, often = "periodic", f"; it repeats every {period} {'steps' if whole else 'calls'}"
    else:
        inner = whole or bool((calls.nesting.stop[mine] > mine + 1).any())
        severity, often = "cut" if inner else "blocker", ""
    away = fork.calls[fork.away]
    steps = distinct(away if whole else calls.step[away])
    return _Case(
        code="HP309",
        severity=severity,
        phase=Phase.BETWEEN if whole else Phase.FORWARD,
        kind=STEP if whole else _kind(context, fork.module),
        text=fork.text + often,
        times=len(away),
        steps=steps[steps >= 0],
        calls=mine,
        line=frames.at(int(nesting.track[position]), int(nesting.start[position]), position) if position >= 0 else None,
    )


def _is_last_batch(entry: ModuleShapes) -> bool:
    """Whether the only other shape has a smaller first dimension at the end of the data."""
    if len(entry.lengths) != 2 or len(entry.keys) < 3 or not entry.varying.startswith("dimension 0 "):
        return False
    ((usual, _), (other, rare)) = Counter(entry.keys).most_common()
    series = [int(key == other) for key in entry.keys]
    ends = rare == series[-1] == 1
    return entry.lengths[other] < entry.lengths[usual] and 3 * rare <= len(series) and bool(ends or find_period(series))


def topmost_varying(context: Context, shapes: list[ModuleShapes]) -> list[ModuleShapes]:
    """Return the modules with changing shapes whose enclosing modules have constant ones."""
    changing = [e for e in shapes if e.varies]
    varying, out = {e.module for e in changing}, []
    for entry in changing:
        parents = context.calls.parent[entry.calls]
        if not varying & set(context.calls.module[parents[parents >= 0]].tolist()):
            out.append(entry)
    return out


def _shapes(context: Context, shapes: list[ModuleShapes]) -> Iterator[_Case]:
    """Yield changing shapes, which concern the modules inside whose shapes change too, and changing data types."""
    changing = [e for e in shapes if e.varies]
    varying = frozenset(e.module for e in changing)
    for entry in topmost_varying(context, changing):
        usual = Counter(entry.keys).most_common(1)[0][0]
        case = _shape(context, entry, entry.calls[np.array(entry.keys) != usual], *_changing(entry))
        yield case._replace(below=varying & context.calls.inside(entry.module))
    for entry in shapes:
        if entry.dtype_text:
            severity = "blocker" if FAMILIES[context.trace.family].lazy_graphs else "periodic"
            text = f"calls of one shape with data types {entry.dtype_text}"
            yield _shape(context, entry, entry.calls, "HP321", severity, text)


def _changing(entry: ModuleShapes) -> tuple[str, str, str]:
    """Return code, severity and text for a module whose shapes change."""
    keys, lengths = entry.keys, sorted(set(entry.lengths))
    if _is_last_batch(entry):
        return "HP308", "periodic", f"batches of {lengths[1]}, the last one {lengths[0]} ({entry.varying})"
    graphs, served = graphs_needed(keys)
    new = unseen(keys) or 0.0
    shown = f" ({', '.join(str(v) for v in lengths[:6])}{' …' if len(lengths) > 6 else ''})" if lengths else ""
    text = f"{len(entry.texts)} signatures in {len(keys)} calls: {entry.varying}{shown}; {graphs} graphs serve "
    text += f"{served:.0%}, the next call needs a new one with probability {new:.0%}"
    hopeless = graphs > MANY_GRAPHS or (new > MANY_UNSEEN and len(keys) >= 10) or (new > 0.8 and len(keys) >= 4)
    return "HP307", "blocker" if hopeless else "periodic", text


def _shape(context: Context, entry: ModuleShapes, away: Ints, code: str, severity: str, text: str) -> _Case:
    steps = distinct(context.calls.step[away])
    kind = _kind(context, entry.module)
    return _Case(code, severity, Phase.FORWARD, kind, text, len(away), steps[steps >= 0], entry.calls)
