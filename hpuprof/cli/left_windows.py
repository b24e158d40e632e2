"""Takes up what runs left in the directories that are to be read: windows of killed runs, reports of trouble."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import click

from hpuprof.naming import SPOOL

_WAIT_S, _POLL_S = 60.0, 0.2


def _spools(paths: Sequence[str]) -> list[str]:
    """Return the run directories below these paths that have a spool."""
    found = []
    for path in paths:
        for root, folders, _ in os.walk(path):
            if SPOOL in folders:
                found.append(root)
            folders[:] = [folder for folder in folders if not folder.startswith(".")]
    return found


def take_up_windows(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Finish the windows of killed runs in these directories; return files that could not stay there, and remarks.

    Waits up to a minute for windows that another process is finishing. The files are removed with the command's end.
    """
    places = _spools([path for path in paths if "://" not in path])
    if not places:
        return [], []
    from hpuprof.files import scratch_folder
    from hpuprof.recorder.spool import entries, is_whole, take_up

    into = click.get_current_context().with_resource(scratch_folder("spool"))
    deadline = time.monotonic() + _WAIT_S
    elsewhere: dict[str, str] = {}  # entries that stay, and their files
    said: list[str] = []
    while True:
        waiting = [folder for folder in entries(places) if str(folder) not in elsewhere]
        finished, problems = take_up(waiting, into)
        for folder, done in finished:
            said.append(f"finished a window that a run left: {done.path}")
            if folder.is_dir():
                elsewhere[str(folder)] = done.path
        left = [folder for folder in waiting if str(folder) not in elsewhere and is_whole(folder)]
        if problems or not left or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    if left and not problems:
        said.append(f"{len(left)} window(s) are still being finished and left out; try again")
    return list(elsewhere.values()), said + problems


def trouble_in(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what is to be said of ranks that wrote of trouble, and what cannot be read.

    They write where they stood when no step came, and what held the memory when it ran out.
    """
    from hpuprof.ingest.hangs import hang_lines, read_hangs
    from hpuprof.ingest.memory_reports import memory_lines, read_memory_reports

    local = [path for path in paths if "://" not in path]
    hangs, unread = read_hangs(local)
    full, unread_too = read_memory_reports(local)
    return [*memory_lines(full), *hang_lines(hangs)], [*unread, *unread_too]
