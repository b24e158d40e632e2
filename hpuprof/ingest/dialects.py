"""Which device a trace was recorded on and what holds of all such traces. Vendor words live here and in `dialect_*` alone.

`dialect_rows`         which table a row belongs to; what a device row is
`dialect_engines`      the engines of a device, and which lane is which
`dialect_activities`   what the host does in a row
`dialect_collectives`  operations among ranks

*G1*, *G2*, *G3* are the three generations of Habana's traces (merged JSON up to about bridge 1.19; mid-2025; the Kineto plugin).
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuprof.ingest.dialect_engines import HPU_PROCESS, HPU_THREAD
from hpuprof.model.schema import Activity


@dataclass(frozen=True)
class Family:
    """What holds of the traces of one kind of device, whoever asks. `title`: the device where the trace does not name it."""

    title: str = "device"
    correlated: bool = True
    """Device rows carry the correlation of their launch call: one without has no launch in the trace."""
    engine_lanes: bool = False
    """Rows lie on lanes of engines, several for one kernel or collective; the vendor's host profiler has tracks of its own."""
    row_per_kernel: bool = True
    """A kernel is one device row, as the stock TensorBoard tab expects."""
    silent_reads: bool = False
    """Reading one value back shows no runtime call: the operator itself is the wait."""
    copies_upload: bool = False
    """A copy call that no device row tells the direction of is an upload."""
    cuda_properties: bool = False
    """Device properties mean what the stock TensorBoard tab computes from them."""
    intel_tool: bool = False
    """Intel's habana_perf_tool reads such traces."""


FAMILIES: dict[str, Family] = {
    "hpu": Family(
        "HPU",
        correlated=False,
        engine_lanes=True,
        row_per_kernel=False,
        silent_reads=True,
        copies_upload=True,
        intel_tool=True,
    ),
    "mtia": Family("MTIA", row_per_kernel=False),
    "xpu": Family("XPU"),
    "rocm": Family("ROCm device"),
    "cuda": Family("CUDA device", cuda_properties=True),
    "cpu": Family(),
}
BRIDGE_PROCESSES = {"Synapse Logger": 10_000, "Bridge Logs": 20_000, "Memory Logs": 30_000}
"""Processes that Habana's bridge writes, and what it adds to the process number of the program."""
SYNAPSE_THREAD = "Synapse/"
"""Begins the names of the tracks of Synapse's host profiler."""


def device_family(categories: set[str], processes: set[str], threads: set[str], names: set[str]) -> str:
    """Name the kind of device that a trace was recorded on: hpu, cuda, rocm, xpu, mtia, or cpu when nothing shows one."""
    lower = {c.lower() for c in categories}
    if (
        any(HPU_PROCESS.match(p) for p in processes)
        or lower & {"hpu_op", "hpu_meta_op"}
        or any(HPU_THREAD.match(t) for t in threads)
    ):
        return "hpu"
    if {"SyncTensorsGraphInternal", "synLaunchWithExternalEvents", "call:synLaunchWithExternalEvents"} & names:
        return "hpu"
    if any(c.startswith("mtia") for c in lower):
        return "mtia"
    if any(c.startswith("xpu") for c in lower):
        return "xpu"
    if any(n.startswith("hip") for n in names):
        return "rocm"
    if lower & {"cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}:
        return "cuda"
    return "cpu"


def generation(family: str, categories: set[str], processes: set[str], names: set[str]) -> str | None:
    """Tell which generation of Habana's writers made a trace: G1, G2, G3, or None for others and when nothing decides."""
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
    """Name how the framework ran the model, as far as the trace shows it: lazy, lazy+graphs, eager, compile, graphs."""
    compiled = any(
        n.startswith(("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")) for n in names
    )
    if family == "hpu":
        lazy = bool({Activity.ACCUMULATE, Activity.GRAPH_BUILD} & activities)
        if Activity.GRAPH_LAUNCH in activities:
            return "lazy+graphs"
        if lazy:
            return "lazy"
        return "compile" if compiled else "eager"
    if Activity.GRAPH_LAUNCH in activities:
        return "compile+graphs" if compiled else "graphs"
    return "compile" if compiled else "eager"


def row_per_kernel(family: str, categories: set[str]) -> bool:
    """Tell whether a writer's device rows can stand as they are in the tab: one row a kernel, joined to calls by correlation."""
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
"""Words that threads, streams and engine lanes are called by everywhere; a name of other words may be anything, even a secret."""
