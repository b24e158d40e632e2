"""Occurrences of things that graphs cannot hold, with their instants. Judges neither severity nor place."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hpuprof.analysis.forest import Nesting, in_no_other
from hpuprof.analysis.groups import members
from hpuprof.analysis.host_calls import HostCallKind
from hpuprof.analysis.modules import ModuleCalls, Timeline, thread_codes
from hpuprof.analysis.placement import Phase, Placement
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.graph_mode.call_signatures import detail_codes, parse
from hpuprof.graph_mode.diverging_paths import Tokens
from hpuprof.graph_mode.dynamic_ops import RANDOM, SHAPE_AND_READ_RULES, OpHits
from hpuprof.model.arrays import Codes, Ints, Mask
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Trace

_BATCHING = frozenset(f"aten::{n}" for n in ("select", "slice", "narrow", "index_select", "split", "arange"))
_FALLBACK = re.compile(r"fallback", re.IGNORECASE)
_MARK_STEP = re.compile(r"^(?:StepMarker|SyncTensorsGraphInternal)")
_SCALER = re.compile(r"^aten::_amp_(?:foreach_non_finite_check_and_unscale_|update_scale_)$")
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")


class Occurrence(Struct, frozen=True, eq=False):
    """One kind of obstacle with all its cases: track and instant of each (same shape), ns.

    `position`: operators in links.nesting, -1 if it is not an operator. `severity` empty: the place decides.
    """

    code: str
    label: str
    text: str
    track: Codes
    when: Ints
    position: Ints
    severity: str = ""


class Context:
    """A trace with everything that the searches share."""

    def __init__(self, view: RankView, calls: ModuleCalls, placement: Placement, hits: OpHits) -> None:
        self.trace, self.steps, self.links, self.host_calls = view.trace, view.steps, view.links, view.calls
        self.calls, self.placement, self.hits = calls, placement, hits
        host, links = view.trace.host, view.links
        self.threads = thread_codes(view.trace)
        self.path = view.on_path
        self.op_name = host.name[links.nesting.rows]
        self.hit = _around(hits, links.nesting, view.calls.operator)

    def operators(self, code: str, label: str, text: str, positions: Ints, severity: str = "") -> Occurrence:
        """Make an occurrence of operators."""
        nesting = self.links.nesting
        return Occurrence(code, label, text, nesting.track[positions], nesting.start[positions], positions, severity)

    def rows(self, code: str, label: str, text: str, rows: Ints, severity: str = "") -> Occurrence:
        """Make an occurrence of host rows."""
        host = self.trace.host
        track = host.track[rows]
        inner = self.links.nesting.innermost(self.placement.lane[track], host.start[rows])
        return Occurrence(code, label, text, track, host.start[rows], inner, severity)

    def holding(self, *kinds: HostCallKind) -> Mask:
        """Mark the operators in which a host call of these kinds starts, on the same thread."""
        host, nesting = self.trace.host, self.links.nesting
        rows = self.host_calls.row[self.host_calls.of(*kinds)]
        line = Timeline.of(self.threads[host.track[rows]], host.start[rows], self.trace.end_ns + 2)
        first, stop = line.ranges(self.threads[nesting.track], nesting.start, nesting.end)
        found: Mask = stop > first
        return found


def _around(hits: OpHits, nesting: Nesting, operator: Ints) -> Ints:
    """Return which hit each operator (-1: none) is or lies in, as a position in `hits`, -1 for none."""
    at = np.searchsorted(hits.position, operator, side="right") - 1
    inside = at >= 0
    inside[inside] = operator[inside] < nesting.stop[hits.position[at[inside]]]
    return np.where(inside, at, -1)


def find_occurrences(context: Context, stream: Tokens) -> list[Occurrence]:
    """Return all occurrences."""
    found: list[Occurrence] = []
    for search in (_operators, _values, _host_calls, _named_rows, _random, _steps):
        found += [s for s in search(context) if len(s.when)]
    found += [s for s in _scalars(context, stream) if len(s.when)]
    return found


def _by_name(context: Context, positions: Ints) -> Iterator[tuple[str, Ints]]:
    for code, places in members(context.op_name[positions]):
        yield context.trace.names[code], positions[places]


def _operators(context: Context) -> Iterator[Occurrence]:
    """Yield operators that match a rule; those that return values are `_values`."""
    for index, rule in enumerate(SHAPE_AND_READ_RULES):
        if rule.code != "HP302":
            for name, positions in _by_name(context, context.hits.position[context.hits.rule == index]):
                yield context.operators(rule.code, name, f"`{name}` {rule.what}", positions)


def _values(context: Context) -> Iterator[Occurrence]:
    """Yield the host calls in operators that return a value, and such operators without one: they read a CPU tensor."""
    calls, hits, nesting = context.host_calls, context.hits, context.links.nesting
    value = np.array([rule.code == "HP302" for rule in SHAPE_AND_READ_RULES])[hits.rule]
    # An operator that takes a number unpacks it from a CPU tensor: no value reaches Python unless the device is read.
    above = nesting.parent[hits.position]
    aten = context.trace.operators_named(lambda n: n.startswith("aten::"))
    returns = value & ~((above >= 0) & aten[context.op_name[np.maximum(above, 0)]])
    reads = np.flatnonzero(calls.counted & (context.hit >= 0) & (calls.of(HostCallKind.READ) | calls.waiting))
    hit, waits = context.hit[reads], calls.waiting[reads]
    matched = value[hit] & (waits | returns[hit])
    reads, hit, waits = reads[matched], hit[matched], waits[matched]
    local = np.flatnonzero(returns & context.path[nesting.rows[hits.position]])
    local = hits.position[local[~np.isin(local, hit)]]
    phase = context.placement.of(nesting.track[local], nesting.start[local]).phase
    # Where the trace cannot tell, a value that the optimizer reads is its counter of steps.
    counter = ~waits & (calls.phase[reads] == Phase.OPTIMIZER)
    what = {name: rule.what for rule in reversed(SHAPE_AND_READ_RULES) if rule.code == "HP302" for name in rule.names}
    for chosen, then in (
        (waits, "the host waits for the device"),
        (~waits & ~counter, "the host waits if the tensor is on a device"),
    ):
        for name, positions in _by_name(context, hits.position[hit[chosen]]):
            yield context.operators("HP302", name, f"`{name}` {what[name]}: {then}", positions)
    counters = np.concatenate([hits.position[hit[counter]], local[phase == Phase.OPTIMIZER]])
    for name, positions in _by_name(context, np.sort(counters)):
        yield context.operators("HP320", name, f"`{name}` reads a counter of the optimizer on the CPU", positions)
    for name, positions in _by_name(context, local[(phase == Phase.FORWARD) | (phase == Phase.BACKWARD)]):
        text = f"`{name}` reads a CPU tensor: no wait, but a replay keeps the value of the capture"
        yield context.operators("HP302", name, text, positions, "harmless")


def _host_calls(context: Context) -> Iterator[Occurrence]:
    """Yield host calls by their kind: copies under their operator's name, the others under their own."""
    calls, host = context.host_calls, context.trace.host
    copies = calls.of(HostCallKind.READ, HostCallKind.UPLOAD)
    label = np.where(
        copies & (calls.operator >= 0),
        context.op_name[calls.operator] if len(context.op_name) else -1,
        host.name[calls.row],
    )
    own = context.hit < 0  # what lies inside an operator that matches a rule is reported with it
    for code, chosen, text, severity in (
        ("HP302", own & calls.of(HostCallKind.READ), "`{}` copies from the device to the host", ""),
        ("HP304", own & calls.of(HostCallKind.UPLOAD), "`{}` copies from the host to the device", ""),
        ("HP303", own & calls.waiting & ~copies, "`{}` waits for the device", ""),
        ("HP305", calls.of(HostCallKind.ALLOCATION), "`{}` inside a step", "harmless"),
        ("HP315", calls.of(HostCallKind.COLLECTIVE), "`{}`", ""),
    ):
        mine = np.flatnonzero(chosen & calls.counted)
        for name, places in members(label[mine]):
            found = mine[places]
            rows, shown = calls.row[found], context.trace.names[name]
            yield Occurrence(
                code, shown, text.format(shown), host.track[rows], host.start[rows], calls.operator[found], severity
            )


