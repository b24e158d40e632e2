"""The recorded steps as remedies see them: where their calls are in the program, and what graphs would give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.host_calls import HostCallKind
from hpuprof.analysis.placement import Phase
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.user_frames import UserFrames
from hpuprof.efficiency.utilization import Utilization
from hpuprof.graph_mode.region_names import OptionKey
from hpuprof.graph_mode.verdict import Decision
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.collective_calls import Calls
from hpuprof.model.intervals import Intervals, contains, union
from hpuprof.planning.row_edits import without_work
from hpuprof.what_if.change import Edit
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.loader_workers import Loader
from hpuprof.what_if.schedule import MAIN
from hpuprof.what_if.step_model import StepModel

Found = TypeVar("Found")

PHASES = {
    Phase.BETWEEN: "between modules",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "the optimizer",
    Phase.LOADER: "data loading",
}
MOST_PLACES = 8
"""Places of one remedy that are priced one by one; what takes less time is not worth a line."""


class Measured(Struct, frozen=True):
    """What a recording's own tables were made of; None: what remedies need of it is measured anew."""

    collectives: Calls | None = None
    utilisation: Utilization | None = None


class Situation(Struct, frozen=True, eq=False, dict=True):
    """One recording's steps, and what graph mode would give them; `captures`: the edits that it was priced by."""

    model: StepModel
    loader: Loader | None = None
    measured: Measured = Measured()
    graphs: Decision | None = None
    captures: Mapping[OptionKey, Edit] = {}

    @property
    def view(self) -> RankView:
        """The recording."""
        return self.model.view

    def place(self, calls: Mask | None, occurs: Intervals | None) -> Place:
        """Return the longest of some calls of the program, or of some windows: step, start, duration and code line."""
        of, view = self.calls, self.view
        if occurs is not None and len(occurs):
            longest = int(np.argmax(occurs.end - occurs.start))
            start, end, line = int(occurs.start[longest]), int(occurs.end[longest]), ""
        elif calls is not None and of is not None and calls.any():
            at = np.flatnonzero(calls)
            longest = int(at[np.argmax(of.program.end[at] - of.program.begin[at])])
            start, end, line = int(of.program.begin[longest]), int(of.program.end[longest]), of.line(longest)
        else:
            return NOWHERE
        step = int(np.searchsorted(view.steps.start, start, side="right")) - 1
        return Place(step if step >= 0 else None, start, end - start, line)

    @cached_property
    def calls(self) -> ProgramCalls | None:
        """The steps call by call; None where the trace only allows a coarser model."""
        model = self.model
        return ProgramCalls(self.view, model.program, self.measured) if isinstance(model, LaunchModel) else None


class Place(NamedTuple):
    """The most costly occurrence of a change on the recording's clock [ns]; None and empty: not known."""

    step: int | None
    start_ns: int | None
    dur_ns: int | None
    python_line: str


NOWHERE = Place(None, None, None, "")


class Group(NamedTuple):
    """Calls of one operator in one phase."""

    where: str
    operator: str
    calls: Mask
    per_step: float


