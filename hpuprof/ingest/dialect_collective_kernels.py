"""Kernels that communicate by themselves: which libraries call theirs what, and which of them stay on their rank.

Names say it where a trace has neither annotations nor arguments: expert-parallel exchanges, custom all-reduces and
symmetric memory are launched past torch.distributed. Each rule cites the source that gives the kernel its name.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from hpuprof.ingest.dialect_engines import LONGEST, REMEMBERED

_IN_FUNCTION = r"^(?:[^<(]|\(anonymous namespace\))*?"
"""Whatever comes before in the function's own name: template arguments and parameters say nothing about it."""
_DEEPEP = r"\b(?:deep_ep|dpsk::ep)::[\w:]*"
_DEEPEP_SOURCE = "deepseek-ai/DeepEP, csrc/kernels/legacy and deep_ep/include/deep_ep/impls"


def _in_function(words: str) -> re.Pattern[str]:
    return re.compile(f"{_IN_FUNCTION}(?:{words})", re.IGNORECASE)


class CollectiveKernel(Struct, frozen=True):
    """Kernels with `name` in the name of their function do `op` among ranks."""

    id: str
    name: re.Pattern[str]
    op: str  # a name of COLLECTIVES; "": the words of the function's name tell, if anything does
    example: str
    source: str
    local: bool = False
    """They touch no other rank: compute, whatever their names say."""