def _named_rows(context: Context) -> Iterator[Occurrence]:
    trace, host = context.trace, context.trace.host
    native = host.kind != HostKind.PYTHON

    def outermost(mask: Mask) -> Ints:
        rows = np.flatnonzero(mask)
        found: Ints = rows[in_no_other(context.threads[host.track[rows]], host.start[rows], host.end[rows])]
        return found

    def each(code: str, rows: Ints, text: str, severity: str = "") -> Iterator[Occurrence]:
        for name, places in members(host.name[rows]):
            label = trace.names[name]
            yield context.rows(code, label, text.format(f"`{label}`"), rows[places], severity)

    if FAMILIES[trace.family].lazy_graphs:
        yield from each(
            "HP310",
            outermost(context.path & native & trace.host_named(_MARK_STEP.search)),
            "{}: the accumulated graph ends here",
        )
        yield from each(
            "HP312", outermost(native & trace.host_named(_FALLBACK.search)), "{}: the device has no kernel for it"
        )
    yield from each("HP311", outermost(host.activity == Activity.COMPILE), "{} inside a step", "periodic")
    yield from each("HP318", outermost(native & trace.host_named(_SCALER.search)), "{}: a GradScaler is in use", "cut")
    again = context.calls.nesting.rows[context.calls.recompute]
    if len(again):
        names = sorted({context.calls.names[int(m)] for m in context.calls.module[context.calls.recompute]})
        shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
        yield context.rows("HP317", "checkpoint", f"backward runs {shown} again", again, "cut")


