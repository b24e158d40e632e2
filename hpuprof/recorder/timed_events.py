"""How long each step took on the device's own clock, by timing events that are read late and never waited for."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import Any

from hpuprof.recorder.accelerator import UNKNOWN_DEVICE, Device

_PENDING = 8
"""Steps that the device may lag behind the host; of one that lags more the time stays unknown."""


class DeviceClock:
    """Marks step borders on the current stream. The time between two marks is one step of the device, idle included."""

    def __init__(self, device: Device) -> None:
        self._module = device.module()
        self._event: Any = getattr(self._module, "Event", None)
        # In HPU's lazy mode a mark would end the accumulated graph.
        lazy = device.kind == "hpu" and os.environ.get("PT_HPU_LAZY_MODE") != "0"
        self._off = device.kind == "cpu" or self._event is None or lazy
        self._free: list[Any] = []
        self._marks: deque[tuple[int, Any]] = deque()  # the sequence of the step that a mark begins, the event

    def mark(self, sequence: int) -> None:
        """Mark the start of a step, which is the end of the step before."""
        if self._off or not self._usable():
            return
        try:
            event = self._free.pop() if self._free else self._event(enable_timing=True)
            event.record()
        except UNKNOWN_DEVICE:
            self._off = True
            self._marks.clear()
            return
        self._marks.append((sequence, event))
        while len(self._marks) > _PENDING:
            self._free.append(self._marks.popleft()[1])

    def finished(self) -> Iterator[tuple[int, int]]:
        """Yield sequence and time [ns] of the steps that the device has finished since."""
        try:
            while len(self._marks) > 1 and self._marks[1][1].query():
                sequence, begin = self._marks.popleft()
                following, end = self._marks[0]
                if following == sequence + 1:
                    yield sequence, int(begin.elapsed_time(end) * 1e6)
                self._free.append(begin)
        except UNKNOWN_DEVICE:
            self._off = True
            self._marks.clear()

    def _usable(self) -> bool:
        """Whether the process uses the device, and no graph is being captured."""
        begun = getattr(self._module, "is_initialized", None)
        capturing = getattr(self._module, "is_current_stream_capturing", None)
        return (begun is None or begun()) and not (capturing is not None and capturing())
