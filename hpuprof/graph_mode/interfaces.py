"""Which interface captures which region on which device. Owns the vendors' names for graph mode.

Sources: the HPU Graphs page and `hpu/graphs.py` of bridge 1.19 (lazy mode only; ModuleCacher caches while training with
gradients; `wrap_in_hpu_graph` is its counterpart for inference); PyTorch's notes on CUDA graphs; `torch.xpu.graphs` of
torch 2.13; vLLM's `vllm.config.compilation` (0.11 and later) and, for Gaudi, its pages on bucketing and warm-up;
SGLang's server arguments; TensorRT-LLM's LLM API. Lazy mode is the vendor's legacy mode: in
eager mode, `torch.compile(backend="hpu_backend")` makes graphs.
"""

from __future__ import annotations

from msgspec import Struct

from hpuprof.families import FAMILIES
from hpuprof.families.family import NO_GRAPHS, GraphApi
from hpuprof.families.graph_apis import HPU_EAGER, HPU_LAZY
from hpuprof.graph_mode.region_names import RegionName


class Situation(Struct, frozen=True):
    """The facts of the run that the code to type depends on."""

    family: str
    mode: str
    modules: tuple[str, ...] = ()  # outermost modules, or those to wrap
    optimizer: str = ""
    shapes: int = 1  # distinct input signatures of the model
    max_graphs: int | None = None
    accumulates: bool = False  # several backward passes per optimizer step
    collectives: bool = False
    last_batch: bool = False  # the last batch is smaller
    inputs: tuple[str, ...] = ()  # shapes of the model's inputs
    workload: str = "training"
    server: str = ""

    @property
    def graphs(self) -> GraphApi:
        """The device's interface to graphs."""
        return FAMILIES[self.family].graphs_in(self.mode)

    @property
    def trains(self) -> bool:
        """Whether the program computes gradients, as far as is known."""
        return self.workload not in ("serving", "inference")

    @property
    def serves(self) -> bool:
        """Whether a known server captures by itself, so that there is an option to set instead of code to write."""
        return self.workload == "serving" and self.server in _SERVERS and self.family in _SERVERS[self.server]


_SERVERS = {"vllm": ("cuda", "rocm", "hpu"), "sglang": ("cuda", "rocm"), "tensorrt_llm": ("cuda",)}
"""Servers that capture graphs themselves, and the devices on which they do."""
_OPTION = {
    "vllm": "vLLM: enforce_eager=False",
    "sglang": "SGLang: cuda_graph_max_bs",
    "tensorrt_llm": "TensorRT-LLM: cuda_graph_config",
}


def api_name(situation: Situation, region: RegionName) -> str:
    """Return the interface for a region on this device in this mode."""
    if situation.serves:
        return _OPTION[situation.server]
    if situation.graphs is NO_GRAPHS:
        return ""
    if situation.graphs in (HPU_LAZY, HPU_EAGER):
        if situation.graphs is HPU_EAGER:
            return 'torch.compile(backend="hpu_backend")'
        if not situation.trains:
            return "wrap_in_hpu_graph"
        if region.wraps_modules:
            return "ModuleCacher"
        return "HPUGraph"
    device = situation.graphs.module
    if situation.mode == "compile" and region.kind != "optimizer":
        return 'torch.compile(mode="reduce-overhead")'
    if region.wraps_modules and situation.trains:
        return f"torch.{device}.make_graphed_callables"
    return f"torch.{device}.graph"


def note_for(situation: Situation, region: RegionName, *, drops_sync: bool, asynchronous: bool) -> str:
    """Return a note on an option in one sentence, or an empty text."""
    notes = []
    if drops_sync:
        notes.append("requires a step without synchronization points")
    if asynchronous:
        notes.append("asynchronous=True")
    if situation.graphs.by_compiling:
        notes.append("a lower bound: compiling also fuses operators")
    if situation.collectives and situation.trains and region.wraps_modules:
        notes.append("gradients are reduced after the graphed backward, not during it")
    return "; ".join(notes)
