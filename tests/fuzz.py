"""Mutates samples, cases and hostile files, and runs them through every command that reads traces.

    python tests/fuzz.py --minutes 10 --seed 7 --keep /tmp/found

A mutant is sound when each command ends by itself, within its limits, with an exit code that the documentation knows and without
a traceback or a warning of numpy's. What is not is kept: the file, the command and what was said. `tests/robustness/test_mutations.py` runs a dozen.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from forks import Done
from limited import Limited

ROOT = Path(__file__).resolve().parents[1]
ROWS = (30, 120, 400)  # of each sample: a window of it, so that a mutant costs tenths of a second
COMMANDS: dict[str, tuple[str, ...]] = {
    "analyze": ("analyze", "--json", "--quiet", "-j", "1", "{folder}"),
    "page": ("analyze", "--quiet", "-j", "1", "{folder}", "-o", "{out}/report.html"),
    "inspect": ("inspect", "{folder}"),
    "merge": ("merge", "{folder}", "-o", "{out}/merged.json"),
    "check": ("check", "{path}"),
    "convert": ("convert", "{folder}", "-o", "{out}/tab"),
    "tab": ("@tab", "{folder}"),
}
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30, 1e300, -1e300, 0.1, 1e-300, "", " ", "0", "-1", "1e400", "NaN",
    "a\ud800", "\x1b]0;x\x07", "::error::x", "=1+1", "nn.Module: A_0", "ProfilerStep#1", "record_param_comms", "../../x", "x" * 5000, "[" * 2000,
    [], {}, [[]], {"a": 1}, [None], [1, 2, 3], {"": ""}, [{"x": [{"x": [{}]}]}],
)  # fmt: skip
RAW = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"\xff\xfe", b"\\ud800", b"\x00", b"}", b"{", b"]", b"[", b'"', b"\\", b",", b":", b"]}", b"\n", b"}}}}")  # fmt: skip
FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s")
ARGUMENTS = (
    "External id", "correlation", "device", "stream", "Collective name", "Group size", "Process Group Ranks", "Global rank start",
    "Global rank stride", "Input Dims", "Input type", "Python id", "Python parent id", "Call stack", "Bytes", "Addr", "Total Allocated",
    "Ev Idx", "recipeId", "recipeHandle", "recipeName", "EventName", "Original Nodes", "HW event name", "In msg nelems", "dtype", "Process Group Name", "Fwd thread id", "Sequence number", "name", "labels", "sort_index",
)  # fmt: skip
HEADER = ("distributedInfo", "deviceProperties", "schemaVersion", "traceName", "baseTimeNanoseconds", "displayTimeUnit", "hpuprof", "host_name", "with_stack", "record_shapes", "trace_id")  # fmt: skip


def sources() -> list[tuple[str, bytes]]:
    """Return small files of every dialect: windows of the samples, the cases, the hostile files."""
    found = []
    for folder in sorted(p for p in (ROOT / "sample_traces").iterdir() if p.is_dir()):
        files = sorted(p for p in folder.iterdir() if p.suffix in (".gz", ".json", ".csv"))
        found += [(p.name.removesuffix(".gz"), _opened(p)) for p in files[:1]]
    small = [*(ROOT / "tests" / "cases").glob("*.trace.*"), *(ROOT / "tests" / "corpus").glob("*.trace.*")]
    found += [(p.name.removesuffix(".gz"), _opened(p)) for p in sorted(small)]
    return [(name, data) for name, data in found if data]


def _opened(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError):
        return b""


def mutants(seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of mutated files without end; the same ones for the same seed."""
    rng, origins = random.Random(seed), sources()
    while True:
        name, data = rng.choice(origins)
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        events = document.get("traceEvents") if isinstance(document, dict) else document
        if isinstance(events, list) and events and rng.random() < 0.75:
            rows = rng.choice(ROWS)
            first = rng.randrange(max(1, len(events) - rows + 1))
            named = [e for e in events if isinstance(e, dict) and e.get("ph") == "M"][:100]
            window = [json.loads(json.dumps(e)) for e in [*named, *events[first : first + rows]]]
            header = {k: v for k, v in document.items() if k != "traceEvents"} if isinstance(document, dict) else {}
            for _ in range(rng.choice((1, 3, 10, 30, 100))):
                rng.choice(STRUCTURAL)(rng, window, header)
            text = json.dumps({**header, "traceEvents": window}) if isinstance(document, dict) else json.dumps(window)
            data = text.encode("utf-8", "surrogatepass")
        else:
            start = rng.randrange(max(1, len(data) - 60_000))
            data = data[:2000] + data[start : start + 60_000] if len(data) > 62_000 else data
        for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 4))):
            data = rng.choice(TEXTUAL)(rng, data)
        if rng.random() < 0.1:
            name, data = f"{name}.gz", gzip.compress(data)
            data = data[: rng.randrange(len(data))] if rng.random() < 0.5 else data
        yield name, data


