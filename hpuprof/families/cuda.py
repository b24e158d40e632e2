"""NVIDIA's devices, as Kineto records them through CUPTI."""

import re

from hpuprof.families.advice import BLOCKING, GRAPHS_AND_SERVERS, NO_CACHE, TF32, code
from hpuprof.families.family import Family, Signs, Words
from hpuprof.families.graph_apis import stream_capture

FAMILY = Family(
    name="cuda",
    title="CUDA device",
    order=60,
    cuda_properties=True,
    graphs_known=True,
    graphs=stream_capture("cuda", "CUDAGraph"),
    signs=Signs(categories=re.compile(r"^cuda_"), late_categories=re.compile(r"^(?:kernel|(?:gpu_)?mem(?:cpy|set))$")),
    words=Words(
        launch=r"^cuda(?:Ext)?(?:ModuleLaunch|Launch)(?!HostFunc)|^cuLaunch(?!HostFunc)",
        graph_launch=r"^(?:cuda|cu)GraphLaunch",
        wait=r"^(?:cuda|cu)\w*Synchronize",
        wait_for_all=r"^cudaDeviceSynchronize$|^cuCtxSynchronize$",
        copy=r"^(?:cuda|cu)Mem(?:cpy|set)",
        blocking_copy=r"^cudaMem(?:cpy|set)(?:2D|3D|ToSymbol|FromSymbol|WithStream)?$",
        allocate=r"^cuda(?:Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister)(?!Async)"
        r"|^cuMem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess)",
        free=r"^cuda(?:Host)?Free(?:Host)?$|^cuMemFree(?:Host)?(?:_v2)?$",
        first_free=r"^cudaFree$",
        capture=r"^(?:cuda|cu)Stream(?:Begin|End)Capture",
        first_use=r"^cu(?:da)?(?:Init(?:$|Device)|CtxCreate|DevicePrimaryCtxRetain|Module(?:Load|GetFunction)|"
        r"Library(?:Load|Get)|GetDevice(?:Prop|Count)|StreamCreate|DeviceGetStreamPriorityRange|DeviceEnablePeerAccess)",
        loaded_launch=r"^cuLaunchKernel",
        compile=r"^nvrtcCompile",
        operators="cudnn|cuda",
    ),
    advice=GRAPHS_AND_SERVERS,
    notes=BLOCKING,
    unread={".nsys-rep": "a report of Nsight Systems; record with `torch.profiler` instead"},
    checked=True,  # on a GPU and by pairs of recordings (docs/evidence/gpu.md, plan_traces.md)
    code={**code("cuda"), "allocations": NO_CACHE["cuda"], "tf32": TF32},
)
