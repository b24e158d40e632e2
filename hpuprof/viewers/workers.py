"""Runs work on many files, and reports each finished one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from hpuprof.executors import map_ordered

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Workers:
    """`jobs`, `executor`: as for `map_ordered`; `progress`: called with the name of each finished file."""

    jobs: int = 1
    executor: Executor | None = None
    progress: Callable[[str], None] | None = None

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield the results in the order of the tasks."""
        return map_ordered(function, tasks, jobs=self.jobs, executor=self.executor)

    def done(self, name: str) -> None:
        """Report that a file is finished."""
        if self.progress:
            self.progress(name)
