"""One case for each rule of the dialects' tables: a rule without a case here fails, and so does a case without a rule."""

from __future__ import annotations

import msgspec
import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof import families
from hpuprof.families import Seen, recognize
from hpuprof.ingest import dialects
from hpuprof.ingest.dialect_activities import ACTIVITY_RULES, ActivityRule, activity, activity_rule, call_name
from hpuprof.ingest.dialect_collectives import COLLECTIVES, Collective, collective_op
from hpuprof.ingest.dialect_engines import ENGINES, Engine, hpu_engine
from hpuprof.ingest.dialect_rows import (
    DEVICE_RULES,
    IGNORED_MTIA,
    ROW_RULES,
    DeviceRule,
    RowRule,
    device_rule,
    row_rule,
)
from hpuprof.model.schema import Activity, DeviceKind, HostKind

OP, PYTHON, ANNOTATION, RUNTIME = HostKind.OP, HostKind.PYTHON, HostKind.ANNOTATION, HostKind.RUNTIME
PLAIN_RULES = [rule for rule in DEVICE_RULES if not rule.id.startswith("kernel-")]
"""Kernels that communicate have their own table of cases: test_collective_kernels."""
ON, OFF, ANY = (True,), (False,), (False, True)

# Category as written -> rule, and where the row must lie: on a device engine lane, off it, or anywhere.
CATEGORIES = {
    "op": (ANY, "cpu_op", "Operator"),
    "python": (ANY, "python_function", "Python"),
    "annotation": (ANY, "user_annotation"),
    "runtime": (
        ANY,
        *("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver", "mtia_runtime"),
        *("privateuse1_runtime", "privateuse1_driver", "musa_runtime", "musa_driver", "mlu_runtime", "mlu_driver"),
        *("glow_runtime", "dequeue"),
    ),
    "kernel": (ANY, "kernel", "Kernel", "concurrent_kernel"),
    "memcpy": (ANY, "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"),
    "mtia": (ANY, "mtia_ccp_events"),
    "lane-runtime": (ON, "Runtime", "hpu_op"),
    "host-runtime": (OFF, "Runtime", "hpu_op", "hpu_meta_op"),
    "synapse-logger": (ANY, "foo"),
    "memory": (ANY, "cpu_instant_event"),
    "device-annotation": (ANY, "gpu_user_annotation", "mtia_user_annotation"),
    "sync-marker": (ANY, "cuda_sync", "musa_sync"),
    "wait": (ANY, "xpu_sync"),
    "collective-span": (ANY, "collective_comm"),
    "event": (ANY, "cuda_event"),
    "overhead": (ANY, "overhead", "Trace", "cuda_profiler_range", "xpu_scope_profiler"),
    "flow": (ANY, "ac2g", "async_cpu_to_gpu", "async", "fwdbwd", "forward_backward", "enqueue"),
    "boundary": (ANY, "trace_boundary"),
}

