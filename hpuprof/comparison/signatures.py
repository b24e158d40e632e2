"""How each fix shows between a recording without it and one with it.

One signature a fix, in a table; what has no sign is not found. A signature names what was seen, not what it saved. The
first sign of one suffices; the others only add to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from hpuprof.analysis.step_groups import SLOW
from hpuprof.analysis.workload import INFERENCE, SERVING
from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.kernel_kinds import ATTENTION, CONVOLUTION, MATRIX, kind_of_kernel, type_of_kernel
from hpuprof.comparison.result import Sign
from hpuprof.comparison.signs import FELL, LEAST, Seen, counted, fewer, noted, shared, timed
from hpuprof.model.schema import Cause
from hpuprof.planning.collective_rows import EXCHANGING, REDUCING
from hpuprof.planning.remedies.faster_products import NARROW
from hpuprof.planning.remedies.fused_optimizer import OF_LISTS
from hpuprof.planning.remedies.layouts import CONVERTS

Find = Callable[[Seen], list[Sign]]
_SINGLE, _WORKERS = "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"
_READ, _WAIT, _ALLOCATION, _FLUSH = "HP302", "HP303", "HP305", "HP310"
"""Codes of obstacles: reads of values, waits for the device, allocations in the step, flushes of the lazy graph."""
_SLOW_RANK, _UNEVEN = "HP230", "HP235"
MOSTLY = 0.5
"""Share of the matrix kernels' time from which a run multiplies in a type."""
_FP8 = 0.25
"""The same for fp8, which attention and the last layers are usually left out of; by judgment."""
_RECUR = 3
"""Slow steps of one cause from which they are the program's; by judgment."""
_SAME_BYTES = (0.8, 1.25)
"""Bytes of collectives in B over those in A between which they are the same; padding of buckets is a few per cent."""
_FEWER = 0.75
"""Share of A's collectives that B has at most where micro-steps skip theirs: with two, half of them; of flushes: of
three, two; and of the time of products; by judgment."""
_AS_MANY, _HALF = 0.05, (0.45, 0.55)
_FILLED = 0.8
"""Fills for each operator that makes memory from which all of it is filled; by judgment."""
_GATHER, _PASSES = "all_gather", 2
_FUSED_ATTENTION = re.compile(
    r"^aten::_(?:scaled_dot_product_(?!attention_math)|flash_attention|efficient_attention)|^flash_attn"
)
_GRAPH_LAUNCH = re.compile(r"graph_?launch|launchgraph", re.IGNORECASE)
_UNFUSED = r"^aten::(?:add_|mul_|lerp_|addcmul_|addcdiv_|sqrt|div|add|mul)$"
_FOREACH = r"^aten::_foreach_"
_FUSED = r"^aten::_fused_(?:adam|adamw|sgd|adagrad)_?$|FusedAdam|FusedLAMB|FusedSGD"


class Signature(Struct, frozen=True):
    """A fix, what was done in words, and how to find it; `part_of`: fixes that hold it, with which it is no other."""

    fix: str
    what: str
    find: Find
    part_of: tuple[str, ...] = ()


class Found(Struct, frozen=True):
    """A fix with its signs."""

    signature: Signature
    signs: list[Sign]


def fixes_found(pair: Pair) -> list[Found]:
    """Return the fixes whose signs show from A to B, in the order of the table."""
    seen = Seen(pair)
    found = [Found(signature, signs) for signature in SIGNATURES if (signs := signature.find(seen))]
    names = {f.signature.fix for f in found}
    return [f for f in found if not names & set(f.signature.part_of)]


def _only(*signs: Sign | None) -> list[Sign]:
    return [sign for sign in signs if sign is not None]


def _with(first: Sign | None, *more: Sign | None) -> list[Sign]:
    """Return the signs where the first shows; the others only add to it."""
    return _only(first, *more) if first is not None else []


def _workers(seen: Seen) -> list[Sign]:
    a, b = seen.names
    before, after = (any(_SINGLE in n for n in side) for side in (a, b))
    workers = [any(_WORKERS in n for n in side) for side in (a, b)]
    fetching = seen.fell("fetching data", "input_ns")
    if before and not workers[0] and workers[1] and not after:
        return _only(noted(f"{_SINGLE} became {_WORKERS}"), fetching)
    return [] if after else _with(seen.fell("waiting for loader workers", "blocked_loader_ns"))


