"""What is said once device rows are gone? `python -m benchmarks.row_loss TRACE... [--markdown]`

Deletes device rows of whole traces: the last 1 to 95 % by start, a window in the middle, the first ones, all rows of
single graph launches. The answer of the whole trace is the truth: its bound and the first line of its plan. A headline
that names another bound without saying that rows are missing is *wrong*; one that says so is not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hpuprof

DEVICE = {"kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset", "hpu", "privateuse1_device", "xpu_kernel"}
GRAPH = ("cudaGraphLaunch", "hipGraphLaunch")
MISSING = {"HP106", "HP108", "HP105", "HP151", "HP153", "HP154"}
"""Diagnostics that say that rows are missing."""
TAILS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.95)
MIDDLES = (0.05, 0.25, 0.5)


@dataclass(frozen=True)
class Answer:
    """What a report says first. `missing`: whether it says that rows are missing."""

    bound: str
    first: str
    missing: bool
    sentence: str

    @classmethod
    def of(cls, path: Path) -> Answer:
        report = hpuprof.analyze(path, cache="off")
        first = next((r.remedy for r in report.data.plan if r.order == 1), "none")
        codes = set(report.diagnostics["code"])
        return cls(report.headline.bound, first, bool(codes & MISSING), report.headline.sentence)


def damaged(events: list[dict[str, Any]]) -> Iterator[tuple[str, float, list[dict[str, Any]]]]:
    """Yield variants of a trace: what is gone, the share of device rows, and the rest."""
    rows = [i for i, e in enumerate(events) if e.get("ph") == "X" and str(e.get("cat")).lower() in DEVICE]
    if not rows:
        return
    rows.sort(key=lambda i: float(events[i]["ts"]))

    def without(gone: list[int]) -> tuple[float, list[dict[str, Any]]]:
        lost = set(gone)
        return len(lost) / len(rows), [e for i, e in enumerate(events) if i not in lost]

    for share in TAILS:
        yield f"last {share:.0%}", *without(rows[len(rows) - max(1, round(share * len(rows))) :])
    for share in MIDDLES:
        first = round((0.5 - share / 2) * len(rows))
        yield f"middle {share:.0%}", *without(rows[first : first + round(share * len(rows))])
    yield "first 10%", *without(rows[: round(0.1 * len(rows))])
    launches = {
        e["args"]["correlation"] for e in events if e.get("name") in GRAPH and "correlation" in e.get("args", {})
    }
    of_graph: dict[Any, list[int]] = {}
    for i in rows:
        if (number := events[i].get("args", {}).get("correlation")) in launches:
            of_graph.setdefault(number, []).append(i)
    graphs = sorted(of_graph.values())
    for name, gone in (("one graph", graphs[len(graphs) // 2 : len(graphs) // 2 + 1]), ("last graph", graphs[-1:])):
        if gone:
            yield name, *without(gone[0])
    if len(graphs) == 1:
        yield "half of the graph", *without(graphs[0][len(graphs[0]) // 2 :])


def main() -> None:
    """Print a row a variant, and the scores."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_loss", description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    seen: Counter[str] = Counter()
    table = []
    for path in args.traces:
        raw = path.read_bytes()
        document = json.loads((gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace"))
        events = document["traceEvents"] if isinstance(document, dict) else document
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder) / "rank0.json"

            def answer(kept: list[dict[str, Any]], at: Path = at, document: Any = document) -> Answer:
                at.write_text(json.dumps({**document, "traceEvents": kept} if isinstance(document, dict) else kept))
                return Answer.of(at)

            whole = answer(events)
            seen["whole"] += 1
            seen["whole, integrity line"] += whole.missing
            print(
                f"{path.name[:46]:46} whole: {whole.bound}, {whole.first}{' MISSING' if whole.missing else ''}",
                flush=True,
            )
            if whole.missing or whole.bound == "unknown":
                continue
            row = []
            for name, share, kept in damaged(events):
                said = answer(kept)
                same = said.bound == whole.bound and said.first == whole.first
                wrong = said.bound not in (whole.bound, "unknown") and not said.missing
                seen["damaged"] += 1
                seen["wrong"] += wrong
                seen["kept"] += same
                if share <= 0.1:
                    seen["small"] += 1
                    seen["small kept"] += same
                mark = "kept" if same else "WRONG" if wrong else "bound kept" if said.bound == whole.bound else "said"
                row.append(mark)
                if mark != "kept":
                    print(f"    {name:18} {mark:10} {said.bound}, {said.first}: {said.sentence[:110]}", flush=True)
            table.append((path.name, row))
    print(
        f"\n{seen['whole, integrity line']} of {seen['whole']} whole traces carry an integrity line; of {seen['damaged']} damaged ones "
        f"{seen['wrong']} are wrong, {seen['kept']} keep bound and first line; {seen['small kept']} of {seen['small']} that lost at most a tenth",
        file=sys.stderr if args.markdown else sys.stdout,
    )
    if args.markdown:
        for name, row in table:
            print("| " + " | ".join([name, *row]) + " |")


if __name__ == "__main__":
    main()
