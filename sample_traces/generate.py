"""Write the generated samples and their entries in ``manifest.json``.

Run ``python sample_traces/generate.py`` (Python 3.10 or newer, standard library only). The files are the
same to the byte on every run. ``--check`` writes to a temporary folder instead and fails when a committed
file differs.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from generator import g1, g2, g3, hw_csv, intervals, manifest, ranks, synapse_log, to_fix
from generator.schedule import Schedule
from generator.session import Session

ROOT = Path(__file__).resolve().parent
COMMAND = "python sample_traces/generate.py"
PROVENANCE = (
    "Simulated; not recorded on a Gaudi. Names, fields and layout of the rows follow the published sources "
    "of the vendor's PyTorch bridge "
    "and tools and of Kineto; all times come from the simulation."
)
Expected = dict[str, object]
Maker = Callable[[Path], Expected]
_FP32 = (
    "Device-bound by products in fp32: bf16 saves most, for other numerics; the read of the loss makes the host wait "
    "for the device in each step, and costs a tenth of it."
)
_ITEM = (
    "Input-bound: single-process data loading takes half of each step; three reads of a value and one wait for the "
    "device keep the device from working meanwhile."
)
_UPDATES = (
    "Host-bound: the optimizer updates each parameter by an operator of its own, and the launch thread enqueues more "
    "of them than the device has work for; three operators on lists of parameters do the same."
)
_MARKS = (
    "Host-bound: the graph is flushed after each part of the model, seven times a step; each flush ends a graph that "
    "is launched by itself, and two of them are enough."
)


def _steps(session: Session, source: str, bound: str, cause: str, story: str) -> Expected:
    return {
        "steps_total": len(session.schedule.steps),
        "step_source": source,
        "last_step_is_partial": source == "lightning",
        **session.schedule.expected(),
        "bound": bound,
        "main_idle_cause": cause,
        "story": story,
    }


def _lazy(folder: Path) -> Expected:
    story = (
        "Host-bound: after the first step, which compiles one graph, the device idles about two thirds of "
        "each step while the host "
        "accumulates operators; the data loader and copies are small, so HPU graphs would help."
    )
    return _steps(g1.lazy(folder), "lightning", "host", "operator_launch", story)


def _replay(folder: Path) -> Expected:
    story = (
        "Device-bound: HPU graph replay is already on and the host waits for room in the launch queue; "
        "more graph capture would not help. "
        "The same training without replay is hpu_g1_lazy."
    )
    return _steps(g1.replay(folder), "lightning", "device", "device_latency", story)


def _eager(folder: Path) -> Expected:
    story = (
        "Input-bound: single-process data loading takes about five sixths of each step and the device "
        "idles meanwhile; "
        "graph capture would not help, loader workers would."
    )
    return _steps(g2.eager(folder), "profiler_step", "input", "data_loader", story)


def _compiled(folder: Path) -> Expected:
    story = (
        "Device-bound: the device is busy about nine tenths of each step; most of its idle time falls into "
        "the blocking .item() at the end."
    )
    return _steps(g3.compiled(folder), "profiler_step", "device", "blocking_read", story)


def _to_fix(name: str, bound: str, cause: str, story: str) -> Maker:
    def make(folder: Path) -> Expected:
        session, fixes = to_fix.fixable(name, folder)
        return _steps(session, "profiler_step", bound, cause, story) | fixes

    return make


def _eight_ranks(folder: Path) -> Expected:
    story = (
        "Communication-bound through a straggler: rank 5 idles in its data loader, the other ranks spend "
        "about half of each step in exposed "
        "all-reduce time waiting for it; the transfers themselves are a tenth of the step."
    )
    sessions = ranks.eight_ranks(folder)
    per_rank = {}
    for rank, session in sessions.items():
        cause = "data_loader" if rank == ranks.STRAGGLER else "operator_launch"
        per_rank[str(rank)] = {**session.schedule.expected(), "main_idle_cause": cause}
    return {
        "steps_total": ranks.STEPS,
        "step_source": "profiler_step",
        "last_step_is_partial": False,
        "bound": "communication",
        "main_idle_cause": "data_loader",
        "straggler_rank": ranks.STRAGGLER,
        "story": story,
        "per_rank": per_rank,
    }


def _hw_csv(folder: Path) -> Expected:
    schedule: Schedule = hw_csv.hardware_csv(folder)
    activities = schedule.of_kind("compute", "copy")
    schedule.steps = [(min(s for s, _ in activities), max(e for _, e in activities))]
    totals = {name: value[0] for name, value in schedule.expected().items() if isinstance(value, list)}
    totals["window_ns"] = totals.pop("step_wall_ns")
    del totals["step_until_done_ns"]  # no host, so no steps
    assert totals["device_busy_ns"] == intervals.length(activities)
    story = (
        "Only engine times: the format has no host rows and no steps; edges pair to slices, command fetches "
        "and counters are no activity."
    )
    return {
        "steps_total": 0,
        "step_source": None,
        **totals,
        "activity_slices": len(schedule.activities),
        "story": story,
    }


def _synapse_log(folder: Path) -> Expected:
    story = "Host rows only: device not traced; both cut rows are reported, not guessed."
    return {**synapse_log.synapse_log(folder), "story": story}


#: Name, maker, ranks, device, mode, and the version of the format.
SAMPLES: tuple[tuple[str, Maker, int, str, str, str], ...] = (
    ("hpu_g1_lazy", _lazy, 1, "GAUDI2", "lazy", "Habana bridge 1.19 (JSON merge)"),
    (
        "hpu_g1_lazy_graph_replay",
        _replay,
        1,
        "GAUDI2",
        "lazy, HPU graph replay",
        "Habana bridge 1.19 (JSON merge)",
    ),
    (
        "hpu_g2_eager",
        _eager,
        1,
        "GAUDI2",
        "eager",
        "Habana bridge of mid-2025 (JSON merge, no Synapse Logger)",
    ),
    ("hpu_g3_compile", _compiled, 1, "GAUDI2", "torch.compile", "Kineto plug-in"),
    ("hpu_g3_lazy_8_ranks", _eight_ranks, 8, "GAUDI2", "lazy, distributed", "Kineto plug-in"),
    (
        "hpu_g3_lazy_fp32",
        _to_fix("hpu_g3_lazy_fp32", "device", "operator_launch", _FP32),
        1,
        "GAUDI2",
        "lazy",
        "Kineto plug-in",
    ),
    (
        "hpu_g2_eager_item",
        _to_fix("hpu_g2_eager_item", "input", "data_loader", _ITEM),
        1,
        "GAUDI2",
        "eager",
        "Habana bridge of mid-2025 (JSON merge, no Synapse Logger)",
    ),
    (
        "hpu_g3_eager_updates",
        _to_fix("hpu_g3_eager_updates", "host", "launch_thread", _UPDATES),
        1,
        "GAUDI2",
        "eager",
        "Kineto plug-in",
    ),
    (
        "hpu_g1_lazy_marks",
        _to_fix("hpu_g1_lazy_marks", "host", "operator_launch", _MARKS),
        1,
        "GAUDI2",
        "lazy",
        "Habana bridge 1.19 (JSON merge)",
    ),
    ("hpu_hw_csv", _hw_csv, 1, "GAUDI3", "unknown", "hardware profiler CSV"),
    ("hpu_synapse_logger", _synapse_log, 1, "unknown", "lazy", "Synapse Logger file"),
)


def generate(root: Path) -> list[dict[str, object]]:
    """Write every generated sample below ``root``; return their manifest entries."""
    entries = []
    for name, maker, rank_count, device, mode, layout in SAMPLES:
        expected = maker(root / name)
        entries.append(
            {
                "name": name,
                "kind": "generated",
                "files": manifest.file_entries(root / name, root),
                "made_by": COMMAND,
                "provenance": PROVENANCE,
                "format": layout,
                "versions": {"torch": None, "lightning": None, "python": None},
                "licence": manifest.LICENCE,
                "ranks": rank_count,
                "device": device,
                "mode": mode,
                "expected": expected,
            }
        )
    return entries


def check(root: Path) -> list[str]:
    """Generate again elsewhere; return the paths of committed files whose content differs or that are missing.

    Contents are compared uncompressed, because another zlib may pack the same text differently.
    """
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        paths = sorted(p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file())
        stale = [p for p in paths if not (root / p).exists() or _content(root / p) != _content(fresh / p)]
    return [p.as_posix() for p in stale]


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def main() -> int:
    """Write or check the samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with the committed files instead of writing them"
    )
    if parser.parse_args().check:
        stale = check(ROOT)
        print("\n".join(f"differs: {path}" for path in stale) or "all generated samples are up to date")
        return 1 if stale else 0
    manifest.update(ROOT / "manifest.json", generate(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
