"""Codes of what stands in the way of graph mode: meaning, and what to do on each kind of machine. HP3xx."""

from __future__ import annotations

from dataclasses import dataclass, field

HPU_LAZY, HPU_EAGER, CUDA_LIKE, ANY = "hpu lazy", "hpu eager", "cuda", "any"


@dataclass(frozen=True)
class ObstacleCode:
    """One obstacle. `fixes`: what to do by kind of machine; `any` serves where the kind has none of its own."""

    code: str
    title: str
    meaning: str
    advice: str
    fixes: dict[str, str] = field(default_factory=dict)


_ALL = (
    ObstacleCode(
        "HP301", "Operator with a shape that depends on data",
        "How many elements the operator returns is known only after it ran, so the host has to wait for it and the shapes behind it change. No captured graph can hold it.",
        "Compute on the full shape and mask (`torch.where(mask, x, 0)`, `masked_fill`, `nonzero_static(size=…)`), or leave it outside: graph what comes before and after it.",
        {HPU_LAZY: "Use a fixed shape (`torch.where(mask, x, 0)`), or wrap the modules before and after in ModuleCacher each, with `htcore.mark_step()` around the operator.",
         HPU_EAGER: "Use a fixed shape (`torch.where(mask, x, 0)`); torch.compile(backend=\"hpu_backend\") breaks its graph here otherwise.",
         CUDA_LIKE: "Use a fixed shape (`torch.where(mask, x, 0)`, `nonzero_static(size=…)`), or capture the modules before and after it apart."},
    ),
    ObstacleCode(
        "HP302", "A value is read back by Python",
        "item(), bool(tensor), .cpu(), tolist() or a comparison: the host waits until the device has computed the value. Capture fails at it, and the value would be frozen in a replay.",
        "Keep it on the device (`torch.where`, tensor arithmetic), read it after the step, or only every k-th step.",
        {HPU_LAZY: "Keep the value on the device; log after `replay()` and only every k-th step. Each read also ends the accumulated graph.",
         HPU_EAGER: "Keep the value on the device and read it after the compiled region, only every k-th step.",
         CUDA_LIKE: "Keep the value on the device; read it after `replay()`, with `.to('cpu', non_blocking=True)` and only every k-th step."},
    ),
    ObstacleCode(
        "HP303", "Synchronisation",
        "The host waits for the device, a stream or an event. Capture fails at it on CUDA; on HPU it ends the region.",
        "Remove it, or move it behind the region.",
        {HPU_LAZY: "Remove the synchronisation from the region, or move it behind the replay.",
         CUDA_LIKE: "Remove `synchronize()` from the region; order work with events and `wait_stream` instead."},
    ),
    ObstacleCode(
        "HP304", "Copies from host memory inside a module",
        "A tensor made on the host is copied to the device in every call. A replay would copy from the same old address: stale or wrong data.",
        "Make the tensor on the device (`device=x.device`), register it as a buffer, or pass it in as an input.",
        {HPU_LAZY: "Make the tensor on the device (`device='hpu'`), register it as a buffer, or pass it as an input of the graphed module.",
         CUDA_LIKE: "Make the tensor on the device (`device=x.device`), register it as a buffer, or copy into a static input before `replay()`."},
    ),
    ObstacleCode(
        "HP305", "Device memory is allocated in steady state",
        "cudaMalloc, cudaFree or their like inside a module: the allocator's cache does not suffice. Captured graphs keep a private pool, so memory runs short earlier.",
        "Reduce peak memory or fragmentation (`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`) before graphs are captured.",
    ),
    ObstacleCode(
        "HP306", "Operators on the CPU inside a module",
        "The operator launched nothing on the device: it computed on the CPU. A replay leaves CPU work out, silently.",
        "Move its tensors to the device, or the operator out of the region.",
        {HPU_LAZY: "Move its tensors to 'hpu', or leave the operator outside of the graphed module."},
    ),
    ObstacleCode(
        "HP307", "Shapes change between calls",
        "The inputs have more than one shape. A graph serves one shape: others need a graph each, or run without one.",
        "Pad to a few bucket sizes, or keep one graph per shape.",
        {HPU_LAZY: "Wrap the module in ModuleCacher with the max_graphs given; pad to the bucket sizes given when there are many shapes.",
         HPU_EAGER: "Pad to the bucket sizes given, or compile with dynamic=True and watch recompilations.",
         CUDA_LIKE: "Capture one graph per bucket size given and pad inputs up to it; run rare shapes eagerly."},
    ),
    ObstacleCode(
        "HP308", "The last batch is smaller",
        "One shape is the exception, at the end of the data: the batch size does not divide the data set.",
        "`drop_last=True` in the DataLoader, or pad the last batch.",
    ),
    ObstacleCode(
        "HP309", "Calls take different paths",
        "Given the same shapes, calls ran different operators or modules: Python decided. A graph replays the one path that was captured.",
        "One graph per branch, `torch.where` on both results, or the decision outside of the region.",
        {HPU_LAZY: "ModuleCacher does not see control flow: wrap the module of each branch by itself (`make_graphed_callables` each) and leave the decision in Python.",
         HPU_EAGER: "Let torch.compile break the graph at the decision, or write it with torch.where / torch.cond.",
         CUDA_LIKE: "Capture each branch by itself (`make_graphed_callables` each) and leave the decision in Python, or use torch.where."},
    ),
    ObstacleCode(
        "HP310", "mark_step inside a module",
        "Each `mark_step` inside a captured region ends a recipe: the replay launches one more piece, and fusion stops there.",
        "Move `htcore.mark_step()` to the borders of the graphed module.",
    ),
    ObstacleCode(
        "HP311", "Compilation inside steps",
        "A graph, recipe or kernel was compiled in a step of the window: something changed that it was compiled for.",
        "Keep shapes and scalars constant; warm up longer before measuring.",
        {HPU_LAZY: "Keep shapes and Python scalars constant; look at the `graph_compilation` metric. Graphs are captured once per key, recompilation returns with each new one.",
         HPU_EAGER: "Keep shapes constant, or set torch.compile's dynamic=True; `TORCH_LOGS=recompiles` names the reason.",
         CUDA_LIKE: "`TORCH_LOGS=recompiles` names the reason; mark dimensions with torch._dynamo.mark_dynamic or pad."},
    ),
    ObstacleCode(
        "HP312", "Operators fall back to the CPU",
        "The device has no kernel for the operator: the bridge copies to the CPU and back. HPU graph capture fails: \"cpu fallback is not supported during hpu graph capturing\".",
        "Replace the operator, or leave it outside; `ENABLE_CONSOLE=true LOG_LEVEL_PT_FALLBACK=1` names them all.",
    ),
    ObstacleCode(
        "HP313", "A scalar changes from step to step",
        "A Python number went into the operator with another value in other steps (learning rate, step count, position). A captured graph replays the value of the capture: wrong results without an error.",
        "Keep it in a tensor on the device and update that in place.",
        {HPU_LAZY: "Keep the number in a device tensor that is updated in place; as an argument of a ModuleCacher module each value makes a new graph.",
         CUDA_LIKE: "Keep the number in a device tensor; for optimizers use capturable=True (and a tensor learning rate)."},
    ),
    ObstacleCode(
        "HP314", "Random numbers",
        "The region draws random numbers (dropout, noise). Graphs can hold it: the generator's offset advances with each replay. Results differ in the digits from an eager run.",
        "Nothing to do for the default generator; register other generators with the graph.",
        {CUDA_LIKE: "Nothing to do for the default generator; register others with `CUDAGraph.register_generator_state`. Each replay adds two small fill kernels."},
    ),
    ObstacleCode(
        "HP315", "Collectives inside the region",
        "Ranks exchange data inside forward or backward. All ranks must capture and replay the same graphs in the same order.",
        "Capture on all ranks; wrap in DDP after graphing the module.",
        {HPU_LAZY: "Set PT_HPU_ENABLE_LAZY_COLLECTIVES=true; wrap with DDP after ModuleCacher or make_graphed_callables.",
         HPU_EAGER: "Leave collectives to torch.compile's own handling; wrap with DDP after compiling.",
         CUDA_LIKE: "NCCL ≥ 2.9.6 can be captured; with DDP warm up 11 iterations on a side stream, TORCH_NCCL_ASYNC_ERROR_HANDLING=0, and wrap graphed callables with DDP afterwards (their all-reduces then start after backward)."},
    ),
    ObstacleCode(
        "HP316", "Gradients are accumulated",
        "The optimizer steps only after several batches: micro-steps differ in whether gradients are set or added.",
        "Capture forward and backward apart from the optimizer; keep gradients allocated (`zero_grad(set_to_none=False)`).",
        {HPU_LAZY: "ModuleCacher(…)(model, have_grad_accumulation=True): the first micro-step has a graph of its own.",
         CUDA_LIKE: "Capture forward and backward as one graph with `zero_grad(set_to_none=False)` outside of it, and the optimizer as another."},
    ),
    ObstacleCode(
        "HP317", "Activation checkpointing",
        "Modules run again inside backward. Saving and restoring the random state around it reads the generator, which fails during capture.",
        "`checkpoint(…, preserve_rng_state=False)` where nothing random runs inside; else graph the checkpointed blocks by themselves.",
    ),
    ObstacleCode(
        "HP318", "Dynamic loss scaling",
        "GradScaler reads on the host whether gradients overflowed (`found_inf.item()`) to decide about the optimizer's step.",
        "Use bfloat16 without a scaler, or a fused/capturable optimizer, which takes the flag as a tensor; keep `scaler.step` outside of the region.",
    ),
    ObstacleCode(
        "HP319", "Operator that must not be captured",
        "PyTorch itself excludes the operator from graphs.",
        "Leave it outside of the region.",
    ),
    ObstacleCode(
        "HP320", "The optimizer keeps its counters on the CPU",
        "Step counters are CPU tensors: no synchronisation, but a captured optimizer step would freeze the bias correction of the step that was captured.",
        "`capturable=True`, or `fused=True` with device counters, before the optimizer is captured.",
        {HPU_LAZY: "Use Habana's fused optimizer (FusedAdamW …), or leave the optimizer outside of the graph."},
    ),
    ObstacleCode(
        "HP321", "Data types change under one shape",
        "Calls with equal shapes have different data types. ModuleCacher's key holds no data type: the graph captured for one type would serve the other.",
        "Cast before the module, so that each shape has one type.",
    ),
    ObstacleCode(
        "HP322", "Hooks run in module calls",
        "Forward hooks ran around modules. Graphed callables do not run hooks at replay, and refuse modules that have some when captured.",
        "Remove hooks before graphing, or graph the modules inside.",
    ),
)  # fmt: skip

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
