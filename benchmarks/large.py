"""Large traces: some steps of the simulated world, written again and again, each time later.

`python -m benchmarks.large --dialect cuda --size-mb 200 --out FILE` writes one and prints a line of JSON about it. Equal arguments give equal
bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.world import draw, lazy
from benchmarks.world.host import run
from benchmarks.world.machine import Machine
from benchmarks.world.trace import Source, cuda_trace, lazy_trace
from benchmarks.world.training import Shape, build

DIALECTS = ("cuda", "hpu_g1")
_STEP = re.compile(r"(ProfilerStep#)(\d+)")
_JOINS = ("External id", "external id", "correlation")
_IDS = 10**7  # between two turns
_GAP_US = 1000.0
_SIMULATED_BYTES = 10_000_000  # of the steps that are repeated: a few hundred MB while they are simulated
NOISY = Machine(
    host_sigma=0.1, kernel_sigma=0.02, step_sigma=0.01, op_cost_ns=500, python_cost_ns=500, runtime_cost_ns=1000
)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to write. `size_mb`: of the uncompressed text, in units of 10^6 bytes."""

    dialect: str = "cuda"
    size_mb: float = 200
    steps: int = 10
    stacks: bool = False
    rank: int = 0
    world_size: int = 8


@dataclass(frozen=True)
class Written:
    """What was written: bytes before compression, rows."""

    text_bytes: int
    rows: int


def write_trace(spec: Spec, path: Path) -> Written:
    """Write the trace of a spec, gzipped if so named."""
    few, many = (_size(spec, blocks) for blocks in (2, 10))
    per_step = spec.size_mb * 1e6 / spec.steps
    blocks = max(1, round(2 + (per_step - few) / ((many - few) / 8)))
    together = max(
        k for k in range(1, spec.steps + 1) if spec.steps % k == 0 and (k == 1 or k * per_step < _SIMULATED_BYTES)
    )
    return grow(_simulated(spec, blocks, together), path, times=spec.steps // together)


def grow(document: dict[str, Any], path: Path, *, times: int = 0, size_bytes: int = 0) -> Written:
    """Write a trace's rows so often, and up to a size at least, each time with later stamps and step numbers and ids of their own."""
    events = document.pop("traceEvents")
    stamps = [e["ts"] for e in events if e["ph"] == "X"]
    period = max(stamps) - min(stamps) + _GAP_US
    head = json.dumps(document)[:-1] + ', "traceEvents": [\n'
    rows, written, turn = 0, 0, 0
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as out:
        out.write(head)
        while turn < times or written < size_bytes:
            for row in _rows(events, turn, period):
                text = ",\n" + row if rows else row
                rows, written = rows + 1, written + len(text)
                out.write(text)
            turn += 1
        out.write("\n]}\n")
    return Written(len(head) + written + 4, rows)


def _simulated(spec: Spec, blocks: int, steps: int) -> dict[str, Any]:
    """Return the trace of some steps of a model of so many blocks."""
    rng, source = random.Random(f"large {spec.rank}"), Source(spec.rank, spec.world_size)
    if spec.dialect == "cuda":
        # The operator's host time, its kernel and the views inside it: four rows of the host for each of the device.
        shape = Shape(blocks=blocks, sync="each-step", buckets=4, ranks=spec.world_size, stacks=spec.stacks, views=2)
        played = run(build(shape, "transformer", "large"), NOISY, steps=steps, seed=f"large {spec.rank}", profile=True)
        return json.loads(cuda_trace(played, NOISY, source, "large"))
    step = replace(draw.draw_lazy_step(rng, blocks), shapes=(1.0,), order=(0,), named=spec.stacks, read_every=1)
    program = lazy.lazy_program(step, lazy.Bridge(), "eager")
    played = run(program, NOISY, steps=steps, seed=f"large {spec.rank}", profile=True)
    return json.loads(lazy_trace(played, NOISY, source, "large"))


def _size(spec: Spec, blocks: int) -> int:
    """Return the bytes of a step of a model of so many blocks."""
    one, two = (sum(map(len, _rows(_simulated(spec, blocks, steps)["traceEvents"], 0, 0.0))) for steps in (1, 2))
    return two - one


def _rows(events: list[dict[str, Any]], turn: int, period: float) -> Iterator[str]:
    """Return the text of each row, so much later; what names processes and threads comes once."""
    for event in events:
        if event["ph"] == "M":
            if not turn:
                yield json.dumps(event)
            continue
        arguments = event.get("args") or {}
        ids = {key: arguments[key] + turn * _IDS for key in _JOINS if isinstance(arguments.get(key), int)}
        flow = {"id": event["id"] + turn * _IDS} if "id" in event else {}
        name = _STEP.sub(lambda m: f"{m[1]}{int(m[2]) + 1000 * turn}", event["name"])
        moved = {"name": name, "ts": round(event["ts"] + turn * period, 3), "args": arguments | ids}
        yield json.dumps(event | moved | flow)


def main() -> None:
    """Write the file and say what it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialect", choices=DIALECTS, default="cuda")
    parser.add_argument("--size-mb", type=float, default=200, help="size of the uncompressed JSON, in 10^6 bytes")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--stacks", action="store_true", help="rows that name modules")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True, help="a name ending in .json or .json.gz")
    options = vars(parser.parse_args())
    out: Path = options.pop("out")
    print(json.dumps({"file": str(out), **asdict(write_trace(Spec(**options), out))}))


if __name__ == "__main__":
    main()
