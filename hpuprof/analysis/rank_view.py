"""One rank's trace with the facts shared by all analyses: computed once, frozen, passed as one argument."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.activations import matched_launches
from hpuprof.analysis.device_time import DeviceTime, device_time
from hpuprof.analysis.gaps import Gaps, find_gaps, host_states
from hpuprof.analysis.host_time import HostTime, host_time
from hpuprof.analysis.links import Links, link
from hpuprof.analysis.steps import Steps, compile_intervals, find_steps
from hpuprof.analysis.threads import on_host_path, track_roles
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import Intervals
from hpuprof.model.schema import Cause
from hpuprof.model.trace import Trace


@dataclass(frozen=True, eq=False)
class RankView:
    """One rank's trace with its steps, threads, launches, host and device time. Times in ns, half-open."""

    trace: Trace
    steps: Steps
    roles: npt.NDArray[np.int8]
    """`Role` of each track, shape `(len(trace.tracks),)`."""
    links: Links
    launched: Ints
    """Launch call of each device row, by correlation or by order; -1 for none. Shape `(len(trace.device),)`."""
    hosts: HostTime
    device: DeviceTime
    states: dict[Cause, Intervals]
    """What the host was doing, by cause."""
    gaps: Gaps
    """Device idle time; empty if no device was traced."""
    compiling: Intervals

    @property
    def device_traced(self) -> bool:
        """Whether any device work was recorded: without it, busy and idle are unknown."""
        return bool(len(self.device.busy))

    @cached_property
    def host_roles(self) -> npt.NDArray[np.int8]:
        """`Role` of each host row's thread, shape `(len(trace.host),)`."""
        return self.roles[self.trace.host.track]

    @cached_property
    def on_path(self) -> Mask:
        """Mask of the host rows on the main or an autograd thread, shape `(len(trace.host),)`."""
        return on_host_path(self.host_roles)

    @classmethod
    def of(cls, trace: Trace) -> RankView:
        """Compute the view of a trace."""
        roles = track_roles(trace)
        compiling = compile_intervals(trace)
        steps = find_steps(trace, roles, compiling)
        links = link(trace)
        hosts = host_time(trace, roles, links)
        device = device_time(trace)
        states = host_states(trace, roles, links, hosts)
        gaps = find_gaps(device.busy, steps, states) if len(device.busy) else Gaps(device.busy, {})
        return cls(trace, steps, roles, links, matched_launches(links), hosts, device, states, gaps, compiling)


def steps_of(trace: Trace) -> Steps:
    """Find only the steps."""
    return find_steps(trace, track_roles(trace), compile_intervals(trace))
