"""Watches a recording from a thread of its own: requests for windows, steps that do not come, a run that settles.

The training thread only notes the step and the time; everything else happens here, twice a second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass
from math import ceil

from hpuprof.recorder.hang import write_hang
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.requested_windows import Agreed, Request, agreed, ask, requests
from hpuprof.recorder.settling import Settling
from hpuprof.recorder.warn import Line, tell

POLL_S = 0.5
_AHEAD_S, _AHEAD_OF_NODES_S = 2.0, 10.0  # until the other ranks see a request; file servers take longer to show it
_AHEAD_STEPS = 3
_LOOKS = 10  # the fastest of them counts: it may be as fast again
_HANGS = 3  # reports of one recording
_STEPS = 6  # of a window that no command asked for
_NO_HANDLER = (signal.SIG_DFL, signal.SIG_IGN)


@dataclass
class Pulse:
    """What the training thread notes at each step. `count`: steps; `number`: the framework's number; time [s]."""

    count: int = 0
    number: int = -1
    at: float = 0.0

    def beat(self, number: int) -> None:
        """Note that a step begins."""
        self.count += 1
        self.number = number
        self.at = time.monotonic()


class Watch:
    """Watches one recording. `hang_s`: report when no step has come for so long; None for never."""

    def __init__(self, dirpath: str, who: Who, pulse: Pulse, *, hang_s: float | None, at: Line | None) -> None:
        self.asked: list[Agreed] = []
        """Windows to open, oldest first; the training thread takes them."""
        self._signaled = False
        self._dirpath = dirpath
        self._who = who
        self._pulse = pulse
        self._hang_s = hang_s
        self._at = at
        self._after = time.time_ns()
        self._waiting: list[Request] = []
        self._before = (0, 0.0)  # steps and time at the last look that saw new ones
        self._steps_s: deque[float] = deque(maxlen=_LOOKS)  # mean step between looks
        self._settling: Settling | None = None
        self._reported = -1  # the step of the last report
        self._reports = 0
        self._ended = threading.Event()
        self._signal: int | None = None
        self._thread: threading.Thread | None = None

    def start(self, *, lone: bool = True) -> None:
        """Start the thread, once. `lone`: also where it would be the process's second.

        Python warns of forks (a data loader's workers) with threads; in most programs torch has started some before.
        """
        with contextlib.suppress(OSError):
            if self._thread is None and (lone or len(os.listdir("/proc/self/task")) > 1):  # noqa: PTH208
                self._thread = threading.Thread(target=self._run, name="hpuprof-watch", daemon=True)
                self._thread.start()

    def listen(self, name: str) -> None:
        """Take a signal for a request, in the main thread; a handler of the program's own stays."""
        number = getattr(signal, name)
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) in _NO_HANDLER:
            self._signal = number
            signal.signal(number, self._on_signal)
        else:
            self._say(f"{name} is taken by the program, so it triggers no window")

    def _on_signal(self, *_: object) -> None:
        self._signaled = True

    def compare(self, windows_s: float) -> None:
        """From now on ask for one more window if the run settles at another step than the windows' [s]."""
        self._settling = Settling(windows_s)

    def end(self) -> None:
        """Watch no more."""
        self._ended.set()
        if self._signal is not None:
            with contextlib.suppress(ValueError):  # not in the main thread: it stays and does nothing
                signal.signal(self._signal, signal.SIG_IGN)

    def _say(self, text: str) -> None:
        with contextlib.suppress(Warning):  # warnings that are errors must not end the watch
            tell(text, RuntimeWarning, at=self._at)

    def _run(self) -> None:
        while not self._ended.wait(POLL_S):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  training goes on, unwatched
                self._say(f"the recording is no longer watched: {type(error).__name__}: {error}")
                return

    def _look(self) -> None:
        now = time.monotonic()
        (count, at), new = self._before, (self._pulse.count, self._pulse.at)
        if new[0] > count:
            self._before = new
            if count:
                self._steps_s.append((new[1] - at) / (new[0] - count))
                if self._settling is not None and self._settling.add(self._steps_s[-1]):
                    self._settling = None
                    self._ask_for_all("settled")
        if self._signaled:
            self._signaled = False
            self._ask_for_all("signal")
        self._requests()
        quiet = now - self._pulse.at
        if self._hang_s is not None and self._pulse.at and quiet > self._hang_s and self._reported != self._pulse.count:
            self._reported, self._reports = self._pulse.count, self._reports + 1
            if self._reports <= _HANGS:
                self._report(quiet)

    def _ask_for_all(self, why: str) -> None:
        try:
            ask(self._dirpath, _STEPS, why=why)
        except OSError:  # without a directory it is for this rank alone
            alone = Request(time.time_ns(), _STEPS, why=why)
            self.asked.append(Agreed(alone, self._pulse.number + 1))

    def _requests(self) -> None:
        for request in requests(self._dirpath, self._after):
            self._after = request.number
            self._waiting.append(request)
        for request in list(self._waiting):
            with contextlib.suppress(OSError):
                found = agreed(self._dirpath, request, self._proposed())
                if found is None:
                    continue
                self._waiting.remove(request)
                if request.ranks is None or self._who.rank in request.ranks:
                    self.asked.append(found)

    def _proposed(self) -> int | None:
        """Return a step that no rank will have begun when it sees it; None before the first steps."""
        if not self._steps_s:
            return None
        step_s = max(min(self._steps_s), 1e-6)
        nodes = self._who.world_size > int(os.environ.get("LOCAL_WORLD_SIZE") or self._who.world_size)
        ahead = ceil((_AHEAD_OF_NODES_S if nodes else _AHEAD_S) / step_s)
        return self._pulse.number + max(_AHEAD_STEPS, ahead)

    def _report(self, quiet: float) -> None:
        try:
            path = write_hang(self._dirpath, self._who, step=self._pulse.number, since_step_s=quiet, why="no step")
        except OSError as error:
            self._say(f"no step for {quiet:.0f} s, and where this process stands could not be written: {error}")
            return
        self._say(
            f"no step for {quiet:.0f} s; {path} says where rank {self._who.rank} stands (hpuprof analyze reads it)"
        )
