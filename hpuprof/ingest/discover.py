"""Finds trace files and their identity: rank, stage, action, window, with the source of each fact.

Identity comes from inside the file first (our metadata, then torch's `distributedInfo`), then from the name. Nothing is
globbed by name: directories are walked, and each candidate's first bytes decide whether it is a trace.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from hpuprof.errors import HpuprofError, NoTracesFoundError, RankConflictError, TraceFormatError
from hpuprof.families import FAMILIES
from hpuprof.files import cannot_read
from hpuprof.ingest.bridge_metrics import is_bridge_metrics
from hpuprof.ingest.listing import Found, find
from hpuprof.ingest.location import base_name, folder_and_name, local_path, shown, state
from hpuprof.ingest.recover import first_value, loose_json
from hpuprof.ingest.separate_runs import Recorded, Recording, one_process, recorded_in, separate_runs
from hpuprof.ingest.server_events import is_server_events
from hpuprof.ingest.source import is_gzip, read_head, read_tail
from hpuprof.naming import CONVERTED_KEY, METADATA_KEY, SUFFIXES, NameParts, is_trace_name, natural, parse_name

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT = re.compile(rb'"ph"\s*:\s*"')
_EXECUTION_TRACE = re.compile(rb'\{\s*"schema"\s*:\s*"[^"]*"[^\[\]{}]*"nodes"\s*:\s*\[')
"""How files begin that `torch.profiler.ExecutionTraceObserver` writes."""
_IDENTITY_KEYS = ("distributedInfo", "host_name", METADATA_KEY, CONVERTED_KEY)
_VALUE = re.compile(rb'\s*:\s*(?=[{"])')
_MERGED = re.compile(rb'^\{[^{}\[\]]*"%s":\{"merged":' % METADATA_KEY.encode())
_FOLDER_RANK = re.compile(r"(?:global[-_. ]?)?rank[-_. ]?(?P<rank>\d{1,9})", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,9}")
_DIGITS = re.compile(r"[0-9]{1,18}")
_WORDS: dict[str, tuple[type, ...]] = {"stage": (str,), "action": (str,), "window": (str, int), "host": (str,)}

_READ_OTHERWISE = "metrics or events of the device's software, which are read from a local disk"
_UNREAD = {suffix: what for family in FAMILIES.values() for suffix, what in family.unread.items()}
_REQUESTS = 16  # concurrent requests for heads of remote files
_LATE_STEP_BYTES = 16 << 20  # torch 1.8 wrote steps behind the operators in them
_BY_ORDER = "rank: order of names"
_ALONE = "rank: only process"
_MOST_SEEN = 10_000  # files of other kinds that are counted


class Identity(Struct, frozen=True):
    """The writer of a trace. `provenance`: the source of each field."""

    rank: int
    stage: str = ""
    action: str = ""
    window: str = "0"
    provenance: str = ""

    @property
    def named(self) -> bool:
        """Whether the file, its name or its folder names the rank."""
        return not self.provenance.startswith((_BY_ORDER, _ALONE))

    @property
    def recording(self) -> dict[str, Any]:
        """The recording that its rows belong to, as their first columns have it."""
        return {"rank": self.rank, "stage": self.stage, "action": self.action, "window": self.window}


class TraceFile(Struct, frozen=True):
    """A file that looks like a trace; only its head (and tail) was read."""

    path: str
    name: str  # relative to the path given
    bytes: int
    parts: NameParts
    inside: dict[str, Any] = field(default_factory=dict)  # rank, world_size, stage, action, window, host
    recorded: Recorded = Recorded()


class Skipped(Struct, frozen=True):
    """A file or folder that was left out, and why, or all files of other runs."""

    path: str
    reason: str
    explicit: bool  # a loss: named by the user, named like a trace, or unreadable
    folder: bool = False
    unreadable: bool = False
    runs: int = 0

    @property
    def code(self) -> str:
        """Its diagnostic code."""
        return "HP127" if self.runs else "HP180" if self.folder else "HP114" if self.explicit else "HP120"


class Companion(Struct, frozen=True):
    """A local file that is no trace and is read all the same: `metrics` of a device's bridge, `events` of a server."""

    path: Path
    kind: Literal["metrics", "events"]


