"""What operators compute on the CPU in the steps of a program, and the reads that they need."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.host_calls import HostCallKind
from hpuprof.analysis.operators_on_cpu import cpu_operators
from hpuprof.model.arrays import Mask, any_of
from hpuprof.model.intervals import Intervals, subtract, union
from hpuprof.model.once import once
from hpuprof.model.schema import Activity
from hpuprof.planning.situation import ProgramCalls

COPIES = "aten::copy_"


class CpuWork(Struct, frozen=True, eq=False):
    """Operators on the CPU, data loading and copies left out. Masks of shape `(calls,)`."""

    windows: Intervals
    reads: Mask
    """Reads, and waits that complete them, that an operator follows before any launch: it needs them."""

    @staticmethod
    @once
    def find(of: ProgramCalls) -> CpuWork:
        """Find them in the steps that are played; a copy within the host's memory computes nothing."""
        program, trace = of.program, of.view.trace
        host = trace.host
        others = any_of(host.activity, (Activity.DATA_LOADER, Activity.LOADER_WAIT)) | trace.host_named(COPIES.__eq__)
        windows = subtract(cpu_operators(of.view), union(host.start[others], host.end[others]))
        inside = np.zeros(len(windows.start), dtype=bool)
        for low, high in zip(program.step_low.tolist(), program.step_high.tolist(), strict=True):
            inside |= (windows.start >= low) & (windows.end <= high)
        windows = Intervals(windows.start[inside], windows.end[inside])
        reading = of.of(HostCallKind.READ) | (of.completes == HostCallKind.READ)
        reads = np.zeros(len(program.row), dtype=bool)
        launched = np.maximum.accumulate(np.where(of.launches, np.arange(len(reads)), -1))
        for start in windows.start.tolist():
            last = int(np.searchsorted(program.begin, start)) - 1
            if last >= 0:
                reads[int(launched[last]) + 1 : last + 1] = True
        return CpuWork(windows, reads & reading)
