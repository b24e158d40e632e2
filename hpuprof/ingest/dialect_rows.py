"""The table of a row, by category, and the kind of a device row: two tables of rules, the first match wins.

`ROW_RULES`       category (lower case) and whether the row lies on a device engine lane -> the row's table
`DEVICE_RULES`    engine, category, kernel or hardware-event name -> compute, communication, copy, dispatch or marker

Every rule names its source; a device rule has an example that the tests classify.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct, field

from hpuprof.ingest.dialect_collective_kernels import COLLECTIVE_KERNELS
from hpuprof.ingest.dialect_engines import DMA, ENGINES, LONGEST, MME, REMEMBERED, TPC
from hpuprof.model.schema import DeviceKind, HostKind, SyncKind

Target = Literal["host", "device", "sync", "memory", "ignore"]


class RowRule(Struct, frozen=True):
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
            "cuda_runtime cuda_driver hip_runtime hip_driver xpu_runtime xpu_driver mtia_runtime "
            "privateuse1_runtime privateuse1_driver musa_runtime musa_driver mlu_runtime mlu_driver glow_runtime "
            "dequeue"
        ),
        "host",
        HostKind.RUNTIME,
        source="Kineto and its forks (MooreThreads/kineto); privateuse1_runtime carries the bridge rows in G3; "
        "torch_npu's thread that hands work over",
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
    RowRule(
        "sync-marker",
        _cats("cuda_sync musa_sync"),
        "sync",
        source="Kineto, enable_cuda_sync_events: a wait drawn on a stream is no device work",
    ),
    RowRule(
        "wait",
        _cats("xpu_sync"),
        "sync",
        HostKind.RUNTIME,
        source="Kineto (XpuptiActivityHandlers.cpp): a call that waits, on process -1 and its own thread",
    ),
    RowRule(
        "collective-span",
        _cats("collective_comm"),
        "host",
        HostKind.ANNOTATION,
        source="Kineto (XpuptiActivityHandlers.cpp): `xccl::` and a collective, on the thread that called it",
    ),
    RowRule("event", _cats("cuda_event"), "ignore", source="Kineto: a point of 1 ns on a stream is no device work"),
    RowRule(
        "overhead",
        _cats("overhead trace cuda_profiler_range xpu_scope_profiler"),
        "ignore",
        source="Kineto: the profiler's own rows",
    ),
    RowRule("flow", _cats("ac2g async_cpu_to_gpu async fwdbwd forward_backward enqueue"), "ignore", source="arrows"),
    RowRule(
        "boundary",
        _cats("trace_boundary"),
        "ignore",
        source="the span of recordings of scopes alone (1CatAI/1Cat-vLLM-Gaudi)",
    ),
)

CATEGORY_OF_PROCESS = {
    "CPU functions": "cpu_op",
    "CUDA functions": "overhead",  # an operator's span between two events: they nest, and are no kernels
    "Ascend Hardware": "kernel",
    "CANN": "privateuse1_runtime",
    "Overlap Analysis": "overhead",
}
"""Process of rows without a category -> that of their kind.

`export_chrome_trace` of torch/autograd/profiler.py until torch 1.7 (the process number is the name), and torch_npu's
`trace_view.json`.
"""

SYNC_KINDS = {
    "Stream Wait Event": SyncKind.STREAM_WAIT,
    "Event Sync": SyncKind.EVENT,
    "Stream Sync": SyncKind.STREAM,
    "Context Sync": SyncKind.CONTEXT,
}
"""Name of a wait's row -> what waits (Kineto, CuptiActivity.cpp)."""

SYNC_LANE = re.compile(r"^stream (\d+) \(sync\)$")
"""Name of a lane that holds the `Stream Sync` rows of a stream, and is none (Kineto, output_json.cpp)."""
HOST_WAIT = re.compile(r"^HOST_")
"""Type of a wait of the host (category `xpu_sync`); the others are barriers on the device."""
COUNTERS_PROCESS = re.compile(r"^GPU (\d{1,4}) Counters$")
"""Process, as text, of samples of hardware counters: value under the empty key (Kineto, CUPTI_PM_SAMPLING_METRICS)."""