def loads_otherwise(pair: Pair, *, pinning: bool) -> bool:
    """Whether the main thread fetches data in half the time or in twice as much; `pinning`: it may pin batches since.

    Waiting for workers also changes with what the rest of the step takes, and says nothing.
    """
    there, back = Seen(pair), Seen(Pair(pair.kind, pair.b, pair.a))
    if any(_WORKERS in name for side in there.names for name in side):
        return False
    return any(seen.fell("fetching data", "input_ns") for seen in ((there,) if pinning else (there, back)))


def _at_places(seen: Seen, code: str, what: str) -> Sign | None:
    """Return a sign where obstacles of a code fell to half or less, with the place where most of them went."""
    a, b = seen.per_step(code)
    gone = {where: count - b.get(where, 0.0) for where, count in a.items()}
    most = max(sorted(gone), key=lambda where: gone[where], default="")
    where = f" ({most})" if most else ""
    return fewer(f"{what}{where}", sum(a.values()), sum(b.values()))


def _reads(seen: Seen) -> list[Sign]:
    if {f.workload for f in seen.pair.a.files} & {INFERENCE, SERVING}:
        return []  # results must be read
    return _with(_at_places(seen, _READ, "reads of values"))


def _results(seen: Seen) -> list[Sign]:
    if not {f.workload for f in seen.pair.a.files} & {INFERENCE, SERVING}:
        return []
    reads = [sum(side.values()) for side in seen.per_step(_READ)]
    if not reads[0] or reads[1] < FELL * reads[0]:
        return []
    return _only(
        seen.fell("waiting in synchronizing calls", "blocked_sync_ns"),
        seen.fell("waiting in copies", "blocked_copy_ns"),
    )


def _waits(seen: Seen) -> list[Sign]:
    return _with(
        _at_places(seen, _WAIT, "calls that wait for the device"), seen.fell("waiting in them", "blocked_sync_ns")
    )


def _flushes(seen: Seen) -> list[Sign]:
    counts = [sum(side.values()) for side in seen.per_step(_FLUSH)]
    return _only(fewer("flushes of the lazy graph", *counts, share=_FEWER))


def _pinned(seen: Seen) -> list[Sign]:
    pageable, pinned = (seen.named("kernels", f"(?i)memcpy htod.*{kind}") for kind in ("pageable", "pinned"))
    if not pinned[1] or (pinned[0] or 0) >= pinned[1]:
        return []
    return _with(fewer("copies from pageable memory", *pageable), counted("copies from pinned memory", *pinned))


def _allocations(seen: Seen) -> list[Sign]:
    return _with(
        seen.fell("allocating and freeing", "blocked_alloc_ns"),
        _at_places(seen, _ALLOCATION, "allocations in the step"),
    )


def _copies(seen: Seen) -> list[Sign]:
    if not seen.kept("copy_busy_ns", 0.7, 1.5):
        return []
    return _with(seen.fell("exposed copies", "exposed_copy_ns"))


def _on_device(seen: Seen) -> list[Sign]:
    def idle(group: Group) -> float:
        rows = group.rows("gap_causes")
        mine = sum(int(row.idle_ns) for row in rows if row.cause == Cause.CPU_OPERATOR.name.lower())
        return mine / max(1, len({(row.recording, row.step) for row in rows}))

    a, b = (idle(group) for group in _sides(seen))
    if b > FELL * a or a - b < LEAST * seen.step_ns:
        return []
    return [timed("idle while operators compute on the CPU", a, b)]


def _overlap(seen: Seen) -> list[Sign]:
    if not seen.kept("communication_busy_ns", 0.7, 1.5):
        return []
    return _with(seen.fell("exposed communication", "exposed_communication_ns"))


def _buckets(seen: Seen) -> list[Sign]:
    a, b = seen.counts("kernels", lambda row: row.kind == "communication")
    moved = _moved(seen)
    if all(moved) and not _SAME_BYTES[0] <= moved[1] / moved[0] <= _SAME_BYTES[1]:
        return []
    return _with(fewer("collectives", a, b) if b else None)


def _moved(seen: Seen, ops: Collection[str] = ()) -> tuple[float, float]:
    """Return the bytes that collectives (of some operations) move in a step, on both sides; 0: none or unknown."""

    def moved(one: Group) -> float:
        rows = one.rows("collectives")
        total: int = sum((r.bytes or 0) * r.count for r in rows if not ops or r.op in ops)
        return total / max(1, len(one.steps))

    a, b = map(moved, _sides(seen))
    return a, b


