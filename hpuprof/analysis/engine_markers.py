"""Steps of inference servers: the annotations that their engines put around each run of the model.

vLLM names requests and tokens (`execute_context_1(1024)_generation_3(3)`, vllm/v1/worker/gpu_worker.py, and in later
versions `execute_32_context_0(…)_generation_32(…)`), and the forward pass in it (`gpu_model_runner: forward`); SGLang
the batch (`step[DECODE bs=32]`, `step[EXTEND bs=15 toks=15360]`); TensorRT-LLM the iteration (`[Executor]
_forward_step 7: 0 ctx reqs, 32 gen reqs`). Where none is recorded, Python frames show each turn of vLLM's engine
(`vllm/v1/engine/core.py(1193): _process_engine_step`), as readers of traces of Gaudi2 take them.
"""

from __future__ import annotations

import re

import numpy as np

from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import HostKind
from hpuprof.model.trace import Trace

PREFILL, DECODE, MIXED = "prefill", "decode", "prefill with decode"
_COUNTED = (
    re.compile(r"^execute_(?:\d+_)?context_(\d+)\(.*?\)_generation_(\d+)\("),
    re.compile(r"^\[Executor\] _forward_step[^:]*: (\d+) ctx reqs,.*?(\d+) gen reqs"),
)
"""Names that count the requests in prefill and in decode."""
_NAMED = re.compile(r"^step\[(\w+)")
_PHASES = {"DECODE": DECODE, "EXTEND": PREFILL, "PREFILL": PREFILL, "MIXED": MIXED}
_PLAIN = re.compile(r"^(?:execute_model|execute_new_\d+_cached_\d+|(?:v\d+_)?gpu_model_runner: forward)$")
"""Names that say only that the model runs."""

_TURN = re.compile(r"(?:^|/)vllm/v1/engine/core\.py\(\d+\): _process_engine_step$")


def phase_of(name: str) -> str | None:
    """Return what an engine's step is for, "" if the name does not say it; None if it is none."""
    for counted in _COUNTED:
        if found := counted.match(name):
            prefills, decodes = (int(count) > 0 for count in found.groups())
            return (MIXED if decodes else PREFILL) if prefills else DECODE if decodes else ""
    if found := _NAMED.match(name):
        return _PHASES.get(found.group(1), "")
    return "" if _PLAIN.match(name) else None


def engine_steps(trace: Trace) -> Ints:
    """Return the rows of an engine's steps, by start: of the thread with most, those that lie in no other one."""
    return _outermost(trace, HostKind.ANNOTATION, trace.named(lambda name: phase_of(name) is not None))


def engine_turns(trace: Trace) -> Ints:
    """Return the frames of an engine's turns, in the same way."""
    return _outermost(trace, HostKind.PYTHON, trace.named(_TURN.search))


def _outermost(trace: Trace, kind: HostKind, named: Mask) -> Ints:
    host = trace.host
    rows: Ints = np.flatnonzero(host.kind == kind)
    rows = rows[named.take(host.name.take(rows))]
    if not len(rows):
        return rows
    rows = rows[host.track[rows] == np.bincount(host.track[rows]).argmax()]
    reach = np.maximum.accumulate(host.end[rows])
    first: Ints = rows[np.append([True], host.start[rows[1:]] >= reach[:-1])]
    return first
