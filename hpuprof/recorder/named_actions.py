"""Named actions inside a window: of the profiled thread through torch, of other threads by our own clock.

torch records the thread that started it, and the threads that autograd runs for it. It can record all threads
(`_ExperimentalConfig(profile_all_threads=True)`), but up to torch 2.13 that segfaults if another thread is inside an
operator when the profiler stops (four threads in a loop, 10 ms sessions: within seconds). So other threads' actions are
timed here and written next to torch's rows; their operators are not recorded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from hpuprof.recorder.session import enabled_here

LIMIT = 100_000  # actions of other threads in one window


class Span(NamedTuple):
    """An action of a thread that torch does not record: unix time [ns], the thread's OS number."""

    name: str
    thread: int
    start_ns: int
    end_ns: int


class Actions:
    """The open actions of one window, and actions of other threads. Create it in the profiled thread."""

    def __init__(self) -> None:
        import torch

        self._record_function: Callable[[str], Any] = torch.profiler.record_function
        self._thread = threading.get_ident()
        # Keys hold the thread, so threads never share a stack and need no lock.
        self._open: dict[tuple[int, str], list[Any]] = {}
        self.spans: list[Span] = []
        self.lost = 0

    def enter(self, name: str, *, recorded: bool) -> None:
        """Open an action. `recorded`: whether this step's rows are kept."""
        thread = threading.get_ident()
        if thread == self._thread or enabled_here():
            action = self._record_function(name)
            action.__enter__()
        elif recorded:
            action = (threading.get_native_id(), time.time_ns())
        else:
            return
        self._open.setdefault((thread, name), []).append(action)

    def counts(self) -> dict[str, int]:
        """Return how many actions of other threads were kept and, beyond LIMIT, lost."""
        return {"kept": len(self.spans), "lost": self.lost}

    def is_open(self, name: str) -> bool:
        """Whether this thread has such an action open."""
        return bool(self._open.get((threading.get_ident(), name)))

    def leave(self, name: str) -> None:
        """Close an action of this thread, innermost first; unknown names are ignored."""
        stack = self._open.get((threading.get_ident(), name))
        if not stack:
            return
        try:
            action = stack.pop()
        except IndexError:
            return  # another thread's step boundary closed it meanwhile
        self._close(name, action)

    def close(self) -> None:
        """Close what is still open at a step boundary: actions do not span steps."""
        opened, self._open = self._open, {}
        for (_, name), stack in opened.items():
            while stack:
                with suppress(IndexError):  # its own thread may be closing it
                    self._close(name, stack.pop())

    def _close(self, name: str, action: Any) -> None:
        if not isinstance(action, tuple):
            action.__exit__(None, None, None)
        elif len(self.spans) < LIMIT:
            thread, began_ns = action
            self.spans.append(Span(name, thread, began_ns, time.time_ns()))
        else:
            self.lost += 1