def discover(paths: Sequence[str | Path]) -> tuple[list[TraceFile], list[Skipped]]:
    """Return the trace files under `paths` (files, directories, patterns, URLs) by path, and the skipped candidates.

    Raises NoTracesFoundError if no file is left.
    """
    files, skipped, _ = search(paths)
    if not files:
        raise no_traces(paths, skipped)
    return files, skipped


def search(paths: Sequence[str | Path]) -> tuple[list[TraceFile], list[Skipped], list[Companion]]:
    """Return what `discover` does, none if there is none, and the companions by name."""
    seen: set[str] = set()
    candidates = []
    for candidate in (found for given in paths for found in find(given, (*SUFFIXES, *_UNREAD))):
        local = local_path(candidate.location)
        # Path.resolve raises on circular links.
        real = os.path.realpath(local) if local is not None else candidate.location
        if real not in seen:
            seen.add(real)
            candidates.append(candidate)
    if any(local_path(candidate.location) is None for candidate in candidates):
        # Waiting for remote storage needs no CPU.
        with ThreadPoolExecutor(_REQUESTS) as pool:
            looked = list(pool.map(_look, candidates))
    else:
        looked = list(map(_look, candidates))
    files = [found for found in looked if isinstance(found, TraceFile)]
    skipped = [found for found in looked if isinstance(found, Skipped)]
    beside = sorted(
        (found for found in looked if isinstance(found, Companion)), key=lambda f: (f.path.name, str(f.path))
    )
    return sorted(_with_sure_hosts(files), key=lambda f: (f.name, f.path)), skipped, beside


def no_traces(paths: Sequence[str | Path], skipped: Sequence[Skipped]) -> NoTracesFoundError | TraceFormatError:
    """Return the error that paths without a trace are."""
    where = ", ".join(shown(p) for p in paths)
    if len(skipped) == 1 and skipped[0].explicit:
        return TraceFormatError(
            f"{where}: {skipped[0].reason}",
            path=where,
            hint="check that it exists and that you may read it"
            if skipped[0].unreadable
            else "hpuprof reads PyTorch profiler traces: .json, .json.gz, .csv",
        )
    found = f"; left out: {len(skipped)}, first {skipped[0].path}: {skipped[0].reason}" if skipped else ""
    return NoTracesFoundError(
        f"no trace found in {where}{found or _seen(paths)}",
        hint="give a directory with *.pt.trace.json[.gz] files",
    )


def _seen(paths: Sequence[str | Path]) -> str:
    """Say what lies in local directories without a trace: how many files, of which kinds; empty for no directory."""
    folders = [local for path in paths if (local := local_path(path)) is not None and local.is_dir()]
    if not folders:
        return ""
    names = (name for folder in folders for _, _, inside in os.walk(folder) for name in inside)
    kinds = Counter(Path(name).suffix.lower() or "without suffix" for name in islice(names, _MOST_SEEN))
    if not kinds:
        return ": it is empty" if len(folders) == 1 else ": they are empty"
    listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
    return f" among {kinds.total():,} files ({listed}{', …' if len(kinds) > 4 else ''})"


