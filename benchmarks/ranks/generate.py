"""Writes a simulated run as one small Kineto-like trace per rank, each on its host's wrong clock, with rows lost.

python -m benchmarks.ranks.generate OUT [--ranks 8] [--kind compute] [--style ddp] [--seed 0] ...
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from benchmarks.ranks.simulate import KINDS, Ran, Scenario, Truth, truth
from sample_traces.generator import kineto
from sample_traces.generator.rows import Row, kineto_layout, write_text

EPOCH_NS = 1_790_000_000_000_000_000
BASE_NS = 1_782_967_788_000_000_000
_BYTES_PER_ELEMENT = 2


def local_ns(run: Truth, host: int, true_ns: np.ndarray) -> np.ndarray:
    """Return what a host's clock shows: its stamp t is true when t + offset + drift * (t - middle) is the time."""
    o, d = run.offsets[host], run.drifts[host]
    return (true_ns - o + d * run.middle) / (1 + d)


def write(run: Truth, folder: Path) -> None:
    """Write all ranks' traces."""
    s = run.scenario
    for rank, rows in enumerate(run.rows):
        host = rank // s.per_host
        header = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Simulated", "totalGlobalMem": 80 << 30}],
            "distributedInfo": kineto.distributed("nccl", rank, s.ranks, config="cuda:nccl"),
            "host_name": f"node{host:03d}",
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
        }
        path = folder / f"node{host:03d}_{1000 + rank}.{EPOCH_NS + rank}.pt.trace.json.gz"
        write_text(path, kineto_layout(header, path.name).text(_rows(run, rank, host, rows)))


def _rows(run: Truth, rank: int, host: int, rows: list[Ran]) -> list[Row]:
    s = run.scenario
    rng = np.random.default_rng((s.seed, rank))
    start = EPOCH_NS - BASE_NS + np.rint(local_ns(run, host, np.array([r.start for r in rows]))).astype(np.int64)
    end = EPOCH_NS - BASE_NS + np.rint(local_ns(run, host, np.array([r.end for r in rows]))).astype(np.int64)
    lost = rng.random(len(rows)) < s.lost
    pid = 1000 + rank
    out: list[Row] = []
    for row, b, e, gone in zip(rows, start.tolist(), end.tolist(), lost.tolist(), strict=True):
        if gone and row.thread != "step":
            continue
        if row.thread in ("compute", "comm"):
            args = {"correlation": row.launch, **(_collective(row.comm, s) if row.comm else {})}
            out.append(kineto.device(row.name, 7 if row.thread == "compute" else 20, b, e - b, args))
        elif row.name.startswith("cuda"):
            out.append(kineto.runtime(row.name, (pid, pid), b, e - b, correlation=row.launch))
        else:
            host_cat = "python_function" if row.name.startswith("<") else "cpu_op"
            cat = "user_annotation" if row.thread == "step" else host_cat
            out.append(Row("X", row.name, pid, pid, b, e - b, cat))
    return out


def _collective(comm: tuple[int, str, int], s: Scenario) -> dict[str, object]:
    """Return the arguments of a collective's kernel: its operation and what goes in and comes out on a rank."""
    number, op, size = comm
    whole = size // _BYTES_PER_ELEMENT
    name = {"AllReduce": "allreduce", "AllGather": "_allgather_base", "ReduceScatter": "_reduce_scatter_base"}[op]
    elements = (whole // s.ranks if op == "AllGather" else whole, whole // s.ranks if op == "ReduceScatter" else whole)
    args = kineto.collective(name, elements, "BFloat16", s.ranks)
    return args | {"Seq": 40 + number} if s.numbered else args


def main() -> None:
    """Write one scenario; its truth goes to truth.json beside the traces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for f in fields(Scenario):
        if isinstance(f.default, bool):
            parser.add_argument(f"--{f.name}", action="store_true")
        else:
            kwargs = {"choices": KINDS} if f.name == "kind" else {"type": type(f.default)}
            parser.add_argument(f"--{f.name.replace('_', '-')}", default=f.default, **kwargs)
    values = vars(parser.parse_args())
    folder = values.pop("out")
    run, _ = truth(Scenario(**values))
    write(run, folder)
    facts = {"scenario": asdict(run.scenario), "straggler": run.straggler,
             "offset_ns": run.offsets.tolist(), "drift": run.drifts.tolist(), "steps_ns": run.walls.tolist()}  # fmt: skip
    (folder / "truth.txt").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
