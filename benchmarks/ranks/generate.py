"""Writes a simulated run as one small Kineto-like trace per rank, each on its host's wrong clock, with rows lost.

python -m benchmarks.ranks.generate OUT [--ranks 8] [--kind compute] [--style ddp] [--seed 0] ...
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from benchmarks.ranks.simulate import KINDS, Row, Scenario, Truth, truth

EPOCH_NS = 1_790_000_000_000_000_000
BASE_NS = 1_782_967_788_000_000_000
_BYTES_PER_ELEMENT = 2


def local_ns(run: Truth, host: int, true_ns: np.ndarray) -> np.ndarray:
    """Return what a host's clock shows: its stamp t is true when t + offset + drift * (t - middle) is the time."""
    o, d = run.offsets[host], run.drifts[host]
    return (true_ns - o + d * run.middle) / (1 + d)


def write(run: Truth, folder: Path) -> None:
    """Write all ranks' traces."""
    folder.mkdir(parents=True, exist_ok=True)
    s = run.scenario
    members = list(range(s.ranks))
    for rank, rows in enumerate(run.rows):
        host = rank // s.per_host
        header = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Simulated", "totalGlobalMem": 80 << 30}],
            "distributedInfo": {
                "backend": "nccl", "rank": rank, "world_size": s.ranks, "pg_count": 1,
                "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl",
                               "pg_size": s.ranks, "ranks": members}],
            },
            "host_name": f"node{host:03d}",
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
        }  # fmt: skip
        text = json.dumps(header)[:-1] + ', "traceEvents": [\n' + ",\n".join(_events(run, rank, host, rows)) + "\n]}\n"
        path = folder / f"node{host:03d}_{1000 + rank}.{EPOCH_NS + rank}.pt.trace.json.gz"
        with path.open("wb") as out, gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as packed:
            packed.write(text.encode())


def _events(run: Truth, rank: int, host: int, rows: list[Row]) -> list[str]:
    s = run.scenario
    rng = np.random.default_rng((s.seed, rank))
    start = EPOCH_NS - BASE_NS + np.rint(local_ns(run, host, np.array([r.start for r in rows]))).astype(np.int64)
    end = EPOCH_NS - BASE_NS + np.rint(local_ns(run, host, np.array([r.end for r in rows]))).astype(np.int64)
    lost = rng.random(len(rows)) < s.lost
    pid = 1000 + rank
    out = []
    for row, b, e, gone in zip(rows, start.tolist(), end.tolist(), lost.tolist(), strict=True):
        if gone and row.thread != "step":
            continue
        event: dict[str, object] = {"ph": "X", "name": row.name, "pid": pid, "tid": pid}
        if row.thread in ("compute", "comm"):
            stream = 7 if row.thread == "compute" else 20
            args: dict[str, object] = {"device": 0, "stream": stream, "correlation": row.launch}
            if row.comm:
                number, op, size = row.comm
                whole = size // _BYTES_PER_ELEMENT
                inside = whole // s.ranks if op == "AllGather" else whole
                args |= {
                    "Collective name": {"AllReduce": "allreduce", "AllGather": "_allgather_base",
                                        "ReduceScatter": "_reduce_scatter_base"}[op],
                    "In msg nelems": inside,
                    "Out msg nelems": whole if op != "ReduceScatter" else whole // s.ranks,
                    "Group size": s.ranks, "dtype": "BFloat16", "Process Group Name": "0",
                    "Process Group Description": "default_pg",
                    "Process Group Ranks": _ranks(s.ranks),
                }  # fmt: skip
                if s.numbered:
                    args["Seq"] = 40 + number
            event |= {"cat": "kernel", "pid": 0, "tid": stream, "args": args}
        elif row.thread == "step":
            event["cat"] = "user_annotation"
        elif row.name.startswith("cuda"):
            event |= {"cat": "cuda_runtime", "args": {"correlation": row.launch}}
        else:
            event["cat"] = "python_function" if row.name.startswith("<") else "cpu_op"
        head = json.dumps(event)[:-1]
        out.append(f'{head}, "ts": {b // 1000}.{b % 1000:03d}, "dur": {(e - b) // 1000}.{(e - b) % 1000:03d}}}')
    return out


def _ranks(count: int) -> str:
    """Write members as torch does: long lists are shortened."""
    return str(list(range(count))) if count <= 30 else f"[{', '.join(map(str, range(29)))}, ..., {count - 1}]"


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