class ProgramCalls(Struct, frozen=True, eq=False, dict=True):
    """The calls of a program with their kinds and phases; masks and columns of shape `(calls,)`."""

    view: RankView
    program: Program
    measured: Measured = Measured()

    @cached_property
    def known(self) -> Ints:
        """Position of each call in `RankView.calls`; -1 for hand-overs and the ends of steps."""
        program, rows = self.program, self.view.calls.row
        at = np.searchsorted(rows, np.maximum(program.row, 0))
        # What hands launches over is no call, nor is the end of what a thread launched.
        no_call = program.marker | ((program.path.thread != MAIN) & (program.path.source < 0))
        return np.where(no_call | (np.append(rows, -1)[at] != program.row), -1, at)

    def of(self, *kinds: HostCallKind) -> Mask:
        """Mark the calls of some kinds."""
        found: Mask = (self.known >= 0) & np.isin(self.view.calls.kind[self.known], kinds)
        return found

    @property
    def waiting(self) -> Mask:
        """Calls that return only when device work is done."""
        return self.program.waits & ~self.program.marker

    @cached_property
    def completes(self) -> npt.NDArray[np.int8]:
        """Kind of the copy that a waiting call completes; 0 for none."""
        of = np.where(self.known >= 0, self.view.calls.completes[self.known], -1)
        return np.where(of >= 0, self.view.calls.kind[of], 0).astype(np.int8)

    @cached_property
    def phase(self) -> npt.NDArray[np.int8]:
        """Phase of each call."""
        program, view = self.program, self.view
        found = np.where(self.known >= 0, view.calls.phase[self.known], Phase.BETWEEN).astype(np.int8)
        handed = np.flatnonzero(program.path.source >= 0)
        rows = program.path.stands[handed]
        found[handed] = view.placement.of(view.trace.host.track[rows], view.trace.host.start[rows]).phase
        return found

    @cached_property
    def launches(self) -> Mask:
        """Calls that launch work and do not wait; copies between host and device left out."""
        program = self.program
        rows = np.bincount(program.call, minlength=len(program.row)) > 0
        launching: Mask = rows & ~program.marker & ~program.waits & ~program.read & ~program.upload
        return launching

    @cached_property
    def in_model(self) -> Mask:
        """Calls in forward and backward; without modules, forward is all that comes before the end of backward."""
        inside = np.isin(self.phase, (Phase.FORWARD, Phase.BACKWARD))
        if (self.phase == Phase.FORWARD).any():
            return inside
        step, backward = self.program.step, np.flatnonzero(self.phase == Phase.BACKWARD)
        last = np.full(self.program.steps, -1 if len(backward) else len(inside))
        last[step[backward]] = backward
        between: Mask = (self.phase == Phase.BETWEEN) & (np.arange(len(inside)) <= last[step])
        return inside | between

    @cached_property
    def _frames(self) -> UserFrames:
        return UserFrames(self.view.trace, self.view.links)

    def line(self, call: int) -> str:
        """Return the line of the user's code that made a call; empty: the trace does not show it."""
        position, row = self._operator(call)
        host, nesting = self.view.trace.host, self.view.links.nesting
        row = int(nesting.rows[position]) if position >= 0 else row
        return "" if row < 0 else self._frames.at(int(host.track[row]), int(host.start[row]), position) or ""

    def groups(self, calls: Mask) -> Iterator[Group]:
        """Group calls by operator and phase: the `MOST_PLACES` groups that take longest.

        The line of the user's code is that of a group's first call.
        """
        view = self.view
        nesting, host = view.links.nesting, view.trace.host
        found: dict[tuple[str, int], list[int]] = {}
        for call in np.flatnonzero(calls).tolist():
            position, row = self._operator(call)
            row = int(nesting.rows[position]) if position >= 0 else row
            found.setdefault((view.trace.names[int(host.name[row])], int(self.phase[call])), []).append(call)
        took = self.program.end - self.program.begin
        longest = sorted(found.items(), key=lambda item: -int(took[item[1]].sum()))
        for (operator, phase), members in longest[:MOST_PLACES]:
            line = self.line(members[0])
            chosen = np.zeros(len(calls), dtype=bool)
            chosen[members] = True
            where = f"{operator} in {PHASES[Phase(phase)]}" + (f", {line}" if line else "")
            # A copy and the wait that completes it are one.
            times = int((self.completes[members] == 0).sum()) or len(members)
            yield Group(where, operator, chosen, times / self.program.steps)

    @cached_property
    def _outermost(self) -> Ints:
        """Position in the nesting of the outermost operator around each call, -1 for none."""
        parent = np.append(self.view.links.nesting.parent, -1)
        at = self.operators
        while ((outer := parent[at]) >= 0).any():
            at = np.where(outer >= 0, outer, at)
        return at

    @cached_property
    def operators(self) -> Ints:
        """Position in the nesting of the operator around each call, or of that which handed it over; -1 for none."""
        nesting, path = self.view.links.nesting, self.program.path
        at = np.where(self.known >= 0, self.view.calls.operator[self.known], -1)
        handed = np.flatnonzero(path.source >= 0)
        if len(handed):
            place = np.full(len(self.view.trace.host), -1, dtype=np.int64)
            place[nesting.rows] = np.arange(len(nesting.rows))
            at[handed] = place[path.stands[handed]]
        return at

    @cached_property
    def since(self) -> Ints:
        """When the work for each call began: its outermost operator, or the end of the call before in it [ns]."""
        program, at = self.program, self._outermost
        opened = np.append(self.view.links.nesting.start, 0)[at]
        source = program.path.source
        before = np.where(source >= 0, program.before[source], program.before)
        began = np.minimum(program.begin, np.maximum(before, opened))
        return np.where(at >= 0, began, program.begin)

    def work_around(self, calls: Mask) -> Intervals:
        """Return the host work of operators around calls in them: from the call before to the one after."""
        program, at = self.program, self._outermost
        following = np.append(program.begin[1:], program.end[-1:])
        closed = np.append(self.view.links.nesting.end, 0)[at]
        until = np.maximum(program.end, np.minimum(following, closed))
        return union(self.since[calls], np.where(at >= 0, until, program.end)[calls])

    def _operator(self, call: int) -> tuple[int, int]:
        """Return the position in the nesting of the operator around a call, -1 for none, and the call's host row."""
        return int(self.operators[call]), int(self.program.path.stands[call])


def shortened(windows: Intervals, share: float) -> Intervals:
    """Return the first part of each window, a share of its length."""
    length = np.rint(share * (windows.end - windows.start)).astype(np.int64)
    return union(windows.start, windows.start + length)


def spared(model: LaunchModel, of: ProgramCalls, windows: Intervals, share: float) -> LaunchModel:
    """Return the steps without the first part of the host's work in each window, and of allocations of device memory.

    Operators that are not run allocate no results; what is freed meanwhile is freed as before.
    """
    allocating = of.of(HostCallKind.ALLOCATION) & ~of.program.frees & contains(windows, of.program.begin)
    return without_work(model, allocating, left=1.0 - share).without_host(shortened(windows, share))


def folded(model: LaunchModel, groups: Ints, device: float | Floats) -> LaunchModel:
    """Fold launches: each group becomes its first launch, whose first row does the work of all.

    Rows and calls keep their places; those folded cost nothing. `groups`: of each call, -1 for none; `device`: share
    of the rows' time that is left, of all or of each group in ascending order.
    """
    schedule = model.schedule
    calls, rows = schedule.calls, schedule.rows
    member = groups >= 0
    head = np.zeros(len(calls), dtype=bool)
    at = np.flatnonzero(member)
    head[at[np.unique(groups[at], return_index=True)[1]]] = True
    gone = member & ~head
    at = np.flatnonzero(member[rows.call])
    _, opening, which = np.unique(groups[rows.call[at]], return_index=True, return_inverse=True)
    dur, behind = np.array(rows.dur), np.zeros(len(rows), dtype=bool)
    dur[at], behind[at] = 0.0, True
    dur[at[opening]], behind[at[opening]] = device * np.bincount(which, weights=rows.dur[at]), False
    edited = replace(schedule, calls=calls.free(gone))
    nothing = {name: np.where(behind, 0.0, getattr(rows, name)) for name in ("latency", "gap")}
    return replace(model, schedule=edited.reweighted(dur=dur, **nothing))
