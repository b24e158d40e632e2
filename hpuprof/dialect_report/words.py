"""The words of traces that may leave a file as they are; every other text is reduced to its shape.

A shape keeps punctuation and distinguishes words by their case alone: `[HD0] gemm_Foo` is `[HD#] a_Aa`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec.structs import fields

from hpuprof.ingest.dialect_activities import call_name
from hpuprof.ingest.dialect_rows import ROW_RULES
from hpuprof.ingest.dialects import THREAD_WORDS
from hpuprof.ingest.wire import Args
from hpuprof.naming import CONVERTED_KEY, METADATA_KEY
from hpuprof.report.secrets import keys

LONGEST = 48
"""Characters of a shape."""
_READ = 256
"""Characters of a text that its shape is made of."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CATEGORIES = frozenset().union(*(rule.categories for rule in ROW_RULES)) | frozenset(
    _words("spmu hardware_counters cuda_event xpu_sync collective_comm mtia_counters mtia_insight")
)
PHASES = frozenset("BEXbenSTpFstfPNODMVvRciICa()")
"""Of the Trace Event Format."""
HEADER_KEYS = frozenset(
    _words(
        "schemaVersion traceEvents traceName displayTimeUnit baseTimeNanoseconds deviceProperties distributedInfo "
        "record_shapes with_stack profile_memory with_flops with_modules trace_id host_name clockDomain recorder "
        "cupti_version cuda_runtime_version cuda_driver_version hip_runtime_version hip_driver_version Framework "
        "systemTraceEvents otherData metadata stackFrames samples controllerTraceDataKey profilerMetadata"
    )
) | {METADATA_KEY, CONVERTED_KEY}
ARGUMENTS = (
    frozenset(field.encode_name for field in fields(Args))
    | frozenset(
        _words(
            "recipeName recipeHandle streamHandle eventHandle streamName device stream EventName API_ID hidden index "
            "op status func pRecipeHandle Addr context queued submitted block grid cbid sort_index bandwidth kernel "
            "provenance_key debug_handles cycles_ts kind Type Op Operation Engine Name engine_iteration "
            "decode_bucket_batch_size decode_batch_size prompt_bucket_batch_size prompt_batch_size "
            "decode_bucket_seq_len decode_seq_len prompt_bucket_seq_len prompt_seq_len cumulative_graph_compilations"
        )
    )
    | {
        "Original Nodes",
        "Module id",
        "Recipe name",
        "Recipe ID",
        "Unique Node ID",
        "Context ID",
        "Device Id",
        "Profiler Event Index",
        "Ev Idx",
        "Python id",
        "Python parent id",
        "Python module id",
        "Trace name",
        "Trace iteration",
        "Record function id",
        "registers per thread",
        "shared memory",
        "blocks per SM",
        "warps per SM",
        "est. achieved occupancy %",
        "memory bandwidth (GB/s)",
        "Data Type",
        "Trace Source",
        "HW Event description",
        "Op count",
        "Device",
        "HW Event port",
        "SPMU value",
        "NIC Packets amount",
        "Misc",
    }
)

ENQUEUE_WORDS = _words("enqueueWithExternalEventsExt enqueueWithExternalEvents enqueue")
"""Calls of Synapse that hand a recipe to the device."""
LAUNCH_WORDS = (
    *ENQUEUE_WORDS,
    *_words("LaunchRecipe LaunchRecipeTask launch_recipe launch Launch run LaunchSyncTensorsGraph ExecuteCachedGraph"),
    *_words("synLaunch synLaunchWithExternalEvents synLaunchWithExternalEventsExt scal_stream_submit"),
)
RECIPE_CALLS = frozenset(LAUNCH_WORDS)
HOST_WORDS = RECIPE_CALLS | frozenset(
    _words(
        "add_new_recipe SyncTensorsGraphInternal compileGraph synGraphCompile synchronizeStream synchronizeEvent "
        "synchronizeDevice eventSynchronize streamSynchronize synEventSynchronize synStreamSynchronize "
        "synDeviceSynchronize eventRecord synEventRecord streamWaitEvent scal_completion_group_wait hcclSynchronize "
        "memcpyAsync synMemCopyAsync JoinPendingLaunchThread cudaLaunchKernel cudaGraphLaunch cudaMemcpyAsync "
        "cudaStreamSynchronize cudaDeviceSynchronize hipLaunchKernel hipGraphLaunch musaLaunchKernel musaGraphLaunch "
        "cnInvokeKernel cnTaskTopoEntityInvoke aiuSubmitToHardware aiuRoundtrip prefill decode prepare_input_tensors "
        "prepare_input_encoders model_executable sampler sampler_postprocessing warmup start_profiler"
    )
)

