"""Which row is what, in every dialect that hpuprof reads: one table of rules. Owns vendor words; nothing else does.

Four small tables, each tried in order, first match wins:

`ROW_RULES`       category (lower case) and whether the row lies on a device engine lane -> which table the row goes to
`ENGINE_RULES`    thread name, process name or HPU lane number -> engine of a device lane
`DEVICE_RULES`    engine, category, kernel or hardware-event name -> compute, communication, copy or marker
`ACTIVITY_RULES`  host row kind and name -> what the host does in it

Every rule carries an example that the tests classify, and the source that the rule was read from. *G1*, *G2*, *G3* are the
three generations of Habana's traces (merged JSON up to about bridge 1.19; mid-2025; the Kineto plugin).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from hpuprof.model.schema import Activity, DeviceKind, HostKind

Target = Literal["host", "device", "memory", "ignore"]
LONGEST = 8192
"""Characters of a name in which rules look for words. The longest names of traces are kernels' templates of some 5,000; one name of
100 MB, which compresses to 100 kB, would take minutes in some thirty patterns."""


@dataclass(frozen=True)
class RowRule:
    """Send rows of `categories` to a table; `lane` restricts the rule to rows on (or off) a device engine lane."""

    id: str
    categories: frozenset[str]
    target: Target
    kind: HostKind | None = None
    lane: bool | None = None
    source: str = ""


def _cats(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROW_RULES: tuple[RowRule, ...] = (
    RowRule("op", _cats("cpu_op operator"), "host", HostKind.OP, source="Kineto; `Operator` until torch 1.11"),
    RowRule("python", _cats("python_function python"), "host", HostKind.PYTHON, source="Kineto, with_stack=True"),
    RowRule("annotation", _cats("user_annotation"), "host", HostKind.ANNOTATION, source="Kineto, record_function"),
    RowRule(
        "runtime",
        _cats(
            "cuda_runtime cuda_driver hip_runtime hip_driver xpu_runtime xpu_driver mtia_runtime privateuse1_runtime privateuse1_driver"
        ),
        "host",
        HostKind.RUNTIME,
        source="Kineto; privateuse1_runtime carries the bridge rows in G3",
    ),
    RowRule(
        "kernel", _cats("kernel concurrent_kernel"), "device", source="Kineto, G1, G2, G3; `Kernel` before torch 1.12"
    ),
    RowRule("memcpy", _cats("gpu_memcpy memcpy gpu_memset memset"), "device", source="Kineto, G1, G3"),
    RowRule("mtia", _cats("mtia_ccp_events"), "device", source="Kineto on MTIA"),
    RowRule(
        "lane-runtime", _cats("runtime hpu_op"), "device", lane=True, source="G1 DMA and NIC rows; G3 non-kernel rows"
    ),
    RowRule(
        "host-runtime",
        _cats("runtime hpu_op hpu_meta_op"),
        "host",
        HostKind.RUNTIME,
        lane=False,
        source="G1-G3 Synapse",
    ),
    RowRule(
        "synapse-logger", _cats("foo"), "host", HostKind.RUNTIME, source="Synapse Logger files mark bridge rows `foo`"
    ),
    RowRule("memory", _cats("cpu_instant_event"), "memory", source="Kineto, G1 Memory Logs"),
    RowRule(
        "device-annotation",
        _cats("gpu_user_annotation mtia_user_annotation"),
        "ignore",
        source="annotations projected on the device are no device work",
    ),
    RowRule("sync-marker", _cats("cuda_sync"), "ignore", source="Kineto: a wait drawn on a stream is no device work"),
    RowRule(
        "overhead", _cats("overhead trace cuda_profiler_range"), "ignore", source="Kineto: the profiler's own rows"
    ),
    RowRule("flow", _cats("ac2g async_cpu_to_gpu async fwdbwd forward_backward enqueue"), "ignore", source="arrows"),
)

IGNORED_MTIA = re.compile(r"^mtia_(?:insight|counters|workloadd|memory)")


def row_rule(category: str, *, lane: bool) -> RowRule | None:
    """Return the rule for a category, or None when no rule knows it. `lane`: the row lies on a device engine lane."""
    category = category.lower()
    for rule in ROW_RULES:
        if category in rule.categories and rule.lane in (None, lane):
            return rule
    return None


# ---------------------------------------------------------------------------------------------------------------- engines

_HPU_THREAD = re.compile(r"^\[H?D\d+\](?=.)\s*(?P<engine>.*)")
_HPU_ENGINE_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bTPC\b", re.IGNORECASE), "TPC"),
    (re.compile(r"\bMME\b", re.IGNORECASE), "MME"),
    (re.compile(r"\bNIC\b", re.IGNORECASE), "NIC"),
    (re.compile(r"DMA\b", re.IGNORECASE), "DMA"),
)
# Lane number = class * 1000 + engine index; classes in the order of the vendor's table (bridge 1.19, trace_parser.cpp).
_HPU_LANE_CLASS = {
    0: "DMA",
    1: "MME",
    2: "TPC",
    3: "DMA",
    4: "DMA",
    5: "DMA",
    6: "MME",
    7: "TPC",
    14: "NIC",
    15: "NIC",
    16: "NIC",
    17: "NIC",
}
HPU_PROCESS = re.compile(r"^/device:HPU:\d+$")


def hpu_engine(thread_name: str, process_name: str, pid: int | None, tid: int | None) -> str | None:
    """Return the engine (MME, TPC, DMA, NIC, other) of an HPU device lane, or None when the track is no such lane.

    A thread named `[HD0] TPC 0` (or `TPC_0` in a device process) is a lane; without a thread name, pid 0 with an
    engine's lane number. pid 0 alone proves nothing: python rows were seen there too.
    """
    thread_name = thread_name[:LONGEST]
    match = _HPU_THREAD.match(thread_name)
    in_device = bool(HPU_PROCESS.match(process_name)) or pid == 0
    label = match["engine"] if match else thread_name if in_device else ""
    for pattern, engine in _HPU_ENGINE_WORDS:
        if pattern.search(label.replace("_", " ")):
            return engine
    if match:
        return "other"
    if in_device and tid is not None and not label and tid >= 0:
        return _HPU_LANE_CLASS.get(tid // 1000, "other") if tid < 18_000 else None
    return None


# ----------------------------------------------------------------------------------------------------------- device kinds


@dataclass(frozen=True)
class DeviceRule:
    """Classify a device row by engine, by category, by name or by hardware event; None matches anything."""

    id: str
    kind: DeviceKind
    engine: str | None = None
    categories: frozenset[str] | None = None
    name: re.Pattern[str] | None = None
    hw_event: re.Pattern[str] | None = None
    example: dict[str, str] = field(default_factory=dict)
    source: str = ""

    def matches(self, *, engine: str, category: str, name: str, hw_event: str) -> bool:
        """Whether the row fits every condition that the rule sets."""
        return (
            (self.engine is None or engine == self.engine)
            and (self.categories is None or category in self.categories)
            and (self.name is None or self.name.search(name) is not None)
            and (self.hw_event is None or self.hw_event.search(hw_event) is not None)
        )


DEVICE_RULES: tuple[DeviceRule, ...] = (
    DeviceRule(
        "hw-marker",
        DeviceKind.MARKER,
        hw_event=re.compile(r"QMAN|CMD_EXE|RD_FIRST|READ_FIRST|SPU_START$"),
        example={"engine": "TPC", "category": "kernel", "name": "relu_fwd_f32", "hw_event": "TPC_QMAN_CMD_EXE"},
        source="only activity events occupy an engine (real Gaudi3 hardware trace)",
    ),
    DeviceRule(
        "hpu-nic",
        DeviceKind.COMMUNICATION,
        engine="NIC",
        example={"engine": "NIC", "category": "runtime", "name": "send", "hw_event": ""},
        source="G1 lane table",
    ),
    DeviceRule(
        "hpu-dma-transpose",
        DeviceKind.COMPUTE,
        engine="DMA",
        name=re.compile(r"^DmaTranspose"),
        example={"engine": "DMA", "category": "kernel", "name": "DmaTranspose", "hw_event": ""},
        source="the bridge gives it category Kernel",
    ),
    DeviceRule(
        "hpu-dma",
        DeviceKind.COPY,
        engine="DMA",
        example={"engine": "DMA", "category": "runtime", "name": "dma", "hw_event": "DBG_DMA_TRC_WR_DATA_LAST"},
        source="G1 lane table",
    ),
    DeviceRule(
        "copy",
        DeviceKind.COPY,
        categories=_cats("gpu_memcpy memcpy gpu_memset memset"),
        example={"engine": "", "category": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "hw_event": ""},
        source="Kineto",
    ),
    DeviceRule(
        "hpu-other-engine",
        DeviceKind.MARKER,
        engine="other",
        example={"engine": "other", "category": "runtime", "name": "arc", "hw_event": ""},
        source="PSOC, SM, PMMU, ARC_FARM lanes carry control, not work",
    ),
    DeviceRule(
        "collective-kernel",
        DeviceKind.COMMUNICATION,
        name=re.compile(
            r"nccl|rccl|hccl|oneccl|cross_device_reduce|deep_ep|nvshmem|"
            r"(?:multimem|two_shot|one_shot)_all_reduce",
            re.IGNORECASE,
        ),
        example={
            "engine": "",
            "category": "kernel",
            "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
            "hw_event": "",
        },
        source="NCCL, RCCL, HCCL, oneCCL, and custom collectives (vLLM, DeepEP, symmetric memory)",
    ),
    DeviceRule(
        "rocm-copy-kernel",
        DeviceKind.COPY,
        name=re.compile(r"^__amd_rocclr_(?:copy|fill)Buffer"),
        example={"engine": "", "category": "kernel", "name": "__amd_rocclr_copyBuffer.kd", "hw_event": ""},
        source="ROCm runs some copies as kernels",
    ),
    DeviceRule(
        "mtia-dma",
        DeviceKind.COPY,
        categories=_cats("mtia_ccp_events"),
        name=re.compile(r"^dma|_dma", re.IGNORECASE),
        example={"engine": "", "category": "mtia_ccp_events", "name": "dma_request", "hw_event": ""},
        source="Kineto on MTIA",
    ),
    DeviceRule(
        "compute",
        DeviceKind.COMPUTE,
        example={"engine": "MME", "category": "kernel", "name": "BatchGemm", "hw_event": "WB0_END"},
        source="everything else that runs on the device",
    ),
)


def device_rule(*, engine: str, category: str, name: str, hw_event: str = "") -> DeviceRule:
    """Return the first device rule that fits; the last one fits every row."""
    name, hw_event = name[:LONGEST], hw_event[:LONGEST]
    for rule in DEVICE_RULES:
        if rule.matches(engine=engine, category=category.lower(), name=name, hw_event=hw_event):
            return rule
    raise AssertionError("the last device rule matches everything")


# ------------------------------------------------------------------------------------------------------------- activities


@dataclass(frozen=True)
class ActivityRule:
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
        re.compile(
            r"^(?:cuda|hip|cu|xpu|mtia)\w*Synchronize|^syn(?:Event|Stream|Device)Synchronize|^synchronize(?:Stream|Event|Device)|"
            r"^(?:event|stream|device)Synchronize|^scal_completion_group_wait|^hcclSynchronize|^(?:ur|pi|ze)\w*(?:Wait|Synchronize|Finish)$|"
            r"^cu(?:Event|Stream|Ctx)Synchronize"
        ),
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
        re.compile(
            r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister)(?!Async)|^cuMem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess)"
            r"|^syn(?:Device|Host)(?:Malloc|Free|Map|Unmap)|^(?:deviceMalloc|deviceFree|hostMalloc|hostFree)\b|^urUSM\w*(?:Alloc|Free)"
        ),
        Activity.ALLOC,
        "cudaMalloc",
        "CUDA, HIP, Synapse, Level Zero",
    ),
    ActivityRule(
        "graph-launch-call",
        (_R,),
        re.compile(r"^(?:cuda|hip|cu)GraphLaunch|^ExecuteCachedGraph"),
        Activity.GRAPH_LAUNCH,
        "cudaGraphLaunch",
        "CUDA and HIP graphs; HPU Graph replay in the bridge",
    ),
    ActivityRule(
        "compile-call",
        (_R,),
        re.compile(
            r"^compileGraph|^synGraphCompile|^CompileSynapseGraph|^cuModuleLoad|^cuLibraryLoad|^hipModuleLoad|^nvrtcCompile"
        ),
        Activity.COMPILE,
        "compileGraph",
        "Synapse; a recompilation shows as compileGraph inside a step",
    ),
    ActivityRule(
        "launch-call",
        (_R,),
        re.compile(
            r"^(?:cuda|hip)(?:Ext)?(?:ModuleLaunch|Launch)(?!HostFunc)|^cuLaunch(?!HostFunc)|^synLaunch|^enqueueWithExternalEvents|^LaunchSyncTensorsGraph|^LaunchRecipeTask"
            r"|^launch_recipe|^(?:launch|Launch|run)$|^scal_stream_submit|^runFunction|^urEnqueueKernelLaunch|^zeCommandListAppendLaunchKernel"
            r"|^piEnqueueKernelLaunch|^LazyLaunch"
        ),
        Activity.LAUNCH,
        "cudaLaunchKernel",
        "CUDA, HIP, Synapse and bridge, Unified Runtime, MTIA",
    ),
    ActivityRule(
        "copy-call",
        (_R,),
        re.compile(
            r"^(?:cuda|hip|cu)Mem(?:cpy|set)|^synMem(?:Copy|set)|^mem(?:cpy|set)Async|^urEnqueueUSMMem|^urEnqueueMem"
        ),
        Activity.COPY,
        "cudaMemcpyAsync",
        "direction comes from the device row that it launched",
    ),
    ActivityRule(
        "collective-call",
        (_R, _O),
        re.compile(r"^hccl[A-Z]|^nccl[A-Z]|^c10d::|^record_param_comms"),
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
    """Return what a host row of this kind and name does."""
    rule = activity_rule(kind, name)
    return rule.activity if rule else Activity.NONE


def activity_rule(kind: HostKind, name: str) -> ActivityRule | None:
    """Return the first activity rule that fits, or None."""
    name = name[:LONGEST]
    for rule in ACTIVITY_RULES:
        if kind in rule.kinds and rule.name.search(name):
            return rule
    return None


# ------------------------------------------------------------------------------------------ words of the stock TensorBoard tab

TAB_CATEGORIES: dict[str, str] = {
    "trace": "Trace",
    "operator": "cpu_op",
    "python": "Python",
    "runtime": "Runtime",
    "kernel": "Kernel",
    "concurrent_kernel": "Kernel",
    "memcpy": "gpu_memcpy",
    "gpu_memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "gpu_memset": "gpu_memset",
    **dict.fromkeys(
        [
            "cuda_runtime",
            "cuda_driver",
            "hip_runtime",
            "hip_driver",
            "xpu_runtime",
            "xpu_driver",
            "privateuse1_runtime",
            "privateuse1_driver",
        ],
        "Runtime",
    ),
}
"""Category (lower case) -> the spelling that both torch-tb-profiler 0.4.0 (exact case) and 0.4.3 (any case) understand."""

TAB_MISREADS = _cats(
    "trace operator python runtime kernel memcpy gpu_memcpy memset gpu_memset memory gpu_user_annotation forward_backward"
)
"""Categories (lower case) that the tab takes for something: rows that it must not count get another one."""

_COLLECTIVE_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"all_?reduce", re.IGNORECASE), "all_reduce"),
    (re.compile(r"reduce_?scatter", re.IGNORECASE), "reduce_scatter"),
    (re.compile(r"all_?gather", re.IGNORECASE), "all_gather"),
    (re.compile(r"broadcast", re.IGNORECASE), "broadcast"),
    (re.compile(r"reduce", re.IGNORECASE), "reduce"),
)
_COLLECTIVE_ANNOTATION = re.compile(r"^(?P<library>nccl|gloo|hccl|xccl|rccl|ucc|mpi|oneccl):")


def tab_collective(name: str) -> str | None:
    """Return the one of the ten names by which the tab knows collectives; None for what it has no name for."""
    name = name[:LONGEST]
    library = _COLLECTIVE_ANNOTATION.match(name)
    for pattern, plain in _COLLECTIVE_NAMES:
        if pattern.search(name):
            return f"{'gloo' if library and library['library'] == 'gloo' else 'nccl'}:{plain}"
    return None


def is_collective_annotation(name: str) -> bool:
    """Tell whether an annotation is one that torch.distributed draws around a collective."""
    return _COLLECTIVE_ANNOTATION.match(name) is not None


def links_rows(family: str, categories: set[str]) -> bool:
    """Tell whether a writer's device rows can stand as they are in the tab: one row a kernel, joined to calls by correlation."""
    return family not in ("hpu", "mtia") and not any(c.lower().startswith("mtia") for c in categories)


