"""Looks at the queue of a loader's workers at each fetch: is the next batch there, how many are finished, under way.

Batches are handed out in the order in which they were asked for, so a queue can hold some and the program wait for the
next one. It did not where no more came out of the queue for it than lay in it before. How many batches are under way
shows how long one takes (Little's law). Looking takes a few microseconds and never blocks. Loaders without workers have
no queue, and macOS cannot tell its length.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any, NamedTuple

MOST = 10_000  # samples of a window
_MODULE, _CLASS, _CALL = "torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", "_next_data"


class _Look(NamedTuple):
    """The queue before a fetch."""

    early: int  # batches that were taken out of it before those asked for first
    queued: int
    asked: int
    workers: int


class LoaderQueue:
    """Samples of one window, one for each batch that is fetched, of loaders in worker processes."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.under_way: list[int] = []
        self.workers: list[int] = []
        self.waited: list[int] = []
        self._iterator = getattr(sys.modules.get(_MODULE), _CLASS, None)
        self._torchs = getattr(self._iterator, _CALL, None)
        self._open = self._torchs is not None
        if self._torchs is None:
            return
        torchs = self._torchs

        @wraps(torchs)
        def ours(iterator: Any, *arguments: Any, **named: Any) -> Any:
            before = self._look(iterator)
            batch = torchs(iterator, *arguments, **named)
            self._sample(iterator, before)
            return batch

        self._ours = ours
        setattr(self._iterator, _CALL, ours)

    def _look(self, iterator: Any) -> _Look | None:
        if not self._open or len(self.finished) >= MOST:
            return None
        try:
            queued, asked = int(iterator._data_queue.qsize()), int(iterator._tasks_outstanding)  # noqa: SLF001
            return _Look(_early(iterator), queued, asked, int(iterator._num_workers))  # noqa: SLF001
        except (AttributeError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError):
            self._open = False  # another torch, or a system without lengths of queues
            self.begin()
            return None

    def _sample(self, iterator: Any, before: _Look | None) -> None:
        if before is None:
            return
        # What was taken out is the batch itself, unless that was out already, and those that lay before it.
        taken = _early(iterator) - before.early + 1
        finished = before.queued + before.early
        self.finished.append(finished)
        self.under_way.append(max(0, before.asked - before.queued))
        self.workers.append(before.workers)
        self.waited.append(int(taken > before.queued))

    def begin(self) -> None:
        """Forget the samples of the warm-up."""
        for samples in self.as_metadata().values():
            samples.clear()

    def as_metadata(self) -> dict[str, list[int]]:
        """Return the samples, one of each list a fetch: `waited` is 1 where the next batch was not there yet."""
        return {
            "finished": self.finished,
            "under_way": self.under_way,
            "workers": self.workers,
            "waited": self.waited,
        }

    def close(self) -> None:
        """Give the call back to torch, unless somebody else replaced ours meanwhile."""
        self._open = False
        if self._torchs is not None and getattr(self._iterator, _CALL) is self._ours:
            setattr(self._iterator, _CALL, self._torchs)


def _early(iterator: Any) -> int:
    """Return how many batches are out of the queue that were asked for later than the next one."""
    return sum(len(task) == 2 for task in iterator._task_info.values())  # noqa: SLF001
