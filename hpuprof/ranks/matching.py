"""Which calls on different ranks are one collective: matches by group, operation, bytes, data type and position.

A group's calls are matched by sequence number if every rank's trace has them, else step by step: within steps of the
same label, equal sequences match position by position, and different ones (rows were lost) are aligned by kind and
time. Only time differences on one rank enter, never clocks across hosts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from hpuprof.analysis.groups import members
from hpuprof.ingest.dialect_collectives import PAIRED, UNEVEN
from hpuprof.model.arrays import Ints, distinct, median
from hpuprof.model.collective_calls import CallGroup, CallKind, Calls
from hpuprof.model.launch_schedule import PackedParts, PackedSchedule

_WIDE_DP = 250_000  # cells beyond which sequences are aligned by time alone
_WIDE_SHIFT = 4_000_000  # cells beyond which a sample of the calls gives the shift between sequences
_GAP_NS = 1_000_000  # calls whose shifted ends are more than twice this apart are not one collective
_SAME_END_NS = (20_000, 200_000, 1_000_000)  # how far apart ends of one collective lie, tried in turn


class RankCalls(Struct, frozen=True, eq=False):
    """One rank's calls with their context: host, absolute stamp of time 0, labels of its steps.

    `labels`: one per step, unique; empty if the steps cannot be compared with other ranks' steps.
    """

    rank: int
    host: str | None
    origin_ns: int
    calls: Calls
    labels: tuple[str, ...] = ()
    world_size: int | None = None
    steps: tuple[tuple[int, int, bool], ...] = ()  # start, wall, used; one per label
    schedule: PackedSchedule | None = None
    parts: PackedParts | None = None  # of the schedule


def ranges(ranks: Sequence[int]) -> str:
    """Write ranks short: `0-7`, `0-56:8` for every eighth, `0,3,5`.

    >>> ranges([0, 1, 2, 3]), ranges([0, 8, 16, 24]), ranges([1, 5])
    ('0-3', '0-24:8', '1,5')
    """
    out, i = [], 0
    while i < len(ranks):
        j = i + 1
        step = ranks[j] - ranks[i] if j < len(ranks) else 1
        while j + 1 < len(ranks) and ranks[j + 1] - ranks[j] == step:
            j += 1
        if j - i >= 2 and j < len(ranks):
            out.append(f"{ranks[i]}-{ranks[j]}" + (f":{step}" if step != 1 else ""))
            i = j + 1
        else:
            out.append(str(ranks[i]))
            i += 1
    return ",".join(out)


class Group(Struct, frozen=True):
    """A process group across ranks. `known`: the traces name its members; else all ranks are assumed to be in it."""

    name: str
    text: str
    ranks: tuple[int, ...]
    known: bool
    peers: bool = False  # a point-to-point channel, ranks are (source, target)

    @property
    def members(self) -> str:
        """Its ranks in short, of a channel from whom to whom."""
        return f"{self.ranks[0]}->{self.ranks[1]}" if self.peers else ranges(self.ranks)


class Kind(Struct, frozen=True):
    """Properties common to the calls of one collective; -1 and empty: unknown or different by design."""

    group: int
    op: str
    bytes: int
    dtype: str


class Matching(Struct, frozen=True, eq=False, dict=True):
    """Collectives across ranks. Members of collective i: `slice(first[i], first[i + 1])` of `rank` and `call`."""

    groups: list[Group]
    kinds: list[Kind]
    kind: Ints  # per collective, into kinds
    slot: Ints  # per collective: position in its group's order
    first: Ints  # shape (collectives + 1,)
    rank: Ints  # per member: position in the list of ranks
    call: Ints  # per member: position in that rank's calls
    expected: Ints  # per collective: members of its group whose traces are present
    mismatched: list[tuple[int, int]] = field(default_factory=list)  # group, collectives whose kinds contradict

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def count(self) -> Ints:
        """Members found of each collective."""
        return np.diff(self.first)

    @cached_property
    def complete(self) -> np.ndarray:
        """Mask of the collectives with every expected member."""
        complete: np.ndarray = (self.count == self.expected) & (self.count > 1)
        return complete

    @property
    def group_of(self) -> Ints:
        """Group of each collective."""
        groups: Ints = np.array([k.group for k in self.kinds] or [-1], dtype=np.int64)[self.kind]
        return groups

    @property
    def pairs(self) -> np.ndarray:
        """Mask of the transfers with both ends."""
        both: np.ndarray = self.of_op(PAIRED) & (self.count == 2)
        return both

    def of_op(self, ops: frozenset[str]) -> np.ndarray:
        """Mask of the collectives with one of these operations."""
        hits = np.array([k.op in ops for k in self.kinds] or [False], dtype=bool)
        mask: np.ndarray = hits[self.kind] if len(self) else np.empty(0, dtype=bool)
        return mask


def match(ranks: Sequence[RankCalls]) -> Matching:
    """Match the calls of all ranks; `ranks` are sorted by rank, so the order of their files does not matter."""
    groups: dict[Group, int] = {}
    kinds: dict[Kind, int] = {}
    by_group: dict[int, list[tuple[int, Ints]]] = defaultdict(list)  # group -> rank position, its calls
    kind_of: list[Ints] = []
    present = {r.rank for r in ranks}
    world = tuple(sorted(present))
    for position, who in enumerate(ranks):
        local = []
        for k in who.calls.kinds:
            group = _group(who.calls.groups[k.group], k, who.rank, world)
            if group is None:
                local.append((-1, -1))
                continue
            code = groups.setdefault(group, len(groups))
            # The two ends of a transfer are one collective.
            op = "send_recv" if group.peers else k.op
            size = -1 if op in UNEVEN and not group.peers else k.bytes
            local.append((code, kinds.setdefault(Kind(code, op, size, k.dtype), len(kinds))))
        table = np.array(local or [(-1, -1)], dtype=np.int64)
        group_of = table[who.calls.kind, 0] if len(who.calls) else np.empty(0, dtype=np.int64)
        kind_of.append(table[who.calls.kind, 1] if len(who.calls) else group_of)
        for code, calls in members(group_of):
            if code >= 0:
                by_group[code].append((position, calls))
    return _assemble(ranks, list(groups), list(kinds), by_group, kind_of, present)


def _group(named: CallGroup, kind: CallKind, rank: int, world: tuple[int, ...]) -> Group | None:
    """Return the group of one rank's calls of a kind; None if the trace does not show who takes part."""
    members = named.ranks
    if kind.op in PAIRED:
        peer = kind.target if kind.op == "send" else kind.source if kind.op == "recv" else -1
        if peer >= 0:
            if members and peer not in members and peer < len(members):
                peer = members[peer]  # given as a position in the group
            pair = (rank, peer) if kind.op == "send" else (peer, rank)
            return Group(named.name, named.text, pair, known=True, peers=True)
        # A transfer with unknown peers is a collective of its group if that has only two members.
        if len(members) != 2:
            return None
    if members:
        return Group(named.name, named.text, members, known=True)
    if 0 < named.size < len(world):
        return None
    return Group(named.name, named.text, world, known=False)