def _random(context: Context) -> Iterator[Occurrence]:
    nesting = context.links.nesting
    draws = context.trace.operators_named(RANDOM.__contains__)[context.op_name]
    found = np.flatnonzero(draws & (nesting.around(draws) == 0))
    places = context.placement.of(nesting.track[found], nesting.start[found])
    found = found[(places.phase == Phase.FORWARD) | (places.phase == Phase.BACKWARD)]
    for name, positions in _by_name(context, found):
        yield context.operators("HP314", name, f"`{name}` draws random numbers", positions, "harmless")


def _steps(context: Context) -> Iterator[Occurrence]:
    """Yield gradient accumulation: steps that ran backward without an optimizer step."""
    trace, steps, host = context.trace, context.steps, context.trace.host
    if not len(host) or len(steps) < 2:
        return
    optimizer = trace.host_named(_OPTIMIZER_STEP.search) & (host.kind == HostKind.ANNOTATION) & context.path
    nesting = context.links.nesting
    nodes = context.calls.nodes.position
    at = context.placement.of(host.track[optimizer], host.start[optimizer]).step
    back = context.placement.of(nesting.track[nodes], nesting.start[nodes]).step
    stepped = np.bincount(at[at >= 0], minlength=len(steps)) > 0
    went = np.bincount(back[back >= 0], minlength=len(steps)) > 0
    without = np.flatnonzero(went & ~stepped)
    if not stepped.any() or not len(without):
        return
    inside = without[(without > 0) & (without < len(steps) - 1)]
    if not len(inside):
        return  # the recording cuts its first and last step
    begun, first = np.unique(back, return_index=True)
    each = nodes[first[np.searchsorted(begun, without)]]
    text = f"{len(without)} of {int(went.sum())} steps went backward without an optimizer step"
    yield context.operators("HP316", "optimizer", text, each, "periodic")


