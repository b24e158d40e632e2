"""Where work runs: serially, in processes, or on any `concurrent.futures.Executor`. Results come back in order of input."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def map_ordered(
    work: Callable[[T], R], items: Sequence[T], *, jobs: int = 0, executor: Executor | None = None
) -> Iterator[R]:
    """Yield `work(item)` for each item, in order. `jobs`: processes, 0 for one per core; one item or one job runs right here.

    A worker process that dies (out of memory, killed) does not take the run with it: what it left undone runs here.
    """
    jobs = min(jobs or cores(), len(items))
    if executor is not None:
        yield from _collect(work, items, executor)
        return
    if jobs <= 1:
        for item in items:
            yield work(item)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from _collect(work, items, pool)


def _collect(work: Callable[[T], R], items: Sequence[T], executor: Executor) -> Iterator[R]:
    futures: list[Future[R] | None] = []
    for item in items:
        try:
            futures.append(executor.submit(work, item))
        except BrokenProcessPool:
            futures.append(None)
    for item, future in zip(items, futures, strict=True):
        try:
            yield future.result() if future is not None else work(item)
        except BrokenProcessPool:
            yield work(item)
