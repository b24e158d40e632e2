"""What a family of devices is: the fields of its file. Holds no family."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field


class Signs(Struct, frozen=True, kw_only=True):
    """How traces of the family are recognized; any one sign is enough. Patterns are searched, not matched."""

    categories: re.Pattern[str] | None = None
    """In lower case; a sure sign."""
    late_categories: re.Pattern[str] | None = None
    """Categories that several families share: they count where no family has a sure sign."""
    processes: re.Pattern[str] | None = None
    threads: re.Pattern[str] | None = None
    calls: re.Pattern[str] | None = None
    """Names of runtime rows."""
    rows: frozenset[str] = frozenset()
    """Names of rows of any kind."""
    arguments: frozenset[str] = frozenset()
    """Arguments of rows of any kind."""


class Words(Struct, frozen=True, kw_only=True):
    """Patterns of the names of calls into the family's driver and runtime; empty: it has none, or none is known."""

    launch: str = ""
    graph_launch: str = ""
    """Starts a captured graph: one launch, however many rows it runs."""
    wait: str = ""
    wait_for_all: str = ""
    """Returns when all streams of the device are through."""
    copy: str = ""
    blocking_copy: str = ""
    """Returns when its copy is done."""
    allocate: str = ""
    free: str = ""
    """Gives memory back at once, for which it waits until the device is through."""
    first_free: str = ""
    """Programs call it first of all to create the context, when there is nothing to free."""
    capture: str = ""
    first_use: str = ""
    loaded_launch: str = ""  # of kernels that are compiled or loaded while the program runs
    compile: str = ""
    operators: str = ""
    """In names of operators: a library of the family, which the CPU has not."""


class GraphApi(Struct, frozen=True, kw_only=True):
    """An interface to graphs. `id`: as `hpuprof explain` calls it; `module`: of torch that captures streams, if any."""

    id: str
    module: str = ""
    graph: str = ""
    fixes: Mapping[str, str] = field(default_factory=dict)
    """What to do about an obstacle, by its code, where that differs from one interface to the other."""
    capture_steps: float = 5.0
    """Warm-up and capture, in steps of today."""
    by_compiling: bool = False
    """Compiling makes the graphs: a compiled model has them already."""
    assumption: str = ""
    """What answers about it assume."""


NO_GRAPHS = GraphApi(id="any")
"""The device has no graphs, or how they are captured is not known."""


class ProfilingCost(Struct, frozen=True, kw_only=True):
    """What profiling costs the host: median and 95th percentile of a log-normal, in multiples of the nominal cost."""

    median: float
    high: float
    source: str
    of_step: bool = False
    """In shares of the step instead, as two timings of a step show it: 0.04 where it takes 1.04 times as long."""


class Family(Struct, frozen=True, kw_only=True):
    """One family of devices, and properties of its traces. `title`: name of the device if the trace has none."""

    name: str
    title: str
    order: int = 50
    """Families are tried in this order, then by name."""
    signs: Signs = Signs()
    words: Words = Words()
    graphs: GraphApi = NO_GRAPHS
    lazy_graphs: GraphApi | None = None
    """In lazy mode, where it has one."""
    profiling_cost: Mapping[str, ProfilingCost] = field(default_factory=dict)
    """By mode; under "" for all others. Without an entry: as on other machines."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """In place of what a finding or remedy advises on any device, by code or name; `NAME:serving` on a server."""
    code: Mapping[str, str] = field(default_factory=dict)
    """To type for a remedy, by its name, in place of what serves on any device."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What `hpuprof explain` adds to a code."""

    chips: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """Names of its kernels that were built for one chip and run on no other, by the chip's name."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Files of other profilers of it, by suffix: what they are, and how to come to one that is read."""

    checked: bool = False
    """An estimate of hpuprof was compared with a change that was really made on such a device."""
    correlated: bool = True
    """Device rows carry the correlation of their launch call: a row without one has no launch in the trace."""
    engine_lanes: bool = False
    """Rows lie on engine lanes, several for one kernel or collective; the vendor's host profiler has its own tracks."""
    row_per_kernel: bool = True
    """A kernel is one device row, as the stock TensorBoard tab expects."""
    silent_reads: bool = False
    """Reading one value back shows no runtime call: the operator itself is the wait."""
    copies_upload: bool = False
    """A copy call without a device row that shows its direction is an upload."""
    cuda_properties: bool = False
    """The stock TensorBoard tab computes correctly from the device properties."""
    graphs_known: bool = False
    """What graphs cost on it, and how they are captured, is known here."""
    intel_tool: bool = False
    """Intel's habana_perf_tool reads such traces."""

    def graphs_in(self, mode: str) -> GraphApi:
        """Return the interface to graphs in a mode of running the model."""
        return self.lazy_graphs if self.lazy_graphs and mode.startswith("lazy") else self.graphs
