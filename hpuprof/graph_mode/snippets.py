"""The code to type for a region: how the interfaces of graph mode are called, with the trace's modules and shapes.

Which interface, and the sources of what they are called: `interfaces`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpuprof.families.family import NO_GRAPHS
from hpuprof.families.graph_apis import HPU_EAGER, HPU_LAZY
from hpuprof.graph_mode.interfaces import Situation
from hpuprof.graph_mode.region_names import RegionName

_INSTANCE = re.compile(r"([A-Za-z_]\w*?)_(\d+)")
_LAZY_COLLECTIVES = "# before starting Python: PT_HPU_ENABLE_LAZY_COLLECTIVES=true"
_OR_COMPILE = '# or: model = torch.compile(model, mode="reduce-overhead")  # fuses as well'
_COMPILE_OPTIMIZER = 'optimizer.step = torch.compile(optimizer.step, backend="hpu_backend")'
_NEXT_BATCH = ("    static_x.copy_(x, non_blocking=True)", "    static_y.copy_(y, non_blocking=True)")
_FORWARD_BACKWARD = ("    loss = loss_fn(model(static_x), static_y)", "    loss.backward()")
_DDP = "model = torch.nn.parallel.DistributedDataParallel(model)"


def code_for(situation: Situation, region: RegionName, *, asynchronous: bool = False) -> str:
    """Return the code to type for a region, with the trace's modules, shapes and arguments."""
    lazy, compiled = situation.graphs is HPU_LAZY, situation.graphs is HPU_EAGER
    if situation.serves:
        text = _SERVERS.get(situation.server) or (_VLLM_HPU if lazy or compiled else _VLLM)
        return text.rstrip("\n")
    lines: Iterable[str]
    if situation.graphs is NO_GRAPHS:
        lines = ()
    elif compiled:
        lines = _hpu_eager(situation, region)
    elif lazy and situation.trains:
        lines = _hpu_lazy(situation, region, asynchronous=asynchronous)
    elif lazy:
        lines = _inference_hpu_lazy(situation)
    else:
        lines = _stream_capture(situation, region) if situation.trains else _inference(situation)
    return "\n".join(lines)


def _when(holds: object, *lines: str) -> tuple[str, ...]:
    return lines if holds else ()


def _shapes(s: Situation) -> str:
    return f"  # input shapes in the trace: {'; '.join(s.inputs)}" if s.inputs else ""


def _last_batch(s: Situation) -> str:
    return "drop_last=True" if s.last_batch else "drop_last=True keeps all batches of one shape"


def _graphs(s: Situation) -> int:
    return s.max_graphs or max(1, s.shapes)


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


def _hpu_eager(s: Situation, region: RegionName) -> Iterable[str]:
    yield "# HPU Graphs exist only in lazy mode, the vendor's legacy mode; in eager mode, torch.compile makes graphs."
    if region.kind == "optimizer":
        yield _COMPILE_OPTIMIZER
        return
    if region.kind in ("modules", "module"):
        for target, lookup in _targets(s, region):
            yield from _when(lookup, lookup)
            yield f'{target}.compile(backend="hpu_backend"){_shapes(s)}'
    else:
        yield f'model = torch.compile(model, backend="hpu_backend"){_shapes(s)}'
    if region.kind == "step" and s.trains:
        yield _COMPILE_OPTIMIZER
    if s.shapes > 1:
        yield f"# {s.shapes} input signatures: each compiles separately; pad to a few shapes, or use dynamic=True"
    if s.collectives and s.trains:
        yield f"{_DDP}  # around the compiled module"


