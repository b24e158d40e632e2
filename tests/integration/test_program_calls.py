"""The replay's own selection of calls against the table of host calls: where they differ, the table is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpuprof.analysis.host_calls import Awaited, HostCallKind
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.program import _calls, _path, build_program
from hpuprof.ingest.read import read_trace
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import HostKind

# What only the replay, and only the table, takes for calls of the program; by file. Lazy mode is not replayed by launches: there
# the replay takes calls inside other ones on another track of the same thread, and what a read flushes, for calls of their own.
ROWS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "hpu_g1_lazy": ({"synMemCopyAsync": 8}, {"copy_hpu_lazy_H2D": 8}),
    "hpu_g1_lazy_graph_replay": (
        {"synLaunchWithExternalEvents": 22, "synMemCopyAsync": 8},
        {"copy_hpu_lazy_H2D": 8},
    ),
    "hpu_g3_lazy_8_ranks": ({"memcpyAsync": 6}, {"copy_hpu_lazy_H2D": 6}),
    "hpu_synapse_logger": ({"synMemCopyAsync": 2}, {"_local_scalar_dense_hpu_lazy": 2}),
    "gaudi-pytorch-bridge__synapse_logger_example_file.json": (
        {"JoinPendingLaunchThread": 9, "LaunchSyncTensorsGraph": 3, "synMemCopyAsync": 3},
        {"HandleViewsD2H": 1, "_local_scalar_dense_hpu_lazy": 2, "copy_hpu_lazy_H2D": 1},
    ),
}
# Calls whose own name says what they copy: the replay knows only what it launched.
KINDS = {
    "mtia_inference_rank_0.json.gz": {
        "read": {"enqueueCommand memcpyDtoHAsync": 32},
        "upload": {"enqueueCommand memcpyHtoDAsync": 67},
    }
}


def views(folder: Path) -> Iterator[tuple[str, RankView]]:
    for path in sorted(folder.rglob("*")):
        if path.name.endswith((".json", ".json.gz")) and not path.name.startswith(("manifest", "memory_timeline")):
            view = RankView.of(read_trace(path))
            if len(view.trace.host):
                yield path.parent.name if path.parent.parent.name == "sample_traces" else path.name, view


def named(view: RankView, rows: Ints) -> dict[str, int]:
    return dict(sorted(Counter(view.trace.names[n] for n in view.trace.host.name[rows].tolist()).items()))


def selected(view: RankView) -> Ints:
    """Host rows of the program's calls: calls into the runtime that lie in no other one."""
    calls = view.calls
    return calls.row[calls.path & ~calls.inside & (view.trace.host.kind[calls.row] == HostKind.RUNTIME)]


def check(folder: Path) -> set[str]:
    """Compare all traces of a folder; return those that differ."""
    differ = set()
    for name, view in views(folder):
        old = _calls(
            view.trace, _path(view.trace, view.roles, view.links)[0], view.links, view.hosts, 0, view.trace.end_ns + 1
        )
        new = selected(view)
        apart = named(view, np.setdiff1d(old, new)), named(view, np.setdiff1d(new, old))
        assert apart == ROWS.get(name, ({}, {})), name
        found = kinds(view)
        assert found == KINDS.get(name, {}), name
        if any(apart) or found:
            differ.add(name)
    return differ


def kinds(view: RankView) -> dict[str, dict[str, int]]:
    """Return where waits, reads and uploads of the replayed steps differ."""
    program, calls = build_program(view), view.calls
    if program is None:
        return {}
    rows = program.row[~program.marker]
    low, high = int(program.step_low[0]), int(program.step_high[-1])
    start = view.trace.host.start[selected(view)]
    np.testing.assert_array_equal(np.sort(rows), selected(view)[(start >= low) & (start < high)])
    at = np.searchsorted(calls.row, rows)
    pairs: dict[str, tuple[Mask, Mask]] = {
        "waits": (program.waits, calls.awaits[at] == Awaited.DEVICE),
        "read": (program.read, calls.kind[at] == HostCallKind.READ),
        "upload": (program.upload, calls.kind[at] == HostCallKind.UPLOAD),
    }
    found = {what: named(view, rows[old[~program.marker] != new]) for what, (old, new) in pairs.items()}
    return {what: names for what, names in found.items() if names}


def test_samples(samples: Path):
    assert check(samples) == {n for n in ROWS if n.startswith("hpu_")}


def test_real_traces(real_traces: Path):
    assert check(real_traces) == {n for n in (*ROWS, *KINDS) if "json" in n}
