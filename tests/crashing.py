"""Work for worker processes that dies, fails or waits, as told."""

import gc
import os
import signal
import sys
import time
from pathlib import Path

from hpuprof import executors
from hpuprof.errors import TraceFormatError
from hpuprof.tasks import DeepTask


def double(number):
    return 2 * number


def garbage(_):
    return gc.get_threshold()[0]


def surroundings(_):
    """Return how many threads OpenBLAS may start, and whether other cores are free."""
    return os.environ.get("OPENBLAS_NUM_THREADS"), executors.spare_core()


def write_to_stdout(number):
    sys.stdout.write("from Python\n")
    sys.stdout.flush()
    os.write(1, b"from a library\n")
    return number


class FussyError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one, other):
        super().__init__(one)


def fail_fussily(_):
    raise FussyError("fussy", "indeed")


def cannot_travel(_):
    return lambda: None


def die_once_at_3(item):
    folder, number = item
    mark = Path(folder) / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_always_at_3(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class DeadlyTask(DeepTask, frozen=True):
    """Reduces files, and is killed by that of rank 3."""

    def __call__(self, item):
        if item[0].name.startswith("gaudi-host0_3."):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(item)


def fail_at_2(number):
    if number == 2:
        raise TraceFormatError(f"bad {number}", path="x")
    return number


def plan_and_stay(job):
    """Plan a file for a merge, and do not end before the process that asked for it."""
    from hpuprof.viewers.row_plan import plan_file

    parent = os.getppid()
    plan_file(job)
    Path(f"{job.spool}.planned").touch()
    while os.getppid() == parent:
        time.sleep(0.05)


def sleep_long(folder):
    (Path(folder) / f"{os.getpid()}.pid").touch()
    time.sleep(1000)
