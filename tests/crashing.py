"""Work for worker processes that dies, fails or waits, as told."""

import os
import signal
import time
from pathlib import Path

from hpuprof.errors import TraceFormatError


def double(number):
    return 2 * number


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


def sleep_long(folder):
    (Path(folder) / f"{os.getpid()}.pid").touch()
    time.sleep(1000)
