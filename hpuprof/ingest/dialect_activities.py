"""The activity of a host row, by its kind and name: one table of rules, the first match wins.

What calls into drivers and runtimes are called: `hpuprof.families`.

Every rule has its source, and an example that the tests classify.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from hpuprof.families import words
from hpuprof.ingest.dialect_engines import LONGEST, REMEMBERED
from hpuprof.model.schema import Activity, HostKind


class ActivityRule(Struct, frozen=True):
    """Give host rows of `kinds` whose name matches an activity."""

    id: str
    kinds: tuple[HostKind, ...]
    name: re.Pattern[str]
    activity: Activity
    example: str
    source: str = ""


_R, _O, _A, _P = HostKind.RUNTIME, HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON

ACTIVITY_RULES: tuple[ActivityRule, ...] = (
    # --- calls into the driver and runtime
    ActivityRule(
        "sync-call",
        (_R,),
        words(lambda w: w.wait),
        Activity.SYNC,
        "cudaStreamSynchronize",
        "CUDA, HIP, Synapse (G1-G3), Level Zero",
    ),
    ActivityRule(
        "join-call",
        (_R,),
        re.compile(r"JoinPendingLaunchThread"),
        Activity.JOIN,
        "JoinPendingLaunchThread",
        "bridge 1.19, lazy mode",
    ),
    ActivityRule(
        "alloc-call",
        (_R,),
        words(lambda w: w.allocate),
        Activity.ALLOC,
        "cudaMalloc",
        "CUDA, HIP, Synapse, Level Zero",
    ),
    ActivityRule(
        "graph-launch-call",
        (_R,),
        words(lambda w: w.graph_launch),
        Activity.GRAPH_LAUNCH,
        "cudaGraphLaunch",
        "CUDA and HIP graphs; HPU Graph replay in the bridge",
    ),
    ActivityRule(
        "capture-call",
        (_R,),
        words(lambda w: w.capture),
        Activity.CAPTURE,
        "hipStreamBeginCapture",
        "CUDA and HIP graphs: what is launched between them is recorded, not run",
    ),
    ActivityRule(
        "first-use-call",
        (_R,),
        words(lambda w: w.first_use),
        Activity.FIRST_USE,
        "cudaGetDeviceProperties",
        "CUDA and HIP create the context in the first call that needs one, and load modules at their first kernel "
        "(CUDA Programming Guide, Initialization and Lazy Loading)",
    ),
    ActivityRule(
        "compile-call",
        (_R,),
        words(lambda w: w.compile),
        Activity.COMPILE,
        "compileGraph",
        "Synapse; a recompilation shows as compileGraph inside a step",
    ),
    ActivityRule(
        "launch-call",
        (_R,),
        words(lambda w: w.launch),
        Activity.LAUNCH,
        "cudaLaunchKernel",
        "CUDA, HIP, Synapse and bridge, Unified Runtime, MTIA",
    ),
    ActivityRule(
        "copy-call",
        (_R,),
        words(lambda w: w.copy),
        Activity.COPY,
        "cudaMemcpyAsync",
        "direction comes from the device row that it launched",
    ),
    ActivityRule(
        "collective-call",
        (_R, _O),
        re.compile(r"^hccl[A-Z]|^nccl[A-Z]|^aiuComms|^c10d::|^record_param_comms"),
        Activity.COLLECTIVE,
        "hcclAllReduce",
        "HCCL, NCCL, c10d",
    ),
    ActivityRule(
        "lazy-read",
        (_R, _O),
        re.compile(r"_local_scalar_dense|hpu_lazy_D2H|^HandleViewsD2H"),
        Activity.COPY_D2H,
        "aten::_local_scalar_dense",
        "item()",
    ),
    ActivityRule(
        "lazy-upload",
        (_R, _O),
        re.compile(r"hpu_lazy_H2D"),
        Activity.COPY_H2D,
        "copy_hpu_lazy_H2D",
        "bridge 1.19, lazy mode",
    ),
    ActivityRule(
        "lazy-build",
        (_R, _O),
        re.compile(r"^SyncTensorsGraphInternal|^StepMarker"),
        Activity.GRAPH_BUILD,
        "SyncTensorsGraphInternal",
        "bridge 1.19, lazy mode",
    ),
    ActivityRule(
        "lazy-accumulate",
        (_R, _O),
        re.compile(r"hpu_lazy"),
        Activity.ACCUMULATE,
        "add_hpu_lazy",
        "bridge 1.19, lazy mode",
    ),
    # --- operators and annotations
    ActivityRule(
        "item",
        (_O,),
        re.compile(r"^aten::(?:item|is_nonzero|equal)$"),
        Activity.COPY_D2H,
        "aten::item",
        "reads a value back",
    ),
    ActivityRule(
        "loader-wait",
        (_O, _A),
        re.compile(r"^enumerate\(DataLoader\)#_MultiProcessing"),
        Activity.LOADER_WAIT,
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "torch",
    ),
    ActivityRule(
        "data-loader",
        (_O, _A),
        re.compile(
            r"^enumerate\(DataLoader\)|(?:train|val|test|predict)_dataloader_next|\.(?:val|test|predict|train)_next\b|\bdata_?loader\b|\[LightningDataModule\](?:(?!\[LightningDataModule\])\S)*_dataloader$",
            re.IGNORECASE,
        ),
        Activity.DATA_LOADER,
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
        "torch and Lightning",
    ),
    ActivityRule(
        "batch-to-device",
        (_A,),
        re.compile(r"batch_to_device|transfer_batch_to_device"),
        Activity.COPY_H2D,
        "[pl][profile][Strategy]SingleDeviceStrategy.batch_to_device",
        "Lightning",
    ),
    ActivityRule(
        "closure",
        (_A,),
        re.compile(r"\[(?:Strategy|LightningModule)\][\w.]*\.(?:training_step|backward)$"),
        Activity.CLOSURE,
        "[pl][profile][Strategy]SingleDeviceStrategy.backward",
        "Lightning runs forward and backward inside Optimizer.step",
    ),
    ActivityRule(
        "optimizer",
        (_O, _A),
        re.compile(r"^Optimizer\.(?:step|zero_grad)#|\.optimizer_zero_grad$|^optimizer$", re.IGNORECASE),
        Activity.OPTIMIZER,
        "Optimizer.step#SGD.step",
        "torch and Lightning; Lightning's optimizer_step wraps the closure, so it is left out on purpose",
    ),
    ActivityRule(
        "callback",
        (_A,),
        re.compile(r"\[(?:Callback|Logger)\]|save_checkpoint|log_metrics"),
        Activity.CALLBACK,
        "[pl][profile][Callback]ModelCheckpoint.on_train_batch_end",
        "Lightning",
    ),
    ActivityRule(
        "collective-annotation",
        (_A,),
        re.compile(r"^(?:nccl|gloo|mpi|hccl|ucc|xccl|rccl):"),
        Activity.COLLECTIVE,
        "nccl:all_reduce",
        "torch.distributed",
    ),
    ActivityRule(
        "compile-annotation",
        (_O, _A),
        re.compile(r"\(dynamo_timed\)|^compile_fx|^_compile\.|^inductor_codecache|^Torch-Compile-Time"),
        Activity.COMPILE,
        "_compile.compile_inner (dynamo_timed)",
        "torch.compile",
    ),
    ActivityRule(
        "step",
        (_A, _O),
        re.compile(r"^ProfilerStep#\d+$|^\[pl\]\[profile\]run_training_batch$"),
        Activity.STEP,
        "ProfilerStep#3",
        "torch, Lightning",
    ),
    ActivityRule(
        "garbage-collection",
        (_P, _O, _A),
        re.compile(r"<built-in (?:function|method) collect\b|\bgc\.collect\b|garbage.collect", re.IGNORECASE),
        Activity.GARBAGE,
        "<built-in function collect>",
        "python frames (with_stack=True), annotations",
    ),
    ActivityRule(
        "replay-frame",
        (_P,),
        re.compile(r"hpu/graphs\.py\(\d+\): replay|cuda/graphs\.py\(\d+\): replay"),
        Activity.GRAPH_LAUNCH,
        "habana_frameworks/torch/hpu/graphs.py(210): replayV3",
        "HPU and CUDA graphs",
    ),
)


def activity(kind: HostKind, name: str) -> Activity:
    """Return the activity of a host row of this kind and name."""
    rule = activity_rule(kind, name)
    return rule.activity if rule else Activity.NONE


def activity_rule(kind: HostKind, name: str) -> ActivityRule | None:
    """Return the first activity rule that fits, or None."""
    return _activity_rule(kind, name[:LONGEST])


@lru_cache(REMEMBERED)
def _activity_rule(kind: HostKind, name: str) -> ActivityRule | None:
    for rule in ACTIVITY_RULES:
        if kind in rule.kinds and rule.name.search(name):
            return rule
    return None


_ON_CPU = re.compile(r"mkldnn_(?!rnn)|_for_cpu$|nnpack|qnnpack|fbgemm")
_ON_DEVICE = words(lambda w: w.operators, "_mps_", "pin_memory", "_(?:flash|efficient|cudnn)_attention_fo(?!r_cpu)")


def runs_on_cpu(name: str) -> bool:
    """Whether only the CPU has kernels for an operator of this name (`native_functions.yaml` of PyTorch)."""
    return _ON_CPU.search(name) is not None and _ON_DEVICE.search(name) is None


def runs_on_device(name: str) -> bool:
    """Whether an operator's name shows a device's library or memory, which the CPU has not."""
    return _ON_DEVICE.search(name) is not None


_TO_HOST = re.compile(r"DtoH|Device -> (?:Pageable|Pinned|Host)|D2H|DEVICE_TO_HOST", re.IGNORECASE)
_TO_DEVICE = re.compile(r"HtoD|(?:Pageable|Pinned|Host) -> Device|H2D|HOST_TO_DEVICE", re.IGNORECASE)


def copies_to_host(name: str) -> bool:
    """Whether a copy's name shows a read back from the device."""
    return _TO_HOST.search(name) is not None


