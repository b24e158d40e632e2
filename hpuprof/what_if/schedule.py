"""A run of steps as it would be played: calls of host threads, device rows, and what waits for what. Owns no engine.

A call follows the call before it on its thread: first the host work before it (its *segment*), then the call. Its rows
start when it has begun and their lane is free:

    call = max(end of the call before, ends of what that one waited for + tail, other threads' calls) + segment
    row  = max(call + latency, end of the lane's row before + gap, end of a row on another lane + delay) + duration

Waits name the call or row that is waited for. Captured rows and graph launches take their costs from a `Sample`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints, Mask, any_of
from hpuprof.what_if.graph import NEVER, Graph
from hpuprof.what_if.mutual_chains import MutualChains

MAIN, LAUNCHER, BACKGROUND = 0, 1, 2
"""Host threads: the main path (main and autograd, which take turns), the launch thread, work next to the main path."""
THREADS = 3
REMEMBERED = 4
"""Topologies that the edits of one schedule keep, at up to 1.5 MB each."""
GRAPH_COSTS = ("replay", "replay_per_launch", "extra_input", "input_copy", "graphed_parameter")
"""What `Calls.graph_costs` counts: launches of graphs, launches in them, inputs of unknown number, other copies, time
that storing gradients was recorded to take [ns], once for each parameter of a graphed module."""
KINDS = 4
"""Kinds of profiler rows, in the order of `constants.PROFILER_ROWS`."""


Record = TypeVar("Record")


class Wait(IntEnum):
    """What waits for what."""

    LANE = 1  # a row for a row on another lane
    DEVICE = 2  # a call returns only after a row
    QUEUE = 3  # a launch into a full queue returns only after a row has made room
    JOIN = 4  # a call returns only after another thread's call
    HANDED = 5  # a call begins its segment only after another thread's call
    REPLAY = 6  # a call returns only after the launch thread has replayed graphs


RETURNS = (Wait.DEVICE, Wait.QUEUE, Wait.JOIN, Wait.REPLAY)
"""Waits that end before the call after the waiting one."""


class Calls(Struct, frozen=True, eq=False):
    """Calls and step ends; columns of shape `(calls,)`, times in ns."""

    thread: Ints
    place: Ints
    """Position in the program, over all threads."""
    step: Ints
    row: Ints
    """Host row, -1 for none."""
    ends_step: Mask
    segment: Floats
    segment_rows: Floats
    """Profiler rows in it by kind, shape `(calls, KINDS)`."""
    cost: Floats
    """Of the call, waiting left out."""
    cost_rows: Floats
    graph_costs: Floats
    """Multiples of a sample's `GRAPH_COSTS` in the segment, shape `(calls, costs)`."""

    def __len__(self) -> int:
        return len(self.thread)

    def free(self, which: Mask) -> Calls:
        """Return the calls, some of which cost nothing; the work before a launch by a thread is its own."""
        launched = which & (self.thread == LAUNCHER)
        return replace(
            self,
            segment=np.where(launched, 0.0, self.segment),
            segment_rows=np.where(launched[:, None], 0.0, self.segment_rows),
            cost=np.where(which, 0.0, self.cost),
            cost_rows=np.where(which[:, None], 0.0, self.cost_rows),
        )

    def in_order(self, order: Ints) -> Calls:
        """Return the calls in another order; `order`: calls as they follow each other."""
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return replace(self, place=place)


class Rows(Struct, frozen=True, eq=False):
    """Device rows; columns of shape `(rows,)`, times in ns."""

    call: Ints
    lane: Ints
    row: Ints
    """Device row, -1 for none."""
    dur: Floats
    latency: Floats
    gap: Floats
    collective: Mask
    elastic: Mask
    """Whether the duration changes in a graph: all captured rows but collectives."""
    captured: Mask
    """Whether gap and latency are those inside a graph."""
    copies: Floats
    """Copies into static inputs that the device makes before it."""

    def __len__(self) -> int:
        return len(self.call)


class Waits(Struct, frozen=True, eq=False):
    """Edges beyond launches and chains; columns of shape `(waits,)`."""

    kind: Ints
    waiting: Ints
    """Row or call that waits."""
    source: Ints
    """Row or call that is waited for."""
    tail: Floats
    """From the end of that one [ns]."""

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def none(cls) -> Waits:
        """Return no waits."""
        return cls.of([])

    @classmethod
    def of(cls, waits: list[tuple[int, int, int, float]]) -> Waits:
        """Return the waits given as (kind, waiting, source, tail)."""
        table = np.array(waits, dtype=np.float64).reshape(-1, 4).T
        return cls(table[0].astype(np.int64), table[1].astype(np.int64), table[2].astype(np.int64), table[3])

    def only(self, keep: Mask) -> Waits:
        """Return some of them."""
        return Waits(self.kind[keep], self.waiting[keep], self.source[keep], self.tail[keep])

    def also(self, other: Waits) -> Waits:
        """Return these and others."""
        both = (np.concatenate([getattr(self, f), getattr(other, f)]) for f in ("kind", "waiting", "source", "tail"))
        return Waits(*both)

    def by(self, *kinds: Wait) -> Mask:
        """Mark the waits of some kinds."""
        return any_of(self.kind, kinds)