def _assemble(
    ranks: Sequence[RankCalls],
    groups: list[Group],
    kinds: list[Kind],
    by_group: dict[int, list[tuple[int, Ints]]],
    kind_of: list[Ints],
    present: set[int],
) -> Matching:
    parts: list[tuple[Ints, Ints, Ints]] = []  # collective, rank, call
    kind, slot_of, expected = ([np.empty(0, dtype=np.int64)] for _ in range(3))
    base, mismatched = 0, []
    stated: dict[tuple[str, int, str], int] = {}
    said = np.array([stated.setdefault((k.op, k.bytes, k.dtype), len(stated)) for k in kinds], dtype=np.int64)
    order = sorted(by_group, key=lambda g: (groups[g].ranks, groups[g].name, groups[g].text, groups[g].peers))
    for group in order:
        sequences = by_group[group]
        wrong = 0
        slots = _by_sequence(ranks, sequences)
        if slots is None:
            slots, wrong = _by_steps(ranks, sequences, kind_of)
        for (position, calls), at in zip(sequences, slots, strict=True):
            parts.append((base + at, np.full(len(at), position, dtype=np.int64), calls))
        codes = np.concatenate([kind_of[position][calls] for position, calls in sequences])
        common, differ = _commonest(np.concatenate(slots), codes, said)
        wrong += differ
        kind.append(common)
        slot_of.append(np.arange(len(common)))
        expected.append(np.full(len(common), len(present.intersection(groups[group].ranks)), dtype=np.int64))
        base += len(common)
        if wrong:
            mismatched.append((group, wrong))
    if parts:
        which, rank, call = (np.concatenate([m[i] for m in parts]) for i in range(3))
        sort = np.lexsort((rank, which))
        which, rank, call = which[sort], rank[sort], call[sort]
    else:
        which = rank = call = np.empty(0, dtype=np.int64)
    first = np.searchsorted(which, np.arange(base + 1)).astype(np.int64)
    kind_column, slot_column, expected_column = map(np.concatenate, (kind, slot_of, expected))
    return Matching(groups, kinds, kind_column, slot_column, first, rank, call, expected_column, mismatched)


