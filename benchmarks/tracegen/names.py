"""Kernel names of realistic length and variety. Names only; durations are the model's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

_FUNCTORS = ("CUDAFunctor_add", "BinaryFunctor", "CUDAFunctorOnSelf_add", "GeluCUDAKernelImpl", "FillFunctor")
_NATIVE, _ANONYMOUS = "at::native::", "at::native::(anonymous namespace)::"
_TYPES = ("c10::BFloat16", "float", "c10::Half", "double")


def _gemm(i: int) -> str:
    tile = ("128x128x64", "128x256x64", "64x256x64", "256x128x64", "64x128x64", "128x64x64")[i % 6]
    order = ("tn", "nn", "nt")[i // 6 % 3]
    return f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{order}_n_tilesize{tile}_warpgroupsize{1 + i % 2}x1x1_bias_bf16_execute_segment_k_off_kernel__5x_cublas_{i}"


def _elementwise(i: int) -> str:
    kind = f"at::native::{_FUNCTORS[i % 5]}<{_TYPES[i // 5 % 4]}>"
    lanes = f"std::array<char*, {2 + i % 3}ul>"
    head = f"void {_NATIVE}vectorized_elementwise_kernel<{4 << i % 2}, {kind}, {lanes} >"
    return f"{head}(int, {kind}, {lanes})"


def _reduce(i: int) -> str:
    kind = _TYPES[i % 4]
    sum_functor = f"{_NATIVE}func_wrapper_t<{kind}, {_NATIVE}sum_functor>"
    body = f"{_NATIVE}ReduceOp<{kind}, {sum_functor}, unsigned int, {kind}, 4>"
    return f"void {_NATIVE}reduce_kernel<{128 << i % 3}, {1 + i % 4}, {body} >({body})"


def _norm(i: int) -> str:
    return f"void {_ANONYMOUS}vectorized_layer_norm_kernel<{_TYPES[i % 4]}, float, {i}>(int, float)"


def _flash(i: int) -> str:
    traits = f"Flash_fwd_kernel_traits<{64 + 32 * (i % 3)}, 128, 128, 4, false, false, cutlass::bfloat16_t, {i}>"
    return f"void pytorch_flash::flash_fwd_kernel<{traits}, false, true>(pytorch_flash::Flash_params)"


def _copy(i: int) -> str:
    element = f"{_NATIVE}OpaqueType<{2 << i % 3}u>"
    traits = f"{element}, unsigned int, {1 + i % 4}, 128, {i}"
    return f"void {_ANONYMOUS}CatArrayBatchedCopy_aligned16_contig<{traits}>({element}*, unsigned int)"


def _softmax(i: int) -> str:
    return f"void {_ANONYMOUS}cunn_SoftMaxForward<{8 << i % 2}, c10::BFloat16, float, {i}>(float*, int)"


def _adam(i: int) -> str:
    metadata = f"{_NATIVE}FusedOptimizerTensorListMetadata<4>"
    functor = f"{_NATIVE}FusedAdamMathFunctor<float, 4, {i}>"
    return f"void {_ANONYMOUS}multi_tensor_apply_kernel<{metadata}, {functor}, float*, double>(float)"


def _norm_reduce(i: int) -> str:
    functor = f"{_NATIVE}LpNormFunctor<{i}>"
    return f"void {_NATIVE}multi_tensor_apply_kernel<{_NATIVE}TensorListMetadata<1>, {functor} >(int)"


_MAKERS: dict[str, tuple[int, Callable[[int], str]]] = {
    "gemm": (72, _gemm),
    "elementwise": (80, _elementwise),
    "reduce": (32, _reduce),
    "norm": (24, _norm),
    "flash": (18, _flash),
    "copy": (24, _copy),
    "softmax": (8, _softmax),
    "adam": (12, _adam),
    "norm_reduce": (6, _norm_reduce),
}
_FIXED = {
    "nccl": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "memset": "Memset (Device)",
    "h2d": "Memcpy HtoD (Pinned -> Device)",
    "d2h": "Memcpy DtoH (Device -> Pageable)",
}


@cache
def _pool(kind: str) -> tuple[str, ...]:
    size, make = _MAKERS[kind]
    return tuple(make(i) for i in range(size))


def kernel_name(kind: str, pick: int) -> str:
    """Return the name that number `pick` draws from the kind's pool."""
    if kind in _FIXED:
        return _FIXED[kind]
    pool = _pool(kind)
    return pool[pick % len(pool)]


_TPC_TYPES = {
    "elementwise": "fused_kernel_0x{:08X}_C_bf16",
    "reduce": "reduce_sum_stage{}_fwd_bf16",
    "norm": "layer_norm_stage{}_fwd_bf16",
    "copy": "concat_fwd_{}_bf16",
    "softmax": "log_softmax_stage{}_fwd_bf16",
    "adam": "optimizer_adamw_{}_bf16",
    "norm_reduce": "optimizer_lamb_norm_{}_f32",
}


def engine_name(kind: str, pick: int) -> str:
    """Return the operation type that an HPU engine row of this kind carries."""
    if kind in ("gemm", "flash"):
        return ("BatchGemm", "GEMM", "Convolution")[pick % 3]
    scattered = pick * 2_654_435_761 % (1 << 32)
    return _TPC_TYPES[kind].format(scattered if kind == "elementwise" else pick % 40)
