"""One torch profiler at a time: who holds it, and how ours gives way to another.

Kineto, below `torch.profiler`, supports one session per process, and torch does not enforce it. Seen with torch 2.13 on
a CPU: preparing a second session cancels the first; exporting the results of a cancelled one segfaults, as does
starting one whose warm-up was cancelled, in any thread, and ending the process while one runs. So we open a session
only when no other is open. While ours is open, the three calls with which every torch profiler begins and ends go
through here: a profiler started in our thread finds ours closed in good order, one in another thread gets an error, as
from torch. After our window torch is restored.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

from hpuprof.errors import HpuprofError

_CALLS = {"_prepare_profiler": "warming up", "_enable_profiler": "running", "_disable_profiler": "over"}
_replaced: list[tuple[Any, str, Any, Any]] = []  # module, name, torch's own function, ours
_ours: weakref.WeakSet[Any] = weakref.WeakSet()
_others: list[weakref.ref[Any]] = []  # profilers that were warming up at the last check


class SessionLostError(HpuprofError):
    """Another caller ended our session, or this thread cannot end it."""

    code = "session-lost"


class Session:
    """Our session: drives a `torch.profiler.profile`. If it must end early, `make_way` is called with the reason."""

    owner: ClassVar[Session | None] = None  # of torch's profiler in this process

    def __init__(self, profile: Any, make_way: Callable[[str], None]) -> None:
        self.profile = profile
        self.thread = threading.get_ident()
        self.pid = os.getpid()
        self.inside = False
        self.state = ""  # according to torch's calls seen so far
        self.seen = False
        self.make_way = make_way

    def start(self) -> None:
        """Begin; no other session may be open."""
        Session.owner = self
        _watch()
        try:
            with self._calling():
                self.profile.start()
        except BaseException:
            _release(self)
            raise

    def step(self) -> None:
        """End a step and begin the next. Raises SessionLostError."""
        self._check()
        with self._calling():
            self.profile.step()

    def stop(self) -> None:
        """End the session. Raises SessionLostError when ours is already gone."""
        self._check()
        try:
            with self._calling():
                self.profile.stop()
        finally:
            _release(self)

    def leave_to(self, name: str, thread: int) -> None:
        """Give way to another caller, or refuse it."""
        if thread == self.thread:
            self.make_way("another torch profiler was started")
        elif name != "_disable_profiler":
            raise RuntimeError(
                "Profiler is already enabled: hpuprof is recording a window in another thread, and a process can "
                "run only one profiler at a time; start yours after the window"
            )

    def _check(self) -> None:
        if threading.get_ident() != self.thread:
            _release(self)
            atexit.register(_end_stray, self)
            raise SessionLostError(
                "the window began in another thread and cannot continue in this one",
                hint="call step() and exit the recording in the thread that entered it",
            )
        running = self.state == "running"
        if (self.seen and not self.state) or (running and not enabled_here()):
            _release(self)
            raise SessionLostError(
                "another profiler ended the recording of this window", hint="run one profiler at a time"
            )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        self.inside = True
        try:
            yield
        finally:
            self.inside = False
            inner = getattr(self.profile, "profiler", None)
            if inner is not None:
                _ours.add(inner)


def enabled_here() -> bool:
    """Whether torch records this thread."""
    import torch

    return bool(torch.autograd._profiler_enabled())  # noqa: SLF001  there is no public name


def running_elsewhere() -> bool:
    """Whether another torch profiler runs in this process; call it only while ours is closed."""
    import torch.autograd.profiler

    return enabled_here() or bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


def occupied() -> str:
    """Return who holds torch's profiler; empty when a window may open."""
    if Session.owner is not None and Session.owner.pid == os.getpid():
        return "another recording of hpuprof"
    if running_elsewhere():
        return "another torch profiler"
    if _warming_up():
        return "another torch profiler (warming up)"
    return ""


def _warming_up() -> bool:
    """Whether another profiler is prepared but not started; torch does not say, so search for its objects."""
    import torch.autograd.profiler

    kind = torch.autograd.profiler.profile
    if any(_prepared(other()) for other in _others):
        return True
    # Objects refer to their types. 0.1 s for a million objects, once per window; `gc.get_objects()` takes 5 times that.
    kinds = {kind, *kind.__subclasses__()}
    found = [o for k in kinds for o in gc.get_referrers(k) if type(o) in kinds and o not in _ours and _prepared(o)]
    _others[:] = [weakref.ref(o) for o in found]
    return bool(found)


def _prepared(profile: Any) -> bool:
    return bool(getattr(profile, "entered", False)) and getattr(profile, "kineto_results", None) is None


def _watch() -> None:
    import torch.autograd.profiler

    for module in (torch.autograd.profiler, torch.autograd):
        for name in _CALLS:
            original = getattr(module, name, None)
            if original is not None:
                ours = partial(_call, name, original)
                _replaced.append((module, name, original, ours))
                setattr(module, name, ours)
    atexit.register(_at_exit)


def _release(session: Session) -> None:
    if Session.owner is not session:
        return
    Session.owner = None
    atexit.unregister(_at_exit)
    for module, name, original, ours in _replaced:
        if getattr(module, name, None) is ours:
            setattr(module, name, original)
    _replaced.clear()


def _call(name: str, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    session, thread = Session.owner, threading.get_ident()
    if session is None or session.pid != os.getpid():
        return original(*arguments, **options)
    if session.inside and thread == session.thread:
        session.seen, session.state = True, ""
        result = original(*arguments, **options)
        session.state = _CALLS[name]
        return result
    session.leave_to(name, thread)
    if name == "_disable_profiler" and thread == session.thread and not enabled_here():
        return None  # they meant ours, which has ended
    return original(*arguments, **options)


def _end_stray(session: Session) -> None:
    if session.thread == threading.get_ident() and session.pid == os.getpid() and enabled_here():
        with suppress(Exception):
            session.profile.stop()


def _at_exit() -> None:
    """End what a script left open: torch crashes if the process exits while a profiler runs."""
    session = Session.owner
    if session is not None and session.pid == os.getpid() and session.thread == threading.get_ident():
        session.make_way("the program ended")
        if Session.owner is session:
            with suppress(Exception):
                session.stop()