def copies_to_device(name: str) -> bool:
    """Whether a copy's name shows an upload to the device."""
    return _TO_DEVICE.search(name) is not None


_FREES = words(lambda w: w.free)


def frees_memory(name: str) -> bool:
    """Whether a call gives memory back at once, for which it waits until the device is through.

    That is why PyTorch caches memory instead ("without device synchronizations", its notes on CUDA semantics).
    """
    return _FREES.search(name) is not None


_DEVICE_WIDE = words(lambda w: w.wait_for_all)


def waits_for_all_streams(name: str) -> bool:
    """Whether a call returns when all streams of the device are through."""
    return _DEVICE_WIDE.search(name) is not None or frees_memory(name)


_WITHIN = re.compile(r"DtoD|Device -> Device|D2D|DEVICE_TO_DEVICE|^Memset|^__amd_rocclr_fill", re.IGNORECASE)


def copies_within(name: str) -> bool:
    """Whether a copy's name shows that it stays in the device's memory."""
    return _WITHIN.search(name) is not None


_BLOCKING_COPY = re.compile(r"DtoH|Device -> (?:Pageable|Pinned|Host)|DEVICE_TO_HOST|Pageable", re.IGNORECASE)
_FOR_ALL = re.compile(r"(?:Stream|Device|Ctx|Context)Synchronize|synchronize(?:Stream|Device)")
_SYNCHRONOUS_CALL = words(lambda w: w.blocking_copy)
_FREE = words(lambda w: w.first_free)
_LOADED_LAUNCH = words(lambda w: w.loaded_launch)
_READ_OPERATOR = re.compile(r"_local_scalar_dense|hpu_lazy_D2H|^aten::equal$")