PROFILER_PAUSE = "Activity Buffer Request"
"""Name of the `overhead` rows in which a call of the program waits for memory of the profiler (Kineto, CUPTI)."""

IGNORED_MTIA = re.compile(r"^mtia_(?:insight|counters|workloadd|memory)")


def row_rule(category: str, *, lane: bool) -> RowRule | None:
    """Return the rule for a category, or None for unknown ones. `lane`: the row lies on a device engine lane."""
    category = category.lower()
    for rule in ROW_RULES:
        if category in rule.categories and rule.lane in (None, lane):
            return rule
    return None


def stands_for_another(category: str) -> bool:
    """Whether a host row of no length marks an end of an arrow, by the name of the row that the arrow joins.

    The bridge with `PT_PROFILER_EAGER_LINKED_EVENTS`.
    """
    return category.lower() == "hpu_op"


class DeviceRule(Struct, frozen=True):
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
        """Whether the row meets every condition of the rule."""
        return (
            (self.engine is None or engine == self.engine)
            and (self.categories is None or category in self.categories)
            and (self.name is None or self.name.search(name) is not None)
            and (self.hw_event is None or self.hw_event.search(hw_event) is not None)
        )


def _engine_rules(*kinds: DeviceKind) -> list[DeviceRule]:
    return [
        DeviceRule(
            f"hpu-{engine.name.lower()}",
            engine.kind,
            engine=engine.name,
            example={"engine": engine.name, "category": "runtime", "name": "send", "hw_event": ""},
            source="G1 lane table",
        )
        for engine in ENGINES
        if engine.kind in kinds
    ]


_STAMP = re.compile(
    r"QMAN|CMD_EXE|RD_FIRST|RD_FRST|READ_FIRST|SPU_START(?: \d+)?$|STM_[01]_(?:RX|TX|QPC|QMAN)|START_EVENT(?: \d+)?$",
    re.IGNORECASE,
)
"""Hardware events that happen at one moment: commands fetched, first reads, starts, messages of a NIC."""

_COLLECTIVE_RULES = [
    DeviceRule(
        f"kernel-{kernel.id}",
        DeviceKind.COMPUTE if kernel.local else DeviceKind.COMMUNICATION,
        name=kernel.name,
        example={"engine": "", "category": "kernel", "name": kernel.example, "hw_event": ""},
        source=kernel.source,
    )
    for kernel in COLLECTIVE_KERNELS
]