# The first row that fits a name wins.
COLLECTIVE_KERNELS: tuple[CollectiveKernel, ...] = (
    CollectiveKernel(
        "inductor",
        _in_function(r"\btriton_[a-z]+_fused_"),
        "",
        "triton_red_fused_add_all_reduce_mul_wait_tensor_3",
        "pytorch, torch/_inductor/codegen/triton.py: fused kernels are called after operators around them",
        local=True,
    ),
    CollectiveKernel(
        "deepep-local",
        _in_function(
            _DEEPEP + r"(?:get_dispatch_layout|CUB_|dispatch_copy_epilogue|combine_reduce_epilogue|\w+_mask_buffer)"
        ),
        "",
        "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(int const*, int*, int*, int*, bool*, int, int, int, int)",
        f"{_DEEPEP_SOURCE}: they count, unpack and add up what is on the rank",
        local=True,
    ),
    CollectiveKernel(
        "deepep-barrier",
        _in_function(_DEEPEP + r"(?:notify|barrier|clean_low_latency_buffer)"),
        "barrier",
        "void dpsk::ep::internode::notify_dispatch<false, 4>(int const*, long*, int, int const*)",
        f"{_DEEPEP_SOURCE}: ranks meet and tell each other counts",
    ),
    CollectiveKernel(
        "deepep-low-latency",
        _in_function(_DEEPEP + r"(?:internode_ll::|\w+_ll\b)"),
        "token_exchange",
        "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*, int*, long*, int*, int*, int*)",
        f"{_DEEPEP_SOURCE}: internode_ll.cu runs its send and receive phases in separate launches if asked to",
    ),
    CollectiveKernel(
        "deepep-exchange",
        _in_function(_DEEPEP + "(?:dispatch|combine)"),
        "all_to_all",
        "void dpsk::ep::internode::combine<4, __nv_bfloat16>(int4*, float*, bool const*, int4 const*)",
        _DEEPEP_SOURCE,
    ),
    CollectiveKernel(
        "deepep",
        _in_function(_DEEPEP),
        "",
        "void deep_ep::elastic::pp_send_impl<8>(ncclDevComm, void*, void*, long)",
        _DEEPEP_SOURCE,
    ),
    CollectiveKernel(
        "expert-exchange",
        _in_function(
            r"\bmoeA2A(?:Dispatch|Combine)Kernel|\bmoeAllToAllKernel|\bulysses_a2a_kernel|"
            r"\bEp(?:Dispatch|Combine)(?:Intra|Inter)Node\w*Kernel"
        ),
        "all_to_all",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<BlockPolicy, 8>(DispatchKernelPointers, int)",
        "TensorRT-LLM and flashinfer, moeAlltoAllKernels.cu, trtllm_alltoall.cuh, ulysses_all_to_all.cuh; ROCm/mori, "
        "src/ops/dispatch_combine",
    ),
    CollectiveKernel(
        "custom-all-reduce",
        _in_function(
            r"\bcross_device_reduce_[12]stage|(?:one|two)_?shot_?(?:\w+_)?all_?reduce(?!\w*::)|"
            r"all_?reduce_\w*(?:one|two)shot|\bmultimem_all_reduce_"
        ),
        "all_reduce",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 4>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)",
        "vllm, csrc/custom_all_reduce.cuh and csrc/quickreduce; TensorRT-LLM and flashinfer, include/flashinfer/comm; "
        "pytorch, c10d/symm_mem/CUDASymmetricMemoryOps.cu",
    ),
    CollectiveKernel(
        "symmetric-memory",
        _in_function(
            r"\bmultimem_\w*(?:gather|reduce)|\bsymmetric_memory::\w*(?:barrier|signal)_kernel|\bmixed_comm::\w+_kernel"
        ),
        "",
        "void (anonymous namespace)::multimem_all_gather_kernel<16>(char const*, char*, unsigned long, unsigned int**)",
        "pytorch, c10d/symm_mem/CUDASymmetricMemory.cu and …Ops.cu; flashinfer, comm/mixed_comm.cuh",
    ),
    CollectiveKernel(
        "nvshmem-barrier",
        _in_function(r"\b(?:barrier|sync)_on_stream_kernel"),
        "barrier",
        "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int, int)",
        "NVIDIA/nvshmem, src/device",
    ),
    CollectiveKernel(
        "nvshmem-all-reduce",
        _in_function(r"\brdxn_on_stream_kernel"),
        "all_reduce",
        "void rdxn_on_stream_kernel<float, (rdxn_ops_t)4>(int, float*, float const*, unsigned long)",
        "NVIDIA/nvshmem, src/device",
    ),
    CollectiveKernel(
        "nvshmem-all-gather",
        _in_function(r"\bfcollect_on_stream_kernel"),
        "all_gather",
        "void fcollect_on_stream_kernel<char>(int, char*, char const*, unsigned long)",
        "NVIDIA/nvshmem, src/device",
    ),
    CollectiveKernel(
        "nvshmem",
        _in_function(r"\b(?:alltoall|broadcast|reducescatter)_on_stream_kernel|\b(?:nv|roc)shmem"),
        "",
        "c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, int, int)",
        "NVIDIA/nvshmem, src/device; pytorch, c10d/symm_mem/nvshmem_extension.cu",
    ),
    CollectiveKernel(
        "userbuffers-all-gather",
        _in_function(r"\buserbuffers_fp16_sum_inplace_gpu_[a-z]+_ag"),
        "all_gather",
        "userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int, int, int, int, int, void**)",
        "NVIDIA/TransformerEngine, common/comm_gemm_overlap/userbuffers/userbuffers.cu",
    ),
    CollectiveKernel(
        "userbuffers-reduce-scatter",
        _in_function(r"\buserbuffers_fp16_sum_inplace_gpu_[a-z]+_rs"),
        "reduce_scatter",
        "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int, int, int, int, void**)",
        "NVIDIA/TransformerEngine, common/comm_gemm_overlap/userbuffers/userbuffers.cu",
    ),
    CollectiveKernel(
        "userbuffers-all-reduce",
        _in_function(r"\buserbuffers_fp16_sum_inplace_gpu_"),
        "all_reduce",
        "userbuffers_fp16_sum_inplace_gpu_rw<8>(int, int, int, int, int, void**)",
        "NVIDIA/TransformerEngine, common/comm_gemm_overlap/userbuffers/userbuffers.cu",
    ),
    CollectiveKernel(
        "userbuffers",
        _in_function(r"\bkuserbuffers_"),
        "",
        "kuserbuffers_pushsendrecv(int, int, int, int*, int*, int4*, int4*, int)",
        "NVIDIA/TransformerEngine, common/comm_gemm_overlap/userbuffers/userbuffers.cu",
    ),
    CollectiveKernel(
        "mscclpp",
        _in_function(r"\bmscclpp::|\bmsccl(?:Run)?Kernel"),
        "",
        "void mscclpp::collective::allreducePacket<(mscclpp::ReduceOp)0, __half>(__half*, __half*)",
        "microsoft/mscclpp, src/ext/collectives; RCCL, msccl kernels",
    ),
    CollectiveKernel(
        "ccl",
        _in_function(r"\b(?:nccl|rccl|hccl|oneccl)(?!\.py)"),
        "",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "NCCL and RCCL, src/device; HCCL; oneCCL",
    ),
)


_WORDS = (
    *("nccl", "rccl", "hccl", "oneccl", "msccl", "shmem", "_on_stream_kernel", "userbuffers", "deep_ep", "dpsk::ep"),
    *("moea", "_a2a_", "epdispatch", "epcombine", "cross_device_reduce", "allreduce", "all_reduce", "multimem_"),
    *("symmetric_memory", "mixed_comm", "triton_"),
)
"""No rule fits a name without one of them: files hold 100,000 names, most of them of Python frames."""


def kernel_rule(name: str) -> CollectiveKernel | None:
    """Return the first rule that fits a kernel's name, or None."""
    return _kernel_rule(name[:LONGEST])


@lru_cache(REMEMBERED)
def _kernel_rule(name: str) -> CollectiveKernel | None:
    lower = name.lower()
    if not any(word in lower for word in _WORDS):
        return None
    return next((kernel for kernel in COLLECTIVE_KERNELS if kernel.name.search(name)), None)


def function(name: str) -> str:
    """Return the function in a kernel's name: `void ns::f<int>(int*)` is `f`."""
    path = re.split("[<(]", name.replace("(anonymous namespace)", ""), maxsplit=1)[0]
    return path.removeprefix("void ").rsplit("::", 1)[-1]
