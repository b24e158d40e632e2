"""Windows on request, by small files in a run's directory: all ranks begin at one step without a collective.

A request names the number of steps and the ranks. The first rank that sees it fixes the step at which all begin, a
little ahead, by a second file that only one rank can make. Every rank reads that file, so no rank has to ask another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = ".hpuprof-trigger"
_REQUEST = re.compile(r"request-(\d{1,20})")
_OLD_NS = 3_600_000_000_000


@dataclass(frozen=True)
class Request:
    """A request for a window. `number`: its time [ns], which names it; `ranks`: None for all; `why`: who asked."""

    number: int
    steps: int
    ranks: tuple[int, ...] | None = None
    why: str = "trigger"


@dataclass(frozen=True)
class Agreed:
    """A request and the step at which all ranks begin."""

    request: Request
    step: int


def ask(dirpath: str | Path, steps: int, ranks: tuple[int, ...] | None = None, why: str = "trigger") -> Request:
    """Leave a request in a directory, and remove those of an hour ago. Raises OSError."""
    folder = Path(dirpath) / FOLDER
    folder.mkdir(exist_ok=True)
    request = Request(time.time_ns(), steps, ranks, why)
    _write(folder, f"request-{request.number}", asdict(request))
    for path in folder.iterdir():
        number = path.name.rpartition("-")[2]
        if number.isdigit() and int(number) < request.number - _OLD_NS:
            with contextlib.suppress(OSError):
                path.unlink()
    return request


def requests(dirpath: str | Path, after: int) -> list[Request]:
    """Return the requests made after a time [ns], oldest first. Unreadable ones are left out."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(Path(dirpath) / FOLDER):  # noqa: PTH208  names alone, and often
            match = _REQUEST.fullmatch(name)
            values = _read(Path(dirpath) / FOLDER / name) if match and int(match[1]) > after else None
            request = _request(values) if values else None
            if request is not None and match is not None and request.number == int(match[1]):
                found.append(request)
    return sorted(found, key=lambda request: request.number)


def _request(values: dict[str, Any]) -> Request | None:
    number, steps, ranks, why = (values.get(name) for name in ("number", "steps", "ranks", "why"))
    sound = isinstance(number, int) and isinstance(steps, int) and steps > 0 and isinstance(why, str)
    if not sound or not (ranks is None or (isinstance(ranks, list) and all(isinstance(r, int) for r in ranks))):
        return None
    return Request(int(str(number)), int(str(steps)), None if ranks is None else tuple(ranks), str(why))


def agreed(dirpath: str | Path, request: Request, propose: int | None = None) -> Agreed | None:
    """Return when a request's window begins; None if no rank has fixed it. `propose`: the step to fix then.

    Raises OSError.
    """
    folder = Path(dirpath) / FOLDER
    name = f"start-{request.number}"
    if propose is not None and not (folder / name).exists():
        _write(folder, name, {"step": propose}, once=True)
    values = _read(folder / name)
    step = values.get("step") if values else None
    return Agreed(request, step) if isinstance(step, int) else None


def _write(folder: Path, name: str, values: dict[str, Any], *, once: bool = False) -> None:
    """Write a file whole. `once`: only if there is none of this name."""
    part = folder / f".{name}.{os.getpid()}.{time.time_ns()}"
    part.write_text(json.dumps(values), encoding="utf-8")
    try:
        if once:
            with contextlib.suppress(FileExistsError):
                os.link(part, folder / name)
        else:
            part.rename(folder / name)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError):
        values = json.loads(path.read_text(encoding="utf-8"))
        return values if isinstance(values, dict) else None
    return None