def _with_sure_hosts(files: list[TraceFile]) -> list[TraceFile]:
    """Drop hosts that differ only in a number within them that runs from 0 or 1: those count processes.

    The number after the host is its process id or, in our own names, a rank; it may run.
    """
    sets: dict[tuple[str, str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, file in enumerate(files):
        for run in _DIGITS.finditer(file.parts.host or ""):
            worker = file.parts.worker
            key = folder_and_name(file.path)[0], worker[: run.start()], worker[run.end() :]
            sets[key][int(run[0])].append(i)
    out = list(files)
    for numbered in sets.values():
        first = min(numbered)
        if len(numbered) > 1 and first <= 1 and max(numbered) - first + 1 == len(numbered):
            for i in (i for members in numbered.values() for i in members):
                out[i] = replace(files[i], parts=replace(files[i].parts, host=None))
    return out


def _look(candidate: Found) -> TraceFile | Skipped | Companion:
    """Judge a candidate by its head."""
    location, name = candidate.location, candidate.name
    if candidate.problem:
        return Skipped(name, candidate.problem, explicit=True, folder=True, unreadable=True)
    unread = next((what for suffix, what in _UNREAD.items() if location.lower().endswith(suffix)), "")
    if unread:
        return Skipped(name, unread, candidate.explicit)
    try:
        head = read_head(location)
        kind, local = _companion(head, location), local_path(location)
        if kind and local is not None:
            return Companion(local, kind)
        reason = _READ_OTHERWISE if kind else _no_trace(head, location)
        if reason:
            return Skipped(name, reason, candidate.explicit or is_trace_name(base_name(location)))
        tail = read_tail(location)
        return TraceFile(
            location,
            name,
            state(location).bytes,
            parse_name(base_name(location)),
            _inside(head, tail),
            recorded_in(head, tail),
        )
    except OSError as error:
        return Skipped(name, cannot_read(error), explicit=True, unreadable=True)


def looks_like_trace(path: str) -> bool:
    """Whether a file in a directory looks like a trace or merged timeline; an unreadable one is judged by name."""
    try:
        head = read_head(path)
        return is_merged_timeline(head.lstrip()) or not _no_trace(head, path) or is_trace_name(base_name(path))
    except OSError:
        return is_trace_name(base_name(path))


def _companion(head: bytes, path: str) -> Literal["", "metrics", "events"]:
    """Return which companion of traces a file is, if it is one."""
    if is_gzip(path):
        return ""
    return "events" if is_server_events(path) else "metrics" if is_bridge_metrics(head) else ""


def _no_trace(head: bytes, path: str) -> str:
    """Return why a file's first bytes rule out a trace; empty if it may be one."""
    if not head.strip():
        return "the file is empty" if state(path).bytes == 0 or not is_gzip(path) else "nothing could be decompressed"
    if base_name(path).lower().endswith(".csv"):
        from hpuprof.ingest.hw_csv import looks_like_hw_csv

        return "" if looks_like_hw_csv(head) else "a CSV, but not from the hardware profiler"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if is_merged_timeline(text):
        return "a merged timeline; analyze its source traces instead"
    if _EVENTS_KEY.search(head) or _EVENT.search(head):
        return ""
    if _EXECUTION_TRACE.match(text):
        return "an execution trace, which holds operators without times; give the profiler's trace of the same steps"
    # A large header may hide the events; any other object is judged by reading it.
    if text[:1] == b"{" and len(head) >= 256 << 10:
        return ""
    return "no trace events"


def is_merged_timeline(head: bytes) -> bool:
    """Whether a file's first bytes are those of a timeline written by `hpuprof merge`."""
    return _MERGED.match(head) is not None


def _inside(head: bytes, tail: bytes) -> dict[str, Any]:
    """Read the identity inside the file, from its head or, if it is not compressed, its tail."""
    found: dict[str, Any] = {}
    for text in (head, tail):
        header = {key: first_value(text, at)[0] for key in _IDENTITY_KEYS if (at := _value_of(key, text)) >= 0}
        for key, value in identity_inside(header).items():
            found.setdefault(key, value)
        if "rank" in found:
            break
    return found


def _value_of(key: str, text: bytes) -> int:
    """Return where the first value of a key begins, an object or text; -1 without one."""
    quoted, at = f'"{key}"'.encode(), 0
    while (at := text.find(quoted, at)) >= 0:  # several times as fast as one expression for all keys
        at += len(quoted)
        if value := _VALUE.match(text, at):
            return value.end()
    return -1


def identity_inside(header: dict[str, Any]) -> dict[str, Any]:
    """Extract rank, world size, stage, action, window and host from a trace's metadata."""
    found: dict[str, Any] = {}
    own, distributed = _object(header.get(METADATA_KEY)), _object(header.get("distributedInfo"))
    # `convert` renames files and records the old identity.
    renamed = _object(_object(header.get(CONVERTED_KEY)).get("identity"))
    for key, types in _WORDS.items():
        for source in (own, renamed):
            value = source.get(key)
            if isinstance(value, types) and not isinstance(value, bool) and value != "":
                found.setdefault(key, value)
    for source in (own, distributed, renamed):
        for key in ("rank", "world_size"):
            value = source.get(key)
            if isinstance(value, (int, str)) and _NUMBER.fullmatch(str(value)):
                found.setdefault(key, int(value))
    if isinstance(header.get("host_name"), str):
        found.setdefault("host", header["host_name"])
    return found


def _object(value: Any) -> dict[str, Any]:
    """Return metadata that is an object or the text of one (`add_metadata` quotes its value); else an empty one."""
    if isinstance(value, str):
        value = loose_json(value.encode("utf-8", "replace"))
    return value if isinstance(value, dict) else {}


def identify(files: Sequence[TraceFile], *, rank_from: str = "auto") -> list[Identity]:
    """Identify each file of a run. Raises RankConflictError if two claim the same rank, stage, action and window."""
    return _windows(files, _ranked(files, rank_from))


def runs_among(files: Sequence[TraceFile], *, rank_from: str = "auto") -> list[list[tuple[TraceFile, Recording]]]:
    """Tell the runs apart that wrote files, in order of time; with `order`, all files are of one run."""
    recordings = [_recording(file, who) for file, who in zip(files, _ranked(files, rank_from), strict=True)]
    runs = [list(range(len(files)))]
    if rank_from != "order" and len(files) > 1:
        runs = separate_runs(_with_late_steps(files, recordings))
    return [[(files[i], recordings[i]) for i in sorted(run)] for run in runs]


def _recording(file: TraceFile, who: Identity) -> Recording:
    """Return a file as the search for runs takes it."""
    guessed = who.provenance.startswith(_BY_ORDER)
    host = file.inside.get("host") or file.parts.host
    window = file.inside.get("window")
    return Recording(
        rank=f"process {file.parts.worker}" if guessed else who.rank,
        kind=(who.stage, who.action),
        worker=file.parts.worker,
        span=file.parts.span,
        host=None if host is None else str(host),
        window=None if window is None else str(window),
        recorded=file.recorded,
    )


def _with_late_steps(files: Sequence[TraceFile], recordings: list[Recording]) -> list[Recording]:
    """Look for first steps behind the heads of files that only their steps tell apart: of one rank, for all ranks."""
    alike: dict[Any, list[int]] = defaultdict(list)
    for i, r in enumerate(recordings):
        if r.recorded.step is None and r.window is None:
            alike[r.rank, r.kind, r.worker, r.recorded.process].append(i)
    out = list(recordings)
    same = max(alike.values(), key=len, default=[])
    for i in same if len(same) > 1 else ():
        with suppress(OSError, HpuprofError):  # what reads the file reports it
            step = recorded_in(read_head(files[i].path, _LATE_STEP_BYTES)).step
            out[i] = replace(out[i], recorded=replace(out[i].recorded, step=step))
    return out


def _ranked(files: Sequence[TraceFile], rank_from: str) -> list[Identity]:
    """Return each file's rank, stage, action, and its window where the file names it."""
    numbers = sorted({f.parts.number for f in files if f.parts.number is not None})
    contiguous = len(numbers) == len({f.parts.worker for f in files}) and numbers == list(range(len(numbers)))
    # Folders separate processes only with `order`: otherwise two runs would pass for two ranks.
    keys = [(folder_and_name(f.path)[0] if rank_from == "order" else "", f.parts.worker) for f in files]
    if rank_from == "auto":
        keys = [keys[i] for i in _of_one_process(files)]
    order = {key: i for i, key in enumerate(sorted(set(keys), key=lambda key: [natural(part) for part in key]))}
    alone = len(order) == 1
    return [
        _one(f, rank_from, order[key], alone=alone, contiguous=contiguous) for f, key in zip(files, keys, strict=True)
    ]


def _of_one_process(files: Sequence[TraceFile]) -> list[int]:
    """Return for each file the first one of its process, itself where that is not sure."""
    return one_process([(f.inside.get("host") or f.parts.host, f.recorded) for f in files])


def _one(file: TraceFile, rank_from: str, position: int, *, alone: bool, contiguous: bool) -> Identity:
    inside, parts = file.inside, file.parts
    sources: dict[str, list[tuple[int | None, str]]] = {
        "inside": [(inside.get("rank"), "inside the file")],
        "name": [
            (parts.rank, "name"),
            (_folder_rank(file.name), "name of the folder"),
            (parts.number if contiguous else None, "name"),
            (parts.local_rank, "name (local rank)"),
        ],
        "order": [(position, "order of names")],
    }
    wanted = ("inside", "name", "order") if rank_from == "auto" else (rank_from,)
    choices = [choice for source in wanted for choice in sources[source]]
    if rank_from == "auto" and alone:
        choices.insert(len(choices) - 1, (0, "only process"))
    rank, source = next(((int(r), s) for r, s in choices if r is not None), (None, ""))
    if rank is None:
        raise RankConflictError(
            f"{file.name}: no rank {'inside the file' if rank_from == 'inside' else 'in its name'}",
            paths=(file.name,),
            hint="try --rank-from auto or order",
        )
    notes = [f"rank: {source}"]
    values = {}
    for key, from_name in (("stage", parts.stage), ("action", parts.action)):
        values[key] = str(inside.get(key) or from_name)
        if values[key]:
            notes.append(f"{key}: {'inside the file' if inside.get(key) else 'name'}")
    window = inside.get("window")
    if window is not None:
        notes.append("window: inside the file")
    return Identity(rank, values["stage"], values["action"], "" if window is None else str(window), "; ".join(notes))


def _folder_rank(name: str) -> int | None:
    """Return the rank in the nearest folder's name: `rank_3/trace.json`."""
    found = [match for part in Path(name).parent.parts[::-1] if (match := _FOLDER_RANK.fullmatch(part))]
    return int(found[0]["rank"]) if found else None


def _conflict_hint(first: TraceFile, second: TraceFile) -> str:
    folder = folder_and_name(first.path)[0]
    if folder != folder_and_name(second.path)[0]:
        return (
            f"they are in different directories: analyze different runs one at a time, such as {folder}, "
            "or choose --rank-from"
        )
    return "analyze one run at a time, or choose --rank-from name or --rank-from order"


def _windows(files: Sequence[TraceFile], identities: list[Identity]) -> list[Identity]:
    """Number one rank's recordings by the time in their names, or in files of one process; else they conflict."""
    first_of = _of_one_process(files)
    groups: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for i, who in enumerate(identities):
        groups[who.rank, who.stage, who.action].append(i)
    out = list(identities)
    for members in groups.values():
        unnamed = [i for i in members if not identities[i].window]
        named = defaultdict(list)
        for i in members:
            if identities[i].window:
                named[identities[i].window].append(i)
        clash = next((same for same in named.values() if len(same) > 1), None)
        inside = len(unnamed) > 1 and len({first_of[i] for i in unnamed}) == 1
        times = {i: files[i].recorded.begin_ns if inside else files[i].parts.span for i in unnamed}
        spans = set(times.values())
        writers = {(folder_and_name(files[i].path)[0], "" if inside else files[i].parts.worker) for i in unnamed}
        if (
            clash is None
            and len(members) > 1
            and unnamed
            and (None in spans or len(spans) < len(unnamed) or len(writers) > 1)
        ):
            clash = [*unnamed, *(i for i in members if i not in unnamed)]
        if clash:
            first, second = files[clash[0]], files[clash[1]]
            raise RankConflictError(
                f"{first.name} and {second.name} both claim rank {identities[clash[0]].rank} "
                f"({identities[clash[0]].provenance.split(';')[0]}; {identities[clash[1]].provenance.split(';')[0]})",
                paths=(first.name, second.name),
                hint=_conflict_hint(first, second),
            )
        free = (str(number) for number in count() if str(number) not in named)
        for number, i in zip(free, sorted(unnamed, key=lambda i: times[i] or 0), strict=False):
            where = "file" if inside else "name"
            note = f"; window: time in the {where}" if len(members) > 1 else ""
            out[i] = replace(identities[i], window=number, provenance=identities[i].provenance + note)
    return out
