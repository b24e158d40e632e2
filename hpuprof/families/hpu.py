"""Intel's Gaudi: Habana's bridge and Synapse. Its engines and lanes: `ingest.dialect_engines`."""

import re

from hpuprof.families.advice import GAUDI_NOTES, GRAPHS_AND_SERVERS, HPU_CODE
from hpuprof.families.family import Family, ProfilingCost, Signs, Words
from hpuprof.families.graph_apis import HPU_EAGER, HPU_LAZY

HPU_PROCESS = re.compile(r"^/device:HPU:\d+$")
HPU_THREAD = re.compile(r"^\[H?D\d+\](?=.)\s*(?P<engine>.*)")
# Compiled decode on Gaudi2 took 1.028 and 1.051 times as long (1CatAI/1Cat-vLLM-Gaudi, docs/benchmarks); no eager step
# was timed both ways: torch's own benchmarks, and as wide as on other machines.
_COMPILED = ProfilingCost(of_step=True, median=0.04, high=0.12, source="compiled steps on Gaudi2")
_EAGER = ProfilingCost(median=1.0, high=8.9, source="torch's own benchmarks")
FAMILY = Family(
    name="hpu", title="HPU", order=10, graphs_known=True, graphs=HPU_EAGER, lazy_graphs=HPU_LAZY,
    correlated=False, engine_lanes=True, row_per_kernel=False, silent_reads=True, copies_upload=True, intel_tool=True,
    signs=Signs(
        categories=re.compile(r"^hpu_(?:meta_)?op$"), processes=HPU_PROCESS, threads=HPU_THREAD,
        calls=re.compile(r"^LaunchRecipe"), arguments=frozenset({"recipeHandle", "HW event name"}),
        rows=frozenset({"SyncTensorsGraphInternal", "synLaunchWithExternalEvents", "call:synLaunchWithExternalEvents"}),
    ),
    words=Words(
        launch=r"^synLaunch|^enqueue(?:WithExternalEvents|(?:Recipe|Graph)?(?![A-Za-z]))|^LaunchSyncTensorsGraph|^LaunchRecipe|^launch_recipe"
        r"|^(?:launch|Launch|run)$|^scal_stream_submit|^LazyLaunch",
        graph_launch=r"^ExecuteCachedGraph",
        wait=r"^syn(?:Event|Stream|Device)Synchronize|^synchronize(?:Stream|Event|Device)"
        r"|^(?:event|stream|device)Synchronize|^scal_completion_group_wait|^hcclSynchronize",
        wait_for_all=r"^synDeviceSynchronize$",
        copy=r"^synMem(?:Copy|set)|^mem(?:cpy|set)Async",
        allocate=r"^syn(?:Device|Host)(?:Malloc|Free|Map|Unmap)|^(?:deviceMalloc|deviceFree|hostMalloc|hostFree)\b",
        compile=r"^compileGraph|^synGraphCompile|^CompileSynapseGraph",
        operators="hpu",
    ),
    profiling_cost={"compile": _COMPILED, "": _EAGER},
    unread={".hltv": "a bundle of the hardware profiler; write JSON or CSV instead: `hl-prof-config --invoc json,csv`"},
    advice=GRAPHS_AND_SERVERS, code=HPU_CODE, notes=GAUDI_NOTES,
)  # fmt: skip