OCCUPIES = re.compile(r"TPC_SPU_START_TO_SPU_HALT|MMEH_WB[01]_MON_TS_BIT1|WB\d_END|DBG_DMA_TRC_WR_DATA_LAST")
"""Hardware events whose rows are intervals of work. Gaudi2's and Gaudi3's, from 1CatAI/1Cat-vLLM-Gaudi and the hardware
trace in HabanaAI/Intel_Gaudi3_Software."""
STAMP = re.compile(
    r"TPC_SPU_(?:START|HALT)|(?:DBG_DMA_TRC_)?RD_FRST_ADDR_PUSH|DBG_DMA_TRC_RD_FRST_ADDR_PUSH|START_EVENT"
    r"|STM_[01]_(?:RX|TX|QPC|QMAN)[A-Z0-9_]*|[A-Z0-9_]*(?:QMAN|CMD_EXE|READ_FIRST|RD_FIRST)[A-Z0-9_]*"
)
"""Hardware events of one moment, drawn with a width that means nothing."""
_ENUMERATION = re.compile(r"[A-Z][A-Z0-9]{0,15}(?:_[A-Z0-9]{1,15}){1,11}")
_LONG_NUMBER = re.compile(r"[0-9]{4,}")
_CALL = re.compile(r"(?P<word>\w+)(?: \(accel\d+\))?")
_WORD = re.compile(r"[A-Za-z]+|[0-9]+|[^\x20-\x7e]+")


def hw_role(event: str) -> str:
    """Return what a hardware event's rows are: occupies, stamp, or unknown."""
    return "occupies" if OCCUPIES.fullmatch(event) else "stamp" if STAMP.fullmatch(event) else "unknown"


@lru_cache(4096)
def hw_word(event: str) -> str:
    """Return a hardware event's word where it is known or reads like one of an enumeration, else its shape."""
    known = hw_role(event) == "occupies" or event in _STAMPS
    likely = len(event) <= 2 * LONGEST and _ENUMERATION.fullmatch(event) and not any(keys(event))
    return event if known else _LONG_NUMBER.sub("#", event) if likely else shape(event)


_STAMPS = frozenset({"TPC_SPU_START", "TPC_SPU_HALT", "START_EVENT", "DBG_DMA_TRC_RD_FRST_ADDR_PUSH"})


def host_word(name: str) -> str:
    """Return the known call in a host row's name, empty for others: `enqueue (accel0)` and `call:enqueue` are one."""
    found = _CALL.fullmatch(call_name(name)[:_READ])
    return found["word"] if found and found["word"] in HOST_WORDS else ""


def category(text: str) -> str:
    """Return a category as it is where some writer is known to use it, else its shape."""
    return text if text.lower() in CATEGORIES else shape(text)


def known(text: str, words: frozenset[str]) -> str:
    """Return a text as it is where it is among some words, else its shape."""
    return text if text in words else shape(text)


def track_shape(name: str) -> str:
    """Return the name of a process or thread: usual words as they are, numbers as #, other words as shapes."""
    return shape(name, THREAD_WORDS)


@lru_cache(4096)
def _shape(text: str, usual: frozenset[str]) -> str:
    def one(match: re.Match[str]) -> str:
        word = match[0]
        if word.lower() in usual and (word.islower() or word.isupper() or word.istitle()):
            return word
        if word[0].isdigit():
            return "#"
        if not word.isascii():
            return "?"
        return "a" if word.islower() else "Aa" if word.istitle() and len(word) > 1 else "A" if word.isupper() else "aA"

    out = re.sub(r"[^\x20-\x7e]", "?", _WORD.sub(one, text))
    return out if len(out) <= LONGEST else out[: LONGEST - 3] + "..."


def shape(text: Any, usual: frozenset[str] = frozenset()) -> str:
    """Return the shape of any value; `usual`: words (lower case) that stay."""
    if not isinstance(text, str):
        return json_type(text)
    return _shape(text[:_READ], usual) if text else "(empty)"


_TYPES = {bool: "bool", int: "int", float: "float", str: "text", list: "list", dict: "object", type(None): "null"}


def json_type(value: Any) -> str:
    """Return the JSON type of a value."""
    return _TYPES.get(type(value), "other")


def type_name(kind: type) -> str:
    """Return the JSON type that Python reads as a class."""
    return _TYPES.get(kind, "other")
