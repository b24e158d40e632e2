"""Is what was recorded enough to conclude from? Finds the populations that fooled other tools."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.links import Links
from hpuprof.analysis.steps import Steps
from hpuprof.model.intervals import Intervals, measure
from hpuprof.model.schema import Activity, DeviceKind
from hpuprof.model.trace import Trace, Trouble

ONE_ROW_SHARE = 0.5
ONE_ROW_SHARE_OF_ONE_STEP = 0.9  # within one step a long collective or upload may well hold half of the time
STEP_SHARE = 0.5
REPLAY_SHARE = 0.5
MIN_ROWS = 4  # of fewer rows one may well hold most of the time


def degenerate(trace: Trace, links: Links, steps: Steps, busy: Intervals) -> list[Trouble]:
    """Return the reasons why no conclusion about the device may be drawn; empty when the device rows look sound.

    - HP105: no device rows at all (the device was not traced; that is not an idle device).
    - HP126: no host rows: why the device idled cannot be told.
    - HP106: device rows in fewer than half of the used steps.
    - HP107: one row holds more than half of the device time of the used steps (more than 90 % of a single step).
    - HP108: graph launches whose device rows are missing for more than half of them.
    """
    device = trace.device
    real = device.kind != DeviceKind.MARKER
    if not real.any():
        return [Trouble("HP105", 1, "the trace holds no device rows")]
    found = []
    if not len(trace.host):
        found.append(Trouble("HP126", 1, "the trace holds no host rows"))
    used = steps.used_windows()
    per_step = measure(busy, used.start, used.end)
    with_rows = int((per_step > 0).sum())
    if len(used) >= 2 and with_rows < STEP_SHARE * len(used):
        found.append(Trouble("HP106", with_rows, f"device rows in {with_rows} of {len(used)} used steps"))
    inside = measure(Intervals(used.start, used.end), device.start, device.end)
    longest = int(inside[real].max(initial=0))
    total = int(per_step.sum())
    limit = ONE_ROW_SHARE if len(used) >= 2 else ONE_ROW_SHARE_OF_ONE_STEP
    if int(real.sum()) >= MIN_ROWS and total and longest > limit * total:
        name = trace.names[int(device.name[np.flatnonzero(real)[np.argmax(inside[real])]])]
        found.append(
            Trouble(
                "HP107", 1, f"one row, {name[:80]}, holds {longest / total:.0%} of the device time of the used steps"
            )
        )
    host = trace.host
    replays = np.flatnonzero((host.activity == Activity.GRAPH_LAUNCH) & (host.correlation >= 0))
    if len(replays) >= 2:
        rows = np.bincount(links.launch[links.launch >= 0], minlength=len(host))[replays]
        typical = float(np.percentile(rows, 90))
        missing = int((rows < 0.5 * typical).sum()) if typical > 0 else len(replays)
        if missing > REPLAY_SHARE * len(replays):
            found.append(
                Trouble(
                    "HP108",
                    missing,
                    f"{missing} of {len(replays)} graph launches show few or none of their device rows",
                )
            )
    return found


def synchronous(trace: Trace, links: Links) -> bool:
    """Tell whether launches waited for what they launched: nine in ten linked launch calls end after their device row."""
    linked = np.flatnonzero(links.launch >= 0)
    host = trace.host
    linked = linked[host.activity[links.launch[linked]] == Activity.LAUNCH]
    if len(linked) < 20:
        return False
    return bool(np.mean(host.end[links.launch[linked]] >= trace.device.end[linked]) > 0.9)