def _no_sync(seen: Seen) -> list[Sign]:
    """Fewer collectives of the same size: others than `buckets`, which are as many bytes."""
    moved, (a, b) = _moved(seen), seen.counts("collectives", lambda _: True)
    if not all(moved) or not a or not b or not _SAME_BYTES[0] <= (moved[1] / moved[0]) / (b / a) <= _SAME_BYTES[1]:
        return []
    return _with(fewer("collectives", a, b, share=_FEWER))


def _halved(ops: Collection[str], name: str) -> Find:
    """Find as many collectives of some operations, of half the bytes; `name`: theirs."""

    def find(seen: Seen) -> list[Sign]:
        moved, (a, b) = _moved(seen, ops), seen.counts("collectives", lambda row: row.op in ops)
        if not all(moved) or not a or not b or abs(b / a - 1) > _AS_MANY:
            return []
        return _only(counted(f"bytes of {name}", *moved)) if _HALF[0] <= moved[1] / moved[0] <= _HALF[1] else []

    return find


def _gathers(seen: Seen) -> tuple[tuple[float | None, float | None], tuple[float | None, float | None]]:
    """Return how many gathers there are, and how many other collectives, per step and rank."""
    return (
        seen.counts("collectives", lambda row: row.op == _GATHER),
        seen.counts("collectives", lambda row: row.op != _GATHER),
    )


def _gather_once(seen: Seen) -> list[Sign]:
    """Fewer gathers, as many other collectives."""
    gathers, (a, b) = _gathers(seen)
    kept = a is not None and b is not None and abs(b - a) <= _AS_MANY * a
    return _only(fewer("gathers", *gathers, share=_FEWER)) if kept and gathers[1] else []


def _by_layer(seen: Seen) -> list[Sign]:
    """One gather in a pass became several."""
    (a, b), _ = _gathers(seen)
    return _only(counted("gathers", a, b)) if a and b and a <= _PASSES and b >= 2 * a else []


def _gather_prefetch(seen: Seen) -> list[Sign]:
    """As many gathers, of which half or less is exposed."""
    (a, b), _ = _gathers(seen)
    if not a or not b or abs(b / a - 1) > _AS_MANY:
        return []
    exposed = [_exposed_gathers(group) for group in _sides(seen)]
    if exposed[0] is None or exposed[1] is None or exposed[1] > FELL * exposed[0]:
        return []
    return [shared("exposed part of gathers", exposed[0], exposed[1])]


def _exposed_gathers(group: Group) -> float | None:
    rows = [row for row in group.rows("collectives") if row.op == _GATHER and row.exposed_fraction is not None]
    took = sum(row.count * (row.duration_p50_ns or 0) for row in rows)
    alone = sum(row.count * (row.duration_p50_ns or 0) * row.exposed_fraction for row in rows)
    return alone / took if took else None


def _attention(seen: Seen) -> list[Sign]:
    softmax = seen.went("softmaxes as operators of their own", "operators", r"^aten::_softmax$")
    fused = seen.counts("operators", lambda row: bool(_FUSED_ATTENTION.search(row.name)))
    return _only(softmax, counted("fused attention", *fused)) if fused[1] and fused[1] > 2 * (fused[0] or 0.0) else []


def _graph_breaks(seen: Seen) -> list[Sign]:
    """Fewer compiled regions, not none."""
    a, b = seen.named("operators", "^Torch-Compiled Region")
    return _with(fewer("compiled regions", a, b)) if b else []


def _layouts(seen: Seen) -> list[Sign]:
    return _with(seen.went("conversions of layouts", "kernels", f"(?i){CONVERTS.pattern}"))


def _fills(seen: Seen) -> list[Sign]:
    """In deterministic mode nearly every operator that makes memory is followed by a fill of its own."""
    fills, made = seen.named("operators", r"^aten::fill_$"), seen.named("operators", r"^aten::(?:new_)?empty")
    if fills[0] is None or fills[1] is None or not made[0] or not made[1] or fills[0] < _FILLED * made[0]:
        return []
    return _with(fewer("fills", *fills) if fills[1] / made[1] <= FELL * fills[0] / made[0] else None)


def _groups(seen: Seen) -> list[Sign]:
    a, b = seen.named("operators", OF_LISTS.pattern)
    return _with(fewer("optimizer operators on lists of tensors", a, b) if b else None)


def _sides(seen: Seen) -> tuple[Group, Group]:
    return seen.pair.a, seen.pair.b


