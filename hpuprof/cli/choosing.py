"""Lists the runs of a directory that holds several, each in a folder of its own, for the user to choose from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from hpuprof.analysis_run import Run
from hpuprof.errors import InputError, RankConflictError
from hpuprof.ingest.discover import TraceFile, identify
from hpuprof.ingest.location import folder_and_name
from hpuprof.ingest.source import read_head
from hpuprof.render.formats import size

MOST_LISTED = 40
_DEVICE = re.compile(rb'"deviceProperties"\s*:\s*\[\s*\{[^\[\]]{0,400}?"name"\s*:\s*"([^"\\]{1,60})"')


def refuse_several(run: Run) -> None:
    """Raise SeveralRunsError where the files found are of runs in different folders; no one asked for a mix."""
    by_folder: dict[str, list[Sequence[TraceFile]]] = {}
    for files in (run.files, *run.others):
        for folder, mine in _by_folder(files).items():
            by_folder.setdefault(folder, []).append(mine)
    # A folder that holds another one cannot be chosen: its runs are distinguished by their times.
    folders = sorted(by_folder)
    nested = any(inner.startswith(f"{outer}{os.sep}") for outer in folders for inner in folders)
    if len(folders) < 2 or nested:
        return
    raise SeveralRunsError(
        f"{len(folders)} runs here, each in a folder of its own",
        hint=f"choose one, such as {folders[0]}",
        lines=list(_lines(by_folder)),
    )


def _by_folder(files: Sequence[TraceFile]) -> dict[str, list[TraceFile]]:
    """Return a run's files by folder; ranks or windows in a folder each are together in the one above."""
    found: dict[str, list[TraceFile]] = {}
    for file in files:
        found.setdefault(folder_and_name(file.path)[0], []).append(file)
    if len(found) < 2:
        return found
    try:
        named = ((file, who.rank) for file, who in zip(files, identify(files), strict=True) if who.named)
        known = {file.path: (rank, file.inside.get("window")) for file, rank in named}
    except RankConflictError:
        return found
    recorded = [{known.get(file.path) for file in mine} for mine in found.values()]
    if None in set.union(*recorded) or sum(map(len, recorded)) > len(set.union(*recorded)):
        return found
    return {os.path.commonpath(list(found)): list(files)}


class SeveralRunsError(InputError):
    """A directory holds several runs. `lines`: one for each, to choose from."""

    code = "several_runs"

    def __init__(self, message: str, *, hint: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.lines = list(lines)


def _lines(by_folder: dict[str, list[Sequence[TraceFile]]]) -> Iterator[str]:
    """Yield a line for each folder: its path, ranks, device, size."""
    wide = max(map(len, by_folder))
    for folder, runs in sorted(by_folder.items())[:MOST_LISTED]:
        files = [file for run in runs for file in run]
        ranks = len({file.inside.get("rank", file.parts.worker) for file in files})
        facts = [f"{ranks} rank{'s' * (ranks > 1)}", _device(files[0].path), size(sum(file.bytes for file in files))]
        if len(runs) > 1:
            facts.append(f"{len(runs)} runs")
        yield f"{folder:{wide}}  {', '.join(filter(None, facts))}"
    if len(by_folder) > MOST_LISTED:
        yield f"and {len(by_folder) - MOST_LISTED} more"


def _device(path: str) -> str:
    """Return the name of the device that a file's head gives; empty without one."""
    try:
        found = _DEVICE.search(read_head(path))
    except OSError:
        return ""
    return found[1].decode("utf-8", "replace") if found else ""
