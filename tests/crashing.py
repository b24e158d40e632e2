"""Work for worker processes that dies, fails or waits, as told."""

import gc
import os
import signal
import time
from pathlib import Path

from hpuprof.errors import TraceFormatError


def double(number):
    return 2 * number


def garbage(_):
    return gc.get_threshold()[0]


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
