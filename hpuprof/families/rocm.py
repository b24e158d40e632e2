"""AMD's devices: torch calls them cuda, their runtime is HIP."""

import re

from hpuprof.families.advice import GRAPHS_AND_SERVERS, NO_CACHE, code
from hpuprof.families.family import Family, Signs, Words
from hpuprof.families.graph_apis import stream_capture

FAMILY = Family(
    name="rocm",
    title="ROCm device",
    order=40,
    graphs_known=True,
    graphs=stream_capture("cuda", "CUDAGraph"),
    signs=Signs(calls=re.compile(r"^hip")),
    words=Words(
        launch=r"^hip(?:Ext)?(?:ModuleLaunch|Launch)(?!HostFunc)",
        graph_launch=r"^hipGraphLaunch",
        wait=r"^hip\w*Synchronize",
        wait_for_all=r"^hipDeviceSynchronize$",
        copy=r"^hipMem(?:cpy|set)",
        blocking_copy=r"^hipMem(?:cpy|set)(?:2D|3D|ToSymbol|FromSymbol|WithStream)?$",
        allocate=r"^hip(?:Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister)(?!Async)",
        free=r"^hip(?:Host)?Free(?:Host)?$",
        first_free=r"^hipFree$",
        capture=r"^hipStream(?:Begin|End)Capture",
        first_use=r"^hip(?:Init$|CtxCreate|DevicePrimaryCtxRetain|Module(?:Load|GetFunction)|Library(?:Load|Get)|"
        r"InitDevice|GetDevice(?:Properties|Count)|StreamCreate|DeviceGetStreamPriorityRange|DeviceEnablePeerAccess)",
        loaded_launch=r"^hip(?:Ext)?ModuleLaunchKernel",
        operators="miopen|hip",
    ),
    # Tensile's kernels, which rocBLAS and hipBLASLt load by the chip: `Cijk_Ailk_Bljk_BBS_..._ISA942_...`.
    chips={f"gfx{chip}": re.compile(rf"^Cijk_\w+_ISA{chip}_") for chip in ("908", "90a", "942", "950")},
    advice=GRAPHS_AND_SERVERS,
    code={**code("cuda"), "allocations": NO_CACHE["rocm"]},
)
