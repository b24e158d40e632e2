"""What a kernel computes and in which type, by its name.

Names of libraries: cuBLAS, cuDNN, CUTLASS, Tensile, ATen, Triton, FlashAttention; HPU's by engine. What no name
shows is unknown.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hpuprof.model.kernel_names import readable

MATRIX, CONVOLUTION, ATTENTION = "matrix product", "convolution", "attention"
POINTWISE, FUSED = "pointwise", "fused pointwise"
_KINDS = (
    (ATTENTION, r"flash|fmha|attention|sdpa|mha_"),
    (CONVOLUTION, r"conv|scudnn|hcudnn|wgrad|dgrad|fprop|winograd|im2col|bn_fusion"),
    (MATRIX, r"gemm|gemv|cublas|Cijk_|_matmul|splitKreduce|splitK|nvjet|cutlass|\bmme\b|batch_gemm"),
    (FUSED, r"^triton_|^fused_"),
    ("optimizer", r"multi_tensor_apply|fused_?adam|adamw?_kernel|sgd_kernel"),
    ("normalization", r"norm|bn_fw|bn_bw"),
    ("softmax", r"softmax"),
    ("reduction", r"reduce|sum_kernel|mean_kernel|DeviceScan"),
    ("pooling", r"pool"),
    ("lookup", r"embedding|index|gather|scatter|CatArray"),
    (POINTWISE, r"elementwise|pointwise|_add_|_mul_|relu|gelu|fill"),
)
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)
_TYPES = (
    ("fp8", re.compile(r"e4m3|e5m2|fp8|_f8|hf8", re.IGNORECASE)),
    ("16 bits", re.compile(r"half|bf16|bfloat|fp16|hgemm|hcudnn|h884|h1688|16816|_HB|_BB|_HHS|_BBS", re.IGNORECASE)),
    ("tf32", re.compile(r"tf32|s1688|xmma_gemm_f32f32_f32f32")),
    ("fp32", re.compile(r"sgemm|scudnn|_SB_|<float|f32|fp32|float32", re.IGNORECASE)),
)
_MATRIX_ENGINE = "MME"


@lru_cache(maxsize=4096)
def kind_of_kernel(name: str, engine: str = "") -> str:
    """Return what a kernel computes, in words; empty where its name does not tell."""
    if engine == _MATRIX_ENGINE:
        return MATRIX
    short = readable(name)
    return next((kind for kind, pattern in _PATTERNS if pattern.search(short)), "")


@lru_cache(maxsize=4096)
def type_of_kernel(name: str, dtype: str | None = None) -> str:
    """Return the type in which a kernel multiplies: fp8, 16 bits, tf32 or fp32; empty where nothing shows."""
    given = dtype or name
    return next((kind for kind, pattern in _TYPES if pattern.search(given)), "")