DEVICE_NAMES = {"hpu": "HPU", "mtia": "MTIA", "xpu": "XPU", "rocm": "ROCm device", "cuda": "CUDA device"}
"""What a device is called whose trace does not name it."""


_TO_HOST = re.compile(r"DtoH|Device -> (?:Pageable|Pinned|Host)|D2H|DEVICE_TO_HOST", re.IGNORECASE)
_TO_DEVICE = re.compile(r"HtoD|(?:Pageable|Pinned|Host) -> Device|H2D|HOST_TO_DEVICE", re.IGNORECASE)


def copies_to_host(name: str) -> bool:
    """Tell whether a copy's name says that it reads back from the device."""
    return _TO_HOST.search(name) is not None


def copies_to_device(name: str) -> bool:
    """Tell whether a copy's name says that it uploads to the device."""
    return _TO_DEVICE.search(name) is not None


def device_number(process: str, pid: str) -> int:
    """Return the number of the device that a lane's process belongs to, 0 when neither name nor number tells."""
    match = HPU_PROCESS.match(process)
    number = process.rsplit(":", 1)[-1] if match else pid
    return int(number) if number.isdecimal() and len(number) <= 9 and int(number) < 64 else 0


def call_name(name: str) -> str:
    """Return a host row's plain name: Synapse Logger writes `call:synLaunch`, Synapse `enqueue (accel0)`."""
    return name.removeprefix("call:")


