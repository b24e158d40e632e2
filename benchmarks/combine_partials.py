"""Combine the partial results of many ranks in one process, and say how long it took. Runs in hpuprof's environment.

`combine_partials.py make TRACE N FILE` derives N partials from one trace; `combine_partials.py run FILE` combines them and
prints one line of JSON. Two processes, so that the second one's memory is that of combining alone.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import msgspec


def make(trace: str, count: int, out: Path) -> None:
    """Write `count` packed partials: those of one trace, with step times that differ from rank to rank."""
    from hpuprof.ingest.discover import discover
    from hpuprof.ingest.read import read_trace
    from hpuprof.model.partial_codec import PackedPartial
    from hpuprof.pipeline import reduce_trace

    file = discover([trace])[0][0]
    base = reduce_trace(read_trace(file.path), file)
    replace = msgspec.structs.replace
    packed = []
    for rank in range(count):
        file = replace(base.file, path=f"rank{rank:05d}.json", world_size=count)
        steps = [replace(s, wall_ns=s.wall_ns + 1000 * ((rank * 7919 + s.step * 104_729) % 1000)) for s in base.steps]
        packed.append(PackedPartial.of(replace(base, file=file, steps=steps)).to_bytes())
    out.write_bytes(msgspec.msgpack.encode(packed))


def run(source: Path) -> None:
    """Combine and render, as `analyze` does once every file is reduced."""
    from hpuprof.ingest.discover import Identity
    from hpuprof.model.partial_codec import PackedPartial
    from hpuprof.options import AnalyzeOptions
    from hpuprof.render.json import dumps
    from hpuprof.report.combine import combine
    from hpuprof.report.model import Report

    texts = msgspec.msgpack.decode(source.read_bytes(), type=list[bytes])
    began = time.perf_counter()
    results = [PackedPartial.from_bytes(text) for text in texts]
    identities = [Identity(rank) for rank in range(len(texts))]
    limit = AnalyzeOptions().table_rows
    data = combine(identities, results, [], version="", table_rows=limit)
    combined = time.perf_counter()
    report = dumps(Report(data))
    told = {
        "ranks": len(data.ranks),
        "steps": sum(row.steps_total for row in data.ranks),
        "partial_bytes": sum(map(len, texts)) // max(1, len(texts)),
        "combine_s": combined - began,
        "render_s": time.perf_counter() - combined,
        "report_bytes": len(report),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        run(Path(sys.argv[2]))
