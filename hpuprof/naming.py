"""The naming contract of trace files: the recorder writes it, discovery reads it and other tools' names.

Ours: `<host>_<global rank>.<time ns>.pt.trace.json[.gz]`, with our own metadata inside the file under `METADATA_KEY`.
The form is the one that TensorBoard's profiler plugin groups by: worker, then a span of digits.
"""

from __future__ import annotations

import re

from msgspec import Struct

METADATA_KEY = "hpuprof"
SPOOL = ".hpuprof-spool"
"""Folder of a run directory with windows that are being finished."""
HANGS = "hangs"
"""Folder of a recording with reports of ranks that stopped to take steps."""
MEMORY = ".memory"
"""In the names there of reports of devices that ran out of memory."""
CONVERTED_KEY = "hpuprof_converted"  # metadata of a trace that `convert` wrote
SUFFIXES = (".json", ".json.gz", ".csv")

_PLUGIN = re.compile(r"^(?P<worker>.*?)(?:\.(?P<span>\d+))?\.pt\.trace\.json(?:\.gz)?$")
_STEM = re.compile(r"\.(?:json|csv|pt|trace|gz)\b")
# `worker-3_4242` is process 4242 on a host called worker-3; `local_rank3` is not a global rank.
_RANK = re.compile(
    r"(?:^|[^a-zA-Z])"
    r"(?:(?<!local[-_. ])rank[-_. ]?(?P<rank>\d+)|worker[-_. ]?(?P<worker>\d+)(?!\d|_\d+(?:\.|$)))(?!\d)",
    re.IGNORECASE,
)
_NAMED_LOCAL_RANK = re.compile(r"local[-_. ]?rank[-_. ]?(?P<rank>\d+)", re.IGNORECASE)
_NUMBERED = re.compile(r"^(?P<before>.+)_(?P<number>\d+)$")
# What RFC 1123 allows a host to be called; torch writes `socket.gethostname()`.
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.IGNORECASE)
_COUNTED = re.compile(
    r"(?:.*[-.])?(?:batch|epoch|iter|iteration|logs?|pid|process|profile|rank|run|step|trace|train|worker)\d*",
    re.IGNORECASE,
)
_STAGE = re.compile(
    r"^(?:TrainerFn\.)?(?P<stage>fit(?:ting)?|validat(?:e|ing)|test(?:ing)?|predict(?:ing)?)-", re.IGNORECASE
)
_ACTION = re.compile(
    r"(?:\[Strategy\]|_Strategy_)(?P<strategy>\w+?)[._](?P<action>(?:training|validation|test|predict)_step)"
)
_LOCAL_RANK = re.compile(r"-(?P<rank>\d+)-(?=\[Strategy\]|_Strategy_)")
_STAGES = {"fitting": "fit", "validating": "validate", "testing": "test", "predicting": "predict"}


class NameParts(Struct, frozen=True):
    """The parts of a file name.

    `worker`: the process name, without stage and action. `number`: the trailing number of `<host>_<number>`, a rank or
    a process id. `host`: only for names of torch's `tensorboard_trace_handler`, `<host>_<pid>.<time>.pt.trace.json`,
    that name no rank and start with a valid host name.
    """

    worker: str
    span: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    number: int | None = None
    stage: str = ""
    action: str = ""


def parse_name(name: str) -> NameParts:
    """Read a trace's file name (no directories)."""
    match = _PLUGIN.match(name)
    worker = match["worker"] if match else _STEM.split(name, maxsplit=1)[0]
    span = int(match["span"]) if match and match["span"] else None
    rank, local, stage, action = _RANK.search(name), _LOCAL_RANK.search(name), _STAGE.match(name), _ACTION.search(name)
    named_local = local or _NAMED_LOCAL_RANK.search(name)
    if stage:
        worker = worker[stage.end() :]
    if action:
        worker = (local or action).re.split(worker, maxsplit=1)[0].rstrip("-")
        worker += f"-{local['rank']}" if local else ""
    numbered = _NUMBERED.match(worker)
    before = numbered["before"] if numbered else ""
    named = (
        span is not None and not rank and not named_local and _HOST.fullmatch(before) and not _COUNTED.fullmatch(before)
    )
    stage_word = stage["stage"].lower() if stage else ""
    return NameParts(
        worker=worker,
        span=span,
        rank=int(rank["rank"] or rank["worker"]) if rank else None,
        local_rank=int(named_local["rank"]) if named_local else None,
        host=before if named else None,
        number=int(numbered["number"]) if numbered else None,
        stage=_STAGES.get(stage_word, stage_word),
        action=action["action"] if action else "",
    )


def is_trace_name(name: str) -> bool:
    """Tell whether a file's name is that of a trace (`*.pt.trace.json[.gz]`), whatever the file holds."""
    return _PLUGIN.match(name) is not None


def trace_name(host: str, rank: int, time_ns: int, *, compressed: bool = False) -> str:
    """Return the file name of a trace: `<host>_<global rank>.<time ns>.pt.trace.json[.gz]`, safe for every viewer."""
    safe = re.sub(r"[^A-Za-z0-9-]+", "-", host).strip("-") or "host"
    return f"{safe}_{rank}.{time_ns}.pt.trace.json" + (".gz" if compressed else "")


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that takes numbers in names by value, however long they are: `host_2` before `host_10`."""
    parts = re.split(r"(\d+)", text)
    return [(len(part.lstrip("0")), part.lstrip("0")) if i % 2 else (-1, part) for i, part in enumerate(parts)]
