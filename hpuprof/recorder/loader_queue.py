"""Counts the batches that a data loader's workers have finished, and those under way, at each fetch of the program.

A queue that is never empty then keeps up with the program; one that is always empty sets its pace. How many batches are
under way shows how long one takes (Little's law). Asking takes a few microseconds and never blocks. Loaders without
workers have no queue, and macOS cannot tell its length.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

MOST = 10_000  # samples of a window
_MODULE, _CLASS, _CALL = "torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", "_next_data"


class LoaderQueue:
    """Samples of one window, one at each fetch, of loaders in worker processes."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.under_way: list[int] = []
        self.workers: list[int] = []
        self._iterator = getattr(sys.modules.get(_MODULE), _CLASS, None)
        self._torchs = getattr(self._iterator, _CALL, None)
        self._open = self._torchs is not None
        if self._torchs is None:
            return
        torchs = self._torchs

        @wraps(torchs)
        def ours(iterator: Any, *arguments: Any, **named: Any) -> Any:
            self._sample(iterator)
            return torchs(iterator, *arguments, **named)

        self._ours = ours
        setattr(self._iterator, _CALL, ours)

    def _sample(self, iterator: Any) -> None:
        if not self._open or len(self.finished) >= MOST:
            return
        try:
            early = sum(len(task) == 2 for task in iterator._task_info.values())  # noqa: SLF001  before those asked first
            finished = iterator._data_queue.qsize() + early  # noqa: SLF001
            asked, workers = int(iterator._tasks_outstanding), int(iterator._num_workers)  # noqa: SLF001
        except (AttributeError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError):
            self._open = False  # another torch, or a system without lengths of queues
            self.begin()
            return
        self.finished.append(finished)
        self.under_way.append(max(0, asked - finished))
        self.workers.append(workers)

    def begin(self) -> None:
        """Forget the samples of the warm-up."""
        for samples in (self.finished, self.under_way, self.workers):
            samples.clear()

    def as_metadata(self) -> dict[str, list[int]]:
        """Return the samples, one of each list a fetch."""
        return {"finished": self.finished, "under_way": self.under_way, "workers": self.workers}

    def close(self) -> None:
        """Give the call back to torch, unless somebody else replaced ours meanwhile."""
        self._open = False
        if self._torchs is not None and getattr(self._iterator, _CALL) is self._ours:
            setattr(self._iterator, _CALL, self._torchs)
