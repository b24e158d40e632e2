"""Runs work in this process, in worker processes or on any `concurrent.futures.Executor`, and handles failures.

Results come as they are ready, with their index. An item whose worker died is resubmitted a bounded number of times,
then run locally in a process of its own, so that it cannot take the run down; if it fails there too, it comes back as
`Lost`. An exception raised by the work itself passes through.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from hpuprof.errors import HpuprofError, InputError, MissingDependencyError, UsageError, install_command
from hpuprof.messages import one_line
from hpuprof.worker_process import SERVING, WorkerDiedError, WorkerProcess, undisturbed

T = TypeVar("T")
R = TypeVar("R")

SUBMISSIONS = 3
"""How often an item is submitted to an executor before it runs locally."""
CONNECT_S = 10.0
"""How long to wait for a Dask scheduler's first answer."""
LOST_SCHEDULER_S = 15.0
"""How long a Dask client may be without its scheduler before the rest runs locally."""
LOST_WORKERS_S = 300.0
"""How long a Dask scheduler may be without any worker; clusters that scale take minutes to start one."""
_LOOK_S = 1.0
_GONE = "the scheduler went away"


class Lost(Struct, frozen=True):
    """An item that has no result, and why."""

    reason: str


class Journal(Struct):
    """What went wrong on the way without costing a result: reason to number of items."""

    notes: Counter[str] = field(default_factory=Counter)


def cores() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def spare_core() -> bool:
    """Whether other cores are free: those of a worker process have files of their own."""
    processes = sys.modules.get("multiprocessing")  # a worker of another executor has it
    return cores() > 1 and not SERVING.is_set() and (processes is None or processes.parent_process() is None)


def in_background(work: Callable[[], T], *, worth: bool) -> Callable[[], T]:
    """Start work in a thread, where it is worth one and a core is free; return what waits for its result."""
    if not (worth and spare_core()):
        result = work()
        return lambda: result
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future.result


