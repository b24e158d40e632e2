"""What each host thread is for: main, autograd, launch, data loader, other."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import Activity, HostKind, Role
from hpuprof.model.trace import Trace

# What the autograd engine runs; before torch 1.12 its own `evaluate_function` rows are missing.
BACKWARD = re.compile(r"^(?:autograd::engine::evaluate_function|torch::autograd::)|Backward\d*$")


def track_roles(trace: Trace) -> npt.NDArray[np.int8]:
    """Return the `Role` of each track, shape `(len(trace.tracks),)`; 0 for tracks without host rows.

    Tracks of one OS thread (python rows, bridge rows) share a role. *Main* is the thread with the most step markers, else
    the one with most operators that is not named an autograd or worker thread. *Launch* threads enqueue device work and
    run no operators. Synapse's own tracks belong to the thread that made the calls, and are *other* where that is not plain; a
    bare Synapse Logger file names no threads at all, but its tracks are the OS's.
    """
    count = len(trace.tracks)
    roles = np.zeros(count, dtype=np.int8)
    if not len(trace.host):
        return roles
    host = trace.host

    def per_track(mask: Mask) -> Ints:
        return np.bincount(host.track[mask], minlength=count).astype(np.int64)

    rows = per_track(np.ones(len(host), dtype=bool))
    steps = per_track(host.activity == Activity.STEP)
    ops = per_track(host.kind == HostKind.OP)
    annotations = per_track(host.kind == HostKind.ANNOTATION)
    python = per_track(host.kind == HostKind.PYTHON)
    runtime = per_track(host.kind == HostKind.RUNTIME)
    launches = per_track((host.activity == Activity.LAUNCH) | (host.activity == Activity.GRAPH_LAUNCH))
    threads: dict[str, list[int]] = {}
    threadless = [t.synapse and not t.caller and trace.form != "bare" for t in trace.tracks]
    for i in np.flatnonzero(rows).tolist():
        if not threadless[i]:
            threads.setdefault(trace.tracks[i].runs_on, []).append(i)

    def total(of: Ints, thread: str) -> int:
        return int(of[threads[thread]].sum())

    def named(thread: str, *words: str) -> bool:
        return any(w in trace.tracks[i].thread.lower() for i in threads[thread] for w in words)

    def backward(thread: str) -> bool:
        return named(thread, "autograd")

    candidates = [
        t for t in threads if not backward(t) and not named(t, "pt_data", "dataloader", "pin_memory", "launch")
    ]
    main = max(
        candidates or list(threads),
        key=lambda t: (
            total(steps, t),
            total(annotations, t),
            total(python, t) > 0,
            total(ops, t),
            total(runtime, t),
            t,
        ),
        default=None,
    )
    autograd_names = {i for i, n in enumerate(trace.names) if BACKWARD.search(n)}
    evaluates = per_track(
        (host.kind == HostKind.OP)
        & np.isin(host.name, np.fromiter(autograd_names, dtype=np.int64, count=len(autograd_names)))
    )
    for thread, members in threads.items():
        if thread == main:
            role = Role.MAIN
        elif backward(thread) or total(evaluates, thread):
            role = Role.AUTOGRAD
        elif named(thread, "pt_data", "dataloader", "pin_memory"):
            role = Role.DATA_LOADER
        elif total(launches, thread) and not total(ops, thread):
            role = Role.LAUNCH
        else:
            role = Role.OTHER
        roles[members] = role
    for i in np.flatnonzero(rows).tolist():
        if threadless[i]:
            roles[i] = Role.OTHER
    return roles


def on_host_path(role: npt.NDArray[np.int8]) -> Mask:
    """Return where the program itself runs: on the main or an autograd thread. Takes roles of tracks or of rows."""
    return np.isin(role, (Role.MAIN, Role.AUTOGRAD))
