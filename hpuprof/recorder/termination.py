"""SIGTERM while a window is open: the window is saved, then the process dies as it would have.

Only where the signal would kill at once (no handler of the program's own). Python runs handlers between two of its
instructions; if the training thread does not come back from native code within five seconds, the process dies without.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

_PATIENCE_S = 5.0


class Termination:
    """Watches for SIGTERM. `save`: called in the training thread; returns whether the process may die now."""

    def __init__(self, save: Callable[[], bool]) -> None:
        self._save = save
        self._pid = 0
        self._handled = threading.Event()
        self._pipe: tuple[int, int] | None = None

    def begin(self) -> None:
        """Watch from now on, where this is the main thread and no one else does."""
        if self._pid or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        self._pid = os.getpid()
        self._handled.clear()
        before = signal.set_wakeup_fd(-1)
        if before == -1:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            threading.Thread(target=self._wait, args=[self._pipe[0]], name="hpuprof-sigterm", daemon=True).start()
        else:
            signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, self._handle)

    def end(self) -> None:
        """Watch no more."""
        if not self._pid:
            return
        self._pid = 0
        with contextlib.suppress(ValueError):  # the recording is ended in another thread
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self._pipe is not None:
                found = signal.set_wakeup_fd(-1)
                if found != self._pipe[1]:
                    signal.set_wakeup_fd(found)
        if self._pipe is not None:
            os.close(self._pipe[1])  # the thread reads the end
            self._pipe = None

    def die(self) -> None:
        """End this process by the signal."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, *_: object) -> None:
        self._handled.set()
        if self._pid != os.getpid() or self._save():  # forks have no window
            self.die()

    def _wait(self, source: int) -> None:
        with os.fdopen(source, "rb", buffering=0) as signals:
            while number := signals.read(1):
                if number[0] == signal.SIGTERM and not self._handled.wait(_PATIENCE_S):
                    import ctypes

                    ctypes.CDLL(None).signal(signal.SIGTERM, 0)  # Python allows it in the main thread alone
                    os.kill(os.getpid(), signal.SIGTERM)