def _scalars(context: Context, stream: Tokens) -> Iterator[Occurrence]:
    """Yield numbers that differ between calls (or steps, or optimizer steps) that ran the same operators."""
    trace, links, calls = context.trace, context.links, context.calls
    if not any(d.values for d in trace.details):
        return
    detail = trace.host.detail[links.nesting.rows].astype(np.int64)
    code = detail_codes(trace.details, "values")[detail]
    groups: dict[tuple[int | str, bytes], list[Ints]] = {}
    for owner in range(len(stream.first)):
        here = stream.of(owner)
        positions = stream.position[here]
        if not len(positions):
            continue
        module = int(calls.module[owner]) if owner < len(calls) else -1
        if owner < len(calls) and calls.recompute[owner]:
            continue
        groups.setdefault((module, stream.token[here].tobytes()), []).append(positions[positions >= 0])
    for positions in _optimizer_steps(context):
        groups.setdefault(("optimizer", context.op_name[positions].tobytes()), []).append(positions)
    dynamic = context.hits.dynamic
    # Slicing the next batch out of a tensor happens before the graph, so its index may change.
    batching = trace.operators_named(_BATCHING.__contains__)
    found: dict[tuple[str, str], list[int]] = {}
    shape = trace.host.shape[links.nesting.rows].astype(np.int64)
    for (whose, _), alike in groups.items():
        if len(alike) < 3:
            continue
        table = np.stack(alike)
        given, dims = code[table], shape[table]
        changes = (given != given[0]).any(axis=0) & (given >= 0).all(axis=0) & (dims == dims[0]).all(axis=0)
        if whose == -1:
            changes &= ~batching[context.op_name[table[0]]]
        cut = np.flatnonzero(np.isin(table[0], dynamic))
        if len(cut):
            changes[cut[0] :] = False
        for column in np.flatnonzero(changes).tolist():
            change = _changing_scalar(trace, detail[table[:, column]])
            if change:
                name = trace.names[int(context.op_name[table[0, column]])]
                found.setdefault((name, change), []).extend(table[:, column].tolist())
    merged: dict[str, tuple[str, list[int]]] = {}
    for (name, change), rows in found.items():
        merged.setdefault(name, (change, []))[1].extend(rows)
    for name, (change, rows) in sorted(merged.items()):
        text = f"`{name}` takes a different number in other steps ({change})"
        yield context.operators("HP313", name, text, np.array(sorted(rows), dtype=np.int64))


def _optimizer_steps(context: Context) -> Iterator[Ints]:
    """Yield the outermost operators of each optimizer step."""
    nesting = context.links.nesting
    rows = np.flatnonzero(nesting.parent < 0)
    places = context.placement.of(nesting.track[rows], nesting.start[rows])
    mine = (places.phase == Phase.OPTIMIZER) & (places.step >= 0)
    rows, step = rows[mine], places.step[mine]
    for _, inside in members(step):
        yield rows[inside]


def _changing_scalar(trace: Trace, details: Ints) -> str:
    """Return two values of a changing number argument; empty if only lists (sizes) change."""
    sample = [trace.details[d] for d in dict.fromkeys(details.tolist())][:8]
    kinds = [parse(d.types, list) for d in sample]
    given = [parse(d.values, list) for d in sample]
    if any(k != kinds[0] for k in kinds) or any(len(v) != len(kinds[0]) for v in given):
        return ""
    for i, kind in enumerate(kinds[0]):
        seen = list(dict.fromkeys(str(v[i]) for v in given))
        if kind == "Scalar" and len(seen) > 1:
            return ", ".join(_short(v) for v in seen[:2]) + (" …" if len(seen) > 2 else "")
    return ""


def _short(value: str) -> str:
    try:
        return f"{float(value):.6g}"
    except ValueError:
        return value[:20]
