"""What pinning batches costs a main thread that fetches them itself.

With workers a thread of its own copies each batch into page-locked memory. Without, the loader does so in `__next__`
(torch's `_SingleProcessDataLoaderIter._next_data` calls `_utils.pin_memory`): what no longer moves the data in the
upload's call moves it before.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.ingest.dialect_activities import copies_pageable, fetches_without_workers
from hpuprof.model.arrays import Mask
from hpuprof.model.once import once
from hpuprof.planning.situation import ProgramCalls
from hpuprof.what_if.launch_model import LaunchModel

PINNING = (0.4, 1.6)
"""Time of the host's copy into pinned memory over that of the copy from pageable memory, which is the same copy piece
by piece. Pinned and copied then, a tensor takes up to twice as long as with a plain copy (PyTorch's tutorial on
`pin_memory`), 0.4 of it for the copy at least; at best at a memory's 16 GB/s where such copies reach 6.5 (an H200)."""


class Pinning(Struct, frozen=True, eq=False):
    """Batches that the main thread would pin; `copied`: rows of the program that come from pageable memory."""

    fetches: bool  # whether the main thread fetches batches
    copied: Mask

    @staticmethod
    @once
    def find(of: ProgramCalls) -> Pinning:
        """Find the fetches of loaders without workers."""
        trace, program = of.view.trace, of.program
        pageable = trace.named(copies_pageable)[trace.device.name[program.device_row]]
        fetches = bool(trace.host_named(fetches_without_workers).any())
        return Pinning(fetches, pageable & program.upload[program.call])

    @property
    def after(self) -> tuple[str, ...]:
        """Return the remedy that clears the way of pinned memory: workers."""
        return ("data_loading",) if self.fetches and self.copied.any() else ()

    def by_host(self, model: LaunchModel, rows: Mask, level: float) -> LaunchModel:
        """Pin what some rows copy before their calls, where the main thread still fetches."""
        if not self.fetches or model.in_workers:
            return model
        program, calls = model.program, model.schedule.calls
        mine = rows & self.copied
        took = np.bincount(program.call[mine], weights=program.dur[mine], minlength=len(calls))
        dearer = replace(calls, segment=calls.segment + (PINNING[0] + (PINNING[1] - PINNING[0]) * level) * took)
        return replace(model, schedule=replace(model.schedule, calls=dearer))
