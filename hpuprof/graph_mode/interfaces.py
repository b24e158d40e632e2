"""Which interface captures which region on which device, and the code to type. Owns the vendors' names for graph mode.

Sources: the HPU Graphs page and `hpu/graphs.py` of bridge 1.19 (lazy mode only; ModuleCacher caches while training with gradients);
PyTorch's notes on CUDA graphs; `torch.xpu.graphs` of torch 2.13. Lazy mode is the vendor's legacy mode: in eager mode the way to
graphs is `torch.compile(backend="hpu_backend")`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Situation:
    """What the trace says of the run, as far as the code to type depends on it."""

    family: str
    mode: str
    modules: tuple[str, ...] = ()  # outermost modules, or those to wrap
    optimizer: str = ""
    uploads: int = 2  # tensors copied to the device per step
    shapes: int = 1  # distinct input signatures of the model
    max_graphs: int | None = None
    use_lfu: bool = False
    accumulates: bool = False  # several backward passes per optimizer step
    collectives: bool = False
    last_batch: bool = False  # the last batch is smaller
    inputs: tuple[str, ...] = field(default=())  # shapes of the model's inputs


_INSTANCE = re.compile(r"([A-Za-z_]\w*?)_(\d+)")
_ACCELERATOR = {"cuda": "cuda", "rocm": "cuda", "xpu": "xpu"}


def api_name(situation: Situation, region: str) -> str:
    """Return what to call for a region on this device in this mode."""
    if situation.family == "hpu":
        if not situation.mode.startswith("lazy"):
            return 'torch.compile(backend="hpu_backend")'
        if region == "model" or region.startswith("module"):
            return "ModuleCacher"
        return "HPUGraph"
    device = _ACCELERATOR.get(situation.family, "cuda")
    if situation.mode == "compile" and region != "optimizer":
        return 'torch.compile(mode="reduce-overhead")'
    if region == "model" or region.startswith("module"):
        return f"torch.{device}.make_graphed_callables"
    return f"torch.{device}.graph"


def note_for(situation: Situation, region: str, *, drops_sync: bool, asynchronous: bool) -> str:
    """Return what to know about an option, in one sentence; empty when there is nothing."""
    notes = []
    if drops_sync:
        notes.append("also reads nothing back inside the step")
    if asynchronous:
        notes.append("asynchronous=True")
    if situation.family == "hpu" and not situation.mode.startswith("lazy"):
        notes.append("a lower bound: compiling also fuses operators")
    if situation.collectives and (region == "model" or region.startswith("module")):
        notes.append("gradients are reduced after the graphed backward, not during it")
    return "; ".join(notes)


def code_for(situation: Situation, region: str, *, asynchronous: bool = False) -> str:
    """Return the code to type for a region; names of modules, shapes and arguments are those of the trace."""
    if situation.family == "hpu":
        if situation.mode.startswith("lazy"):
            return _hpu_lazy(situation, region, asynchronous=asynchronous)
        return _hpu_eager(situation, region)
    return _stream_capture(situation, region)


def _shapes(s: Situation) -> str:
    return f"  # input shapes in the trace: {'; '.join(s.inputs)}" if s.inputs else ""


def _targets(s: Situation, region: str) -> list[tuple[str, str]]:
    """Return python names of what to wrap, and the lines that find them in the model.

    Traces name an instance as Class_k (k-th of its class by first use), or by its qualified name.
    """
    names = [region.removeprefix("module:")] if region.startswith("module:") else list(s.modules)
    if region == "model" or not names:
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


def _last_batch(s: Situation) -> str:
    return "drop_last=True" if s.last_batch else "drop_last=True keeps all batches of one shape"


def _hpu_lazy(s: Situation, region: str, *, asynchronous: bool) -> str:
    head = ["import habana_frameworks.torch.core as htcore", ""]
    if s.collectives:
        head = ["# before starting Python: PT_HPU_ENABLE_LAZY_COLLECTIVES=true", *head]
    if region == "model" or region.startswith("module"):
        size = s.max_graphs or max(1, s.shapes)
        arguments = ["inplace=True"]
        arguments += ["asynchronous=True"] if asynchronous else []
        arguments += ["use_lfu=True"] if s.use_lfu else []
        arguments += ["have_grad_accumulation=True"] if s.accumulates else []
        lines = [*head, f"# {_last_batch(s)}{_shapes(s)}"]
        for target, lookup in _targets(s, region):
            lines += [lookup] if lookup else []
            lines.append(f"htcore.hpu.ModuleCacher(max_graphs={size})(model={target}, {', '.join(arguments)})")
        if s.use_lfu:
            lines.append(
                "# use_lfu: call capture_start() before the first steps that show the usual shapes, capture_end() after them"
            )
        if s.collectives:
            lines.append("model = torch.nn.parallel.DistributedDataParallel(model)  # after ModuleCacher, never before")
        lines += [
            "for x, y in train_loader:",
            '    x, y = x.to("hpu", non_blocking=True), y.to("hpu", non_blocking=True)',
            "    htcore.mark_step()",
            "    optimizer.zero_grad(set_to_none=True)",
            "    loss = loss_fn(model(x), y)",
            "    loss.backward()",
            "    htcore.mark_step()",
            "    optimizer.step()",
            "    htcore.mark_step()",
        ]
        return "\n".join(lines)
    body = {
        "step": ["loss = loss_fn(model(static_x), static_y)", "loss.backward()", "optimizer.step()"],
        "forward+backward": ["loss = loss_fn(model(static_x), static_y)", "loss.backward()"],
        "optimizer": ["optimizer.step()"],
    }[region if region in ("step", "forward+backward", "optimizer") else "step"]
    replay = "graph.replay(asynchronous=True)" if asynchronous else "graph.replay()"
    lines = [
        *head,
        f'static_x, static_y = (t.to("hpu") for t in next(iter(train_loader)))  # {_last_batch(s)}{_shapes(s)}',
        "for _ in range(3):  # compile the recipes before capturing",
        "    optimizer.zero_grad(set_to_none=True)",
        "    loss_fn(model(static_x), static_y).backward()",
        "    optimizer.step()",
        "    htcore.mark_step()",
        "graph = htcore.hpu.HPUGraph()",
        "optimizer.zero_grad(set_to_none=True)",
        "with htcore.hpu.graph(graph):  # no mark_step inside: each would be a replay of its own",
        *(f"    {line}" for line in body),
        "for x, y in train_loader:",
        "    static_x.copy_(x, non_blocking=True)",
        "    static_y.copy_(y, non_blocking=True)",
        f"    {replay}",
    ]
    if region == "forward+backward":
        lines += ["    optimizer.step()", "    htcore.mark_step()"]
    if region == "optimizer":
        lines[-3:] = [
            '    loss_fn(model(x.to("hpu")), y.to("hpu")).backward()',
            "    htcore.mark_step()",
            f"    {replay}",
        ]
    return "\n".join(lines)


def _hpu_eager(s: Situation, region: str) -> str:
    lines = [
        "# HPU Graphs exist in lazy mode only, which is the vendor's legacy; in eager mode graphs come from torch.compile."
    ]
    if region == "optimizer":
        return "\n".join([*lines, 'optimizer.step = torch.compile(optimizer.step, backend="hpu_backend")'])
    if region.startswith("module"):
        for target, lookup in _targets(s, region):
            lines += [lookup] if lookup else []
            lines.append(f'{target}.compile(backend="hpu_backend"){_shapes(s)}')
    else:
        lines.append(f'model = torch.compile(model, backend="hpu_backend"){_shapes(s)}')
    if region == "step":
        lines.append('optimizer.step = torch.compile(optimizer.step, backend="hpu_backend")')
    if s.shapes > 1:
        lines.append(f"# {s.shapes} input signatures: each compiles anew; pad to a few shapes, or dynamic=True")
    if s.collectives:
        lines.append("model = torch.nn.parallel.DistributedDataParallel(model)  # around the compiled module")
    return "\n".join(lines)


def _stream_capture(s: Situation, region: str) -> str:
    device = _ACCELERATOR.get(s.family, "cuda")
    acc = f"torch.{device}"
    static = (
        f'static_x, static_y = (t.to("{device}") for t in next(iter(train_loader)))  # {_last_batch(s)}{_shapes(s)}'
    )
    if s.mode == "compile" and region != "optimizer":
        return f'model = torch.compile(model, mode="reduce-overhead")  # {_last_batch(s)}{_shapes(s)}'
    if region == "model" or region.startswith("module"):
        lines = [static]
        for target, lookup in _targets(s, region):
            if lookup:
                lines += [
                    lookup,
                    f"sample = ...  # a tensor like the one that reaches {target}, requires_grad as there",
                ]
            sample = "sample" if lookup else "static_x"
            lines.append(f"{acc}.make_graphed_callables({target}, ({sample},))  # replaces its forward in place")
        if s.collectives:
            lines.append(
                "model = torch.nn.parallel.DistributedDataParallel(model)  # after graphing, with 11 warm-up steps"
            )
        if region == "model":
            lines.append('# or: model = torch.compile(model, mode="reduce-overhead")  # fuses as well')
        return "\n".join(lines)
    optimizer = s.optimizer or "the optimizer"
    lines = [
        static,
        f"# {optimizer}: capturable=True, so that its step count lives on the device",
        f"side = {acc}.Stream()",
        f"side.wait_stream({acc}.current_stream())",
        f"with {acc}.stream(side):  # warm up away from the default stream",
        f"    for _ in range({11 if s.collectives else 3}):",
        "        optimizer.zero_grad(set_to_none=True)",
        "        loss_fn(model(static_x), static_y).backward()",
        "        optimizer.step()",
        f"{acc}.current_stream().wait_stream(side)",
        f"graph = {acc}.{'CUDAGraph' if device == 'cuda' else 'XPUGraph'}()",
    ]
    if region != "optimizer":
        lines.append("optimizer.zero_grad(set_to_none=True)")
    lines.append(f"with {acc}.graph(graph):")
    if region in ("step", "forward+backward"):
        lines += ["    loss = loss_fn(model(static_x), static_y)", "    loss.backward()"]
    if region in ("step", "optimizer"):
        lines.append("    optimizer.step()")
    lines.append("for x, y in train_loader:")
    if region == "optimizer":
        lines += [
            "    loss_fn(model(x), y).backward()  # into the same .grad tensors: zero_grad(set_to_none=False)",
            "    graph.replay()",
        ]
    else:
        lines += [
            "    static_x.copy_(x, non_blocking=True)",
            "    static_y.copy_(y, non_blocking=True)",
            "    graph.replay()  # the loss of this batch is in `loss`",
        ]
        if region == "forward+backward":
            lines.append("    optimizer.step()")
    return "\n".join(lines)
