"""A process of its own for work, with an entry of its own: it loads hpuprof and nothing of the caller's program.

A worker reads pickled work from its stdin and writes results to its stdout. Workers of `multiprocessing` import the
caller's `__main__`, so that a script without `if __name__ == "__main__":` runs again in each of them. What would keep
them from it is private and differs between versions of Python; here are public interfaces alone.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from hpuprof.messages import one_line

SERVING = threading.Event()
"""Set in a worker."""
_ROOT = str(Path(__file__).absolute().parents[1])
_LOOK_S = 1.0
_END_S = 5.0
_ALIVE = b"+"
_FLAGS = {"-B": "dont_write_bytecode", "-E": "ignore_environment", "-s": "no_user_site"}

# The very hpuprof that the caller has loaded, wherever its search path leads by now; all else by that path.
_PROGRAM = """
import sys
sys.path[:] = {path}
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
spec = PathFinder.find_spec("hpuprof", [{root}])
sys.modules["hpuprof"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["hpuprof"])
{statements}
"""


def command(statements: str) -> list[str]:
    """Return the command that runs statements in this Python with this hpuprof. Raises OSError if there is none."""
    if getattr(sys, "frozen", False) or not sys.executable:
        raise OSError("Python is part of another program, which would start once more")
    # The working directory comes last: it may be another by now, with modules of any name.
    path = sorted((place for place in sys.path if isinstance(place, str)), key=lambda place: not place)
    program = _PROGRAM.format(path=ascii(path), root=ascii(_ROOT), statements=statements)
    flags = [flag for flag, name in _FLAGS.items() if getattr(sys.flags, name)]
    return [sys.executable, *flags, "-X", f"utf8={sys.flags.utf8_mode}", "-c", program]


class WorkerDiedError(Exception):
    """The process ended without a result; the text says how."""


class WorkerTracebackError(Exception):
    """The traceback of an error in a worker, as text; the error's cause in this process."""


class WorkerProcess:
    """A process that does one piece of work at a time. Raises OSError if none can be started."""

    def __init__(self) -> None:
        from subprocess import PIPE, Popen

        serve_here = f"from hpuprof.worker_process import serve\nserve({gc.get_threshold()[0]})"
        self._process = Popen(  # noqa: S603  this interpreter, with a fixed program
            command(serve_here),
            stdin=PIPE,
            stdout=PIPE,
            # OpenBLAS starts no threads: they take as long as the rest of numpy, and nothing here is large for them.
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
        )
        tasks, results = self._process.stdin, self._process.stdout
        assert tasks is not None
        assert results is not None
        self._tasks, self._results = tasks, results
        self.alive = False
        """Whether the process came to life, with hpuprof loaded."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to `receive`."""
        return self._results.fileno()

    def give(self, work: Callable[[Any], object], item: object) -> None:
        """Let the process do `work(item)`."""
        packed = pickle.dumps((work, item), pickle.HIGHEST_PROTOCOL)
        with suppress(BrokenPipeError):  # it died, as `receive` will find
            self._tasks.write(packed)
            self._tasks.flush()

    def receive(self) -> Callable[[], Any] | None:
        """Return a function that returns the result or raises the error of the work; None for a sign of life.

        Waits for it. Raises WorkerDiedError.
        """
        if not self.alive:
            self.alive = os.read(self.fileno(), 1) == _ALIVE
            if self.alive:
                return None
        try:
            done, result, trace = pickle.load(self._results)  # noqa: S301  our own process wrote it
        except (EOFError, pickle.UnpicklingError):
            raise WorkerDiedError(self._end()) from None
        if done:
            return lambda: result

        def fail() -> None:
            raise result from WorkerTracebackError(f'\n"""\n{trace}"""')

        return fail

    def _end(self) -> str:
        """Say how the process ended: the system ends one with SIGKILL when memory runs out."""
        import subprocess

        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:  # it closed its pipe and is of no use
            self._process.kill()
            code = self._process.wait()
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), as the system does when memory runs out,"
        return f"crashed (signal {-code})" if code < 0 else "died"

    def kill(self) -> None:
        """End the process at once; between two pieces of work nothing is lost."""
        self._process.kill()

    def close(self) -> None:
        """Wait until the killed process is gone, and close its pipes."""
        with suppress(BrokenPipeError), self._process:
            pass


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay signals that end the run while a process is started, so that none is lost half made.

    Ctrl-C is blocked for the new process, too: this one ends it, and it prints no traceback.
    """
    kept: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # None: set outside of Python; SIG_DFL and SIG_IGN do not come here.
        handlers = {
            n: old for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if callable(old := signal.getsignal(n))
        }
    for number in handlers:
        signal.signal(number, lambda number, _: kept.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in kept:
            signal.raise_signal(number)


# --------------------------------------------------------------------------------------------------- in the new process


def serve(new_objects: int) -> None:
    """Do work as it comes, until the parent process is gone. `new_objects`: when to look for garbage, as it does."""
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    gc.set_threshold(new_objects)
    SERVING.set()
    tasks, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # no library may write among the results
    with suppress(BrokenPipeError):
        results.write(_ALIVE)
        results.flush()
        while tasks.peek(1):
            results.write(_done(tasks))
            results.flush()
    os._exit(0)


def _end_with(parent: int) -> None:
    """End this process soon after its parent was killed, whatever it is doing."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(0)


def _done(tasks: IO[bytes]) -> bytes:
    """Do the next piece of work; return whether it succeeded, its result or error, and its traceback, for `receive`."""
    try:
        work, item = pickle.load(tasks)  # noqa: S301  the parent process wrote it
        return pickle.dumps((True, work(item), ""), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # noqa: BLE001  it is raised in the parent process
        from traceback import format_exception

        trace = "".join(format_exception(error))
        try:
            packed = pickle.dumps((False, error, trace))
            pickle.loads(packed)  # noqa: S301
        except Exception:  # noqa: BLE001  errors of other packages may not survive it
            return pickle.dumps((False, RuntimeError(one_line(error)), trace))
        return packed
