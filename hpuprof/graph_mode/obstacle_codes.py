"""Codes for obstacles to graph mode: what they mean, and the fix on each kind of machine. HP3xx."""

from __future__ import annotations

from msgspec import Struct

from hpuprof.families import FAMILIES, GRAPH_APIS


class ObstacleCode(Struct, frozen=True, kw_only=True):
    """One obstacle. `advice` serves where the device's interface to graphs has no fix of its own."""

    code: str
    title: str
    meaning: str
    advice: str

    @property
    def fixes(self) -> dict[str, str]:
        """What to do with each interface to graphs."""
        return {name: api.fixes[self.code] for name, api in GRAPH_APIS.items() if self.code in api.fixes}


_ALL = (
    ObstacleCode(
        code="HP301",
        title="Operator with a data-dependent shape",
        meaning="The number of elements that the operator returns is known only after it ran, so the host has to wait "
        "for it, and later shapes change. No captured graph can hold it.",
        advice="Compute on the full shape and mask (`torch.where(mask, x, 0)`, `masked_fill`, "
        "`nonzero_static(size=…)`), or leave the operator outside and graph the parts before and after it.",
    ),
    ObstacleCode(
        code="HP302",
        title="Python reads a value back",
        meaning="item(), bool(tensor), .cpu(), tolist() or a comparison makes the host wait until the device has "
        "computed the value. Capture fails at it, and a replay would freeze the value.",
        advice="Keep it on the device (`torch.where`, tensor arithmetic), or read it after the step or only every k-th "
        "step.",
    ),
    ObstacleCode(
        code="HP303",
        title="Synchronization",
        meaning="The host waits for the device, a stream or an event. Capturing streams fails at it; a compiled "
        "region ends there.",
        advice="Remove it, or move it after the region.",
    ),
    ObstacleCode(
        code="HP304",
        title="Copies from host memory inside a module",
        meaning="Every call creates a tensor on the host and copies it to the device. A replay would copy from the "
        "same old address: stale or wrong data.",
        advice="Create the tensor on the device (`device=x.device`), register it as a buffer, or pass it in as an "
        "input.",
    ),
    ObstacleCode(
        code="HP305",
        title="Device memory is allocated in steady state",
        meaning="A module allocates device memory from the driver, or frees it: the allocator's cache is too small. "
        "Captured graphs keep a private pool, so memory runs out earlier.",
        advice="Reduce peak memory or fragmentation before capturing graphs.",
    ),
    ObstacleCode(
        code="HP307",
        title="Shapes change between calls",
        meaning="The inputs have more than one shape. A graph serves one shape; each other shape needs its own graph, "
        "or runs without one.",
        advice="Pad to a few fixed lengths, or keep one graph per shape.",
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
    ),
    ObstacleCode(
        code="HP310",
        title="Step marker inside a module",
        meaning="Each marker inside a captured region ends a recipe: the replay launches one more piece, and "
        "fusion stops there.",
        advice="Move the marker to the borders of the graphed module.",
    ),
    ObstacleCode(
        code="HP311",
        title="Compilation inside steps",
        meaning="A step of the window compiled a graph, recipe or kernel, because something that it was compiled for "
        "changed.",
        advice="Keep shapes and scalars constant; warm up longer before measuring.",
    ),
    ObstacleCode(
        code="HP312",
        title="Operators fall back to the CPU",
        meaning="The device has no kernel for the operator: it is computed on the CPU, with copies there and back. "
        "No captured graph can hold it.",
        advice="Replace the operator, or leave it outside.",
    ),
    ObstacleCode(
        code="HP313",
        title="A scalar changes from step to step",
        meaning="Across steps, the operator got different values of a Python number (learning rate, step count, "
        "position). A captured graph replays the captured value: wrong results without an error.",
        advice="Keep it in a device tensor and update that in place.",
    ),
    ObstacleCode(
        code="HP314",
        title="Random numbers",
        meaning="The region draws random numbers (dropout, noise). Graphs support this: each replay advances the "
        "generator's offset. Results differ in the digits from an eager run.",
        advice="Nothing to do for the default generator; register other generators with the graph.",
    ),
    ObstacleCode(
        code="HP315",
        title="Collectives inside the region",
        meaning="Ranks exchange data inside forward or backward. All ranks must capture and replay the same graphs in "
        "the same order.",
        advice="Capture on all ranks; wrap in DDP after graphing the module.",
    ),
    ObstacleCode(
        code="HP316",
        title="Gradients are accumulated",
        meaning="The optimizer steps only after several batches: some micro-steps set gradients, others add to them.",
        advice="Capture forward and backward separately from the optimizer; keep gradients allocated "
        "(`zero_grad(set_to_none=False)`).",
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
        meaning="Step counters are CPU tensors: they cause no synchronization, but a captured optimizer step would "
        "freeze the bias correction of the captured step.",
        advice="Set `capturable=True`, or `fused=True` with device counters, before capturing the optimizer.",
    ),
    ObstacleCode(
        code="HP321",
        title="Data types change under one shape",
        meaning="Calls with equal shapes have different data types. Where graphs are kept by shape alone, the graph "
        "captured for one type would serve the other.",
        advice="Cast before the module, so that each shape has one type.",
    ),
)

OBSTACLES: dict[str, ObstacleCode] = {o.code: o for o in _ALL}


def fix(code: str, family: str, mode: str) -> str:
    """Return what to do about an obstacle on a device of a family, in a mode of running the model."""
    return FAMILIES[family].graphs_in(mode).fixes.get(code, OBSTACLES[code].advice)
