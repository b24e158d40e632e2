"""Chrome's wire structs: the few fields that hpuprof reads of a trace event. Chrome's words stop behind `normalise`.

Values are untyped on purpose: numbers arrive as strings, stamps as integers or decimals, and a wrong type in one field
must not cost a row. Times alone are typed, as `true` would pass for 1 µs; a row that fails there is read by `recover`.
Unknown fields are skipped by the decoder without building Python objects.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Time: TypeAlias = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that some analysis uses."""

    correlation: Any = -1
    external_id: Any = msgspec.field(default=-1, name="External id")
    external_id_old: Any = msgspec.field(default=-1, name="external id")
    device: Any = -1
    stream: Any = -1
    bytes: Any = -1
    data_type: Any = msgspec.field(default="", name="dataType")
    recipe_id: Any = msgspec.field(default=-1, name="recipeId")
    hw_event: Any = msgspec.field(default="", name="HW event name")
    input_dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
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
    # rows that `convert` changed or added (see `restore`)
    mark: Any = msgspec.field(default=None, name="hpuprof")


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One trace event; `ts` and `dur` in microseconds, as number or text."""

    ph: Any = ""
    name: Any = ""
    cat: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Time = None
    dur: Time = None
    args: Args | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """As `Event`, for stamps with more digits than a double holds: `ts` stays text until it becomes an integer."""

    ph: Any = ""
    name: Any = ""
    cat: Any = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: Time = None
    args: Args | None = None


class WholeEvent(msgspec.Struct, gc=False, omit_defaults=True):
    """One trace event as it stands in the file, for rewriting: values stay text, arguments are not looked into."""

    ph: Any = ""
    cat: msgspec.Raw = msgspec.Raw(b"")
    name: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")
    pid: msgspec.Raw = msgspec.Raw(b"")
    tid: msgspec.Raw = msgspec.Raw(b"")
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    bp: msgspec.Raw = msgspec.Raw(b"")
    s: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")