class Topology(Struct, frozen=True, eq=False, dict=True):
    """The graph of a schedule: events are its calls, then its rows; edges its launches, then its waits."""

    graph: Graph
    calls: Ints
    """Place of each call."""
    rows: Ints
    launches: Ints
    """Place of each row's launch among the edges."""
    waits: Ints
    previous: Ints
    """Call before each call on its thread, -1 for none."""
    after: Ints
    """Call after each call on its thread, -1 for none."""
    behind: Ints
    """By wait: the call whose segment it delays, -1 for waits of rows."""

    @cached_property
    def chains(self) -> MutualChains:
        """Which chains wait for each other in steps that repeat."""
        return MutualChains.of(self.graph)


class Schedule(Struct, frozen=True, eq=False):
    """Made by `of`, which refuses crosswise waits; `reweighted` keeps the topology, `sorted_with` sorts anew."""

    calls: Calls
    rows: Rows
    waits: Waits
    backlog: Floats
    """By thread, then by lane: until when earlier work lasts [ns]; of the main path: when it begins."""
    steps: int
    topology: Topology
    sort: Callable[..., Topology]
    """Of `_columns`; the last few remembered, as edits mostly leave it or come to the same one."""

    @classmethod
    def of(cls, calls: Calls, rows: Rows, waits: Waits, backlog: Floats, steps: int) -> Schedule:
        """Sort the events.

        Raises:
            CrosswiseError: events wait for each other crosswise.
        """
        sort = lru_cache(maxsize=REMEMBERED)(_topology)
        return cls(calls, rows, waits, backlog, steps, sort(*_columns(calls, rows, waits)), sort)

    def sorted_with(self, **changes: Calls | Rows | Waits | Floats) -> Schedule:
        """Return it with other columns, sorted anew.

        Raises:
            CrosswiseError: events wait for each other crosswise.
        """
        new = replace(self, **changes)
        return replace(new, topology=self.sort(*_columns(new.calls, new.rows, new.waits)))

    @property
    def row_step(self) -> Ints:
        """Step in which each row was launched."""
        return self.calls.step[self.rows.call]

    def reweighted(self, **rows: Floats) -> Schedule:
        """Return it with other columns of rows: durations, gaps, latencies."""
        return replace(self, rows=replace(self.rows, **rows))

    def tails(self, tail: Floats) -> Schedule:
        """Return it with other tails of waits, shape `(waits,)`, ns."""
        return replace(self, waits=replace(self.waits, tail=tail))


def _columns(calls: Calls, rows: Rows, waits: Waits) -> Iterator[bytes]:
    """Yield what a topology depends on."""
    for column in (calls.thread, calls.place, rows.call, rows.lane, waits.kind, waits.waiting, waits.source):
        yield column.astype(np.int64).tobytes()


def _topology(*columns: bytes) -> Topology:
    thread, place, call, lane, kind, waiting, source = (np.frombuffer(column, dtype=np.int64) for column in columns)
    count = len(thread)
    key = np.concatenate([place, place[call]])
    sequence = np.lexsort((np.arange(len(key)), key))
    number = np.empty(len(key), dtype=np.int64)
    number[sequence] = np.arange(len(key))
    chain = np.concatenate([thread, lane + THREADS])
    previous, after = _neighbors(thread, place)
    returns = any_of(kind, RETURNS)
    behind = np.where(kind == Wait.HANDED, waiting, -1)
    behind[returns] = after[waiting[returns]]
    target = np.where(kind == Wait.LANE, waiting + count, behind)
    of_calls = any_of(kind, (Wait.JOIN, Wait.REPLAY, Wait.HANDED))
    graph = Graph.of(
        chain[sequence],
        number[np.concatenate([call, source + np.where(of_calls, 0, count)])],
        number[np.concatenate([np.arange(len(call)) + count, target])],
    )
    at = np.empty(len(graph.edges), dtype=np.int64)
    at[graph.edges] = np.arange(len(graph.edges))
    placed = graph.place[number]
    return Topology(graph, placed[:count], placed[count:], at[: len(call)], at[len(call) :], previous, after, behind)


def _neighbors(thread: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Return the calls before and after each call on its thread, -1 for none."""
    order = np.lexsort((place, thread))
    same = thread[order][1:] == thread[order][:-1]
    previous, after = np.full((2, len(order)), -1, dtype=np.int64)
    previous[order[1:][same]] = order[:-1][same]
    after[order[:-1][same]] = order[1:][same]
    return previous, after


def idle_before(lanes: int) -> Floats:
    """Return the backlog of a machine that did nothing before."""
    return np.append(np.zeros(THREADS), np.full(lanes, NEVER))