def _odd(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(ODD))


def _rows(rng: random.Random, window: list[Any]) -> list[dict[str, Any]]:
    return [e for e in rng.choices(window, k=rng.choice((1, 1, 3, 50))) if isinstance(e, dict)] if window else []


def _field(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    key, value = rng.choice(FIELDS), _odd(rng)
    for row in _rows(rng, window):
        row[key] = value


def _argument(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    key, value = rng.choice(ARGUMENTS), _odd(rng)
    for row in _rows(rng, window):
        row["args"] = {**row["args"], key: value} if isinstance(row.get("args"), dict) else {key: value}


def _drop(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    key = rng.choice(FIELDS)
    for row in _rows(rng, window):
        row.pop(key, None)


def _swap(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    key, rows = rng.choice(FIELDS), _rows(rng, window)
    values = [row.get(key) for row in rows]
    rng.shuffle(values)
    for row, value in zip(rows, values, strict=True):
        row[key] = value


def _lengths(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    factor = rng.choice((0, 0, -1, 1e3, 1e-3, 1e9))
    which = re.compile(rng.choice(("", "ProfilerStep", "aten::", "nccl", "Optimizer", "nn.Module", "Launch|launch")))
    for row in window:
        if isinstance(row, dict) and isinstance(row.get("dur"), int | float) and which.search(str(row.get("name"))):
            row["dur"] = row["dur"] * factor


def _stamps(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    kind, base = rng.choice(("same", "shift", "coarse", "reverse")), 0.0
    for row in window:
        if isinstance(row, dict) and isinstance(row.get("ts"), int | float):
            base = base or float(row["ts"])
            row["ts"] = {"same": base, "shift": row["ts"] + 1e15, "coarse": row["ts"] // 1000 * 1000, "reverse": 2 * base - row["ts"]}[kind]  # fmt: skip


def _remove(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    what = rng.choice(("cat", "name", "ph", "tid", "pid"))
    values = sorted({str(e.get(what)) for e in window if isinstance(e, dict)})
    gone = rng.choice(values) if values else ""
    window[:] = [e for e in window if not (isinstance(e, dict) and str(e.get(what)) == gone)]


def _repeat(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    if window:
        window.extend(rng.choices(window, k=rng.choice((1, 10, 100))))


def _strange(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    window.insert(rng.randrange(len(window) + 1), _odd(rng))


def _header(rng: random.Random, window: list[Any], header: dict[str, Any]) -> None:
    key = rng.choice([*HEADER, *header])
    old = header.get(key)
    if isinstance(old, dict) and old and rng.random() < 0.7:
        header[key] = {**old, rng.choice(list(old)): _odd(rng)}
    elif isinstance(old, list) and old and rng.random() < 0.7:
        header[key] = [_odd(rng) if rng.random() < 0.5 else item for item in old]
    else:
        header[key] = _odd(rng)


STRUCTURAL: tuple[Callable[[random.Random, list[Any], dict[str, Any]], None], ...] = (
    _field, _field, _field, _argument, _argument, _drop, _swap, _lengths, _stamps, _remove, _repeat, _strange, _header,
)  # fmt: skip


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(RAW) + data[at:]


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(max(1, len(data)))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _slice(rng: random.Random, data: bytes) -> bytes:
    low = rng.randrange(len(data) + 1)
    return data[:low] + data[low + rng.choice((1, 10, 100, 1000)) :]


def _double(rng: random.Random, data: bytes) -> bytes:
    low = rng.randrange(len(data) + 1)
    piece = data[low : low + rng.choice((1, 10, 100, 1000))]
    return data[:low] + piece * rng.choice((2, 2, 50)) + data[low + len(piece) :]


def _number(rng: random.Random, data: bytes) -> bytes:
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", data[:200_000]))
    if not found:
        return data
    at = rng.choice(found)
    return data[: at.start()] + rng.choice((b"1e400", b"-1e400", b"9" * 40, b"0", b"-1", b"NaN", b'"7"', b"1.5e3", b"00")) + data[at.end() :]  # fmt: skip


TEXTUAL: tuple[Callable[[random.Random, bytes], bytes], ...] = (_insert, _flip, _cut, _slice, _double, _number)


@dataclass(frozen=True)
class Fault:
    """One command that did not end as it may."""

    command: str
    done: Done

    @property
    def kind(self) -> str:
        """What tells it from others: the last line that names a place or an error."""
        lines = [line.strip() for line in self.done.stderr.splitlines() if line.strip()]
        places = [line for line in lines if line.startswith("File ") and "hpuprof" in line]
        where = re.sub(r'.*/hpuprof/|"', "", places[-1]) if places else ""
        last = re.sub(r"\d+", "N", lines[-1])[:120] if lines else ""
        return f"{self.command}: exit {self.done.exit}: {where}: {last}"


def faults(limited: Limited, name: str, data: bytes, place: Path) -> list[Fault]:
    """Run one file through all commands; return those that fell."""
    folder, out = place / "in", place / "out"
    folder.mkdir()
    out.mkdir()
    path = folder / name
    path.write_bytes(data)
    found = []
    for command, words in COMMANDS.items():
        arguments = [word.format(path=path, folder=folder, out=out) for word in words]
        done = limited(*arguments, cpu_s=20, memory_mib=1500, environment={"HPUPROF_DEBUG": "1"})
        told = "Traceback" in done.stderr or "RuntimeWarning" in done.stderr
        if done.exit not in (0, 1, 2, 3) or told or (done.exit == 1 and command != "check"):
            found.append(Fault(command, done))
    return found


def main() -> int:
    """Run until the time is over; return 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    arguments = parser.parse_args()
    end, count, seen = time.monotonic() + 60 * arguments.minutes, 0, dict[str, int]()
    with Limited() as limited:
        for name, data in mutants(arguments.seed):
            if time.monotonic() > end:
                break
            place = Path(tempfile.mkdtemp())
            try:
                for fault in faults(limited, name, data, place):
                    seen[fault.kind] = seen.get(fault.kind, 0) + 1
                    if seen[fault.kind] == 1:
                        kept = arguments.keep / f"{len(seen):03d}-{fault.command}"
                        kept.mkdir(parents=True, exist_ok=True)
                        (kept / name).write_bytes(data)
                        (kept / "said.txt").write_text(fault.done.stderr, errors="backslashreplace")
                        print(f"mutant {count}: {fault.kind} -> {kept}", flush=True)
            finally:
                shutil.rmtree(place, ignore_errors=True)
            count += 1
    print(f"{count} mutants, {len(COMMANDS)} commands each; {len(seen)} kinds of faults, {sum(seen.values())} in all")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
