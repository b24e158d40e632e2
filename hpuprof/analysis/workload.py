"""What the recorded program does: train, serve or infer, and which server it is. By the names of its rows."""

from __future__ import annotations

import re

from msgspec import Struct

from hpuprof.model.arrays import kinds_of
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Trace

TRAINING, SERVING, INFERENCE = "training", "serving", "inference"
_TRAINS = re.compile(
    r"^autograd::engine::|^torch::autograd::|Backward\d*(?:$|>)|_backward\b|[._]backward$|\): backward$|wgrad"
    r"|^Optimizer\.|multi_tensor_apply"
)
"""Rows of the autograd engine, of backward operators, kernels and frames, and of optimizers: torch's own names."""
_SERVERS = (
    ("vllm", re.compile(r"\bvllm(?:::|/)|^execute_(?:context|new|model)_|^execute_model$")),
    ("sglang", re.compile(r"\bsglang(?:::|/)|^sgl_kernel::")),
    ("tensorrt_llm", re.compile(r"\btensorrt_llm(?:::|/)|^trtllm::")),
    (
        "",
        re.compile(
            r"^(?:prefill|decode)(?:[\s_:\[(#].*)?$|^(?:step|forward|model)[ _:](?:prefill|decode)\b", re.IGNORECASE
        ),
    ),
)
"""Operators and frames of the servers' packages and their annotations (`execute_context_1(512)_generation_3(3)` is
vLLM's, vllm/v1/worker/gpu_worker.py); last, annotations of any server."""
_MODEL = re.compile(r"::(?:\w*mm|\w*matmul|linear|conv\w*|\w*convolution\w*|\w*attention\w*)$")
"""Operators that tell a model's forward pass from copies, collectives and excerpts of traces."""


class Workload(Struct, frozen=True):
    """`kind`: training, serving, inference, or empty where the rows do not tell; `server`: its name, if known."""

    kind: str
    server: str


@once
def workload(trace: Trace) -> Workload:
    """Tell from the rows whether gradients were computed, and if not, whether a server ran.

    Any trace of a backward pass or an optimizer is training. Without one, a model's operators are inference; without
    those, nothing can be said. Recordings that leave out the backward pass read as inference.
    """
    names = trace.names
    if bool((trace.host.activity == Activity.OPTIMIZER).any()) or any(_TRAINS.search(n) for n in names):
        return Workload(TRAINING, "")
    for server, pattern in _SERVERS:
        if any(pattern.search(n) for n in names):
            return Workload(SERVING, server)
    operators = {names[code] for code in kinds_of(trace.host.name.compress(trace.host.kind == HostKind.OP))[0].tolist()}
    return Workload(INFERENCE if any(_MODEL.search(n) for n in operators) else "", "")
