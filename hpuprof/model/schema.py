"""The vocabulary of a trace: row kinds, activities, roles, causes. Owns words and their meaning, no behavior."""

from __future__ import annotations

from enum import Enum, IntEnum

import numpy as np


class Code(np.int8, Enum):
    """A word in a column of 8 bits; numpy compares the column with it as it is, but widens it for an `IntEnum`."""


class HostKind(Code):
    """Kind of a host slice."""

    OP = 1  # a framework operator (aten::*, autograd nodes, bridge accumulation)
    PYTHON = 2  # a python frame (with_stack=True)
    ANNOTATION = 3  # record_function ranges: steps, Lightning actions, data loader, optimizer, user's own
    RUNTIME = 4  # a call into the driver, runtime, Synapse or the bridge


class Activity(Code):
    """What a host slice does, by its name. One slice has one activity."""

    NONE = 0
    LAUNCH = 1  # enqueues device work (kernel, recipe)
    GRAPH_LAUNCH = 2  # replays a captured graph
    SYNC = 3  # waits for the device or a stream or event
    ALLOC = 4  # allocates or frees device or pinned memory
    JOIN = 5  # waits for the bridge's launch thread
    COPY_H2D = 6  # copies host to device
    COPY_D2H = 7  # reads back from the device: item(), .cpu(), D2H copies
    COPY = 8  # other or unknown direction of copy, memset
    COMPILE = 9  # compiles a graph, a recipe or a kernel
    COLLECTIVE = 10  # a collective or point-to-point operation
    DATA_LOADER = 11  # fetches the next batch
    LOADER_WAIT = 12  # fetches the next batch from worker processes: the caller waits
    OPTIMIZER = 13  # optimizer step or zero_grad
    CALLBACK = 14  # callbacks, loggers, checkpoints
    ACCUMULATE = 15  # lazy mode: records an operator for later
    GRAPH_BUILD = 16  # lazy mode: collects, hashes and looks up the accumulated graph
    STEP = 17  # a step marker of some framework
    CLOSURE = 18  # forward and backward that run inside an optimizer's step
    GARBAGE = 19  # Python's garbage collector, where stacks or an annotation show it
    FIRST_USE = 20  # creates a context, a stream or a handle, or loads a module: once, at first use
    CAPTURE = 21  # begins or ends the capture of a graph


class DeviceKind(Code):
    """Kind of a device slice. Markers are points of interest that occupy no engine, however long they are drawn."""

    COMPUTE = 1
    COMMUNICATION = 2
    COPY = 3
    MARKER = 4
    DISPATCH = 5  # descriptors that an engine schedules: neither computing nor idle


class SyncKind(Code):
    """Kind of a recorded wait."""

    STREAM_WAIT = 1  # a stream waits for an event of another
    EVENT = 2  # the host waits for an event, or asks whether it is over
    STREAM = 3  # the host waits for a stream
    CONTEXT = 4  # the host waits for the device


class Role(Code):
    """Role of a host thread."""

    MAIN = 1
    AUTOGRAD = 2
    LAUNCH = 3
    DATA_LOADER = 4
    OTHER = 5


class Cause(IntEnum):
    """What the host was doing while the device idled. The lowest value wins where several apply.

    The order goes from specific to general: a blocking read inside the optimizer is a blocking read, an operator
    launched inside the data loader belongs to the data loader, Python counts only where nothing else ran.
    """

    UNRECORDED = 0
    DEVICE_LATENCY = 1
    COMPILATION = 2
    FIRST_USE = 3
    LAUNCH_THREAD = 4
    BLOCKING_READ = 5
    COLLECTIVE = 6
    ALLOCATION = 7
    H2D_COPY = 8
    SYNCHRONISE = 9
    DATA_LOADER = 10
    CPU_OPERATOR = 11
    OPTIMIZER = 12
    CALLBACK = 13
    OPERATOR_LAUNCH = 14
    PYTHON = 15
    UNKNOWN = 16


ONE_OFF = (Cause.FIRST_USE, Cause.COMPILATION)
"""What comes once: a settled run does none of it."""
CAUSE_TEXT = {
    Cause.UNRECORDED: "work without rows",
    Cause.DEVICE_LATENCY: "launch latency, queued work",
    Cause.COMPILATION: "compilation",
    Cause.FIRST_USE: "first use of the device",
    Cause.LAUNCH_THREAD: "launch thread",
    Cause.BLOCKING_READ: "blocking read",
    Cause.COLLECTIVE: "collective",
    Cause.ALLOCATION: "allocation or free",
    Cause.H2D_COPY: "host-to-device copy",
    Cause.SYNCHRONISE: "synchronization",
    Cause.DATA_LOADER: "data loading",
    Cause.CPU_OPERATOR: "operators on the CPU",
    Cause.OPTIMIZER: "optimizer step",
    Cause.CALLBACK: "callbacks, logging",
    Cause.OPERATOR_LAUNCH: "operator launch",
    Cause.PYTHON: "Python",
    Cause.UNKNOWN: "unknown",
}
CAUSE_CLAUSE = {
    Cause.UNRECORDED: "or at work that has no rows",
    Cause.DEVICE_LATENCY: "between queued kernels",
    Cause.COMPILATION: "while graphs were compiled",
    Cause.FIRST_USE: "while the host set the device up",
    Cause.LAUNCH_THREAD: "while the launch thread had work to enqueue",
    Cause.BLOCKING_READ: "while the host waited for a value (.item())",
    Cause.COLLECTIVE: "while collectives were called or waited for",
    Cause.ALLOCATION: "while the host allocated or freed memory",
    Cause.H2D_COPY: "while the host copied to the device",
    Cause.SYNCHRONISE: "while the host synchronized",
    Cause.DATA_LOADER: "while the host loaded data",
    Cause.CPU_OPERATOR: "while operators computed on the CPU",
    Cause.OPTIMIZER: "while the host ran the optimizer step",
    Cause.CALLBACK: "while the host ran callbacks and logging",
    Cause.OPERATOR_LAUNCH: "while the host launched operators",
    Cause.PYTHON: "while the host ran Python",
    Cause.UNKNOWN: "with nothing traced on the host",
}
"""When the device idled, to follow "the device sat idle"."""

BLOCKED_KINDS = ("sync", "queue", "alloc", "join", "copy", "loader")
"""Kinds of waiting on the host path: sync calls, launches into a full queue, allocation and free, launch-thread join,
blocking copies, and waiting for data-loader workers."""