# Names as the writers spell them, by the rule that must take them.
ACTIVITIES = {
    "sync-call": [
        *(
            (RUNTIME, n)
            for n in (
                "cudaStreamSynchronize",
                "cudaDeviceSynchronize",
                "cudaEventSynchronize",
                "cuStreamSynchronize",
                "hipDeviceSynchronize",
            )
        ),
        *(
            (RUNTIME, n)
            for n in (
                "synEventSynchronize",
                "synchronizeStream (accel0)",
                "scal_completion_group_wait",
                "hcclSynchronize",
                "urEventWait",
                "zeEventHostSynchronize",
                "musaStreamSynchronize",
                "muCtxSynchronize",
                "cnrtQueueSync",
                "cnrtSyncDevice",
                "aiuWaitForQueueCapacity",
            )
        ),
    ],
    "join-call": [(RUNTIME, "JoinPendingLaunchThread")],
    "alloc-call": [
        (RUNTIME, n)
        for n in (
            "cudaMalloc",
            "cudaFree",
            "cudaHostAlloc",
            "cudaMallocHost",
            "cudaFreeHost",
            "hipMalloc",
            "synDeviceMalloc",
            "cuMemMap",
        )
    ],
    "graph-launch-call": [
        (RUNTIME, n)
        for n in (
            "cudaGraphLaunch",
            "hipGraphLaunch",
            "cuGraphLaunch",
            "ExecuteCachedGraph",
            "musaGraphLaunch",
            "cnTaskTopoEntityInvoke",
        )
    ],
    "capture-call": [
        (RUNTIME, n) for n in ("cudaStreamBeginCapture", "cudaStreamEndCapture", "cuStreamBeginCapture_v2")
    ],
    "first-use-call": [
        (RUNTIME, n)
        for n in (
            *(
                "cudaGetDeviceProperties_v2",
                "cudaGetDeviceCount",
                "cudaStreamCreateWithPriority",
                "cudaLibraryLoadData",
            ),
            *("cuInit", "cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuModuleGetFunction", "cuLibraryLoadData"),
            *("hipInit", "hipModuleLoadData", "hipGetDevicePropertiesR0600", "cudaDeviceGetStreamPriorityRange"),
        )
    ],
    "compile-call": [(RUNTIME, n) for n in ("compileGraph", "synGraphCompile", "nvrtcCompileProgram")],
    "launch-call": [
        *(
            (RUNTIME, n)
            for n in (
                "cudaLaunchKernel",
                "cudaLaunchKernelExC",
                "cuLaunchKernelEx",
                "hipLaunchKernel",
                "hipExtModuleLaunchKernel",
                "runFunction",
            )
        ),
        *(
            (RUNTIME, n)
            for n in (
                "synLaunchWithExternalEvents",
                "enqueueWithExternalEventsExt (accel0)",
                "LaunchSyncTensorsGraph",
                "scal_stream_submit",
            )
        ),
        *(
            (RUNTIME, n)
            for n in (
                "LaunchRecipeTask",
                "LaunchRecipe",
                "launch_recipe",
                "launch",
                "Launch",
                "run",
                "urEnqueueKernelLaunch",
                "zeCommandListAppendLaunchKernel",
            )
        ),
    ],
    "copy-call": [
        *(
            (RUNTIME, n)
            for n in (
                "cudaMemcpyAsync",
                "cudaMemcpy",
                "cudaMemsetAsync",
                "hipMemcpyWithStream",
                "synMemCopyAsync",
                "synMemCopyAsyncMultiple",
            )
        ),
        *((RUNTIME, n) for n in ("memcpyAsync (accel0)", "urEnqueueUSMMemcpy")),
    ],
    "collective-call": [
        (RUNTIME, "hcclAllReduce"),
        (RUNTIME, "ncclAllReduce"),
        (OP, "c10d::allreduce_"),
        (OP, "record_param_comms"),
    ],
    "lazy-read": [
        (RUNTIME, "_local_scalar_dense_hpu_lazy"),
        (RUNTIME, "copy_hpu_lazy_D2H"),
        (OP, "aten::_local_scalar_dense"),
    ],
    "lazy-upload": [(RUNTIME, "copy_hpu_lazy_H2D")],
    "lazy-build": [(RUNTIME, "SyncTensorsGraphInternal"), (RUNTIME, "StepMarker")],
    "lazy-accumulate": [(RUNTIME, "add_hpu_lazy"), (RUNTIME, "empty_hpu_lazy")],
    "item": [(OP, "aten::item"), (OP, "aten::is_nonzero"), (OP, "aten::equal")],
    "loader-wait": [(k, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__") for k in (OP, ANNOTATION)],
    "data-loader": [
        *((k, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__") for k in (OP, ANNOTATION)),
        *(
            (ANNOTATION, f"[pl][profile]{n}")
            for n in ("[_TrainingEpochLoop].train_dataloader_next", "[_EvaluationLoop].val_next")
        ),
    ],
    "batch-to-device": [
        (ANNOTATION, f"[pl][profile]{n}")
        for n in ("[Strategy]X.batch_to_device", "[LightningModule]Net.transfer_batch_to_device")
    ],
    "closure": [
        (ANNOTATION, f"[pl][profile][Strategy]SingleDeviceStrategy.{n}") for n in ("training_step", "backward")
    ],
    "optimizer": [
        *((k, "Optimizer.step#SGD.step") for k in (OP, ANNOTATION)),
        (ANNOTATION, "Optimizer.zero_grad#AdamW.zero_grad"),
        (ANNOTATION, "[pl][profile][LightningModule]Net.optimizer_zero_grad"),
        (ANNOTATION, "optimizer"),
    ],
    "callback": [
        (ANNOTATION, "[pl][profile][Callback]ModelCheckpoint.on_train_batch_end"),
        (ANNOTATION, "[pl][profile][Logger]CSVLogger.save"),
    ],
    "collective-annotation": [(ANNOTATION, f"{n}:all_reduce") for n in ("nccl", "gloo", "hccl", "rccl", "xccl")],
    "compile-annotation": [(k, "_compile.compile_inner (dynamo_timed)") for k in (OP, ANNOTATION)],
    "step": [(ANNOTATION, "ProfilerStep#3"), (OP, "ProfilerStep#12"), (ANNOTATION, "[pl][profile]run_training_batch")],
    "garbage-collection": [(PYTHON, "<built-in method collect of module object at 0x7f>"), (ANNOTATION, "gc.collect")],
    "replay-frame": [
        (PYTHON, "habana_frameworks/torch/hpu/graphs.py(210): replayV3"),
        (PYTHON, "torch/cuda/graphs.py(88): replay"),
    ],
}

# Names that look like work of some kind and are none of it.
NO_ACTIVITY = [
    *(
        (RUNTIME, n)
        for n in (
            "cudaStreamWaitEvent",
            "cudaEventRecord",
            "cudaEventQuery",
            "cudaMallocAsync",
            "cudaFreeAsync",
            "cudaStreamIsCapturing",
            "cudaThreadExchangeStreamCaptureMode",
        )
    ),
    *((RUNTIME, n) for n in ("synEventRecord", "streamWaitEvent (accel0)", "eventRecord (accel0)", "profilerStart")),
    *((OP, n) for n in ("aten::add", "aten::copy_", "aten::to", "cudaLaunchKernel", "compileGraph")),
    (ANNOTATION, "[pl][profile][LightningModule]Net.optimizer_step"),
    (ANNOTATION, "## forward ##"),
    (PYTHON, "torch/cuda/graphs.py(88): capture_begin"),
]

DEVICE_ROWS = {
    "hw-marker": [
        ("TPC", "kernel", "relu_fwd_f32", "TPC_QMAN_CMD_EXE"),
        ("MME", "Kernel", "gemm", "MME_RD_FIRST"),
        ("TPC", "Kernel", "x", "TPC_SPU_START"),
        ("TPC", "kernel", "TPC_SPU_START 12", "TPC_SPU_START"),
        ("TPC", "kernel", "null", "TPC_SPU_START"),
        ("DMA", "hpu_op", "DmaMemcpy", "DBG_DMA_TRC_RD_FRST_ADDR_PUSH"),
        *(
            ("NIC", "hpu_op", "hcl_reduce", f"NIC0_STM_{i}_{way}")
            for i in (0, 1)
            for way in ("RX", "TX", "QPC", "QMAN")
        ),
        ("NIC", "hpu_op", "x", "stm_1_rx_12"),
        ("MME", "kernel", "GEMM", "START_EVENT"),
    ],
    "hw-marker-by-name": [
        ("TPC", "kernel", "TPC_SPU_START", ""),
        ("DMA", "hpu_op", "DBG_DMA_TRC_RD_FRST_ADDR_PUSH 3", ""),
        ("NIC", "hpu_op", "STM_0_QPC 7", ""),
        ("MME", "kernel", "START_EVENT 12", ""),
    ],
    "xpu-metrics": [("", "kernel", "metrics: gemm_kernel", "")],
    "hpu-dispatch": [("TPC", "kernel", "null", "TPC_SPU_START_TO_SPU_HALT"), ("TPC", "Kernel", "null", "")],
    "hpu-dma-transpose": [("DMA", "Kernel", "DmaTranspose", "")],
    "hpu-collective-copy": [("DMA", "hpu_op", "hcl_reduce_scatter", "DBG_DMA_TRC_WR_DATA_LAST")],
    "hpu-nic": [("NIC", "Runtime", "send", ""), ("NIC", "hpu_op", "recv", "")],
    "hpu-dma": [("DMA", "Runtime", "dma", "DBG_DMA_TRC_WR_DATA_LAST"), ("DMA", "gpu_memcpy", "memcpy", "")],
    "copy": [("", c, "Memcpy HtoD (Pinned -> Device)", "") for c in ("gpu_memcpy", "Memcpy")]
    + [("", c, "Memset (Device)", "") for c in ("gpu_memset", "Memset")],
    "hpu-other": [("other", "Runtime", "arc", "")],
    "rocm-copy-kernel": [
        ("", "kernel", "__amd_rocclr_copyBuffer.kd", ""),
        ("", "kernel", "__amd_rocclr_fillBufferAligned", ""),
    ],
    "mtia-wait": [("", "mtia_ccp_events", "event_wait", "")],
    "mtia-dma": [("", "mtia_ccp_events", "dma_request", ""), ("", "mtia_ccp_events", "wait_DMA", "")],
    "compute": [
        ("MME", "Kernel", "BatchGemm", "WB0_END"),
        ("TPC", "kernel", "relu_fwd_f32", "TPC_SPU_START_TO_SPU_HALT"),
        ("TPC", "kernel", "TPC_SPU_START_TO_SPU_HALT 12", ""),
        ("TPC", "kernel", "TPC_SPU_START 12", "TPC_SPU_START_TO_SPU_HALT"),
        ("MME", "kernel", "START_EVENT 12", "MMEH_WB1_MON_TS_BIT1"),
        ("MME", "kernel", "MMEH_WB0_MON_TS_BIT1 12", ""),
        ("MME", "kernel", "null", "MMEH_WB0_MON_TS_BIT1"),
        ("", "kernel", "null", ""),
        ("", "kernel", "void at::native::vectorized_elementwise_kernel", ""),
        ("", "mtia_ccp_events", "job_run", ""),
    ],
}


def test_every_rule_has_a_case_and_every_case_a_rule():
    assert [r.id for r in ROW_RULES] == list(CATEGORIES)
    assert [r.id for r in ACTIVITY_RULES] == list(ACTIVITIES)
    assert [r.id for r in PLAIN_RULES] == list(DEVICE_ROWS)


@pytest.mark.parametrize("rule", ROW_RULES, ids=lambda r: r.id)
def test_categories(rule: RowRule):
    lanes, *categories = CATEGORIES[rule.id]
    assert {c.lower() for c in categories} == rule.categories
    for category in categories:
        for lane in lanes:
            assert row_rule(category, lane=lane) is rule, (category, lane)


@pytest.mark.parametrize("category", ["made_up", "", "kernels", "cuda"])
def test_categories_that_no_rule_knows(category: str):
    assert row_rule(category, lane=False) is None


def test_row_rules_say_what_their_rows_are():
    hosts = {r.id: r.kind for r in ROW_RULES if r.target == "host"}
    assert hosts == {
        "op": OP,
        "python": PYTHON,
        "annotation": ANNOTATION,
        "runtime": RUNTIME,
        "host-runtime": RUNTIME,
        "synapse-logger": RUNTIME,
        "collective-span": ANNOTATION,
    }
    assert {r.id: r.kind for r in ROW_RULES if r.target != "host" and r.kind} == {"wait": RUNTIME}
    assert all(r.source for r in (*ROW_RULES, *ACTIVITY_RULES, *DEVICE_RULES))


@pytest.mark.parametrize("rule", ACTIVITY_RULES, ids=lambda r: r.id)
def test_activities(rule: ActivityRule):
    examples = [(kind, rule.example) for kind in rule.kinds]
    for kind, name in [*examples, *ACTIVITIES[rule.id]]:
        assert activity_rule(kind, name) is rule, (kind.name, name)


@pytest.mark.parametrize(("kind", "name"), NO_ACTIVITY)
def test_names_without_an_activity(kind: HostKind, name: str):
    assert activity(kind, name) == Activity.NONE


def test_synapse_logger_prefixes_calls():
    assert call_name("call:synLaunchWithExternalEvents") == "synLaunchWithExternalEvents"
    assert call_name("aten::add") == "aten::add"


@pytest.mark.parametrize("rule", PLAIN_RULES, ids=lambda r: r.id)
def test_device_rows(rule: DeviceRule):
    assert device_rule(**rule.example) is rule
    for engine, category, name, hw_event in DEVICE_ROWS[rule.id]:
        assert device_rule(engine=engine, category=category, name=name, hw_event=hw_event) is rule, (engine, name)


def test_device_kinds():
    assert {r.id: r.kind for r in PLAIN_RULES} == {
        "hw-marker": DeviceKind.MARKER,
        "hw-marker-by-name": DeviceKind.MARKER,
        "xpu-metrics": DeviceKind.MARKER,
        "hpu-dispatch": DeviceKind.DISPATCH,
        "hpu-collective-copy": DeviceKind.COMMUNICATION,
        "hpu-nic": DeviceKind.COMMUNICATION,
        "hpu-dma-transpose": DeviceKind.COMPUTE,
        "hpu-dma": DeviceKind.COPY,
        "copy": DeviceKind.COPY,
        "hpu-other": DeviceKind.MARKER,
        "rocm-copy-kernel": DeviceKind.COPY,
        "mtia-wait": DeviceKind.MARKER,
        "mtia-dma": DeviceKind.COPY,
        "compute": DeviceKind.COMPUTE,
    }


DEVICE = "/device:HPU:0"
LANES = [
    # thread name, process name, pid, tid -> engine
    ("[HD0] TPC 5", DEVICE, 0, 7010, "TPC"),  # Gaudi3
    ("[D0] TPC 0", DEVICE, 0, 7000, "TPC"),  # Gaudi2
    ("[HD0] MME", DEVICE, 0, 6058, "MME"),
    ("[D0] Internal DMA 0 (DRAM/SRAM)", DEVICE, 0, 4000, "DMA"),
    ("[D0] SPDMA 0", DEVICE, 0, 3000, "DMA"),
    ("[D0] NIC 3", DEVICE, 0, 15003, "NIC"),
    ("[HD0] ARC_FARM 1", DEVICE, 0, 12001, "other"),
    ("TPC_0", DEVICE, 0, 7000, "TPC"),
    ("[HD0] TPC 5", "", 17, "not a number", "TPC"),  # the CSV: engines are threads
    # Without thread names the lane number decides: class * 1000 + engine.
    ("", DEVICE, 0, 0, "DMA"),
    ("", DEVICE, 0, 1000, "MME"),
    ("", DEVICE, 0, 2007, "TPC"),
    ("", DEVICE, 0, 3000, "DMA"),
    ("", DEVICE, 0, 4001, "DMA"),
    ("", DEVICE, 0, 5000, "DMA"),
    ("", DEVICE, 0, 6000, "MME"),
    ("", DEVICE, 0, 7019, "TPC"),
    ("", DEVICE, 0, 8000, "other"),
    ("", DEVICE, 0, 13000, "other"),
    *(("", DEVICE, 0, lane * 1000, "NIC") for lane in (14, 15, 16, 17)),
    # No lanes: python threads on pid 0, Synapse's host tracks, ordinary threads.
    ("thread 34566 (python3)", "python", 0, 34566, None),
    ("", "", 0, 34566, None),
    ("", "", 22101, 4294966298, None),
    ("", "python", 26398, 7019, None),
    ("MainThread", "python", 26398, 26398, None),
]


@pytest.mark.parametrize(("thread", "process", "pid", "tid", "engine"), LANES)
def test_engines(thread: str, process: str, pid: int, tid: object, engine: str | None):
    assert hpu_engine(thread, process, pid, tid if isinstance(tid, int) else None) == engine


FAMILIES = [
    # categories, processes, threads, names -> family
    ({"cpu_op"}, set(), set(), set(), "cpu"),
    ({"cpu_op", "user_annotation"}, {"python"}, set(), {"aten::add"}, "cpu"),
    ({"user_annotation", "trace_boundary"}, set(), set(), {"decode"}, "unknown"),
    ({"cpu_op", "kernel"}, set(), set(), {"cudaLaunchKernel"}, "cuda"),
    ({"Operator", "Kernel"}, set(), set(), set(), "cuda"),
    ({"cuda_runtime"}, set(), set(), set(), "cuda"),
    ({"gpu_memcpy"}, set(), set(), set(), "cuda"),
    ({"kernel", "cuda_runtime"}, set(), set(), {"hipLaunchKernel"}, "rocm"),
    ({"kernel", "xpu_runtime"}, set(), set(), set(), "xpu"),
    ({"mtia_ccp_events", "mtia_runtime"}, set(), set(), set(), "mtia"),
    ({"Kernel"}, {"/device:HPU:0"}, set(), set(), "hpu"),
    ({"kernel", "hpu_op"}, set(), set(), set(), "hpu"),
    ({"hpu_meta_op"}, set(), set(), set(), "hpu"),
    ({"Kernel"}, set(), {"[HD0] TPC 0"}, set(), "hpu"),
    ({"foo"}, set(), set(), {"SyncTensorsGraphInternal"}, "hpu"),
    ({"foo"}, set(), set(), {"call:synLaunchWithExternalEvents"}, "hpu"),
    ({"privateuse1_runtime"}, set(), set(), {"LaunchRecipe"}, "hpu"),
    ({"kernel"}, {"Ascend Hardware"}, set(), set(), "npu"),
    ({"kernel", "privateuse1_runtime"}, set(), set(), {"musaLaunchKernel"}, "musa"),
    ({"kernel", "privateuse1_runtime"}, set(), set(), {"muLaunchKernel"}, "musa"),
    ({"kernel", "privateuse1_runtime"}, set(), set(), {"cnInvokeKernelEx"}, "mlu"),
    ({"kernel", "privateuse1_runtime"}, set(), set(), {"cnrtQueueSync"}, "mlu"),
    ({"kernel", "privateuse1_runtime"}, set(), set(), {"aiuSubmitToHardware"}, "spyre"),
    ({"privateuse1_runtime"}, {"TPU"}, set(), set(), "tpu"),
    ({"kernel"}, {"/device:TPU:0"}, set(), set(), "tpu"),
    ({"kernel", "privateuse1_runtime"}, {"python"}, set(), {"fooLaunch"}, "device"),
    ({"kernel", "privateuse1_runtime"}, {"flagos:GPU"}, set(), {"cudaLaunchKernel"}, "flagos"),
    ({"kernel"}, {"/device:Foo_2:0"}, set(), set(), "foo_2"),
    ({"kernel", "privateuse1_runtime"}, {"cuda:GPU"}, set(), set(), "device"),
    ({"cpu_op"}, {"/device:CPU:0"}, set(), set(), "cpu"),
    ({"cpu_op", "cuda_profiler_range"}, set(), set(), set(), "cuda"),
]


@pytest.mark.parametrize(("categories", "processes", "threads", "names", "family"), FAMILIES)
def test_families(categories: set[str], processes: set[str], threads: set[str], names: set[str], family: str):
    """Names count as runtime rows and as rows of any kind."""
    assert recognize(Seen(categories, processes, threads, names, names)) == family


def test_names_of_operators_are_no_sign_of_a_runtime():
    assert recognize(Seen({"cpu_op"}, set(), set(), set(), {"hippocampus", "muScale", "cnPad"})) == "cpu"


GENERATIONS = [
    # categories, processes, names -> generation
    ({"Kernel", "Runtime"}, {"Synapse Logger"}, set(), "G1"),
    ({"Kernel", "Runtime"}, set(), {"add_hpu_lazy"}, "G1"),
    ({"Kernel", "Runtime"}, set(), {"LaunchRecipeTask"}, "G2"),
    ({"Kernel", "Runtime"}, {"Bridge Logs"}, {"launch_recipe"}, "G2"),
    ({"kernel", "hpu_op"}, set(), {"LaunchRecipeTask"}, "G3"),
    ({"kernel", "privateuse1_runtime"}, set(), {"add_hpu_lazy"}, "G3"),
    ({"Kernel", "Runtime"}, set(), set(), "G1"),
    ({"Kernel"}, set(), set(), None),
]


@pytest.mark.parametrize(("categories", "processes", "names", "generation"), GENERATIONS)
def test_generations(categories: set[str], processes: set[str], names: set[str], generation: str | None):
    assert dialects.generation("hpu", categories, processes, names) == generation


COMPILED = {"Torch-Compiled Region: 0/0"}
MODES = [
    # family, names, activities -> mode
    ("hpu", set(), {Activity.ACCUMULATE}, "lazy"),
    ("hpu", set(), {Activity.GRAPH_BUILD, Activity.LAUNCH}, "lazy"),
    ("hpu", set(), {Activity.GRAPH_BUILD, Activity.GRAPH_LAUNCH}, "lazy+graphs"),
    ("hpu", set(), {Activity.LAUNCH}, "eager"),
    ("hpu", COMPILED, {Activity.LAUNCH}, "compile"),
    ("cuda", set(), {Activity.LAUNCH}, "eager"),
    ("cuda", COMPILED, {Activity.LAUNCH}, "compile"),
    ("cuda", {"CompiledFunction"}, set(), "compile"),
    ("cuda", set(), {Activity.GRAPH_LAUNCH}, "graphs"),
    ("cuda", {"## Call CompiledFxGraph abc ##"}, {Activity.GRAPH_LAUNCH}, "compile+graphs"),
    ("cpu", set(), set(), "eager"),
    ("unknown", set(), set(), "unknown"),
]


@pytest.mark.parametrize(("family", "names", "activities", "mode"), MODES)
def test_modes(family: str, names: set[str], activities: set[Activity], mode: str):
    assert dialects.run_mode(family, names, activities) == mode


@pytest.mark.parametrize("category", ["mtia_insight", "mtia_counters", "mtia_workloadd", "mtia_memory_use"])
def test_mtia_counters_are_known_and_left_out(category: str):
    assert row_rule(category, lane=False) is None
    assert IGNORED_MTIA.match(category)


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda c: c.name)
def test_collectives_are_known_by_their_names_and_spellings(collective: Collective):
    assert {collective_op(word) for word in (collective.name, *collective.spellings)} == {collective.name}


@pytest.mark.parametrize("engine", [e for e in ENGINES if e.word], ids=lambda e: e.name)
def test_engines_are_known_by_their_names_and_lane_numbers(engine: Engine):
    assert hpu_engine(f"[HD0] {engine.name} 1", DEVICE, 0, None) == engine.name
    assert {hpu_engine("", "", 0, 1000 * lane_class + 3) for lane_class in engine.lane_classes} == {engine.name}


def test_what_holds_of_families_is_said_for_each():
    assert {name: family.correlated for name, family in families.FAMILIES.items()} == {
        **dict.fromkeys(("hpu", "npu", "tpu"), False),
        **dict.fromkeys(("mtia", "xpu", "rocm", "cuda", "musa", "mlu", "spyre", "device", "cpu"), True),
    }


def test_a_family_that_is_not_known_is_a_device_with_its_own_name():
    assert families.FAMILIES["flagos"] == msgspec.structs.replace(
        families.FAMILIES["device"], name="flagos", title="flagos"
    )
    assert "flagos" not in families.FAMILIES


@pytest.mark.parametrize(("category", "call"), [("musa_runtime", "musaLaunchKernel"), ("mlu_driver", "cnInvokeKernel")])
def test_runtimes_of_forks_of_kineto_have_categories_of_their_own(tmp_path, category, call):
    b = TraceBuilder().steps(4, 100)
    for i in range(4):
        b.host(call, 100 * i + 5, 8, cat=category, correlation=i + 1).device("mm", 100 * i + 30, 40, correlation=i + 1)
    (file,) = hpuprof.analyze(b.write(tmp_path / "t.json"), jobs=1).data.files
    assert (file.family, file.unknown, file.linked_fraction) == (category.partition("_")[0], [], 1.0)