def _hpu_lazy(s: Situation, region: RegionName, *, asynchronous: bool) -> Iterable[str]:
    yield from _when(s.collectives, _LAZY_COLLECTIVES)
    yield from ("import habana_frameworks.torch.core as htcore", "")
    if region.wraps_modules:
        yield f"# {_last_batch(s)}{_shapes(s)}"
        more = ", asynchronous=True" if asynchronous else ""
        more += ", have_grad_accumulation=True" if s.accumulates else ""
        for target, lookup in _targets(s, region):
            yield from _when(lookup, lookup)
            yield f"htcore.hpu.ModuleCacher(max_graphs={_graphs(s)})(model={target}, inplace=True{more})"
        yield from _when(s.collectives, f"{_DDP}  # after ModuleCacher, never before")
        yield from (
            "for x, y in train_loader:",
            '    x, y = x.to("hpu", non_blocking=True), y.to("hpu", non_blocking=True)',
            "    htcore.mark_step()",
            "    optimizer.zero_grad(set_to_none=True)",
            "    loss = loss_fn(model(x), y)",
            "    loss.backward()",
            "    htcore.mark_step()",
            "    optimizer.step()",
            "    htcore.mark_step()",
        )
        return
    batch = '(t.to("hpu") for t in next(iter(train_loader)))'
    yield from (
        f"static_x, static_y = {batch}  # {_last_batch(s)}{_shapes(s)}",
        "for _ in range(3):  # compile the recipes before capturing",
        "    optimizer.zero_grad(set_to_none=True)",
        "    loss_fn(model(static_x), static_y).backward()",
        "    optimizer.step()",
        "    htcore.mark_step()",
        "graph = htcore.hpu.HPUGraph()",
        "optimizer.zero_grad(set_to_none=True)",
        "with htcore.hpu.graph(graph):  # no mark_step inside: each one would split the replay",
    )
    yield from _when(region.kind != "optimizer", *_FORWARD_BACKWARD)
    yield from _when(region.kind != "forward+backward", "    optimizer.step()")
    yield "for x, y in train_loader:"
    own = ('    loss_fn(model(x.to("hpu")), y.to("hpu")).backward()', "    htcore.mark_step()")
    yield from own if region.kind == "optimizer" else _NEXT_BATCH
    yield f"    graph.replay({'asynchronous=True' if asynchronous else ''})"
    yield from _when(region.kind == "forward+backward", "    optimizer.step()", "    htcore.mark_step()")


def _stream_capture(s: Situation, region: RegionName) -> Iterable[str]:
    device = s.graphs.module
    what = f"{_last_batch(s)}{_shapes(s)}"
    if s.mode == "compile" and region.kind != "optimizer":
        yield f'model = torch.compile(model, mode="reduce-overhead")  # {what}'
        return
    yield f'static_x, static_y = (t.to("{device}") for t in next(iter(train_loader)))  # {what}'
    if region.wraps_modules:
        for target, lookup in _targets(s, region):
            sample = f"sample = ...  # a tensor like the input of {target}, with the same requires_grad"
            yield from _when(lookup, lookup, sample)
            given = "sample" if lookup else "static_x"
            yield f"torch.{device}.make_graphed_callables({target}, ({given},))  # replaces its forward in place"
        yield from _when(s.collectives, f"{_DDP}  # after graphing, with 11 warm-up steps")
        yield from _when(region.kind == "model", _OR_COMPILE)
        return
    yield from (
        f"# {s.optimizer or 'the optimizer'}: set capturable=True to keep its step count on the device",
        f"side = torch.{device}.Stream()",
        f"side.wait_stream(torch.{device}.current_stream())",
        f"with torch.{device}.stream(side):  # warm up away from the default stream",
        f"    for _ in range({11 if s.collectives else 3}):",
        "        optimizer.zero_grad(set_to_none=True)",
        "        loss_fn(model(static_x), static_y).backward()",
        "        optimizer.step()",
        f"torch.{device}.current_stream().wait_stream(side)",
        f"graph = torch.{device}.{s.graphs.graph}()",
    )
    yield from _when(region.kind != "optimizer", "optimizer.zero_grad(set_to_none=True)")
    yield f"with torch.{device}.graph(graph):"
    yield from _when(region.kind in ("step", "forward+backward"), *_FORWARD_BACKWARD)
    yield from _when(region.kind in ("step", "optimizer"), "    optimizer.step()")
    yield "for x, y in train_loader:"
    if region.kind == "optimizer":
        yield "    optimizer.zero_grad(set_to_none=False)  # in place; with foreach=True, all at once"
        yield "    loss_fn(model(x), y).backward()"
        yield "    graph.replay()"
    else:
        yield from (*_NEXT_BATCH, "    graph.replay()  # the loss of this batch is in `loss`")
        yield from _when(region.kind == "forward+backward", "    optimizer.step()")