def _commonest(slot: Ints, code: Ints, said: Ints) -> tuple[Ints, int]:
    """Return the kind that most calls of each slot have, the first of several, and how many slots' calls contradict.

    `said`: of each kind, equal where kinds differ in their group alone.
    """
    many = len(said)
    found, often = np.unique(slot * many + code, return_counts=True)
    slots, codes = found // many, found % many
    order = np.lexsort((codes, -often, slots))
    common = codes[order][np.append([True], slots[1:] != slots[:-1])]  # slots ascend either way
    contradict = np.bincount(distinct(slot * many + said[code]) // many) > 1
    return common, int(contradict.sum())


def _by_sequence(ranks: Sequence[RankCalls], sequences: list[tuple[int, Ints]]) -> list[Ints] | None:
    """Assign slots by sequence number; None if a trace lacks or repeats one."""
    numbers = [ranks[position].calls.sequence[calls] for position, calls in sequences]
    if any((n < 0).any() or len(distinct(n)) < len(n) for n in numbers):
        return None
    every = distinct(np.concatenate(numbers))
    return [np.searchsorted(every, n).astype(np.int64) for n in numbers]


def _by_steps(
    ranks: Sequence[RankCalls], sequences: list[tuple[int, Ints]], kind_of: list[Ints]
) -> tuple[list[Ints], int]:
    """Assign slots by step label and position in the step; also count steps whose kinds contradict."""
    labeled = all(ranks[position].labels for position, _ in sequences)
    order = step_order([ranks[position].labels for position, _ in sequences]) if labeled else {}
    last = len(order)
    buckets: dict[int, list[tuple[int, Ints]]] = defaultdict(list)  # step -> index of a sequence, positions in it
    for index, (position, calls) in enumerate(sequences):
        who = ranks[position]
        if labeled:
            # Calls outside a rank's steps belong to the step before its first or after its last, which others may have.
            at = np.array([order[label] for label in who.labels], dtype=np.int64)
            step, final = who.calls.step[calls], len(at) - 1
            begun = np.array([start for start, _, _ in who.steps], dtype=np.int64)
            since = np.searchsorted(begun, who.calls.start[calls], side="right") - 1
            outside = np.where(since < 0, at[0] - 1, np.where(since == final, at[final] + 1, at[np.maximum(since, 0)]))
            key = np.where(step >= 0, at[np.maximum(step, 0)], outside)
        else:
            key = np.zeros(len(calls), dtype=np.int64)
        for value, within in members(key):
            buckets[value].append((index, within))
    slots = [np.full(len(calls), -1, dtype=np.int64) for _, calls in sequences]
    base = wrong = 0
    shifts: dict[int, float] = {}
    for value in sorted(buckets):
        rows = []
        for index, within in buckets[value]:
            position, calls = sequences[index]
            kinds, ends = kind_of[position][calls[within]], ranks[position].calls.end[calls[within]]
            rows.append((index, within, kinds, ends))
        base += _assign_slots(rows, slots, base, shifts, within_step=labeled)
        # A recording cuts its first and last steps: calls missing there were not replaced by others.
        wrong += labeled and 0 <= value < last and _contradict([row[2] for row in rows])
    return slots, wrong


def step_order(labels_of: list[tuple[str, ...]]) -> dict[str, int]:
    """Return the order in which ranks ran their steps, by label; labels alone would sort 10 before 9.

    Ranks may have begun at different steps, so a label is placed relative to those it shares a rank with.
    """
    offset_of: dict[str, float] = {}
    for labels in sorted(labels_of, key=lambda labels: (-len(labels), labels)):
        known = [offset_of[label] - i for i, label in enumerate(labels) if label in offset_of]
        offset = float(median(known)) if known else 0.0
        for i, label in enumerate(labels):
            offset_of.setdefault(label, offset + i)
    ordered = sorted(offset_of, key=lambda label: (offset_of[label], label))
    return {label: i for i, label in enumerate(ordered)}


def _contradict(sequences: list[Ints]) -> bool:
    """Whether a rank alone ran a kind in this step instead of one that all others ran.

    Lost rows look different: nothing stands in for them.
    """
    sets = [set(codes.tolist()) for codes in sequences]
    if len(sets) < 2 or all(s == sets[0] for s in sets):
        return False
    often = Counter(code for s in sets for code in s)
    alone = {code for code, n in often.items() if n == 1}
    return any(s & alone and any(n == len(sets) - 1 and c not in s for c, n in often.items()) for s in sets)


def _assign_slots(
    rows: list[tuple[int, Ints, Ints, Ints]],
    slots: list[Ints],
    base: int,
    shifts: dict[int, float],
    *,
    within_step: bool,
) -> int:
    """Place the calls of one step; return its number of slots.

    `shifts`: how much later each sequence's ends read. `within_step`: drift is negligible, so equal sequences whose
    ends do not keep their distances lost different rows.
    """
    counts = Counter(tuple(codes.tolist()) for _, _, codes, _ in rows)
    # The longest sequence lost least; the most common one breaks ties.
    model = max(counts.items(), key=lambda item: (len(item[0]), item[1], [-c for c in item[0]]))[0]
    lead = next(row for row in rows if tuple(row[2].tolist()) == model)
    codes, when = list(model), lead[3].astype(np.float64)
    order = list(range(len(codes)))
    others = []
    for index, within, own, at in rows:
        gaps = (at - lead[3]).astype(np.float64) if len(at) == len(model) else None
        steady = gaps is not None and (
            not within_step or not len(gaps) or np.abs(gaps - median(gaps)).max() <= 2 * _GAP_NS
        )
        if tuple(own.tolist()) == model and steady:
            slots[index][within] = base + np.arange(len(own))
            if len(own):
                shifts[index] = float(median(at - lead[3])) + shifts.get(lead[0], 0.0)
        else:
            others.append((index, within, own, at))
    extra = len(codes)
    for index, within, own, at in others:
        guess = shifts[index] - shifts.get(lead[0], 0.0) if index in shifts else None
        shift = _shift(np.array(codes), when, own, at.astype(np.float64), guess)
        pairs = np.array(
            [-1 if p is None else p for p in _align(codes, when, own.tolist(), at - shift)], dtype=np.int64
        )
        for mine in range(len(pairs)):
            slot = int(pairs[mine])
            if slot < 0:
                # The others lost this rank's call: it gets its own slot, at its time.
                where = int(np.searchsorted(when, float(at[mine]) - shift))
                codes.insert(where, int(own[mine]))
                when = np.insert(when, where, float(at[mine]) - shift)
                order.insert(where, extra)
                slots[index][within[mine]] = base + extra
                extra += 1
                pairs[pairs >= where] += 1
            else:
                slots[index][within[mine]] = base + order[slot]
    if extra > len(model):
        # Move inserted slots to their place in time.
        position = np.argsort(np.array(order))
        for index, within, _, _ in rows:
            slots[index][within] = base + position[slots[index][within] - base]
    return extra


def _shift(codes: Ints, when: np.ndarray, own: Ints, at: np.ndarray, guess: float | None) -> float:
    """Return the difference of ends shared by most pairs of equal kind."""
    if len(codes) * len(own) > _WIDE_SHIFT:
        some = np.linspace(0, len(own) - 1, max(1, _WIDE_SHIFT // len(codes))).astype(np.int64)
        own, at = own[some], at[some]
    same = codes[None, :] == own[:, None]
    if not same.any():
        return guess or 0.0
    gaps = np.sort((at[:, None] - when[None, :])[same])
    enough = max(2.0, 0.6 * min(len(codes), len(own)))
    best, width = gaps[:1], _SAME_END_NS[0]
    for width in _SAME_END_NS:
        inside = np.searchsorted(gaps, gaps + width, side="right") - np.arange(len(gaps))
        best = gaps[inside == inside.max()]
        if inside.max() >= enough:
            break
    # Of windows with as many pairs, take the one nearest to earlier steps' shift.
    start = best[np.argmin(np.abs(best + width / 2 - guess))] if guess is not None else best[0]
    return float(median(gaps[(gaps >= start) & (gaps <= start + width)]))


def _align(codes: list[int], when: np.ndarray, own: list[int], at: np.ndarray) -> list[int | None]:
    """Return each own call's position in `codes`, in order; None for calls without one."""
    n, m = len(own), len(codes)
    if n * m > _WIDE_DP:
        return _nearest(codes, when, own, at)
    spacing = np.diff(np.sort(when))
    gap = max(1.0, min(_GAP_NS, float(median(spacing)) / 2 if len(spacing) else _GAP_NS))
    cost = np.minimum(np.abs(at[:, None] - when[None, :]), 1e15)
    cost[np.array(own)[:, None] != np.array(codes)[None, :]] = np.inf
    best = np.empty((n + 1, m + 1))
    best[0] = np.arange(m + 1) * gap
    best[:, 0] = np.arange(n + 1) * gap
    for i in range(1, n + 1):
        row, above, costs = best[i], best[i - 1], cost[i - 1]
        for j in range(1, m + 1):
            row[j] = min(above[j - 1] + costs[j - 1], above[j] + gap, row[j - 1] + gap)
    out: list[int | None] = [None] * n
    i, j = n, m
    while i and j:
        if best[i, j] == best[i - 1, j - 1] + cost[i - 1, j - 1]:
            i, j = i - 1, j - 1
            out[i] = j
        elif best[i, j] == best[i - 1, j] + gap:
            i -= 1
        else:
            j -= 1
    return out


def _nearest(codes: list[int], when: np.ndarray, own: list[int], at: np.ndarray) -> list[int | None]:
    """Walk both sequences in order of time and take the nearest of equal kind."""
    out: list[int | None] = []
    j = 0
    for code, t in zip(own, at.tolist(), strict=True):
        best: int | None = None
        for k in range(j, min(j + 64, len(codes))):
            if codes[k] == code and (best is None or abs(when[k] - t) < abs(when[best] - t)):
                best = k
        out.append(best)
        if best is not None:
            j = best + 1
    return out
