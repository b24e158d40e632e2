"""Chrome's wire structs: the few fields of a trace event that hpuprof reads. Its words end at `normalize`.

Values are untyped on purpose: numbers arrive as strings, stamps as integers or decimals, and a wrong type in one field
must not cost a row. Only times are typed, as `true` would pass for 1 µs; `recover` reads rows that fail there. The
decoder skips unknown fields without building Python objects.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Time: TypeAlias = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """Arguments of an event that some analysis uses.

    In the order in which Kineto writes them: the decoder searches for a key from the last one on.
    """

    external_id: Any = msgspec.field(default=-1, name="External id")
    # joins autograd nodes to the operators that made them
    sequence: Any = msgspec.field(default=-1, name="Sequence number")
    forward_thread: Any = msgspec.field(default=-1, name="Fwd thread id")
    # an operator's inputs and call site; kept as text, parsed by the analysis that needs it
    concrete_inputs: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Concrete Inputs")
    input_types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    input_strides: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Strides")
    input_dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    module_hierarchy: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Module Hierarchy")
    call_stack: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Call stack")
    correlation: Any = -1
    bytes: Any = -1
    external_id_old: Any = msgspec.field(default=-1, name="external id")
    data_type: Any = msgspec.field(default="", name="dataType")
    recipe_id: Any = msgspec.field(default=-1, name="recipeId")
    recipe_name: Any = msgspec.field(default="", name="recipeName")
    graph_id: Any = msgspec.field(default=-1, name="graph id")
    recipe_handle: Any = msgspec.field(default="", name="recipeHandle")
    event_name: Any = msgspec.field(default="", name="EventName")
    original_nodes: Any = msgspec.field(default="", name="Original Nodes")
    hw_event: Any = msgspec.field(default="", name="HW event name")
    # rows of collectives, as torch/csrc/profiler/util.h names them
    collective: Any = msgspec.field(default="", name="Collective name")
    in_elements: Any = msgspec.field(default=-1, name="In msg nelems")
    out_elements: Any = msgspec.field(default=-1, name="Out msg nelems")
    element_type: Any = msgspec.field(default="", name="dtype")
    group_name: Any = msgspec.field(default="", name="Process Group Name")
    group_text: Any = msgspec.field(default="", name="Process Group Description")
    group_ranks: Any = msgspec.field(default="", name="Process Group Ranks")
    group_size: Any = msgspec.field(default=-1, name="Group size")
    rank_start: Any = msgspec.field(default=-1, name="Global rank start")
    rank_stride: Any = msgspec.field(default=-1, name="Global rank stride")
    source_rank: Any = msgspec.field(default=-1, name="Src Rank")
    target_rank: Any = msgspec.field(default=-1, name="Dst Rank")
    comm_sequence: Any = msgspec.field(default=-1, name="Seq")
    # rows of waits
    wait_on_stream: Any = -1
    event_record: Any = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")
    wait_type: Any = msgspec.field(default="", name="Type")
    # samples of hardware counters
    value: Any = msgspec.field(default=None, name="")
    # metadata rows
    name: Any = None
    labels: Any = None
    # memory rows
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    total_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    total_reserved: Any = msgspec.field(default=None, name="Total Reserved")
    # counter rows of hpuprof's recorder
    allocated: Any = None
    reserved: Any = None
    limit: Any = None
    resident: Any = None
    # rows changed or added by `convert` (see `restore`)
    mark: Any = msgspec.field(default=None, name="hpuprof")


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One trace event; `ts` and `dur` in microseconds, as number or text."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Time = None
    dur: Time = None
    args: Args | None = None


class WholeEvent(msgspec.Struct, gc=False):
    """One trace event with everything that a viewer shows, for writing it again: arguments stay text."""

    ph: Any = ""
    cat: Any = msgspec.UNSET
    name: Any = msgspec.UNSET
    pid: Any = msgspec.UNSET
    tid: Any = msgspec.UNSET
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: Any = msgspec.UNSET
    tts: Any = msgspec.UNSET
    tdur: Any = msgspec.UNSET
    id: Any = msgspec.UNSET
    id2: Any = msgspec.UNSET
    scope: Any = msgspec.UNSET
    bp: Any = msgspec.UNSET
    s: Any = msgspec.UNSET
    cname: Any = msgspec.UNSET
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ExactEvent(msgspec.Struct, gc=False):
    """Like `Event`, for stamps with more digits than a double holds: `ts` stays text until it becomes an integer."""

    ph: Any = ""
    name: Any = ""
    cat: Any = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: Time = None
    args: Args | None = None