# --------------------------------------------------------------------------------------------------------------- families


def device_family(categories: set[str], processes: set[str], threads: set[str], names: set[str]) -> str:
    """Name the kind of device that a trace was recorded on: hpu, cuda, rocm, xpu, mtia, or cpu when nothing shows one."""
    lower = {c.lower() for c in categories}
    if (
        any(HPU_PROCESS.match(p) for p in processes)
        or lower & {"hpu_op", "hpu_meta_op"}
        or any(_HPU_THREAD.match(t) for t in threads)
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


def hpu_generation(categories: set[str], processes: set[str], names: set[str]) -> str | None:
    """Tell which generation of Habana's writers made a trace: G1, G2, G3, or None when nothing decides."""
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
# ------------------------------------------------------------------------------------------------------------ collectives

_COLLECTIVE = re.compile(
    r"^(?:nccl|gloo|mpi|hccl|ucc|xccl|rccl|oneccl):|^c10d::|^_c10d_functional(?:_autograd)?::|^record_param_comms|"
    r"^hccl[A-Z]|^nccl[A-Z]|^rccl[A-Z]|^oneccl|^MPI_|ncclDev|cross_device_reduce|deep_ep|nvshmem|"
    r"(?:multimem|two_shot|one_shot)_all_reduce"
)
"""Names of rows that belong to a collective: torch.distributed's annotations and operators, library calls, kernels."""

_RUNS_ON_HOST = re.compile(r"^(?:gloo|mpi|ucc):|^MPI_")

_OPS: tuple[tuple[str, str], ...] = (
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("allreduce", "all_reduce"),
    ("crossdevicereduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("broadcast", "broadcast"),
    ("bcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("batchisendirecv", "send_recv"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("send", "send"),
    ("recv", "recv"),
)
_PREFIX = re.compile(r"^(?:\w+::|\w+:|(?:nccl|rccl|hccl|oneccl_?|MPI_)(?:Dev)?(?:Kernel)?_?)")
_NO_TRANSFER = frozenset({"wait", "init", "end", "synchronize", "commgetasyncerror", "groupstart", "groupend"})


def is_collective(name: str) -> bool:
    """Tell whether a row's name belongs to a collective."""
    return _COLLECTIVE.search(name[:LONGEST]) is not None


def runs_on_host(name: str) -> bool:
    """Tell whether a host row of this name is the collective's execution, not its enqueueing."""
    return _RUNS_ON_HOST.match(name) is not None


def collective_op(name: str) -> str | None:
    """Return the operation of a collective's name in any dialect (`ncclDevKernel_AllReduce_Sum_f32`, `_allgather_base`,
    `gloo:all_reduce`, `hcclAllReduce`, `c10d::allreduce_`), None when the name does not tell.
    """  # noqa: D205 - one sentence that needs two lines
    plain = _PREFIX.sub("", name[:LONGEST].split("(", 1)[0]).replace("_", "").lower()
    if plain in _NO_TRANSFER:
        return None
    return next((op for word, op in _OPS if word in plain), None)


_ELEMENT_BYTES = {
    "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "double": 8, "float64": 8, "long": 8, "int64": 8,
    "int": 4, "int32": 4, "short": 2, "int16": 2, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
_SAME_TYPE = {
    "unsigned char": "byte", "signed char": "char", "long int": "long", "bf16": "bfloat16", "fp16": "half", "fp32": "float",
    "long long": "long", "float32": "float", "float16": "half", "int64": "long", "int32": "int", "uint8": "byte", "int8": "char",
}  # fmt: skip


def element_type(name: str) -> str:
    """Return the plain lower-case name of an element type: `c10::BFloat16` and `BFloat16` are bfloat16."""
    plain = name.removeprefix("c10::").lower()
    return _SAME_TYPE.get(plain, plain)


def element_bytes(dtype: str) -> int:
    """Return the size of an element type of `element_type`, 0 when it is unknown [bytes]."""
    return _ELEMENT_BYTES.get(dtype, 0)
