"""Reports as documents, rendered once for each version of a run and kept, the latest few, as they are sent."""

from __future__ import annotations

import gzip
import threading
from collections import OrderedDict

from hpuprof.render import render
from hpuprof.tensorboard_plugin.runs import RunState

KEPT = 8
"""Documents kept; a page of eight ranks is 1.5 MB packed."""


class Pages:
    """Documents by run and suffix. Thread-safe: rendering one at a time bounds the memory of many requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[int, bytes]] = OrderedDict()

    def packed(self, state: RunState, suffix: str) -> bytes:
        """Return the report of a run that has one, as `.html` or `.json`, packed by gzip."""
        if state.report is None:
            raise ValueError(f"run {state.name!r} has no report")
        key = state.name, suffix
        with self._lock:
            version, document = self._kept.get(key, (-1, b""))
            if version != state.version:
                document = gzip.compress(render(state.report, suffix).encode(), 6, mtime=0)
            self._kept[key] = state.version, document
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return document