def matrix_types(group: Group) -> dict[str, float]:
    """Return the shares of the matrix kernels' time by type, where names or types of rows tell it."""
    times: dict[str, float] = {}
    for row in group.rows("kernels"):
        if kind_of_kernel(row.name, row.engine) in (MATRIX, CONVOLUTION, ATTENTION):
            kind = type_of_kernel(row.name, row.dtype)
            times[kind] = times.get(kind, 0.0) + row.total_ns
    whole = sum(times.values())
    return {kind: ns / whole for kind, ns in times.items()} if whole else {}


def _types(before: Sequence[str], after: str, least: float = MOSTLY) -> Find:
    def find(seen: Seen) -> list[Sign]:
        a, b = (matrix_types(group) for group in _sides(seen))
        was = sum(a.get(kind, 0.0) for kind in before)
        now, then = a.get(after, 0.0), b.get(after, 0.0)
        if was < MOSTLY or then < least or now > then / 2:
            return []
        return [shared(f"matrix kernels in {after}, of their time", now, then)]

    return find


def _faster_products(seen: Seen) -> list[Sign]:
    """As many operations in 16 or 8 bits, in three quarters of the device's time or less."""
    operations, times = zip(*(_products(group) for group in _sides(seen)), strict=True)
    if not all(operations) or abs(operations[1] / operations[0] - 1) > _AS_MANY:
        return []
    if times[1] > _FEWER * times[0] or times[0] - times[1] < LEAST * seen.step_ns:
        return []
    return [timed("products in 16 or 8 bits", *times)]


def _products(group: Group) -> tuple[float, float]:
    """Return the operations of products that are looked at, and their device time [ns], per step and rank."""
    rows = [row for row in group.rows("utilisation") if row.flops and row.dtype in NARROW and row.device_per_step_ns]
    ranks = max(1, len(group.files))
    return (
        sum(row.flops * row.count_per_step for row in rows) / ranks,
        sum(row.device_per_step_ns for row in rows) / ranks,
    )


def _fusion(seen: Seen) -> list[Sign]:
    a, b = seen.counts("kernels", lambda row: row.name.startswith("triton_"))
    plain = seen.counts("kernels", lambda row: "elementwise_kernel" in row.name)
    if a is None or b is None or b < 1 or b <= 2 * a:
        return []
    return _with(fewer("pointwise kernels", *plain), counted("kernels by Triton", a, b))


def _recomputation(seen: Seen) -> list[Sign]:
    a, b = (group.mean("recomputed_flops").value for group in _sides(seen))
    if a and b is not None and b <= FELL * a:
        text = f"operations computed again in backward: {a:.3g} → {b:.3g} a step"
        return [Sign(what="operations computed again in backward", a=float(a), b=float(b), unit="count", text=text)]
    return _with(seen.went("checkpointed regions", "operators", r"^CheckpointFunctionBackward"))


def _optimizer(seen: Seen) -> list[Sign]:
    unfused = seen.went("pointwise operators", "operators", _UNFUSED)
    came = seen.came("fused optimizer operators", "operators", _FUSED)
    # One such operator alone may be zero_grad's or an accumulation's.
    several = len({row.name for row in seen.pair.b.rows("operators") if row.name.startswith("aten::_foreach_")}) > 1
    if came is None and (several or (unfused and not _replays(seen.pair.b))):
        came = seen.came("operators on lists of tensors", "operators", _FOREACH)
    came = came or seen.came("multi-tensor kernels", "kernels", r"multi_tensor_apply")
    return _with(came, seen.fell("optimizer", "optimizer_ns"))


def _replays(group: Group) -> bool:
    return any("graphs" in f.mode for f in group.files)


def _graphs(seen: Seen) -> list[Sign]:
    modes = [_replays(group) for group in _sides(seen)]
    calls = seen.counts("launches", lambda row: bool(_GRAPH_LAUNCH.search(row.call)))
    replays = counted("graph launches", *calls) if calls[1] and calls[1] >= 2 * (calls[0] or 0.0) else None
    if not modes[1] or modes[0]:
        return []
    operators = fewer("operators", *seen.counts("operators", lambda _: True))
    return _only(replays or noted("the step is replayed from graphs"), operators)


def _graph_kernels(seen: Seen) -> list[Sign]:
    if not all(_replays(group) for group in _sides(seen)):
        return []
    replays = seen.counts("launches", lambda row: bool(_GRAPH_LAUNCH.search(row.call)))
    if not all(replays) or abs(replays[1] / replays[0] - 1) > _AS_MANY:  # type: ignore[operator]  # not None
        return []
    kernels = seen.counts("kernels", lambda row: row.kind == "compute")
    return _only(fewer("kernels", *kernels, share=_FEWER))


