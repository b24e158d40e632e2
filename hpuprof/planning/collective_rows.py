"""The collectives of a program: operation, bytes, group, and which of them reduce gradients."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.collective_search import collective_calls, position_of_rows
from hpuprof.analysis.modules import running_node
from hpuprof.analysis.placement import Phase
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.collective_calls import CallKind
from hpuprof.model.intervals import contains, union
from hpuprof.model.once import once
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.row_edits import first_after, lasting, without_work
from hpuprof.planning.situation import ProgramCalls
from hpuprof.what_if.capture import ACCUMULATE
from hpuprof.what_if.edit import with_waits
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.schedule import Wait

REDUCING, EXCHANGING = ("all_reduce", "reduce_scatter", "reduce"), ("all_to_all",)
_SHARDING = re.compile(
    r"FSDP::(?:all_gather|(?:root_)?pre_)|FullyShardedDataParallel\._pre_|^fsdp::all_gather|deepspeed/runtime/zero/part"
)
"""Rows that gather parameters: of torch's `_fsdp_param_group.py` and `_runtime_utils.py`; DeepSpeed's in stacks."""
_STORED = re.compile(ACCUMULATE.pattern + "|RegisterPostBackward")
"""Nodes of backward in which gradients are ready: where one is stored, and FSDP2's behind a module."""
SLOWER_ALONGSIDE = 0.35
"""How much longer a collective and what runs next to it may take: Daydream (ATC'20) saw 34 % for NCCL."""


class CollectiveRows(Struct, frozen=True, eq=False, dict=True):
    """Rows of collectives whose operation is known, in order of launches; columns of shape `(collectives,)`."""

    of: ProgramCalls
    row: Ints  # of the program
    kind: Ints  # into `kinds`: equal for equal operation, group, type and bytes
    kinds: list[CallKind]

    @staticmethod
    @once
    def find(of: ProgramCalls) -> CollectiveRows | None:
        """Find them; None if there are none."""
        program = of.program
        row = np.flatnonzero(program.kind == DeviceKind.COMMUNICATION)
        if not len(row):
            return None
        calls = of.measured.collectives or collective_calls(of.view)[0]
        position = position_of_rows(of.view.trace)[program.device_row[row]]
        known = (position >= 0) & (calls.kind[np.maximum(position, 0)] >= 0)
        kind = calls.kind[position[known]]
        named = np.array([bool(calls.kinds[k].op) for k in kind.tolist()], dtype=bool)
        return CollectiveRows(of, row[known][named], kind[named], calls.kinds) if named.any() else None

    @cached_property
    def call(self) -> Ints:
        """Call that launched each."""
        return self.of.program.call[self.row]

    @cached_property
    def step(self) -> Ints:
        """Step of each."""
        return self.of.program.step[self.call]

    @cached_property
    def bytes(self) -> Ints:
        """Bytes of each, -1: unknown."""
        return np.array([self.kinds[k].bytes for k in self.kind.tolist()], dtype=np.int64)

    @cached_property
    def channel(self) -> Ints:
        """Number of each one's operation, group and type."""
        keys = [(self.kinds[k].op, self.kinds[k].group, self.kinds[k].dtype) for k in self.kind.tolist()]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        return np.array([number[key] for key in keys], dtype=np.int64)

    @cached_property
    def backward(self) -> tuple[Ints, Ints]:
        """First and last call of each step inside autograd nodes; -1 for none."""
        of, calls = self.of, np.flatnonzero(self.of.phase == Phase.BACKWARD)
        first, last = np.full((2, of.program.steps), -1)
        last[of.program.step[calls]] = calls
        first[of.program.step[calls[::-1]]] = calls[::-1]
        return first, last

    @cached_property
    def gradients(self) -> Mask:
        """Mark those that reduce gradients: in backward where gradients are ready, or after it.

        One inside any other autograd node belongs to a layer (tensor parallelism, batch norm across ranks), and so
        does one whose operation and group are seen in forward.
        """
        program, view = self.of.program, self.of.view
        first = self.backward[0][self.step]
        reducing = np.isin([self.kinds[k].op for k in self.kind.tolist()], REDUCING)
        forward = np.isin(self.channel, self.channel[(first >= 0) & (self.call < first)])
        host, nesting, nodes = view.trace.host, view.links.nesting, view.modules.nodes.position
        launched = program.path.stands[self.call]
        node = running_node(view, nodes, view.placement.lane[host.track[launched]], host.start[launched])
        names = [view.trace.names[int(host.name[nesting.rows[nodes[n]]])] if n >= 0 else "" for n in node.tolist()]
        stored = np.array([not name or bool(_STORED.search(name)) for name in names], dtype=bool)
        found: Mask = reducing & ~forward & stored & (first >= 0) & (self.call > first)
        return found & (self.call < self._optimizer)

    @cached_property
    def exchanges(self) -> Mask:
        """Mark those in which each rank sends a part to each other one."""
        return np.isin([self.kinds[k].op for k in self.kind.tolist()], EXCHANGING)

    @cached_property
    def parameters(self) -> Mask:
        """Mark those that gather sharded parameters: launched in what FSDP or ZeRO does for its modules."""
        trace = self.of.view.trace
        around = trace.named(_SHARDING.search)[trace.host.name]
        windows = union(trace.host.start[around], trace.host.end[around])
        gathering = np.array([self.kinds[k].op == "all_gather" for k in self.kind.tolist()], dtype=bool)
        found: Mask = gathering & contains(windows, self.of.program.begin[self.call])
        return found

    @cached_property
    def _optimizer(self) -> Ints:
        """First call of the optimizer after backward in each one's step; beyond all calls for none."""
        program, last = self.of.program, self.backward[1]
        calls = np.flatnonzero(self.of.phase == Phase.OPTIMIZER)
        calls = calls[calls > last[program.step[calls]]][::-1]
        first = np.full(program.steps, len(program.row))
        first[program.step[calls]] = calls
        return first[self.step]


def used_after(program: Program, rows: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return reductions of gradients whose step computes with them, and the first row that does: behind backward.

    `last`: last call of backward by step.
    """
    step = program.step[program.call]
    computing = np.flatnonzero(program.kind == DeviceKind.COMPUTE)
    using = first_after(computing, np.maximum(program.call[rows], last[step[rows]]), program.call)
    used = (using >= 0) & (step[np.maximum(using, 0)] == step[rows])
    return rows[used], using[used]


def without_collectives(model: LaunchModel, of: ProgramCalls, rows: Ints) -> LaunchModel:
    """Take collectives away: their time, the waits for them, and the host's work for them."""
    gone = np.zeros(len(model.schedule.rows), dtype=bool)
    gone[rows] = True
    schedule, waits = model.schedule, model.schedule.waits
    of_device = (waits.kind == Wait.DEVICE) | (waits.kind == Wait.LANE)
    free = waits.only(~(of_device & gone[np.where(of_device, waits.source, 0)]))
    calls = np.zeros(len(schedule.calls), dtype=bool)
    calls[of.program.call[rows]] = True
    without = without_work(replace(model, schedule=with_waits(schedule, free)), calls)
    without = without.without_host(of.work_around(calls))
    return lasting(without, np.where(gone, 0.0, without.schedule.rows.dur))