def may_block(name: str) -> bool:
    """Whether a copy of this name may block its call until done: reads, and copies of pageable memory."""
    return _BLOCKING_COPY.search(name) is not None


def copies_pageable(name: str) -> bool:
    """Whether a copy's name shows pageable memory of the host."""
    return "pageable" in name.lower()


def fetches_without_workers(name: str) -> bool:
    """Whether a row's name shows that the main thread fetches a batch itself."""
    return "_SingleProcessDataLoaderIter" in name


def is_synchronous_call(name: str) -> bool:
    """Whether a runtime call of this name returns only when its copy is done."""
    return _SYNCHRONOUS_CALL.match(name) is not None


def launches_loaded(name: str) -> bool:
    """Whether a runtime call of this name launches a kernel that was compiled or loaded while the program ran."""
    return _LOADED_LAUNCH.match(name) is not None


def may_create_context(name: str) -> bool:
    """Whether a trace's first runtime call, if of this name, creates the context: there is nothing yet to free."""
    return _FREE.match(name) is not None


def reads_value(name: str) -> bool:
    """Whether an operator of this name itself reads one value back (`item()`, and what compares whole tensors)."""
    return _READ_OPERATOR.search(name) is not None


def call_name(name: str) -> str:
    """Return a host row's plain name: Synapse Logger writes `call:synLaunch`, Synapse `enqueue (accel0)`."""
    return name.removeprefix("call:")


@lru_cache(maxsize=REMEMBERED)
def waits_for_all(name: str) -> bool:
    """Whether a call returns only when all that was launched on a stream or device is done."""
    return _FOR_ALL.search(name) is not None


_FOR_OTHERS = re.compile(r"HostFunc|AddCallback|WaitValue|Ipc(?:Open|Get)EventHandle")


def waits_for_others(name: str) -> bool:
    """Whether a call makes a stream wait for code of the host, a value in memory, or another process."""
    return _FOR_OTHERS.search(name) is not None
