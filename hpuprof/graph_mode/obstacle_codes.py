"""Codes for obstacles to graph mode: what they mean, and the fix on each kind of machine. HP3xx."""

from __future__ import annotations

from msgspec import Struct, field

HPU_LAZY, HPU_EAGER, CUDA_LIKE, ANY = "hpu lazy", "hpu eager", "cuda", "any"


class ObstacleCode(Struct, frozen=True, kw_only=True):
    """One obstacle. `fixes`: what to do, by kind of machine; `advice` serves where the kind has no fix."""

    code: str
    title: str
    meaning: str
    advice: str
    fixes: dict[str, str] = field(default_factory=dict)


_ALL = (
    ObstacleCode(
        code="HP301",
        title="Operator with a data-dependent shape",
        meaning="The number of elements that the operator returns is known only after it ran, so the host has to wait "
        "for it, and later shapes change. No captured graph can hold it.",
        advice="Compute on the full shape and mask (`torch.where(mask, x, 0)`, `masked_fill`, "
        "`nonzero_static(size=…)`), or leave the operator outside and graph the parts before and after it.",
        fixes={
            HPU_LAZY: "Use a fixed shape (`torch.where(mask, x, 0)`), or wrap the modules before and after in a "
            "ModuleCacher each, with `htcore.mark_step()` around the operator.",
            HPU_EAGER: 'Use a fixed shape (`torch.where(mask, x, 0)`); otherwise torch.compile(backend="hpu_backend") '
            "breaks its graph here.",
            CUDA_LIKE: "Use a fixed shape (`torch.where(mask, x, 0)`, `nonzero_static(size=…)`), or capture the "
            "modules before and after it separately.",
        },
    ),
    ObstacleCode(
        code="HP302",
        title="Python reads a value back",
        meaning="item(), bool(tensor), .cpu(), tolist() or a comparison makes the host wait until the device has "
        "computed the value. Capture fails at it, and a replay would freeze the value.",
        advice="Keep it on the device (`torch.where`, tensor arithmetic), or read it after the step or only every k-th "
        "step.",
        fixes={
            HPU_LAZY: "Keep the value on the device; log after `replay()` and only every k-th step. Each read also "
            "ends the accumulated graph.",
            HPU_EAGER: "Keep the value on the device; read it after the compiled region and only every k-th step.",
            CUDA_LIKE: "Keep the value on the device; read it after `replay()`, with `.to('cpu', non_blocking=True)` "
            "and only every k-th step.",
        },
    ),
    ObstacleCode(
        code="HP303",
        title="Synchronisation",
        meaning="The host waits for the device, a stream or an event. On CUDA capture fails at it; on HPU it ends the "
        "region.",
        advice="Remove it, or move it after the region.",
        fixes={
            CUDA_LIKE: "Remove `synchronize()` from the region; order work with events and `wait_stream` instead.",
        },
    ),
    ObstacleCode(
        code="HP304",
        title="Copies from host memory inside a module",
        meaning="Every call creates a tensor on the host and copies it to the device. A replay would copy from the "
        "same old address: stale or wrong data.",
        advice="Create the tensor on the device (`device=x.device`), register it as a buffer, or pass it in as an "
        "input.",
        fixes={
            CUDA_LIKE: "Create the tensor on the device (`device=x.device`), register it as a buffer, or copy into a "
            "static input before `replay()`.",
        },
    ),
    ObstacleCode(
        code="HP305",
        title="Device memory is allocated in steady state",
        meaning="A module calls cudaMalloc, cudaFree or the like: the allocator's cache is too small. Captured graphs "
        "keep a private pool, so memory runs out earlier.",
        advice="Reduce peak memory or fragmentation (`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`) before "
        "capturing graphs.",
    ),
    ObstacleCode(
        code="HP307",
        title="Shapes change between calls",
        meaning="The inputs have more than one shape. A graph serves one shape; each other shape needs its own graph, "
        "or runs without one.",
        advice="Pad to a few fixed lengths, or keep one graph per shape.",
        fixes={
            HPU_LAZY: "Wrap the module in ModuleCacher with that many graphs (max_graphs); with many shapes, pad to a "
            "few fixed lengths.",
            HPU_EAGER: "Pad to a few fixed lengths, or compile with dynamic=True and watch for recompilations.",
            CUDA_LIKE: "Pad inputs to a few fixed lengths and capture one graph for each; run rare shapes eagerly.",
        },
    ),
    ObstacleCode(
        code="HP308",
        title="The last batch is smaller",
        meaning="Only the shape at the end of the data differs: the batch size does not divide the data set.",
        advice="Set `drop_last=True` in the DataLoader, or pad the last batch.",
    ),
    ObstacleCode(
        code="HP309",
        title="Calls take different paths",
        meaning="With the same shapes, calls ran different operators or modules, because Python branched. A graph "
        "replays only the captured path.",
        advice="Use one graph per branch, `torch.where` on both results, or decide outside the region.",
        fixes={
            HPU_LAZY: "ModuleCacher does not see control flow: wrap each branch's module separately "
            "(`make_graphed_callables`) and keep the decision in Python.",
            HPU_EAGER: "Let torch.compile break the graph at the decision, or express it with torch.where / "
            "torch.cond.",
            CUDA_LIKE: "Capture each branch separately (`make_graphed_callables`) and keep the decision in Python, or "
            "use torch.where.",
        },
    ),
    ObstacleCode(
        code="HP310",
        title="mark_step inside a module",
        meaning="Each `mark_step` inside a captured region ends a recipe: the replay launches one more piece, and "
        "fusion stops there.",
        advice="Move `htcore.mark_step()` to the borders of the graphed module.",
    ),
    ObstacleCode(
        code="HP311",
        title="Compilation inside steps",
        meaning="A step of the window compiled a graph, recipe or kernel, because something that it was compiled for "
        "changed.",
        advice="Keep shapes and scalars constant; warm up longer before measuring.",
        fixes={
            HPU_LAZY: "Keep shapes and Python scalars constant; check the `graph_compilation` metric. Graphs are "
            "captured once per key; each new key compiles again.",
            HPU_EAGER: "Keep shapes constant, or set dynamic=True in torch.compile; `TORCH_LOGS=recompiles` gives the "
            "reason.",
            CUDA_LIKE: "`TORCH_LOGS=recompiles` gives the reason; mark dimensions with torch._dynamo.mark_dynamic or "
            "pad.",
        },
    ),
    ObstacleCode(
        code="HP312",
        title="Operators fall back to the CPU",
        meaning="The device has no kernel for the operator: the bridge copies to the CPU and back. HPU graph capture "
        'fails: "cpu fallback is not supported during hpu graph capturing".',
        advice="Replace the operator, or leave it outside; `ENABLE_CONSOLE=true LOG_LEVEL_PT_FALLBACK=1` lists all "
        "such operators.",
    ),
    ObstacleCode(
        code="HP313",
        title="A scalar changes from step to step",
        meaning="Across steps, the operator got different values of a Python number (learning rate, step count, "
        "position). A captured graph replays the captured value: wrong results without an error.",
        advice="Keep it in a device tensor and update that in place.",
        fixes={
            HPU_LAZY: "Keep the number in a device tensor that is updated in place; as an argument of a ModuleCacher "
            "module, each value makes a new graph.",
            CUDA_LIKE: "Keep the number in a device tensor; for optimizers use capturable=True (and a tensor learning "
            "rate).",
        },
    ),
    ObstacleCode(
        code="HP314",
        title="Random numbers",
        meaning="The region draws random numbers (dropout, noise). Graphs support this: each replay advances the "
        "generator's offset. Results differ in the digits from an eager run.",
        advice="Nothing to do for the default generator; register other generators with the graph.",
        fixes={
            CUDA_LIKE: "Nothing to do for the default generator; register others with "
            "`CUDAGraph.register_generator_state`. Each replay adds two small fill kernels.",
        },
    ),
    ObstacleCode(
        code="HP315",
        title="Collectives inside the region",
        meaning="Ranks exchange data inside forward or backward. All ranks must capture and replay the same graphs in "
        "the same order.",
        advice="Capture on all ranks; wrap in DDP after graphing the module.",
        fixes={
            HPU_LAZY: "Set PT_HPU_ENABLE_LAZY_COLLECTIVES=true; wrap with DDP after ModuleCacher or "
            "make_graphed_callables.",
            HPU_EAGER: "Leave collectives to torch.compile's own handling; wrap with DDP after compiling.",
            CUDA_LIKE: "NCCL ≥ 2.9.6 can be captured; with DDP warm up 11 iterations on a side stream, "
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=0, and wrap graphed callables with DDP afterwards (their all-reduces "
            "then start after backward).",
        },
    ),
    ObstacleCode(
        code="HP316",
        title="Gradients are accumulated",
        meaning="The optimizer steps only after several batches: some micro-steps set gradients, others add to them.",
        advice="Capture forward and backward separately from the optimizer; keep gradients allocated "
        "(`zero_grad(set_to_none=False)`).",
        fixes={
            HPU_LAZY: "Use ModuleCacher(…)(model, have_grad_accumulation=True): the first micro-step gets its own "
            "graph.",
            CUDA_LIKE: "Capture forward and backward as one graph with `zero_grad(set_to_none=False)` outside it, and "
            "the optimizer as another.",
        },
    ),
    ObstacleCode(
        code="HP317",
        title="Activation checkpointing",
        meaning="Modules run again inside backward. Saving and restoring the random state reads the generator, which "
        "fails during capture.",
        advice="Use `checkpoint(…, preserve_rng_state=False)` where nothing random runs inside; otherwise graph the "
        "checkpointed blocks separately.",
    ),
    ObstacleCode(
        code="HP318",
        title="Dynamic loss scaling",
        meaning="GradScaler reads on the host whether gradients overflowed (`found_inf.item()`), to decide whether the "
        "optimizer steps.",
        advice="Use bfloat16 without a scaler, or a fused/capturable optimizer, which takes the flag as a tensor; keep "
        "`scaler.step` outside the region.",
    ),
    ObstacleCode(
        code="HP319",
        title="Operator that must not be captured",
        meaning="PyTorch itself excludes the operator from graphs.",
        advice="Leave it outside the region.",
    ),
    ObstacleCode(
        code="HP320",
        title="The optimizer keeps its counters on the CPU",
        meaning="Step counters are CPU tensors: they cause no synchronisation, but a captured optimizer step would "
        "freeze the bias correction of the captured step.",
        advice="Set `capturable=True`, or `fused=True` with device counters, before capturing the optimizer.",
        fixes={
            HPU_LAZY: "Use Habana's fused optimizer (FusedAdamW …), or leave the optimizer outside the graph.",
        },
    ),
    ObstacleCode(
        code="HP321",
        title="Data types change under one shape",
        meaning="Calls with equal shapes have different data types. ModuleCacher's key holds no data type, so the "
        "graph captured for one type would serve the other.",
        advice="Cast before the module, so that each shape has one type.",
    ),
)

OBSTACLES: dict[str, ObstacleCode] = {o.code: o for o in _ALL}


def machine(family: str, mode: str) -> str:
    """Return which fixes apply: `hpu lazy`, `hpu eager` (torch.compile) or `cuda` (and ROCm, XPU); `any` for others."""
    if family == "hpu":
        return HPU_LAZY if mode.startswith("lazy") else HPU_EAGER
    return CUDA_LIKE if family in ("cuda", "rocm", "xpu") else ANY


def fix(code: str, family: str, mode: str) -> str:
    """Return what to do about an obstacle on a machine."""
    entry = OBSTACLES[code]
    return entry.fixes.get(machine(family, mode), entry.advice)
