"""Separates the runs whose trace files share a directory: by process, windows, steps and times.

Facts come from the heads of files. Several windows of one process are one run, unless their steps or windows repeat.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from datetime import datetime, timezone
from itertools import pairwise

from msgspec import Struct

_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_HOST_EVENT = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|Operator|user_annotation|python_function|cpu_instant_event|\w{2,8}_(?:runtime|driver))"'
)
_EVENT = re.compile(rb'"ph"\s*:\s*"X"')
_STAMP = re.compile(rb'"ts"\s*:\s*"?(\d{1,18})')
_PROCESS = re.compile(rb'"pid"\s*:\s*"?(\d{1,9})\b')
_STEP = re.compile(rb"ProfilerStep\*?#(\d{1,9})\b")
_EVENT_BYTES = 2048
_EPOCH_NS = 10**18  # 2001; smaller stamps count from when the machine started
_SCALES = {13: 10**6, 16: 10**3, 19: 1}  # of a time in a name, by its digits: torch wrote ms, and writes ns
_UNSURE_NS = 600_000_000_000
_OTHER_HOST_NS = 24 * 3600 * 1_000_000_000
"""Pauses between recordings of two runs where their ends, or that one clock timed them, are not known, and where two
clocks did, which may be wrong by hours; by judgment."""
_APART = 2  # how many times as long the pause between two runs is as any within them; by judgment


class Recorded(Struct, frozen=True):
    """When a file was recorded and by which process, as its first and last bytes have it; None where they do not.

    `last_ns`: the latest begin of a row among the last bytes, which the recording did not end before.
    """

    begin_ns: int | None = None
    process: int | None = None
    step: int | None = None
    last_ns: int | None = None


class Recording(Struct, frozen=True):
    """A file as the search for runs takes it.

    `rank`: a number, or the process where only the order of names gives one; `kind`: stage and action; `worker` and
    `span`: process and time in its name; `window`: as the file names it.
    """

    rank: Hashable
    kind: tuple[str, str]
    worker: str
    span: int | None
    host: str | None
    window: str | None
    recorded: Recorded

    @property
    def exported_ns(self) -> int | None:
        """The time in its name, where it is one and not before the recording."""
        scale = _SCALES.get(len(str(self.span)))
        time = self.span * scale if self.span is not None and scale else 0
        return time if time >= max(_EPOCH_NS, self.recorded.begin_ns or 0) else None

    @property
    def at_ns(self) -> int | None:
        """When it was recorded, or at least exported."""
        return self.recorded.begin_ns or self.exported_ns

    @property
    def end_ns(self) -> int | None:
        """When it ended at the latest; its begin where nothing says."""
        return self.exported_ns or self.recorded.begin_ns


class _Session(Struct, frozen=True):
    """Recordings of one rank by one run, as indices; times as `at`."""

    rank: Hashable
    host: str | None
    begin: int
    end: int
    sure: bool  # begin and end are known, and by the host's clock
    members: tuple[int, ...]


class _Seen:
    """The sessions of a run so far: their hosts, their last end, and whether all times are sure."""

    def __init__(self) -> None:
        self.hosts: set[str | None] = set()
        self.end = 0
        self.sure = True

    def add(self, session: _Session) -> None:
        self.hosts.add(session.host)
        self.end, self.sure = max(self.end, session.end), self.sure and session.sure

    def apart(self, new: _Session) -> bool:
        """Whether all had ended before another rank began, by more than their clocks may differ."""
        hosts, pause = self.hosts | {new.host}, new.begin - self.end
        if None in hosts or (len(hosts) == 1 and not (self.sure and new.sure)):
            return pause > _UNSURE_NS
        return pause > (_OTHER_HOST_NS if len(hosts) > 1 else 0)


def recorded_in(head: bytes, tail: bytes = b"") -> Recorded:
    """Read when a trace was recorded and by which process, from its first event on the host (else: its first)."""
    found = _HOST_EVENT.search(head) or _EVENT.search(head)
    if found is None:
        return Recorded()
    at = max(0, head.rfind(b"{", 0, found.start()))
    stamp = _STAMP.search(head, at, at + _EVENT_BYTES)
    process = _PROCESS.search(head, at, at + _EVENT_BYTES) if found.re is _HOST_EVENT else None
    steps = [int(step) for step in _STEP.findall(head)]
    base = _BASE.search(head) or _BASE.search(tail)
    zero = int(base[1]) if base else 0
    begin = zero + int(stamp[1]) * 1000 if stamp else 0
    last = zero + max(map(int, _STAMP.findall(tail)), default=0) * 1000
    return Recorded(
        begin if begin >= _EPOCH_NS else None,
        int(process[1]) if process else None,
        min(steps, default=None),
        last if last >= max(begin, _EPOCH_NS) else None,
    )


def one_process(recordings: Sequence[tuple[Hashable, Recorded]]) -> list[int]:
    """Return for each recording the first one of the same process, by host and number; itself where that is not sure.

    A process records one window at a time: where two of one number overlap, or may, they are processes of two
    containers.
    """
    alike: dict[Hashable, list[tuple[int, int, int]]] = defaultdict(list)
    for i, (host, of) in enumerate(recordings):
        if of.process is not None and of.begin_ns is not None and of.last_ns is not None:
            alike[host, of.process].append((of.begin_ns, of.last_ns, i))
    found = list(range(len(recordings)))
    for mine in map(sorted, alike.values()):
        if all(before[1] < after[0] for before, after in pairwise(mine)):
            for *_, i in mine:
                found[i] = mine[0][2]
    return found


def separate_runs(recordings: Sequence[Recording]) -> list[list[int]]:
    """Return the runs as indices of recordings, in order of time; recordings without a time come first.

    Ranks are of one run where they recorded at the same time; two runs that did, or whose times are not known, are
    divided in the longest pause between two that are of one rank. What cannot be distinguished stays together.
    """
    dated = any(r.at_ns for r in recordings)
    times = [r.at_ns if dated else r.span for r in recordings]
    sessions = _sessions(recordings, times)
    together: list[list[_Session]] = []
    seen = _Seen()
    for session in sessions:
        if not together or (dated and seen.apart(session)):
            together.append([])
            seen = _Seen()
        together[-1].append(session)
        seen.add(session)
    runs = [[i for s in run for i in s.members] for part in together for run in _divided(part)]
    unknown = [i for i, time in enumerate(times) if time is None]
    if unknown and len(runs) < 2:
        return [sorted([*unknown, *(i for run in runs for i in run)])]
    return [unknown, *runs] if unknown else runs


def _sessions(recordings: Sequence[Recording], times: Sequence[int | None]) -> list[_Session]:
    """Return the recordings of each rank by each run, in order of their begins."""
    of_rank: dict[Hashable, list[list[tuple[int, int]]]] = defaultdict(lambda: [[]])
    for time, i in sorted((time, i) for i, time in enumerate(times) if time is not None):
        mine = of_rank[recordings[i].rank]
        if mine[-1] and _other_run([recordings[j] for _, j in mine[-1]], recordings[i]):
            mine.append([])
        mine[-1].append((time, i))
    found = []
    for rank, parts in of_rank.items():
        for part in parts:
            all_of = [recordings[i] for _, i in part]
            found.append(
                _Session(
                    rank,
                    all_of[0].host,
                    part[0][0],
                    max(r.end_ns or time for r, (time, _) in zip(all_of, part, strict=True)),
                    all(r.recorded.begin_ns and r.exported_ns for r in all_of),
                    tuple(i for _, i in part),
                )
            )
    return sorted(found, key=lambda s: (s.begin, s.members))


def _divided(run: Sequence[_Session]) -> list[list[_Session]]:
    """Divide sessions, in order of time, between each two of one rank: in the longest pause, where one is longest."""
    last: dict[Hashable, int] = {}
    pairs = []
    for at, session in enumerate(run):
        if session.rank in last:
            pairs.append((last[session.rank], at))
        last[session.rank] = at
    cuts: set[int] = set()
    for low, high in sorted(pairs, key=lambda pair: (pair[1] - pair[0], pair)):
        if not any(low < cut <= high for cut in cuts):
            pauses = sorted(((run[i].begin - run[i - 1].begin, i) for i in range(low + 1, high + 1)), reverse=True)
            if pauses[0][0] > 0 and (len(pauses) == 1 or pauses[0][0] > _APART * pauses[1][0]):
                cuts.add(pauses[0][1])
    return [list(run[low:high]) for low, high in pairwise(sorted(cuts | {0, len(run)}))]


def _other_run(run: Sequence[Recording], new: Recording) -> bool:
    """Whether a later recording of a rank is of another run: of another process, or again of a window or of steps."""
    last = run[-1]
    same = [r for r in run if r.kind == new.kind]
    if last.host and new.host and last.host != new.host:
        return True
    if last.recorded.process is None or new.recorded.process is None:
        if last.worker != new.worker:
            return True
    elif last.recorded.process != new.recorded.process:
        return True
    if new.window is not None:  # each window of ours counts its steps from 0
        return any(r.window == new.window for r in same)
    steps = [r.recorded.step for r in same if r.recorded.step is not None]
    return bool(steps) and new.recorded.step is not None and new.recorded.step <= max(steps)


def newest_whole(runs: Sequence[Sequence[Recording]], worlds: Sequence[int]) -> int:
    """Return the newest of the runs that have all ranks, or else the newest of those with the largest share of them.

    `worlds`: how many ranks each run names, 0 for none: it has all where no other has more.
    """
    counts = [len({r.rank for r in run}) for run in runs]
    wanted = [world or max(counts) for world in worlds]
    return max(range(len(runs)), key=lambda i: (min(counts[i], wanted[i]) / wanted[i], i))


def when(run: Sequence[Recording]) -> str:
    """Say when a run was recorded, in UTC; empty where its files do not."""
    known = [at for r in run if (at := r.at_ns) is not None]
    return f"{datetime.fromtimestamp(min(known) // 10**9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if known else ""
