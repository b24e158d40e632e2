"""Kernels as traces name them: which communicate, and what they do among ranks."""

from __future__ import annotations

import pytest

from hpuprof.ingest.dialect_collective_kernels import COLLECTIVE_KERNELS, kernel_rule
from hpuprof.ingest.dialect_collectives import BY_NAME, collective_op
from hpuprof.ingest.dialect_rows import device_rule
from hpuprof.model.schema import DeviceKind

COMPUTE = "compute"

# The rule that takes it ("": none), the kernel -> its operation among ranks, None where its name does not tell.
CASES = [
    # NCCL, RCCL, and libraries with their interface
    ("ccl", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
    ("ccl", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
    ("ccl", "ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16(ncclDevComm*, unsigned long, ncclWork*)", "reduce_scatter"),
    ("ccl", "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)", "all_gather"),
    ("ccl", "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", None),
    ("ccl", "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", None),
    ("ccl", "ncclKernelAllGatherCtranStreamedRd(int*, CtranAlgoDeviceState*)", "all_gather"),
    ("ccl", "rcclGenericKernel", None),
    ("ccl", "hcclAllReduce", "all_reduce"),
    ("mscclpp", "mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork)", None),
    ("mscclpp", "void mscclpp::collective::allreducePacket<(mscclpp::ReduceOp)0, __half>(__half*)", "all_reduce"),
    ("mscclpp", "void mscclpp::collective::allgatherFullmesh2<true>(void*, unsigned long)", "all_gather"),
    # DeepEP, as DeepSeek publishes its profiles, as released, and its second version
    ("deepep-barrier", "void dpsk::ep::internode::notify_dispatch<false, 4>(int const*, long*, int)", "barrier"),
    ("deepep-barrier", "void dpsk::ep::internode::cached_notify<false>(int, int, int, int)", "barrier"),
    ("deepep-barrier", "void deep_ep::legacy::intranode::barrier<8>(int**, int)", "barrier"),
    ("deepep-barrier", "void deep_ep::legacy::internode_ll::clean_low_latency_buffer<128>(int*, int)", "barrier"),
    ("deepep-exchange", "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)", "all_to_all"),
    ("deepep-exchange", "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)", "all_to_all"),
    ("deepep-exchange", "void deep_ep::elastic::hybrid_dispatch_impl<8>(void*, float*)", "all_to_all"),
    ("deepep-low-latency", "void dpsk::ep::internode::combine_ll<3, 10, 7168>(void*, void*)", "token_exchange"),
    ("deepep-low-latency", "void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>(void *)", "token_exchange"),
    ("deepep", "void deep_ep::elastic::pp_recv_impl<8>(ncclDevComm, void*)", "recv"),
    ("deepep", "void deep_ep::elastic::engram_fetch_impl<8>(ncclDevComm, void*)", None),
    ("deepep-local", "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(int const*, int*)", COMPUTE),
    ("deepep-local", "void dpsk::ep::CUB_200300::DeviceScanKernel<int>(int*)", COMPUTE),
    ("deepep-local", "void deep_ep::elastic::combine_reduce_epilogue_impl<8>(__nv_bfloat16*)", COMPUTE),
    ("", "void cdpsk::ep::CUB_200300::DeviceScanKernel<int>(int*)", COMPUTE),
    # other exchanges between experts
    ("expert-exchange", "void mori::moe::EpCombineIntraNodeKernel<hip_bfloat16>(EpDispatchCombineArgs)", "all_to_all"),
    ("expert-exchange", "void flashinfer::trtllm_alltoall::moeAllToAllKernel<true>(MoeEpWorldInfo)", "all_to_all"),
    ("", "moeA2APrepareDispatchKernel(int*, int)", COMPUTE),
    ("", "flashinfer::trtllm_alltoall::moeLocalGatherDevice<8>(MoeEpWorldInfo)", COMPUTE),
    # all-reduces of inference engines
    ("custom-all-reduce", "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "all_reduce"),
    ("custom-all-reduce", "void quickreduce::allreduce_prototype_twoshot<A, __half>(__half const*)", "all_reduce"),
    ("custom-all-reduce", "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 8>(AllReduceParams)", "all_reduce"),
    ("custom-all-reduce", "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8>(P)", "all_reduce"),
    (
        "custom-all-reduce",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(P)1, __half, 8>(Q)",
        "all_reduce",
    ),
    ("", "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<__half, 8>(P)", COMPUTE),
    ("", "void flashinfer::trtllm_allreduce::reduce_fusion::lamport_initialize_kernel<__half>(__half*)", COMPUTE),
    # symmetric memory
    ("custom-all-reduce", "void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*)", "all_reduce"),
    ("custom-all-reduce", "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8>(float**)", "all_reduce"),
    ("custom-all-reduce", "one_shot_all_reduce_kernel", "all_reduce"),
    ("symmetric-memory", "void (anonymous namespace)::multimem_all_gather_kernel<16>(char const*)", "all_gather"),
    ("symmetric-memory", "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int)", "barrier"),
    ("symmetric-memory", "c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int)", None),
    ("symmetric-memory", "void flashinfer::mixed_comm::reducescatter_kernel<8>(P)", "reduce_scatter"),
    # NVSHMEM
    ("nvshmem-barrier", "void sync_on_stream_kernel_threadgroup<(threadgroup_t)2>(int, int)", "barrier"),
    ("nvshmem-all-reduce", "void rdxn_on_stream_kernel<float, (rdxn_ops_t)4>(int, float*)", "all_reduce"),
    ("nvshmem-all-gather", "void fcollect_on_stream_kernel<char>(int, char*)", "all_gather"),
    ("nvshmem", "void alltoall_on_stream_kernel<char>(int, char*)", "all_to_all"),
    ("nvshmem", "c10d::nvshmem_extension::allToAllV(void*, void*, long*)", "all_to_all"),
    ("nvshmem", "nvshmemi_signal_op_kernel(unsigned long*, unsigned long, int, int)", None),
    # Transformer Engine's userbuffers
    ("userbuffers-all-gather", "userbuffers_fp16_sum_inplace_gpu_rw_ag<8>(int)", "all_gather"),
    ("userbuffers-reduce-scatter", "userbuffers_fp16_sum_inplace_gpu_mc_rs_oop<8>(int)", "reduce_scatter"),
    ("userbuffers-all-reduce", "userbuffers_fp16_sum_inplace_gpu_rr<8>(int)", "all_reduce"),
    ("userbuffers", "kuserbuffers_pullsend(int, int, int, int*, int*)", "send"),
    # compute: reductions on one rank, and names that mention collectives
    ("inductor", "triton_red_fused_add_one_shot_all_reduce_mul_3", COMPUTE),
    ("inductor", "triton_poi_fused__to_copy_all_gather_into_tensor_nccl_0", COMPUTE),
    ("", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp)", COMPUTE),
    ("", "void at::native::vectorized_elementwise_kernel<4, ncclx::Scale, 3>(int, ncclx::Scale)", COMPUTE),
    ("", "void at::native::(anonymous namespace)::direct_copy_kernel_cuda<float>(deep_ep::Config)", COMPUTE),
    ("", "void cub::DeviceReduceKernel<float>(float*)", COMPUTE),
    ("", "blockAllReduceSum<float>(float*)", COMPUTE),
    ("", "reduce_bf16_cuda(void*, void*, int, int)", COMPUTE),
    ("", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", COMPUTE),
    ("", "void vllm::moe::topkGatingSoftmax<8, 128>(float const*)", COMPUTE),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "name", "op"), CASES, ids=[name for _, name, _ in CASES])
def test_what_a_kernel_does_among_ranks(rule: str, name: str, op: str | None):
    taken = device_rule(engine="", category="kernel", name=name)
    assert taken.id == (f"kernel-{rule}" if rule else "compute")
    assert kernel_rule(name) is next((k for k in COLLECTIVE_KERNELS if k.id == rule), None)
    assert taken.kind == (DeviceKind.COMPUTE if op == COMPUTE else DeviceKind.COMMUNICATION)
    if op != COMPUTE:
        assert collective_op(name) == op


def test_every_rule_has_a_case_an_example_and_a_known_operation():
    assert {k.id for k in COLLECTIVE_KERNELS} == {rule for rule, _, _ in CASES} - {""}
    for kernel in COLLECTIVE_KERNELS:
        assert device_rule(engine="", category="kernel", name=kernel.example).id == f"kernel-{kernel.id}"
        assert kernel_rule(kernel.example) is kernel
        assert not kernel.op or kernel.op in BY_NAME
