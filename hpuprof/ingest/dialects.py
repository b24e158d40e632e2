"""How the framework ran the model, and which writer recorded it, as far as a trace shows.

Families of devices are in `hpuprof.families`; rows and categories of writers in `dialect_*`:

`dialect_rows`         the table of a row; the kind of a device row
`dialect_engines`      the engines of a device, and their lanes
`dialect_activities`   the activity of a host row
`dialect_collectives`  operations among ranks; `dialect_collective_kernels` which kernels do them

*G1*, *G2*, *G3* are the three generations of Habana's traces (merged JSON up to about bridge 1.19; mid-2025; the Kineto
plugin).
"""

from __future__ import annotations

from hpuprof.families import ANY, FAMILIES
from hpuprof.model.schema import Activity

BRIDGE_PROCESSES = {"Synapse Logger": 10_000, "Bridge Logs": 20_000, "Memory Logs": 30_000}
"""Processes that Habana's bridge writes, and their offset from the program's process number."""
SYNAPSE_THREAD = "Synapse/"
"""Prefix of the track names of Synapse's host profiler."""


def generation(family: str, categories: set[str], processes: set[str], names: set[str]) -> str | None:
    """Return the generation of Habana's writers: G1, G2, G3; None for other devices or without evidence."""
    if family != "hpu":
        return None
    lower = {c.lower() for c in categories}
    if lower & {"hpu_op", "privateuse1_runtime"}:
        return "G3"
    if "Synapse Logger" in processes or any(n.endswith("hpu_lazy") for n in names):
        return "G1"
    if {"LaunchRecipeTask", "launch_recipe", "add_new_recipe"} & names:
        return "G2"
    if "runtime" in lower or "Bridge Logs" in processes:
        return "G1"
    return None


def run_mode(family: str, names: set[str], activities: set[Activity]) -> str:
    """Return how the framework ran the model, as far as shown: lazy, lazy+graphs, eager, compile, graphs, unknown."""
    compiled = any(
        n.startswith(("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")) for n in names
    )
    if family == ANY:
        return "unknown"
    if family == "hpu":
        lazy = bool({Activity.ACCUMULATE, Activity.GRAPH_BUILD} & activities) or "LaunchSyncTensorsGraph" in names
        if Activity.GRAPH_LAUNCH in activities:
            return "lazy+graphs"
        if lazy:
            return "lazy"
        return "compile" if compiled else "eager"
    if Activity.GRAPH_LAUNCH in activities:
        return "compile+graphs" if compiled else "graphs"
    return "compile" if compiled else "eager"


def row_per_kernel(family: str, categories: set[str]) -> bool:
    """Whether the tab can show device rows as they are: one row per kernel, joined to calls by correlation."""
    return FAMILIES[family].row_per_kernel and not any(c.lower().startswith("mtia") for c in categories)


THREAD_WORDS = frozenset({
    "autograd", "backward", "compute", "copy", "core", "cpu", "cuda", "data", "dataloader", "default", "device",
    "dma", "dram", "d", "edma", "engine", "event", "external", "fw", "gpu", "graph", "h", "hd", "host", "hpu",
    "id", "internal", "jax", "kdma", "kernel", "launch", "lane", "loader", "main", "mainthread", "memcpy",
    "memory", "memset", "mme", "mtia", "nccl", "nic", "pci", "pdma", "process", "profiler", "pt", "pytorch",
    "python", "queue", "rank", "request", "rocm", "root", "rot", "runtime", "sched", "spans", "spdma", "sram",
    "stream", "synapse", "thread", "threads", "to", "torch", "tpc", "trace", "traces", "trigger", "triggered",
    "unknown", "worker", "x", "xpu",
})  # fmt: skip
"""Usual words in names of threads, streams and engine lanes; a name of other words may be anything, even a secret."""