def _inference(s: Situation) -> Iterable[str]:
    device = s.graphs.module
    if s.mode == "compile":
        return (f'model = torch.compile(model.eval(), mode="reduce-overhead"){_shapes(s)}',)
    return (
        "model.eval()",
        f'static_x = next(iter(requests)).to("{device}"){_shapes(s)}',
        "with torch.inference_mode():",
        f"    side = torch.{device}.Stream()",
        f"    side.wait_stream(torch.{device}.current_stream())",
        f"    with torch.{device}.stream(side):  # warm up away from the default stream",
        "        for _ in range(3):",
        "            model(static_x)",
        f"    torch.{device}.current_stream().wait_stream(side)",
        f"    graph = torch.{device}.{s.graphs.graph}()",
        f"    with torch.{device}.graph(graph):  # one graph for each shape: pad to a few",
        "        static_y = model(static_x)",
        "    for x in requests:",
        "        static_x.copy_(x, non_blocking=True)",
        "        graph.replay()  # the answer is in static_y",
        _OR_COMPILE,
    )


def _inference_hpu_lazy(s: Situation) -> Iterable[str]:
    return (
        *_when(s.collectives, _LAZY_COLLECTIVES),
        "import habana_frameworks.torch as ht",
        "",
        f"# One graph for each input shape: pad to a few.{_shapes(s)}",
        f"model = ht.hpu.wrap_in_hpu_graph(model.eval(), max_graphs={_graphs(s)})",
        "with torch.inference_mode():",
        "    for x in requests:",
        '        y = model(x.to("hpu", non_blocking=True))',
        "        ht.core.mark_step()",
    )


_SGLANG = """\
import sglang

# As a server: drop --disable-cuda-graph, and set --cuda-graph-max-bs.
engine = sglang.Engine(model_path=..., disable_cuda_graph=False, cuda_graph_max_bs=32)  # the largest batch that decodes
"""
_TENSORRT_LLM = """\
from tensorrt_llm import LLM
from tensorrt_llm.llmapi import CudaGraphConfig

# max_batch_size: the largest batch that decodes; padding lets batches between two sizes replay as well
llm = LLM(model=..., cuda_graph_config=CudaGraphConfig(max_batch_size=32, enable_padding=True))
"""
_VLLM_HPU = """\
# before starting Python: PT_HPU_LAZY_MODE=1 (HPU Graphs exist in lazy mode only) VLLM_SKIP_WARMUP=false
# Warm-up captures one graph per bucket, and a step outside of all buckets compiles: let them cover what is served with
# VLLM_PROMPT_BS_BUCKET_MAX, VLLM_DECODE_BS_BUCKET_MAX and VLLM_DECODE_BLOCK_BUCKET_MAX.
from vllm import LLM

llm = LLM(model=..., enforce_eager=False)  # as a server: drop --enforce-eager
"""
_VLLM = """\
from vllm import LLM

llm = LLM(
    model=...,
    enforce_eager=False,  # as a server: drop --enforce-eager
    compilation_config={
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32],  # batch sizes of decode steps; larger ones run without graphs
    },
)
"""
_SERVERS = {"sglang": _SGLANG, "tensorrt_llm": _TENSORRT_LLM}
