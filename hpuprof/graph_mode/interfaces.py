"""Which interface captures which region on which device, and the code to type. Owns the vendors' names for graph mode.

Sources: the HPU Graphs page and `hpu/graphs.py` of bridge 1.19 (lazy mode only; ModuleCacher caches while training with
gradients; `wrap_in_hpu_graph` is its counterpart for inference); PyTorch's notes on CUDA graphs; `torch.xpu.graphs` of
torch 2.13; vLLM's `vllm.config.compilation` (0.11 and later) and, for Gaudi, its pages on bucketing and warm-up;
SGLang's server arguments; TensorRT-LLM's LLM API. Lazy mode is the vendor's legacy mode: in
eager mode, `torch.compile(backend="hpu_backend")` makes graphs.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, field

from hpuprof.graph_mode.candidates import RegionName

if TYPE_CHECKING:
    from jinja2 import Template


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
    inputs: tuple[str, ...] = field(default=())  # shapes of the model's inputs
    workload: str = "training"
    server: str = ""

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
_INSTANCE = re.compile(r"([A-Za-z_]\w*?)_(\d+)")
_ACCELERATOR = {"cuda": "cuda", "rocm": "cuda", "xpu": "xpu"}


def api_name(situation: Situation, region: RegionName) -> str:
    """Return the interface for a region on this device in this mode."""
    if situation.serves:
        return _OPTION[situation.server]
    if situation.family == "hpu":
        if not situation.mode.startswith("lazy"):
            return 'torch.compile(backend="hpu_backend")'
        if not situation.trains:
            return "wrap_in_hpu_graph"
        if region.wraps_modules:
            return "ModuleCacher"
        return "HPUGraph"
    device = _ACCELERATOR.get(situation.family, "cuda")
    if situation.mode == "compile" and region.kind != "optimizer":
        return 'torch.compile(mode="reduce-overhead")'
    if region.wraps_modules and situation.trains:
        return f"torch.{device}.make_graphed_callables"
    return f"torch.{device}.graph"


def note_for(situation: Situation, region: RegionName, *, drops_sync: bool, asynchronous: bool) -> str:
    """Return a note on an option in one sentence, or an empty text."""
    notes = []
    if drops_sync:
        notes.append("requires that the step reads nothing back")
    if asynchronous:
        notes.append("asynchronous=True")
    if situation.family == "hpu" and not situation.mode.startswith("lazy"):
        notes.append("a lower bound: compiling also fuses operators")
    if situation.collectives and situation.trains and region.wraps_modules:
        notes.append("gradients are reduced after the graphed backward, not during it")
    return "; ".join(notes)


def code_for(situation: Situation, region: RegionName, *, asynchronous: bool = False) -> str:
    """Return the code to type for a region, with the trace's modules, shapes and arguments."""
    lazy = situation.family == "hpu" and situation.mode.startswith("lazy")
    if situation.serves:
        interface = "server"
    elif situation.family == "hpu" and not lazy:
        interface = "hpu_eager"
    elif situation.trains:
        interface = "hpu_lazy" if lazy else "stream_capture"
    else:
        interface = "inference_hpu_lazy" if lazy else "inference"
    code = _snippet(f"{interface}.py.j2").render(
        s=situation,
        region=region,
        asynchronous=asynchronous,
        device=_ACCELERATOR.get(situation.family, "cuda"),
        targets=_targets(situation, region),
    )
    return code.rstrip("\n")


@cache
def _snippet(name: str) -> Template:
    """Load a template of code to type."""
    import jinja2

    snippets = jinja2.Environment(
        loader=jinja2.PackageLoader("hpuprof.graph_mode", "snippets"),
        autoescape=False,  # noqa: S701  Python source, no markup
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return snippets.get_template(name)


def _targets(s: Situation, region: RegionName) -> list[tuple[str, str]]:
    """Return Python variables for the modules to wrap, and the lines that find them in the model.

    Traces name an instance Class_k (the k-th of its class by first use), or by its qualified name.
    """
    names = list(s.modules) if region.module is None else [region.module]
    if region.kind == "model" or not names:
        return [("model", "")]
    out = []
    for name in names:
        instance = _INSTANCE.fullmatch(name)
        variable = re.sub(r"\W+", "_", name).lower()
        if instance:
            found = f'[m for m in model.modules() if type(m).__name__ == "{instance.group(1)}"][{instance.group(2)}]'
        else:
            found = f'model.get_submodule("{name}")'
        out.append((variable, f"{variable} = {found}"))
    return out