def _pauses(seen: Seen) -> list[Sign]:
    def above(group: Group) -> float:
        return sum(max(0, s.above_ns or 0) for s in group.steps if s.slow) / max(1, len(group.steps))

    a, b = (above(group) for group in _sides(seen))
    slow_groups = [row for row in seen.pair.a.rows("step_groups") if row.reason == SLOW]
    if not any(row.every or row.steps >= _RECUR for row in slow_groups):
        return []  # one stall may be the machine's
    if a < 2 * LEAST * seen.step_ns or b > FELL * a or len(seen.pair.b.steps) < len(seen.pair.a.steps) / 2:
        return []
    slow = [sum(s.slow for s in group.steps) / len(group.steps) for group in _sides(seen)]
    return [shared("slow steps", *slow)] if slow[1] <= FELL * slow[0] else []


def _finding(code: str, what: str) -> Find:
    def find(seen: Seen) -> list[Sign]:
        a, b = ({f.code for f in group.data.findings} for group in _sides(seen))
        alike = seen.pair.a.ranks == seen.pair.b.ranks and len(seen.pair.a.ranks) > 1
        return [noted(f"{what} ({code}) in A, not in B")] if alike and code in a and code not in b else []

    return find


SIGNATURES = (
    Signature("data_loading", "data is loaded in workers, or in more of them", _workers),
    Signature("read_backs", "fewer values are read back in the step", _reads),
    Signature("results", "the next batch is launched before the result is read", _results),
    Signature("synchronisation", "synchronization points were removed", _waits, ("read_backs",)),
    Signature("cpu_operators", "operators moved from the CPU to the device", _on_device),
    Signature("flushes", "the lazy graph is flushed less often", _flushes, ("read_backs",)),
    Signature("uploads", "batches are copied from pinned memory", _pinned),
    Signature("allocations", "the step allocates less device memory", _allocations, ("graphs",)),
    Signature("copies", "copies overlap with compute", _copies, ("uploads",)),
    Signature("no_sync", "gradients are reduced in the last micro-step only", _no_sync, ("gather_once",)),
    Signature("gather_prefetch", "parameters are gathered earlier", _gather_prefetch),
    Signature("shard_by_layer", "parameters are sharded layer by layer", _by_layer),
    Signature("gather_once", "parameters are gathered once in a step", _gather_once),
    Signature(
        "collectives",
        "gradient reduction overlaps with backward",
        _overlap,
        ("buckets", "no_sync", "gather_prefetch", "shard_by_layer", "gather_once", "gradient_compression"),
    ),
    Signature("buckets", "collectives are fewer and larger", _buckets, ("no_sync",)),
    Signature("gradient_compression", "gradients are reduced in 16 bits", _halved(REDUCING, "reductions")),
    Signature("exchange_compression", "activations are exchanged in 16 bits", _halved(EXCHANGING, "exchanges")),
    Signature("lower_precision", "matrices are multiplied in 16 bits", _types(("fp32", "tf32"), "16 bits")),
    Signature("fp8", "matrices are multiplied in fp8", _types(("fp32", "tf32", "16 bits"), "fp8", _FP8)),
    Signature("tf32", "fp32 matrices are multiplied through TF32", _types(("fp32",), "tf32"), ("lower_precision",)),
    Signature("faster_products", "products take less of the device's time", _faster_products, ("attention", "fp8")),
    Signature("attention", "attention is one kernel", _attention),
    Signature("layouts", "images stay in the layout of convolutions", _layouts),
    Signature("pointwise_fusion", "pointwise operators are fused", _fusion),
    Signature("graph_breaks", "the step is compiled in fewer pieces", _graph_breaks),
    Signature("graph_kernels", "graphs hold fewer kernels", _graph_kernels, ("pointwise_fusion", "graphs")),
    Signature("recomputation", "activations are kept, not recomputed", _recomputation),
    Signature("fills", "new memory is left unfilled", _fills),
    Signature("fused_optimizer", "the optimizer is fused", _optimizer),
    Signature("parameter_groups", "the optimizer has fewer parameter groups", _groups, ("fused_optimizer",)),
    Signature("graphs", "the step is captured in graphs", _graphs),
    Signature("pauses", "pauses are gone", _pauses, ("data_loading",)),
    Signature("keep_pace", "slow ranks keep pace", _finding(_SLOW_RANK, "a slow rank")),
    Signature("balance", "work is divided evenly", _finding(_UNEVEN, "uneven stages")),
)
"""Every fix that can be found, in the order in which they are reported."""