def run_all(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    jobs: int = 0,
    executor: Executor | None = None,
    reachable: Callable[[T], bool] = lambda _: True,
    journal: Journal | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Generator[tuple[int, R | Lost], None, None]:
    """Yield index and `work(item)` for each item, as they are ready.

    `jobs`: processes, 0 for one per core; one item or one job runs in this process. `executor` runs it instead;
    `reachable` says which items can run locally if the executor fails. `meanwhile` is called here once workers have
    their first items, and not without workers. Closing the iterator ends the work in progress.
    """
    run = _Run(work, items, journal or Journal(), meanwhile)
    numbers = range(len(items))
    if executor is not None:
        left = yield from run.on(executor)
        here = [i for i in left if reachable(items[i])]
        yield from run.in_processes(here, min(jobs or cores(), len(here)))
        for i in left:
            if i not in here:
                yield i, Lost(f"{run.reasons[i]}, and the file cannot be reached from here")
        return
    jobs = min(jobs or cores(), len(items))
    if jobs <= 1:
        for i in numbers:
            yield i, work(items[i])
        return
    yield from run.in_processes(list(numbers), jobs)


def map_ordered(
    work: Callable[[T], R], items: Sequence[T], *, jobs: int = 0, executor: Executor | None = None
) -> Iterator[R]:
    """Yield `work(item)` in order of input. Raises InputError for an item that no worker could finish."""
    waiting: dict[int, R] = {}
    following = 0
    with closing(run_all(work, items, jobs=jobs, executor=executor)) as done:
        for i, result in done:
            if isinstance(result, Lost):
                raise InputError(
                    f"a worker could not finish: {result.reason}", hint="fewer workers (--jobs) or more memory for each"
                )
            waiting[i] = result
            while following in waiting:
                yield waiting.pop(following)
                following += 1


class _Run(Generic[T, R]):
    """One call of `run_all`."""

    def __init__(
        self, work: Callable[[T], R], items: Sequence[T], journal: Journal, meanwhile: Callable[[], object]
    ) -> None:
        self.work, self.items, self.journal, self._meanwhile = work, items, journal, meanwhile
        self.reasons: dict[int, str] = {}

    def _use_the_time(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()

    # ------------------------------------------------------------------------------------------------------- processes

    def in_processes(self, numbers: Sequence[int], jobs: int) -> Iterator[tuple[int, R | Lost]]:
        """Yield results. When a worker dies, the others go on; its item runs again at the end, alone."""
        waiting, killed = deque(numbers), dict[int, str]()
        while waiting:
            before = len(waiting)
            yield from self._in_new_processes(waiting, jobs, killed)
            if len(waiting) == before:
                for i in waiting:
                    self.journal.notes["worker processes cannot be started; analyzed in this process"] += 1
                    yield i, self.work(self.items[i])
                break
        for i in sorted(killed):
            yield i, self._alone(i)

    def _in_new_processes(self, waiting: deque[int], jobs: int, killed: dict[int, str]) -> Iterator[tuple[int, R]]:
        """Yield results of waiting items from up to `jobs` new processes.

        `killed` gets the items whose process died, and how it ended. A process that died is not replaced: most run out
        of memory, and fewer need less. If none comes to life, `waiting` stays as it is.
        """
        workers: list[WorkerProcess] = []
        with DefaultSelector() as busy:

            def give(worker: WorkerProcess) -> None:
                i = waiting.popleft()
                worker.give(self.work, self.items[i])
                busy.register(worker, EVENT_READ, (worker, i))

            try:
                for _ in range(min(jobs, len(waiting))):
                    try:
                        with undisturbed():
                            workers.append(WorkerProcess())
                    except OSError:
                        break
                    give(workers[-1])
                self._use_the_time()
                while busy.get_map():
                    # Polls, because Ctrl-C may reach a thread that would not wake this one.
                    for key, _ in busy.select(_LOOK_S):
                        worker, i = key.data
                        try:
                            result = worker.receive()
                        except WorkerDiedError as death:
                            busy.unregister(worker)
                            if worker.alive:
                                killed[i] = str(death)
                            else:
                                waiting.append(i)
                            continue
                        if result is None:
                            continue
                        busy.unregister(worker)
                        if waiting:
                            give(worker)
                        else:
                            worker.kill()  # what its memory holds is free for the others
                        yield i, result()
            finally:
                # Ctrl-C must not wait for traces that are half read.
                for worker in workers:
                    worker.kill()
                for worker in workers:
                    worker.close()

    def _alone(self, number: int) -> R | Lost:
        killed: dict[int, str] = {}
        results = list(self._in_new_processes(deque([number]), 1, killed))
        if not results:
            ended = killed.get(number, "died at once")
            return Lost(f"the worker process {ended} even when run alone")
        self.journal.notes["a worker process died; its work was repeated"] += 1
        return results[0][1]

    # -------------------------------------------------------------------------------------------------- other executors

    def on(self, executor: Executor) -> Generator[tuple[int, R], None, list[int]]:
        """Yield results from an executor; return the items that it could not do, in order."""
        submitted: Counter[int] = Counter()
        under_way: dict[Future[R], int] = {}
        left: list[int] = []
        watch = _Watch(executor)

        def submit(i: int) -> None:
            submitted[i] += 1
            try:
                under_way[executor.submit(self.work, self.items[i])] = i
            except Exception as error:  # noqa: BLE001 whatever an executor raises when it is gone
                self.reasons[i] = f"the executor accepts no work ({one_line(error)})"
                left.append(i)

        try:
            for i in range(len(self.items)):
                submit(i)
            self._use_the_time()
            while under_way:
                for future in wait(under_way, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done:
                    i = under_way.pop(future)
                    try:
                        result = future.result()
                    except HpuprofError:
                        raise
                    except ImportError as error:
                        raise UsageError(
                            f"a worker cannot load hpuprof: {error}", hint="install hpuprof and its dependencies there"
                        ) from error
                    except Exception as error:  # noqa: BLE001 whatever an executor raises for lost work
                        closed = watch.closed()
                        self.reasons[i] = _GONE if closed else f"its worker failed ({one_line(error)})"
                        # Dask's scheduler has already given the work of a KilledWorker to others.
                        given_up = type(error).__name__ == "KilledWorker"
                        if submitted[i] < SUBMISSIONS and not closed and not given_up:
                            submit(i)
                        else:
                            left.append(i)
                    else:
                        if submitted[i] > 1:
                            self.journal.notes[f"submitted again: {self.reasons[i]}"] += 1
                        yield i, result
                gone = watch.lost()
                if gone:
                    for i in under_way.values():
                        self.reasons[i] = gone
                        left.append(i)
                    break
        finally:
            for future in under_way:
                future.cancel()
        for reason, count in Counter(self.reasons[i] for i in left).items():
            self.journal.notes[f"{reason}; analyzed locally where possible"] += count
        return sorted(left)


class _Watch:
    """Notices a Dask client without scheduler or a scheduler without workers, where futures would wait forever."""

    def __init__(self, executor: Executor) -> None:
        client = getattr(executor, "_client", None)
        self._client: Any = client if hasattr(client, "scheduler_info") else None
        self._since: dict[str, float] = {}
        self._asked = 0.0

    def closed(self) -> bool:
        """Whether the client is closed to new work."""
        return self._client is not None and self._client.status in ("closed", "closing")

    def lost(self) -> str:
        """Return why no more results will come; empty while some may."""
        if self._client is None:
            return ""
        status = self._client.status
        if status in ("closed", "closing"):
            return _GONE
        if self._longer("scheduler", bad=status != "running", limit=LOST_SCHEDULER_S):
            return _GONE
        if self._longer("workers", bad=status == "running" and not self._workers(), limit=LOST_WORKERS_S):
            return f"the scheduler had no worker for {LOST_WORKERS_S:.0f} s"
        return ""

    def _workers(self) -> bool:
        if time.monotonic() - self._asked < 5:
            return "workers" not in self._since
        self._asked = time.monotonic()
        try:
            return bool(self._client.sync(self._client.scheduler.ncores, callback_timeout=5))
        except Exception:  # noqa: BLE001 the scheduler may go away meanwhile; the client's status shows that
            return True

    def _longer(self, what: str, *, bad: bool, limit: float) -> bool:
        if not bad:
            self._since.pop(what, None)
            return False
        return time.monotonic() - self._since.setdefault(what, time.monotonic()) > limit


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to a Dask scheduler. Raises MissingDependencyError without distributed, UsageError without answer."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependencyError(
            "--scheduler needs the package distributed", hint=install_command("dask")
        ) from None
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False, name="hpuprof")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{address}: no Dask scheduler answers ({one_line(error)})", hint="start one, or leave out --scheduler"
        ) from error
    try:
        yield client.get_executor(pure=False)
    finally:
        client.close(timeout=2)


class Workers(Struct, frozen=True):
    """Who works on files. `jobs`, `executor`: as for `map_ordered`; `progress`: called with each finished name."""

    jobs: int = 1
    executor: Executor | None = None
    progress: Callable[[str], None] | None = None

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the results in the order of the tasks."""
        return map_ordered(function, tasks, jobs=self.jobs, executor=self.executor)

    def done(self, name: str) -> None:
        """Report that a file is finished."""
        if self.progress:
            self.progress(name)