DEVICE_RULES: tuple[DeviceRule, ...] = (
    DeviceRule(
        "hw-marker",
        DeviceKind.MARKER,
        hw_event=_STAMP,
        example={"engine": "TPC", "category": "kernel", "name": "relu_fwd_f32", "hw_event": "TPC_QMAN_CMD_EXE"},
        source="only activity events occupy an engine (real Gaudi3 hardware trace); stamps are drawn with a width that "
        "is no duration (readers of Gaudi2 traces in 1CatAI/1Cat-vLLM-Gaudi)",
    ),
    DeviceRule(
        "hw-marker-by-name",
        DeviceKind.MARKER,
        name=re.compile(rf"^(?=[A-Z][A-Z0-9_]*(?: \d+)?$).*(?:{_STAMP.pattern})"),
        hw_event=re.compile(r"^$"),
        example={"engine": "TPC", "category": "kernel", "name": "TPC_SPU_START 12", "hw_event": ""},
        source="rows of contexts without a name are called by the event and the context's number (same readers)",
    ),
    DeviceRule(
        "xpu-metrics",
        DeviceKind.MARKER,
        categories=_cats("kernel"),
        name=re.compile(r"^metrics: "),
        example={"engine": "", "category": "kernel", "name": "metrics: gemm_kernel", "hw_event": ""},
        source="Kineto (XpuptiScopeProfilerHandlers.cpp): a second row around a kernel, with what was measured in it",
    ),
    DeviceRule(
        "hpu-dispatch",
        DeviceKind.DISPATCH,
        engine=TPC,
        name=re.compile(r"^null$", re.IGNORECASE),
        example={"engine": TPC, "category": "kernel", "name": "null", "hw_event": "TPC_SPU_START_TO_SPU_HALT"},
        source="descriptors that schedule work, a class of their own in published ledgers (same readers)",
    ),
    DeviceRule(
        "hpu-dma-transpose",
        DeviceKind.COMPUTE,
        engine=DMA,
        name=re.compile(r"^DmaTranspose"),
        example={"engine": DMA, "category": "kernel", "name": "DmaTranspose", "hw_event": ""},
        source="the bridge gives it category Kernel",
    ),
    DeviceRule(
        "hpu-collective-copy",
        DeviceKind.COMMUNICATION,
        engine=DMA,
        name=re.compile(r"^hcl_"),
        example={"engine": DMA, "category": "hpu_op", "name": "hcl_reduce_scatter", "hw_event": ""},
        source="lanes of the DMA engines that move collectives' data (same readers)",
    ),
    *_engine_rules(DeviceKind.COMMUNICATION, DeviceKind.COPY),
    DeviceRule(
        "copy",
        DeviceKind.COPY,
        categories=_cats("gpu_memcpy memcpy gpu_memset memset"),
        example={"engine": "", "category": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "hw_event": ""},
        source="Kineto",
    ),
    *_engine_rules(DeviceKind.MARKER),
    *_COLLECTIVE_RULES,
    DeviceRule(
        "rocm-copy-kernel",
        DeviceKind.COPY,
        name=re.compile(r"^__amd_rocclr_(?:copy|fill)Buffer"),
        example={"engine": "", "category": "kernel", "name": "__amd_rocclr_copyBuffer.kd", "hw_event": ""},
        source="ROCm runs some copies as kernels",
    ),
    DeviceRule(
        "mtia-wait",
        DeviceKind.MARKER,
        categories=_cats("mtia_ccp_events"),
        name=re.compile(r"^event_wait$"),
        example={"engine": "", "category": "mtia_ccp_events", "name": "event_wait", "hw_event": ""},
        source="a stream waits for another, whose number the row carries (a public trace of HTA)",
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
    return _device_rule(engine[:LONGEST], category[:LONGEST].lower(), name[:LONGEST], hw_event[:LONGEST])


@lru_cache(REMEMBERED)
def _device_rule(engine: str, category: str, name: str, hw_event: str) -> DeviceRule:
    for rule in DEVICE_RULES:
        if rule.matches(engine=engine, category=category, name=name, hw_event=hw_event):
            return rule
    raise AssertionError("the last device rule matches everything")


_COMMANDS = re.compile(r"(?P<name>pdma_tx_commands.*?)[\s,]*\bapiId\s*=.*", re.DOTALL)
_MATRIX_NAMES = {"gemm": "GEMM", "batch_gemm": "BatchGemm", "batchgemm": "BatchGemm"}


@lru_cache(REMEMBERED)
def kernel_name(name: str, engine: str) -> str:
    """Return what a kernel on an engine is called, the same for all its calls and in all versions of the writer.

    Command pages end with their call and piece, `apiId=7 chunk=2`; matrix products are `GEMM` or `gemm` (readers of
    Gaudi2 traces in 1CatAI/1Cat-vLLM-Gaudi).
    """
    if engine == MME:
        return _MATRIX_NAMES.get(name[:LONGEST].lower(), name)
    commands = _COMMANDS.fullmatch(name[:LONGEST]) if engine else None
    return commands["name"] if commands else name


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
        [f"{maker}_{what}" for maker in ("cuda", "hip", "xpu", "privateuse1") for what in ("runtime", "driver")],
        "Runtime",
    ),
}
"""Category (lower case) -> the spelling that torch-tb-profiler 0.4.0 (exact case) and 0.4.3 (any case) understand."""

TAB_MISREADS = _cats(
    "trace operator python runtime kernel memcpy gpu_memcpy memset gpu_memset memory gpu_user_annotation "
    "forward_backward"
)
"""Categories (lower case) that the tab interprets: rows that it must not count get another one."""
