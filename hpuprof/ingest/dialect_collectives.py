"""Collectives: one row per operation, and how row names and element types identify them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from hpuprof.ingest.dialect_collective_kernels import function, kernel_rule
from hpuprof.ingest.dialect_engines import LONGEST


class Collective(Struct, frozen=True):
    """An operation among the ranks of a group, or a transfer between two of them."""

    name: str
    spellings: tuple[str, ...]
    """Words in its names, in lower case without underscores."""
    symmetric: bool = False
    """No rank finishes before all have arrived: it constrains clocks from both sides and makes ranks wait."""
    paired: bool = False
    """Two ranks take part."""
    uneven: bool = False
    """Sizes differ between ranks by design."""
    message: Literal["input", "output", "larger"] = "input"
    """The size that defines bandwidth."""
    bus_factor: Callable[[int], float] | None = None
    """Bus bandwidth over algorithm bandwidth for n ranks (nccl-tests, doc/PERFORMANCE.md, "Bus bandwidth")."""
    purpose: Literal["pipeline", "expert", "reduction"] | None = None
    """The parallelism of groups that use it; reductions serve data and tensor parallelism."""
    in_tab: bool = False
    """Its name in the stock TensorBoard tab, if it has one."""


def _once(_: int) -> float:
    return 1.0


def _but_one(ranks: int) -> float:
    return (ranks - 1) / ranks


def _but_one_twice(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


# The first row with a spelling in a name wins: `reduce` comes after the words that contain it.
COLLECTIVES: tuple[Collective, ...] = (
    Collective(
        "reduce_scatter", ("reducescatter",), symmetric=True, bus_factor=_but_one, purpose="reduction", in_tab=True
    ),
    Collective("all_to_all", ("alltoall",), symmetric=True, uneven=True, bus_factor=_but_one, purpose="expert"),
    Collective(
        "all_reduce",
        ("allreduce",),
        symmetric=True,
        bus_factor=_but_one_twice,
        purpose="reduction",
        in_tab=True,
    ),
    # A rank puts tokens into its peers' memory, and may end before they have begun.
    Collective("token_exchange", ("tokenexchange",), uneven=True, purpose="expert"),
    Collective("all_gather", ("allgather",), symmetric=True, message="output", bus_factor=_but_one, in_tab=True),
    Collective("broadcast", ("broadcast", "bcast"), message="larger", bus_factor=_once, in_tab=True),
    Collective(
        "send_recv", ("sendrecv", "batchisendirecv"), paired=True, uneven=True, bus_factor=_once, purpose="pipeline"
    ),
    Collective("barrier", ("barrier",), symmetric=True),
    Collective("reduce", ("reduce",), bus_factor=_once, in_tab=True),
    Collective("gather", ("gather",), uneven=True),
    Collective("scatter", ("scatter",), uneven=True, message="larger"),
    Collective("send", ("send",), paired=True, purpose="pipeline"),
    Collective("recv", ("recv",), paired=True, message="larger", purpose="pipeline"),
)
BY_NAME = {collective.name: collective for collective in COLLECTIVES}
SYMMETRIC = frozenset(c.name for c in COLLECTIVES if c.symmetric)
PAIRED = frozenset(c.name for c in COLLECTIVES if c.paired)
UNEVEN = frozenset(c.name for c in COLLECTIVES if c.uneven)
_TAB_WORDS = [(c.name, re.compile(c.name.replace("_", "_?"), re.IGNORECASE)) for c in COLLECTIVES if c.in_tab]

_COLLECTIVE = re.compile(
    r"^(?:nccl|gloo|mpi|hccl|ucc|xccl|rccl|oneccl):|^c10d::|^_c10d_functional(?:_autograd)?::|^record_param_comms|"
    r"^hccl[A-Z]|^nccl[A-Z]|^rccl[A-Z]|^oneccl|^MPI_"
)
"""Names of rows that belong to a collective: torch.distributed's annotations and operators, library calls."""
_ANNOTATION = re.compile(r"^(?P<library>nccl|gloo|hccl|xccl|rccl|ucc|mpi|oneccl):")
_RUNS_ON_HOST = re.compile(r"^(?:gloo|mpi|ucc):|^MPI_")
_PREFIX = re.compile(r"^(?:\w+::|\w+:|(?:nccl|rccl|hccl|oneccl_?|MPI_)(?:Dev)?(?:Kernel)?_?)")
_NO_TRANSFER = frozenset({"wait", "init", "end", "synchronize", "commgetasyncerror", "groupstart", "groupend"})


def is_collective(name: str) -> bool:
    """Whether a row's name belongs to a collective."""
    name = name[:LONGEST]
    if _COLLECTIVE.search(name):
        return True
    kernel = kernel_rule(name)
    return kernel is not None and not kernel.local


def is_collective_annotation(name: str) -> bool:
    """Whether an annotation is one that torch.distributed draws around a collective."""
    return _ANNOTATION.match(name) is not None


def runs_on_host(name: str) -> bool:
    """Whether a host row of this name is the collective's execution rather than its enqueueing."""
    return _RUNS_ON_HOST.match(name) is not None


def collective_op(name: str) -> str | None:
    """Return the operation of a collective's name in any dialect, None if it has none.

    Example names: `ncclDevKernel_AllReduce_Sum_f32`, `_allgather_base`, `gloo:all_reduce`, `hcclAllReduce`,
    `c10d::allreduce_`.
    """
    name = name[:LONGEST]
    kernel = kernel_rule(name)
    if kernel and (kernel.op or kernel.local):
        return kernel.op or None
    name = function(name) if kernel else name
    words = _PREFIX.sub("", name.split("(", 1)[0]).replace("_", "").lower()
    if words in _NO_TRANSFER:
        return None
    return next((c.name for c in COLLECTIVES for spelling in c.spellings if spelling in words), None)


def tab_collective(name: str) -> str | None:
    """Return which of the tab's ten names for collectives applies; None if none does."""
    name = name[:LONGEST]
    library = _ANNOTATION.match(name)
    for known, word in _TAB_WORDS:
        if word.search(name):
            return f"{'gloo' if library and library['library'] == 'gloo' else 'nccl'}:{known}"
    return None


_ELEMENT_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "float64": 8, "long": 8, "int": 4, "short": 2, "int16": 2,
    "byte": 1, "char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
_SAME_TYPE = {
    "unsigned char": "byte", "signed char": "char", "long int": "long", "long long": "long", "bf16": "bfloat16",
    "fp16": "half", "fp32": "float", "float32": "float", "float16": "half", "int64": "long", "int32": "int",
    "uint8": "byte", "int8": "char",
}  # fmt: skip


def element_type(name: str) -> str:
    """Return the lower-case name of an element type: `c10::BFloat16` and `BFloat16` are bfloat16."""
    bare = name.removeprefix("c10::").lower()
    return _SAME_TYPE.get(bare, bare)


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element type as `element_type` names it, 0 if unknown."""
    return _ELEMENT_BYTES.get(dtype, 0)
